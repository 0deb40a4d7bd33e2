"""Watching a run's status prefix: two small LISTs a poll.

Source: semantics 12.6.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import takewhile

from sweep.control.records import Failure, parse_failure
from sweep.errors import StoreUnavailableError
from sweep.model.invocation import finisher_name
from sweep.store.base import ObjectInfo, ObjectStore

__all__ = ["FAULTS_IN_A_ROW", "Poller"]

log = logging.getLogger(__name__)

FAULTS_IN_A_ROW = 5

type _Mark = tuple[str | None, object, int]


class Poller:
    """Sees records and failures that are newer than the drive.

    Parameters
    ----------
    status : ObjectStore
        Opened at the run's status prefix.
    """

    def __init__(self, status: ObjectStore) -> None:
        self._status = status
        self._stale: dict[str, _Mark] = {}
        self._read: set[str] = set()
        self.faults = 0

    def snapshot(self) -> list[str]:
        """Take what stands as stale: a record counts again only when it was rewritten.

        Returns
        -------
        list of str
            The names of the stage records that stand.
        """
        infos = list(self._status.list(""))
        self._stale = {info.key: _mark(info) for info in infos}
        return [info.key for info in infos if info.key.startswith("stage-")]

    def records(self, after: str) -> list[str]:
        """Names of fresh stage records behind ``after`` in key order.

        Raises
        ------
        StoreUnavailableError
            The prefix could not be listed; ``faults`` counts how often in a row.
        """
        start = max(after, "stage-")
        return [info.key for info in self._listed("stage-", start) if self._is_fresh(info)]

    def failures(self) -> list[Failure]:
        """Failure records that were not read before. Raises as :meth:`records`."""
        fresh = [
            info.key
            for info in self._listed("error-", "error-")
            if info.key not in self._read and self._is_fresh(info)
        ]
        found = []
        for name in fresh:
            raw = self._guarded(name)
            self._read.add(name)
            failure = parse_failure(raw) if raw is not None else None
            if failure is not None:
                found.append(failure)
        return found

    def finisher(self) -> bool:
        """Whether a fresh ``finisher.json`` stands. Raises as :meth:`records`."""
        name = finisher_name()
        return any(info.key == name and self._is_fresh(info) for info in self._listed(name, "finisher."))

    def _guarded(self, name: str) -> bytes | None:
        try:
            return self._status.get(name)
        except StoreUnavailableError:
            self.faults += 1
            raise

    def _listed(self, head: str, start_after: str) -> list[ObjectInfo]:
        try:
            found = list(takewhile(lambda info: info.key.startswith(head), self._from(start_after)))
        except StoreUnavailableError as error:
            self.faults += 1
            log.warning(
                "status prefix not listed",
                extra={"event": "list-failed", "in_a_row": self.faults, "why": error.message},
            )
            raise
        self.faults = 0
        return found

    def _from(self, start_after: str) -> Iterator[ObjectInfo]:
        return self._status.list("", start_after=start_after)

    def _is_fresh(self, info: ObjectInfo) -> bool:
        return self._stale.get(info.key) != _mark(info)


def _mark(info: ObjectInfo) -> _Mark:
    return info.etag, info.modified, info.size
