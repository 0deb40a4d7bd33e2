"""Watching a run's status prefix: two small LISTs a poll.

Source: semantics 12.6.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
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

    Attributes
    ----------
    faults : int
        Polls in a row that the store did not answer to their end.
    """

    def __init__(self, status: ObjectStore) -> None:
        self._status = status
        self._stale: dict[str, _Mark] = {}
        self._read: set[str] = set()
        self.faults = 0

    def snapshot(self) -> list[ObjectInfo]:
        """Take what stands as stale: a record counts again only when it was rewritten.

        Returns
        -------
        list of ObjectInfo
            The stage records that stand.
        """
        infos = list(self._status.list(""))
        self._stale = {info.key: _mark(info) for info in infos}
        return [info for info in infos if info.key.startswith("stage-")]

    @property
    def has_stale_records(self) -> bool:
        """Whether stage records stood before this drive."""
        return any(name.startswith("stage-") for name in self._stale)

    def is_stale(self, name: str) -> bool:
        """Whether an object of this name stood before this drive."""
        return name in self._stale

    def records(self, first_missing: str | None) -> list[str]:
        """Names of fresh stage records from ``first_missing`` on, in key order.

        Raises
        ------
        StoreUnavailableError
            The prefix could not be listed; ``faults`` counts how often in a row.
        """
        # Keys after a name cut by its last letter begin with that very name.
        start = "stage-" if first_missing is None else first_missing[:-1]
        return [info.key for info in self._listed("stage-", start) if self._is_fresh(info)]

    def failures(self) -> list[Failure]:
        """Failure records that were not read before; the last call of a poll.

        Raises
        ------
        StoreUnavailableError
            As :meth:`records`; what was not read is read at the next poll.
        """
        found = []
        for info in self._listed("error-", "error-"):
            if info.key in self._read or not self._is_fresh(info):
                continue
            raw = self._get(info.key)
            self._read.add(info.key)
            failure = parse_failure(raw) if raw is not None else None
            if failure is not None:
                found.append(failure)
        self.faults = 0
        return found

    def finisher(self) -> bool:
        """Whether a fresh ``finisher.json`` stands. Raises as :meth:`records`."""
        name = finisher_name()
        return any(info.key == name and self._is_fresh(info) for info in self._listed(name, name[:-1]))

    def _get(self, name: str) -> bytes | None:
        with self._counted():
            return self._status.get(name)

    def _listed(self, head: str, start_after: str) -> list[ObjectInfo]:
        with self._counted():
            infos = self._status.list("", start_after=start_after)
            return list(takewhile(lambda info: info.key.startswith(head), infos))

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except StoreUnavailableError as error:
            self.faults += 1
            log.warning(
                "status prefix not read",
                extra={"event": "poll-failed", "in_a_row": self.faults, "why": error.message},
            )
            raise

    def _is_fresh(self, info: ObjectInfo) -> bool:
        return self._stale.get(info.key) != _mark(info)


def _mark(info: ObjectInfo) -> _Mark:
    return info.etag, info.modified, info.size
