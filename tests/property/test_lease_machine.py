"""Runs that race, stall, die and lose answers: never do two of them hold one store.

The machine interleaves whole operations of one run between any two store calls of
another. It looks at every call and after every step which runs may write; more than one
is a failure, and so is a change to a lease that another run still held.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.support import servers

from sweep.control._admission import CLAIM_GRACE_S
from sweep.control.lease import LEASE_KEY, Lease, read_holder
from sweep.control.lease_object import Holder, parse
from sweep.errors import LeaseHeldError, LeaseLostError, StoreUnavailableError
from sweep.store.base import ObjectStore, Refused
from sweep.store.open import open_store
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import READS, WRITES, Fault, FaultyStore, answer_lost

RUNS = ("run-a", "run-b", "run-c")
TTL_S = 60
CONDITIONAL = ("put_if_absent", "put_if_match", "delete_if_match")


class Killed(BaseException):
    """The process ends here."""


@dataclass(frozen=True)
class Trouble:
    """What goes wrong at the n-th store call of one operation.

    ``late``: the answer is lost, and the network delivers the request after the delay.
    """

    call: int
    kind: str
    delay_s: float
    meanwhile: int | None


_names = itertools.count()
KINDS = ("none", "lost-before", "lost-after", "killed-before", "killed-after", "down", "late")


def _trouble(calls: st.SearchStrategy[int], kinds: tuple[str, ...]) -> st.SearchStrategy[Trouble]:
    return st.builds(
        Trouble,
        call=calls,
        kind=st.sampled_from(kinds),
        delay_s=st.sampled_from([0.0, 0.4, 7.0, 30.0, 119.0]),
        meanwhile=st.none() | st.integers(0, 8),
    )


troubles = st.none() | _trouble(st.integers(1, 4), KINDS)
# What a release sends last is where a request that arrives late could do harm.
last_troubles = troubles | _trouble(st.sampled_from([2, 4]), ("late", "killed-before"))
# Around the third of the ttl, the deadline (54 s) and the expiry (60 s), and past the grace of a tombstone.
waits = st.sampled_from([0.0, 0.0, 0.7, 15.0, 21.0, 35.0, 53.0, 54.5, 59.5, 61.0, 310.0])


class Worker:
    """One process of a run."""

    def __init__(self, machine: LeaseMachine, run_id: str) -> None:
        self.machine = machine
        self.run_id = run_id
        self.store = _Watched(machine, run_id)
        self.lease: Lease | None = None

    def holds(self) -> bool:
        if self.lease is None:
            return False
        try:
            self.lease.check()
        except LeaseLostError:
            return False
        return True


class _Watched(FaultyStore):
    """The shared store as one process sees it."""

    def __init__(self, machine: LeaseMachine, run_id: str) -> None:
        super().__init__(machine.store, lambda *_: None, methods=READS + WRITES)
        self.machine = machine
        self.run_id = run_id
        self.late_s: float | None = None

    def call[R](self, name: str, key: str, act: Callable[[], R]) -> R:
        def watched() -> R:
            self.machine.deliver()
            self.machine.at_most_one_may_write()
            if self.late_s is not None:
                due_s, self.late_s = self.machine.clock.monotonic() + self.late_s, None
                self.machine.under_way.append((due_s, self.run_id, act))
                raise answer_lost()
            return self.machine.perform(self.run_id, act)

        return super().call(name, key, watched)


class LeaseMachine(RuleBasedStateMachine):
    """Three runs on one store and one clock."""

    make_store: ClassVar[Callable[[], ObjectStore]]

    def __init__(self) -> None:
        super().__init__()
        self.store = type(self).make_store()
        self.clock = FakeClock()
        self.workers: list[Worker] = []
        self.busy: set[str] = set()
        self.ids = itertools.count()
        self.under_way: list[tuple[float, str, Callable[[], object]]] = []

    def perform[R](self, run_id: str, act: Callable[[], R]) -> R:
        """One store call of ``run_id``, which must not change a lease that another run holds."""
        before = self.holder()
        answer = act()
        if before is not None and before.run_id != run_id and not before.is_expired(self.clock.now()):
            assert self.holder() == before, f"{run_id} changed {before}"
        return answer

    def deliver(self) -> None:
        """Requests that were under way for long enough reach the store."""
        now_s = self.clock.monotonic()
        due = [request for request in self.under_way if request[0] <= now_s]
        self.under_way = [request for request in self.under_way if request[0] > now_s]
        for _, run_id, act in due:
            self.perform(run_id, act)

    def holder(self) -> Holder | None:
        data = self.store.get(LEASE_KEY)
        state = parse(data) if data is not None else None
        return state if isinstance(state, Holder) else None

    @invariant()
    def at_most_one_may_write(self) -> None:
        writers = {worker.run_id for worker in self.workers if worker.holds()}
        assert len(writers) <= 1, f"{writers} may write at {self.clock.now()}"

    @rule(run_id=st.sampled_from(RUNS), wait_s=waits, trouble=troubles)
    def start(self, run_id: str, wait_s: float, trouble: Trouble | None) -> None:
        """A process of the run starts: its first, a restart, or a further worker."""
        self.clock.advance(wait_s)
        self.operate(run_id, self.admit, trouble)

    @rule(number=st.integers(0, 5), wait_s=waits, trouble=troubles)
    def beat(self, number: int, wait_s: float, trouble: Trouble | None) -> None:
        self.clock.advance(wait_s)
        worker = self.pick(number)
        if worker is not None:
            self.operate(worker.run_id, lambda _: self.heartbeat(worker), trouble, worker)

    @rule(number=st.integers(0, 5), wait_s=waits, trouble=last_troubles)
    def finish(self, number: int, wait_s: float, trouble: Trouble | None) -> None:
        self.clock.advance(wait_s)
        worker = self.pick(number)
        if worker is not None:
            self.operate(worker.run_id, lambda _: self.release(worker), trouble, worker)

    @rule(
        number=st.integers(0, 5),
        call=st.sampled_from([2, 4]),
        late_s=st.sampled_from([7.0, 119.0]),
        run_id=st.sampled_from(RUNS),
        wait_s=st.sampled_from([0.0, 61.0]),
    )
    def hand_over(self, number: int, call: int, late_s: float, run_id: str, wait_s: float) -> None:
        """A release whose last request arrives when the next run is at work already."""
        trouble = Trouble(call=call, kind="late", delay_s=late_s, meanwhile=None)
        self.finish(number, 0.0, trouble)
        self.start(run_id, wait_s, None)
        self.clock.advance(late_s)
        self.deliver()

    @rule(
        run_id=st.sampled_from(RUNS),
        further_s=st.sampled_from([0.7, 15.0, 19.5]),
        other=st.sampled_from(RUNS),
        wait_s=st.sampled_from([40.0, 45.5, 53.0]),
    )
    def overtake(self, run_id: str, further_s: float, other: str, wait_s: float) -> None:
        """A run gains a worker, falls silent, and another run comes near its expiry."""
        self.start(run_id, 0.0, None)
        self.start(run_id, further_s, None)
        self.start(other, wait_s, None)

    @rule(number=st.integers(0, 5))
    def kill(self, number: int) -> None:
        worker = self.pick(number)
        if worker is not None:
            self.workers.remove(worker)

    def pick(self, number: int) -> Worker | None:
        free = [worker for worker in self.workers if worker.run_id not in self.busy]
        return free[number % len(free)] if free else None

    def operate(
        self,
        run_id: str,
        act: Callable[[Worker], None],
        trouble: Trouble | None,
        worker: Worker | None = None,
    ) -> None:
        """Run one operation of one process with its trouble; a killed process is gone."""
        if run_id in self.busy:
            return
        worker = worker or Worker(self, run_id)
        self.busy.add(run_id)
        first = worker.store.numbered
        worker.store.plan = lambda number, name, _: self.fault(worker, trouble, number - first, name)
        try:
            act(worker)
        except Killed:
            if worker in self.workers:
                self.workers.remove(worker)
        except StoreUnavailableError:
            pass
        finally:
            worker.store.plan = lambda *_: None
            self.busy.remove(run_id)

    def fault(self, worker: Worker, trouble: Trouble | None, number: int, name: str) -> Fault | None:
        if trouble is None or number != trouble.call:
            return None

        def hook() -> None:
            self.clock.advance(trouble.delay_s)
            self.deliver()
            # A plain delete that is held up for longer than the claimants wait is the documented residual.
            if trouble.meanwhile is not None and name != "delete":
                self.meanwhile(trouble.meanwhile)

        match trouble.kind:
            case "killed-before":
                return Fault(before=Killed())
            case "killed-after":
                return Fault(hook=hook, after=Killed())
            case "down":
                return Fault(before=StoreUnavailableError("down"))
            case "lost-before" if name in CONDITIONAL:
                return Fault(before=answer_lost())
            case "lost-after" if name in CONDITIONAL:
                return Fault(hook=hook, after=answer_lost())
            case "late" if name in WRITES:
                return Fault(hook=lambda: setattr(worker.store, "late_s", trouble.delay_s))
        return Fault(hook=hook)

    def meanwhile(self, choice: int) -> None:
        """Another run does something between two calls of this one."""
        action, number = divmod(choice, 3)
        if action == 0:
            self.start(RUNS[number], 0.0, None)
        elif action == 1:
            self.beat(number, 0.0, None)
        else:
            self.finish(number, 0.0, None)

    def admit(self, worker: Worker) -> None:
        begun = self.clock.now()
        try:
            worker.lease = Lease.acquire(
                worker.store,
                run_id=worker.run_id,
                ttl_s=TTL_S,
                clock=self.clock,
                new_id=lambda: f"write-{next(self.ids)}",
            )
        except LeaseHeldError as error:
            holder = error.context["holder"]
            assert holder.run_id != worker.run_id
            assert not holder.is_expired(begun)
            return
        self.workers.append(worker)

    def heartbeat(self, worker: Worker) -> None:
        assert worker.lease is not None
        try:
            worker.lease.beat()
        except LeaseLostError:
            self.workers.remove(worker)

    def release(self, worker: Worker) -> None:
        assert worker.lease is not None
        # The finisher's last act: the run's other workers have ended.
        self.workers = [other for other in self.workers if other.run_id != worker.run_id]
        before = worker.store.numbered
        released = worker.lease.release()
        assert worker.store.numbered > before
        holder = read_holder(self.store)
        if released:
            assert holder is None or holder.run_id != worker.run_id

    def teardown(self) -> None:
        """Whatever happened, the store is free again once every heartbeat is old."""
        self.clock.advance(200)
        self.deliver()
        self.clock.advance(TTL_S + CLAIM_GRACE_S + 2)
        self.workers.clear()
        lease = Lease.acquire(
            self.store,
            run_id="run-z",
            ttl_s=TTL_S,
            clock=self.clock,
            new_id=lambda: f"write-{next(self.ids)}",
        )
        assert lease.release() is True
        assert self.store.get(LEASE_KEY) is None
        assert self.store.put_if_match(LEASE_KEY, b"", '"0"') is Refused.MISSING


def _run(make_store: Callable[[], ObjectStore], examples: int, steps: int = 30) -> None:
    machine = type("Machine", (LeaseMachine,), {"make_store": staticmethod(make_store)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@contextmanager
def _local_stores() -> Iterator[Callable[[], ObjectStore]]:
    folder = tempfile.mkdtemp(prefix="sweep-lease-")
    try:
        yield lambda: open_store(os.path.join(folder, str(next(_names))))
    finally:
        shutil.rmtree(folder)


def test_one_holder_on_memory() -> None:
    """Memory offers no conditional delete: releases go by tombstone."""
    _run(lambda: open_store(f"memory://machine-{next(_names)}"), 250)


def test_one_holder_on_a_local_disk() -> None:
    with _local_stores() as make_store:
        _run(make_store, 100)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_holder_at_length() -> None:
    _run(lambda: open_store(f"memory://machine-{next(_names)}"), 1500, 50)
    with _local_stores() as make_store:
        _run(make_store, 500, 50)


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.timeout(600)
def test_one_holder_on_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in servers.ACCESS.items():
        monkeypatch.setenv(name, value)
    with servers.ministack() as server:
        bucket = server.make_bucket()
        _run(lambda: server.open(f"machine-{next(_names)}", bucket), 25)
