"""How a run gets into a store, and the conditional writes of its lease object."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.control.lease_object import (
    LEASE_KEY,
    Create,
    Holder,
    Readmit,
    Refuse,
    TakeOver,
    Tombstone,
    decide,
    encode,
    fresh_fields,
    load,
    parse,
    renewed_fields,
)
from sweep.errors import LeaseHeldError, StoreUnavailableError
from sweep.model.clock import Clock
from sweep.store.base import ObjectStore, Versioned, Written

# Times in the object are whole seconds, so a lease can look a second older than it is.
MIN_TTL_S = 3
# A week: a dead run would hold the store for longer than anybody waits.
MAX_TTL_S = 604_800
_MIN_MARGIN_S = 1.5
_MARGIN = 0.1
ATTEMPTS = 12
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 2.0
_POLL_S = 2.0
# Longer than a store client goes on sending one delete, with room for clocks that differ.
CLAIM_GRACE_S = 300.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The version of the lease known to be this run's, and the moment from which it counts."""

    fields: Mapping[str, Any]
    etag: str
    base_s: float


@dataclass(slots=True)
class LeaseWriter:
    """Conditional writes of the lease object, and the write ids whose answer was not seen."""

    store: ObjectStore
    clock: Clock
    new_id: Callable[[], str]
    sent: dict[str, float] = field(default_factory=dict)

    def write(self, make: Callable[[str], dict[str, Any]], etag: str | None) -> Confirmed | None:
        """Create the object (``etag`` None) or replace that version; None where it may not have happened."""
        write_id = self.new_id()
        base_s = self.clock.monotonic()
        fields = make(write_id)
        self.sent[write_id] = base_s
        try:
            if etag is None:
                outcome = self.store.put_if_absent(LEASE_KEY, encode(fields))
            else:
                outcome = self.store.put_if_match(LEASE_KEY, encode(fields), etag)
        except StoreUnavailableError as error:
            if error.kind != "answer-lost":
                raise
            return None
        return Confirmed(fields, outcome.etag, base_s) if isinstance(outcome, Written) else None

    def own(self, seen: Versioned, holder: Holder) -> Confirmed | None:
        """The confirmation that ``seen`` is a write of ours whose answer was lost."""
        base_s = self.sent.get(holder.write_id or "")
        return None if base_s is None else Confirmed(load(seen.data) or {}, seen.etag, base_s)

    def fresh(self, seen: Versioned, holder: Holder, base_s: float) -> Confirmed | None:
        """The confirmation by another worker's heartbeat, where it is younger than a third of the ttl.

        Its age counts against the deadline; a heartbeat from a clock ahead of ours by more
        than the margin is not believed.
        """
        age_s = holder.heartbeat_age_s(self.clock.now())
        if age_s is None or not -margin_s(holder.ttl_s) < age_s < holder.ttl_s / 3:
            return None
        return Confirmed(load(seen.data) or {}, seen.etag, base_s - max(age_s, 0.0))


@dataclass(frozen=True, slots=True)
class Admitted:
    """How a run was let in."""

    confirmed: Confirmed
    holder: Holder
    readmitted: bool


@dataclass(slots=True, kw_only=True)
class Admission:
    """One run's way into a store: :meth:`run` returns when it is admitted."""

    writer: LeaseWriter
    run_id: str
    ttl_s: float
    scope: Sequence[str] | None
    # Write ids of leases that this admission made, as against renewals of one that it found.
    made: set[str] = field(default_factory=set)
    waited_for: tuple[str, float] | None = None

    def run(self) -> Admitted:
        for pause_s in pauses():
            admitted = self._try()
            if admitted is not None:
                return admitted
            self.writer.clock.sleep(pause_s)
        raise contended_error(self.writer.store, self.run_id)

    def _try(self) -> Admitted | None:
        clock, store = self.writer.clock, self.writer.store
        while True:
            base_s = clock.monotonic()
            seen = store.get_versioned(LEASE_KEY)
            decision = decide(seen.data if seen else None, self.run_id, clock.now())
            if not isinstance(decision, Tombstone) or seen is None:
                break
            if self._is_abandoned(decision, seen.etag, base_s):
                decision = TakeOver(None)
                break
            clock.sleep(_POLL_S)
        match decision:
            case Refuse(holder):
                raise held_error(store, holder, self.run_id)
            case Create():
                return self._make(None, None)
            case TakeOver(claimed_from) if seen is not None:
                return self._make(seen.etag, claimed_from)
            case Readmit(holder) if seen is not None:
                return self._readmit(seen, holder, base_s)
        return None

    def _is_abandoned(self, tombstone: Tombstone, etag: str, base_s: float) -> bool:
        """Whether the delete that ``tombstone`` announced can no longer arrive."""
        if self.waited_for is None or self.waited_for[0] != etag:
            self.waited_for = (etag, base_s)
            log.info(
                "waiting for a release to end",
                extra={"event": "lease-releasing", "run_id": self.run_id, "holder": tombstone.run_id},
            )
        age_s = tombstone.age_s(self.writer.clock.now())
        seen_for_s = base_s - self.waited_for[1]
        return seen_for_s > CLAIM_GRACE_S or (age_s is not None and age_s > CLAIM_GRACE_S)

    def _make(self, etag: str | None, claimed_from: str | None) -> Admitted | None:
        def fields(write_id: str) -> dict[str, Any]:
            self.made.add(write_id)
            return fresh_fields(
                run_id=self.run_id,
                scope=self.scope,
                now=self.writer.clock.now(),
                ttl_s=self.ttl_s,
                claimed_from=claimed_from,
                write_id=write_id,
            )

        return self._admit(self.writer.write(fields, etag), readmitted=False)

    def _readmit(self, seen: Versioned, holder: Holder, base_s: float) -> Admitted | None:
        own = self.writer.own(seen, holder)
        if own is not None:
            return self._admit(own, readmitted=holder.write_id not in self.made)
        confirmed = self.writer.fresh(seen, holder, base_s) or self.writer.write(
            lambda write_id: renewed_fields(
                load(seen.data) or {}, now=self.writer.clock.now(), write_id=write_id
            ),
            seen.etag,
        )
        return self._admit(confirmed, readmitted=True)

    def _admit(self, confirmed: Confirmed | None, *, readmitted: bool) -> Admitted | None:
        holder = None if confirmed is None else parse(encode(confirmed.fields))
        if confirmed is None or not isinstance(holder, Holder):
            return None
        log.info(
            "lease acquired",
            extra={"event": "lease-acquired", "run_id": self.run_id, "claimed_from": holder.claimed_from},
        )
        return Admitted(confirmed, holder, readmitted)


def held_error(store: ObjectStore, holder: Holder, run_id: str) -> LeaseHeldError:
    return LeaseHeldError(
        f"{store.root} is held by run {holder.run_id!r} (acquired {holder.acquired_at}, last heartbeat "
        f"{holder.heartbeat_at}, ttl {holder.ttl_s:g} s): wait for it to end; if it is dead, start it "
        "again with its own run id, wait until the heartbeat is older than the ttl, or free the store with "
        f"`sweep unlock {store.root} --run-id {holder.run_id}`",
        holder=holder,
        run_id=run_id,
    )


def contended_error(store: ObjectStore, run_id: str) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"the lease of {store.root} changed, or its answer was lost, at each of {ATTEMPTS} tries; run again",
        kind="lease-contended",
        run_id=run_id,
    )


def margin_s(ttl_s: float) -> float:
    return max(_MIN_MARGIN_S, _MARGIN * ttl_s)


def pauses() -> Iterator[float]:
    return (min(_FIRST_PAUSE_S * 2**n, _LAST_PAUSE_S) for n in range(ATTEMPTS))
