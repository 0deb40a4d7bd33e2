"""Removing a lease without ever removing another run's.

Where the store deletes under a condition, the condition is the version that was read.
Where it does not, a tombstone is written over that version by compare-and-swap: from then
on the lease is nobody's, a run of this package waits before it claims it, and within a
short time a plain delete can only meet the tombstone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sweep.control.lease_object import LEASE_KEY, Holder, Tombstone, encode, parse, tombstone_fields
from sweep.errors import DeclarationError, StoreUnavailableError
from sweep.model.clock import Clock
from sweep.store.base import DELETED, ObjectStore, Refused, Versioned, Written

__all__ = ["DELETE_WINDOW_S", "remove"]

# A plain delete is sent only so soon after its tombstone; claimants wait much longer.
DELETE_WINDOW_S = 5.0
_ATTEMPTS = 8
_PAUSE_S = 0.2

_log = logging.getLogger(__name__)


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
    conditional = store.capabilities.conditional_delete
    sent: set[str] = set()
    given_up = False
    for _ in range(_ATTEMPTS):
        seen = store.get_versioned(LEASE_KEY)
        if seen is None:
            return given_up
        state = parse(seen.data)
        own_tombstone = isinstance(state, Tombstone) and state.write_id in sent
        if isinstance(state, Holder) and state.run_id != run_id:
            _log.warning(
                "the lease is another run's and was left",
                extra={"event": "lease-foreign", "run_id": run_id, "holder": state.run_id},
            )
            return given_up
        if not isinstance(state, Holder) and not own_tombstone:
            return given_up
        given_up |= own_tombstone
        if conditional:
            try:
                outcome = _delete_version(store, seen)
            except DeclarationError:
                conditional = False
                continue
            if outcome is DELETED:
                return True
            # An answer that was lost may stand for a delete that took place.
            given_up |= outcome is None
        elif _bury_and_delete(store, seen, run_id, clock, new_id, sent):
            return True
        clock.sleep(_PAUSE_S)
    if given_up:
        # Only a tombstone is left, which the next run claims.
        return True
    raise StoreUnavailableError(
        f"the lease of run {run_id!r} on {store.root} changed, or its answer was lost, at each of "
        f"{_ATTEMPTS} tries to release it; it expires by itself",
        kind="lease-contended",
        run_id=run_id,
    )


def _delete_version(store: ObjectStore, seen: Versioned) -> object:
    try:
        return store.delete_if_match(LEASE_KEY, seen.etag)
    except StoreUnavailableError as error:
        if error.kind != "answer-lost":
            raise
        return None


def _bury_and_delete(
    store: ObjectStore,
    seen: Versioned,
    run_id: str,
    clock: Clock,
    new_id: Callable[[], str],
    sent: set[str],
) -> bool:
    """Write a tombstone over ``seen`` and delete that; False to look again."""
    write_id = new_id()
    sent.add(write_id)
    buried_s = clock.monotonic()
    data = encode(tombstone_fields(run_id=run_id, now=clock.now(), write_id=write_id))
    try:
        outcome: Written | Refused = store.put_if_match(LEASE_KEY, data, seen.etag)
        if not isinstance(outcome, Written):
            return False
        # A sweep with plain writes claims a tombstone at once: look before the delete.
        present = store.get_versioned(LEASE_KEY)
        if present is None or present.etag != outcome.etag:
            return True
        if clock.monotonic() - buried_s > DELETE_WINDOW_S:
            return False
        store.delete(LEASE_KEY)
    except StoreUnavailableError:
        # Whatever was done shows when the object is read again.
        return False
    return True
