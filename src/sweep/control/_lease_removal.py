"""Removing a lease without ever removing another run's.

Where the store deletes under a condition, the condition is the version that was read.
Where it does not, a tombstone is written over that version by compare-and-swap: from then
on the lease is nobody's, a run of this package waits before it claims it, and within a
short time a plain delete can only meet the tombstone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from sweep.control.lease_object import LEASE_KEY, Holder, Tombstone, encode, parse, tombstone_fields
from sweep.errors import DeclarationError, StoreUnavailableError
from sweep.model.clock import Clock
from sweep.store.base import DELETED, ObjectStore, Versioned, Written

__all__ = ["DELETE_WINDOW_S", "remove"]

# A plain delete is sent only so soon after its tombstone; claimants wait much longer.
DELETE_WINDOW_S = 5.0
_ATTEMPTS = 8
_PAUSE_S = 0.2

log = logging.getLogger(__name__)


def remove(store: ObjectStore, run_id: str, *, clock: Clock, new_id: Callable[[], str]) -> bool:
    """Remove the lease of ``run_id``.

    Returns
    -------
    bool
        True where it was there and is given up. False where there is none or it is
        another run's, which is left.

    Raises
    ------
    AccessError, StoreUnavailableError
    """
    return _Removal(store, run_id, clock, new_id).run()


@dataclass(slots=True)
class _Removal:
    """One removal, over several tries.

    Attributes
    ----------
    given_up : bool
        Something was sent that may have removed the lease, or a tombstone stands for it.
    buried : bool
        A tombstone was certainly written.
    """

    store: ObjectStore
    run_id: str
    clock: Clock
    new_id: Callable[[], str]
    sent: set[str] = field(default_factory=set)
    given_up: bool = False
    buried: bool = False

    def run(self) -> bool:
        conditional = self.store.capabilities.conditional_delete
        for _ in range(_ATTEMPTS):
            seen = self.store.get_versioned(LEASE_KEY)
            if seen is None or not self._is_own(seen):
                return self.given_up
            if conditional:
                try:
                    done = self._delete_version(seen)
                except DeclarationError:
                    conditional = False
                    continue
            else:
                done = self._bury_and_delete(seen)
            if done:
                return True
            self.clock.sleep(_PAUSE_S)
        if self.buried:
            # Only a tombstone is left, which the next run claims.
            return True
        raise StoreUnavailableError(
            f"the lease of run {self.run_id!r} on {self.store.root} changed, or its answer was lost, at each "
            f"of {_ATTEMPTS} tries to release it; it expires by itself",
            kind="lease-contended",
            run_id=self.run_id,
        )

    def _is_own(self, seen: Versioned) -> bool:
        state = parse(seen.data)
        if isinstance(state, Tombstone) and state.write_id in self.sent:
            self.given_up = self.buried = True
            return True
        if isinstance(state, Holder) and state.run_id != self.run_id:
            log.warning(
                "the lease is another run's and was left",
                extra={"event": "lease-foreign", "run_id": self.run_id, "holder": state.run_id},
            )
        return isinstance(state, Holder) and state.run_id == self.run_id

    def _delete_version(self, seen: Versioned) -> bool:
        try:
            return self.store.delete_if_match(LEASE_KEY, seen.etag) is DELETED
        except StoreUnavailableError as error:
            if error.kind != "answer-lost":
                raise
            # It may have taken place, and then there is nothing to see.
            self.given_up = True
            return False

    def _bury_and_delete(self, seen: Versioned) -> bool:
        """Write a tombstone over ``seen`` and delete that; False to look again."""
        write_id = self.new_id()
        self.sent.add(write_id)
        buried_s = self.clock.monotonic()
        fields = tombstone_fields(run_id=self.run_id, now=self.clock.now(), write_id=write_id)
        try:
            outcome = self.store.put_if_match(LEASE_KEY, encode(fields), seen.etag)
            if not isinstance(outcome, Written):
                return False
            self.given_up = self.buried = True
            # A sweep with plain writes claims a tombstone at once: look before the delete.
            present = self.store.get_versioned(LEASE_KEY)
        except StoreUnavailableError:
            # Whatever was done shows when the object is read again.
            return False
        if present is None or present.etag != outcome.etag:
            return True
        if self.clock.monotonic() - buried_s > DELETE_WINDOW_S:
            return False
        try:
            self.store.delete(LEASE_KEY)
        except StoreUnavailableError:
            # It may still be under way. A second delete would let the next run in while the
            # first can yet arrive; the tombstone makes it wait.
            log.warning(
                "the delete of the lease was not confirmed; a tombstone may stay",
                extra={"event": "lease-tombstone", "run_id": self.run_id},
            )
        return True
