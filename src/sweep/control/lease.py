"""The one admission object of a store: acquire, keep, check, release.

Every change is a compare-and-swap on the version that was read, so that among runs of
this package two holders are impossible. A holder may write until a monotonic deadline:
the ttl, less a margin, after the moment *before* its last confirmed heartbeat was sent.
What it had in flight at that moment is the residual. The design note on the lease says
why, and what remains beside a sweep that uses plain writes.

Source: semantics 9, format 10, docs/design/0003-lease.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Lock, Thread

from sweep.control._admission import (
    MAX_TTL_S,
    MIN_TTL_S,
    Admission,
    Admitted,
    Confirmed,
    LeaseWriter,
    contended_error,
    held_error,
    margin_s,
    pauses,
)
from sweep.control._lease_removal import remove
from sweep.control.lease_object import (
    DEFAULT_TTL_S,
    LEASE_KEY,
    Holder,
    Tombstone,
    load,
    parse,
    renewed_fields,
)
from sweep.errors import DeclarationError, LeaseLostError, StoreUnavailableError, SweepError
from sweep.model.clock import Clock
from sweep.store.base import ObjectStore

__all__ = ["LEASE_KEY", "MAX_TTL_S", "MIN_TTL_S", "Holder", "Lease", "read_holder", "unlock"]

_JOIN_S = 10.0

log = logging.getLogger(__name__)


class Lease:
    """A run's hold on one store. Made by :meth:`acquire`; safe to use from several threads.

    Attributes
    ----------
    run_id : str
    acquired_at : str
        When the run was first admitted, as the object says.
    ttl_s : float
        Seconds that a heartbeat is good for.
    claimed_from : str or None
        The dead run from which the store was taken over.
    readmitted : bool
        The object was this run's own already.
    """

    def __init__(self, writer: LeaseWriter, admitted: Admitted) -> None:
        holder = admitted.holder
        self.run_id = holder.run_id
        self.acquired_at = holder.acquired_at
        self.ttl_s = holder.ttl_s
        self.claimed_from = holder.claimed_from
        self.readmitted = admitted.readmitted
        self._writer = writer
        self._clock = writer.clock
        self._store = writer.store
        self._lock = Lock()
        self._lost: LeaseLostError | None = None
        self._confirm(admitted.confirmed)

    def __repr__(self) -> str:
        return f"Lease({self._store.root!r}, run_id={self.run_id!r})"

    @classmethod
    def acquire(
        cls,
        store: ObjectStore,
        *,
        run_id: str,
        ttl_s: int = DEFAULT_TTL_S,
        scope: Sequence[str] | None = None,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> Lease:
        """Admit ``run_id`` to ``store``.

        Parameters
        ----------
        store : ObjectStore
        run_id : str
            A run that holds the store already is admitted again and keeps ``acquired_at``
            and its ttl; the workers of one run share its lease in this way.
        ttl_s : int
            Seconds after which a silent run may be taken over, 3 to 604800 (a week).
        scope : sequence of str, optional
            Decimals; informative.
        clock : Clock
        new_id : callable
            Gives a text that was never given before.

        Raises
        ------
        LeaseHeldError
            Another run holds the store; ``context["holder"]`` is its :class:`Holder`.
            Nothing was written.
        DeclarationError
            ``ttl_s`` is too short or too long, or ``run_id`` is empty.
        AccessError, StoreUnavailableError
            The store cannot be reached or written. With kind ``lease-contended`` the object
            changed at each try.
        """
        if not run_id:
            raise DeclarationError("a run that wants the lease needs a run id", kind="run-id")
        if not MIN_TTL_S <= ttl_s <= MAX_TTL_S:
            raise DeclarationError(
                f"lease ttl {ttl_s!r} s: expected {MIN_TTL_S} to {MAX_TTL_S} (default {DEFAULT_TTL_S})",
                kind="lease-ttl",
                run_id=run_id,
            )
        writer = LeaseWriter(store, clock, new_id)
        admitted = Admission(writer=writer, run_id=run_id, ttl_s=ttl_s, scope=scope).run()
        return cls(writer, admitted)

    def check(self) -> None:
        """Return where this run may write at this moment.

        Raises
        ------
        LeaseLostError
            The deadline has passed, another run was seen to hold the store, or the lease
            was released. It stays lost.
        """
        if self._lost is None and self._clock.monotonic() > self._deadline_s:
            self._lost = self._loss(
                f"no heartbeat of run {self.run_id!r} was confirmed within {self.ttl_s:g} s less a margin",
                kind="lease-unconfirmed",
            )
        if self._lost is not None:
            raise self._lost.with_traceback(None)

    def beat(self) -> None:
        """Renew the heartbeat, where the last confirmed one is older than a third of the ttl.

        A store that does not answer is no error while the deadline has not passed: call again.

        Raises
        ------
        LeaseLostError
            As :meth:`check`.
        AccessError
            The store says no.
        """
        try:
            self._renew_if_due()
        except StoreUnavailableError as error:
            log.warning(
                "lease heartbeat not confirmed",
                extra={"event": "lease-unconfirmed", "run_id": self.run_id, "reason": error.message},
            )
        self.check()

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Renew the heartbeat on a thread of its own while the block runs.

        Errors of the store are tried again until the deadline. A loss ends the thread and
        is raised by the next :meth:`check`.
        """
        stop = Event()
        thread = Thread(target=self.beat_until, args=(stop.wait,), name=f"lease-{self.run_id}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(_JOIN_S)

    def beat_until(self, wait: Callable[[float], bool]) -> None:
        """The heartbeat thread's work: renew whenever due until ``wait(seconds)`` says to stop."""
        pause_s = self._due_in_s()
        while not wait(pause_s):
            try:
                self._renew_if_due()
                pause_s = self._due_in_s()
            except LeaseLostError as error:
                if error.kind != "lease-released":
                    log.error(
                        "lease lost",
                        extra={"event": "lease-lost", "run_id": self.run_id, "reason": error.message},
                    )
                return
            except SweepError as error:
                log.warning(
                    "lease heartbeat not confirmed",
                    extra={"event": "lease-unconfirmed", "run_id": self.run_id, "reason": error.message},
                )
                pause_s = min(5.0, self.ttl_s / 30)

    def release(self) -> bool:
        """Give the store free; this run may write no more.

        Returns
        -------
        bool
            True where the lease was this run's. False where there was none, or where
            another run holds the store, which is then left alone.

        Raises
        ------
        AccessError, StoreUnavailableError
            The lease could not be removed; it expires by itself, or release again.
        """
        with self._lock:
            # First, so that no thread of this run still writes when the next run is admitted.
            self._lost = self._loss("it was released", kind="lease-released")
            return remove(self._store, self.run_id, clock=self._clock, new_id=self._writer.new_id)

    def _confirm(self, confirmed: Confirmed) -> None:
        self._confirmed = confirmed
        self._deadline_s = confirmed.base_s + self.ttl_s - margin_s(self.ttl_s)
        self._writer.sent.clear()

    def _due_in_s(self) -> float:
        due_s = self._confirmed.base_s + self.ttl_s / 3 - self._clock.monotonic()
        # A lease that another program wrote under this run id can say any ttl.
        return min(max(due_s, 0.0), MAX_TTL_S)

    def _renew_if_due(self) -> None:
        self.check()
        with self._lock:
            if self._due_in_s() <= 0:
                self._renew()

    def _renew(self) -> None:
        for pause_s in pauses():
            # Another thread may have released it, or the deadline may have passed meanwhile.
            self.check()
            known = self._confirmed
            written = self._writer.write(
                lambda write_id, known=known: renewed_fields(  # type: ignore[misc]
                    known.fields, now=self._clock.now(), write_id=write_id
                ),
                known.etag,
            )
            confirmed = written or self._read_back()
            if confirmed is not None:
                self._confirm(confirmed)
                return
            self._clock.sleep(pause_s)
        raise contended_error(self._store, self.run_id)

    def _read_back(self) -> Confirmed | None:
        """What the object says after a write that was refused or whose answer was lost.

        Many workers share one run's lease, so another version that names this run is no loss.
        """
        base_s = self._clock.monotonic()
        seen = self._store.get_versioned(LEASE_KEY)
        holder = parse(seen.data) if seen is not None else None
        if seen is None or not isinstance(holder, Holder) or holder.run_id != self.run_id:
            self._lost = self._loss(_who(holder), kind="lease-taken", holder=holder)
            raise self._lost
        confirmed = self._writer.own(seen, holder) or self._writer.fresh(seen, holder, base_s)
        if confirmed is None:
            # Ours and old: the next try replaces this version; the deadline stays.
            self._confirmed = replace(self._confirmed, fields=load(seen.data) or {}, etag=seen.etag)
        return confirmed

    def _loss(self, reason: str, *, kind: str, holder: object = None) -> LeaseLostError:
        return LeaseLostError(
            f"run {self.run_id!r} no longer holds {self._store.root}: {reason}; "
            "it stops and writes nothing more; start it again with the same run id to go on",
            kind=kind,
            run_id=self.run_id,
            holder=holder,
        )


def read_holder(store: ObjectStore) -> Holder | None:
    """Who holds ``store``, or None where nobody does (debris and tombstones count as nobody).

    Raises
    ------
    AccessError, StoreUnavailableError
    """
    data = store.get(LEASE_KEY)
    holder = None if data is None else parse(data)
    return holder if isinstance(holder, Holder) else None


def unlock(store: ObjectStore, run_id: str, *, clock: Clock, new_id: Callable[[], str]) -> Holder:
    """Remove the lease of ``run_id``, for an operator who knows that the run is dead.

    Returns
    -------
    Holder
        Who held the store.

    Raises
    ------
    LeaseHeldError
        Another run holds it. Nothing was written.
    DeclarationError
        Nobody holds it.
    AccessError, StoreUnavailableError
    """
    holder = read_holder(store)
    if holder is None:
        raise DeclarationError(
            f"{store.root} is held by nobody: there is nothing to unlock", kind="lease-absent", run_id=run_id
        )
    if holder.run_id != run_id:
        raise held_error(store, holder, run_id)
    remove(store, run_id, clock=clock, new_id=new_id)
    return holder


def _who(holder: Holder | Tombstone | None) -> str:
    match holder:
        case Holder():
            return f"run {holder.run_id!r} holds it since {holder.acquired_at}"
        case Tombstone():
            return f"its lease was released at {holder.released_at}"
    return "its lease object is gone"
