"""The lease on a store with conditional deletes (local) and on one without (memory)."""

from __future__ import annotations

import itertools
import json
import logging
import pickle
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sweep.control.fence import FencedStore
from sweep.control.lease import LEASE_KEY, Holder, Lease, read_holder, unlock
from sweep.errors import (
    AccessError,
    DeclarationError,
    LeaseHeldError,
    LeaseLostError,
    StoreUnavailableError,
)
from sweep.model.clock import timestamp
from sweep.store.base import ObjectStore, Refused, Written
from sweep.store.open import open_store
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import READS, WRITES, CountingStore, Fault, FaultyStore, answer_lost

_names = itertools.count()
_SPEC = "zagg-sweep-lease/1"
# As captured from the reference while it held a store (format 10).
_REFERENCE = b"""{
 "spec": "zagg-sweep-lease/1",
 "run_id": "stage-example",
 "scope": null,
 "acquired_at": "2026-11-29T16:31:05+00:00",
 "heartbeat_at": "2026-11-29T16:31:05+00:00",
 "ttl_s": 900
}"""


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return open_store(f"memory://lease-{next(_names)}" if request.param == "memory" else tmp_path / "store")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def new_id() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"write-{next(numbers)}"


class Party:
    """Acquires in the name of runs."""

    def __init__(self, clock: FakeClock, new_id: Callable[[], str]) -> None:
        self.clock = clock
        self.new_id = new_id

    def acquire(self, store: ObjectStore, run_id: str, ttl_s: int = 900, **more: Any) -> Lease:
        return Lease.acquire(store, run_id=run_id, ttl_s=ttl_s, clock=self.clock, new_id=self.new_id, **more)

    def unlock(self, store: ObjectStore, run_id: str) -> Holder:
        return unlock(store, run_id, clock=self.clock, new_id=self.new_id)


@pytest.fixture
def party(clock: FakeClock, new_id: Callable[[], str]) -> Party:
    return Party(clock, new_id)


def _fields(store: ObjectStore) -> dict[str, Any]:
    data = store.get(LEASE_KEY)
    assert data is not None
    fields = json.loads(data)
    assert isinstance(fields, dict)
    return fields


def _put(store: ObjectStore, **changes: Any) -> bytes:
    """A lease as the reference writes it, with ``changes``; a key set to ... is left out."""
    fields = {**json.loads(_REFERENCE), **changes}
    data = json.dumps({key: value for key, value in fields.items() if value is not ...}, indent=1).encode()
    store.put(LEASE_KEY, data)
    return data


class TestObject:
    def test_a_new_lease_has_the_keys_and_the_spelling_of_the_format(
        self, store: ObjectStore, party: Party
    ) -> None:
        party.acquire(store, "stage-example")
        data = store.get(LEASE_KEY)
        assert data is not None
        # The reference's object, with one more key at the end.
        assert data == _REFERENCE.removesuffix(b"\n}") + b',\n "write_id": "write-1"\n}'

    def test_the_scope_is_listed(self, store: ObjectStore, party: Party) -> None:
        party.acquire(store, "r", scope=("21", "-3"))
        assert _fields(store)["scope"] == ["21", "-3"]
        holder = read_holder(store)
        assert holder is not None
        assert holder.scope == ("21", "-3")

    def test_a_takeover_names_the_prior_run_after_the_keys_of_the_format(
        self, store: ObjectStore, party: Party, clock: FakeClock
    ) -> None:
        _put(store)
        clock.advance(901)
        lease = party.acquire(store, "mine")
        assert lease.claimed_from == "stage-example"
        assert list(_fields(store)) == [*json.loads(_REFERENCE), "claimed_from", "write_id"]

    def test_the_reference_s_object_is_read(self, store: ObjectStore) -> None:
        store.put(LEASE_KEY, _REFERENCE)
        assert read_holder(store) == Holder(
            run_id="stage-example",
            acquired_at="2026-11-29T16:31:05+00:00",
            heartbeat_at="2026-11-29T16:31:05+00:00",
            ttl_s=900,
        )

    @pytest.mark.parametrize(
        "data", [b"", b"{", b"[1]", b'"x"', b"null", b'{"spec": "other/1"}', b"\xff\xfe"]
    )
    def test_debris_is_nobody(self, store: ObjectStore, data: bytes) -> None:
        store.put(LEASE_KEY, data)
        assert read_holder(store) is None


class TestAcquire:
    def test_a_free_store_admits(self, store: ObjectStore, party: Party) -> None:
        lease = party.acquire(store, "mine", 60)
        assert (lease.run_id, lease.ttl_s, lease.claimed_from, lease.readmitted) == ("mine", 60, None, False)
        assert lease.acquired_at == "2026-11-29T16:31:05+00:00"
        lease.check()

    def test_a_live_lease_refuses_and_is_left_alone(
        self, store: ObjectStore, party: Party, clock: FakeClock
    ) -> None:
        data = _put(store)
        clock.advance(900)
        counting = CountingStore(store)
        with pytest.raises(LeaseHeldError) as caught:
            party.acquire(counting, "mine")
        message = str(caught.value)
        for part in (store.root, "'stage-example'", "2026-11-29T16:31:05+00:00", "ttl 900 s", "unlock"):
            assert part in message
        holder = caught.value.context["holder"]
        assert holder.run_id == "stage-example"
        assert pickle.loads(pickle.dumps(caught.value)).context["holder"] == holder
        assert store.get(LEASE_KEY) == data
        assert counting.written == 0

    @pytest.mark.parametrize(
        ("changes", "age_s", "admits"),
        [
            ({}, 900, False),
            ({}, 901, True),
            ({"ttl_s": 60}, 60, False),
            ({"ttl_s": 60}, 61, True),
            ({"ttl_s": ...}, 900, False),
            ({"ttl_s": ...}, 901, True),
            ({"ttl_s": 0}, 900, False),
            ({"ttl_s": 0}, 901, True),
            ({"ttl_s": 10**400}, 900, False),
            ({"ttl_s": 10**400}, 901, True),
            ({"heartbeat_at": "9999-12-31T23:59:59-14:00"}, 0, True),
            ({"heartbeat_at": "0001-01-01T00:00:00+14:00"}, 0, True),
            ({"heartbeat_at": "yesterday"}, 0, True),
            ({"heartbeat_at": ...}, 0, True),
            ({"heartbeat_at": 5}, 0, True),
            ({"heartbeat_at": "2026-11-29T17:31:05+01:00"}, 900, False),
            ({"heartbeat_at": "2026-11-29T16:31:05Z"}, 900, False),
            ({"spec": "zagg-sweep-lease/2"}, 0, True),
        ],
    )
    def test_expiry(
        self,
        store: ObjectStore,
        party: Party,
        clock: FakeClock,
        changes: dict[str, Any],
        age_s: float,
        admits: bool,
    ) -> None:
        _put(store, **changes)
        clock.advance(age_s)
        if admits:
            expected = None if "spec" in changes else "stage-example"
            assert party.acquire(store, "mine").claimed_from == expected
            assert _fields(store)["run_id"] == "mine"
        else:
            with pytest.raises(LeaseHeldError):
                party.acquire(store, "mine")

    @pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'{"spec": "other/1", "run_id": "x"}', b"\xff"])
    def test_debris_is_claimed_without_a_name(self, store: ObjectStore, party: Party, data: bytes) -> None:
        store.put(LEASE_KEY, data)
        assert party.acquire(store, "mine").claimed_from is None
        assert "claimed_from" not in _fields(store)

    def test_the_same_run_is_admitted_again_and_a_fresh_heartbeat_is_not_written_again(
        self, store: ObjectStore, party: Party, clock: FakeClock
    ) -> None:
        party.acquire(store, "mine", 60)
        before = store.get(LEASE_KEY)
        clock.advance(19)
        counting = CountingStore(store)
        again = party.acquire(counting, "mine", 900)
        assert again.readmitted
        assert (again.acquired_at, again.ttl_s) == ("2026-11-29T16:31:05+00:00", 60)
        assert counting.written == 0
        assert store.get(LEASE_KEY) == before
        # The deadline counts from the heartbeat that was found, not from the admission.
        clock.advance(60 - 6 - 19)
        again.check()
        clock.advance(0.1)
        with pytest.raises(LeaseLostError):
            again.check()

    @pytest.mark.parametrize("age_s", [20, 59, 5000])
    def test_the_same_run_renews_an_older_heartbeat(
        self, store: ObjectStore, party: Party, clock: FakeClock, age_s: float
    ) -> None:
        party.acquire(store, "mine", 60)
        clock.advance(age_s)
        again = party.acquire(store, "mine")
        assert again.readmitted
        fields = _fields(store)
        assert fields["acquired_at"] == "2026-11-29T16:31:05+00:00"
        assert fields["heartbeat_at"] == timestamp(clock.now())
        clock.advance(54)
        again.check()

    def test_a_heartbeat_from_a_clock_far_ahead_is_not_adopted(
        self, store: ObjectStore, party: Party, clock: FakeClock
    ) -> None:
        _put(store, heartbeat_at=timestamp(clock.now() + timedelta(seconds=500)))
        party.acquire(store, "stage-example")
        assert _fields(store)["heartbeat_at"] == timestamp(clock.now())

    def test_a_racing_claimant_is_named(self, store: ObjectStore, party: Party, clock: FakeClock) -> None:
        _put(store)
        clock.advance(901)

        def plan(number: int, name: str, key: str) -> Fault | None:
            return Fault(hook=lambda: party.acquire(store, "faster")) if number == 1 else None

        with pytest.raises(LeaseHeldError) as caught:
            party.acquire(FaultyStore(store, plan), "slower")
        assert caught.value.context["holder"].run_id == "faster"
        assert _fields(store)["run_id"] == "faster"

    @pytest.mark.parametrize("found", ["nothing", "expired"])
    @pytest.mark.parametrize("landed", [True, False])
    def test_a_lost_answer_is_read_back(
        self, store: ObjectStore, party: Party, clock: FakeClock, found: str, landed: bool
    ) -> None:
        if found == "expired":
            _put(store)
            clock.advance(901)
        fault = Fault(after=answer_lost()) if landed else Fault(before=answer_lost())
        faulty = FaultyStore(store, lambda number, *_: fault if number == 1 else None)
        lease = party.acquire(faulty, "mine")
        assert not lease.readmitted
        assert lease.claimed_from == ("stage-example" if found == "expired" else None)
        assert faulty.numbered == (1 if landed else 2)
        lease.check()

    def test_a_write_that_the_client_sent_twice_is_ours(self, store: ObjectStore, party: Party) -> None:
        """A client that sends again after a 500 is told EXISTS by its own first try."""
        sent: list[bytes] = []

        class Twice(CountingStore):
            def put_if_absent(self, key: str, data: bytes) -> Written | Refused:
                sent.append(data)
                self.inner.put_if_absent(key, data)
                return self.inner.put_if_absent(key, data)

        lease = party.acquire(Twice(store), "mine")
        assert not lease.readmitted
        assert sent == [store.get(LEASE_KEY)]

    def test_exists_with_nothing_there_is_tried_again(self, store: ObjectStore, party: Party) -> None:
        class Phantom(CountingStore):
            def put_if_absent(self, key: str, data: bytes) -> Written | Refused:
                outcome = super().put_if_absent(key, data) if self.log else Refused.EXISTS
                self.log.append(("put_if_absent", key))
                return outcome

        phantom = Phantom(store)
        phantom.log.clear()
        assert not party.acquire(phantom, "mine").readmitted

    def test_an_object_that_never_settles_is_an_outage(self, store: ObjectStore, party: Party) -> None:
        faulty = FaultyStore(store, lambda *_: Fault(before=answer_lost()))
        with pytest.raises(StoreUnavailableError) as caught:
            party.acquire(faulty, "mine")
        assert caught.value.kind == "lease-contended"
        assert store.get(LEASE_KEY) is None

    @pytest.mark.parametrize("error", [StoreUnavailableError("down"), AccessError("denied")])
    def test_other_errors_pass(
        self, store: ObjectStore, party: Party, error: StoreUnavailableError | AccessError
    ) -> None:
        with pytest.raises(type(error)) as caught:
            party.acquire(FaultyStore(store, lambda *_: Fault(before=error)), "mine")
        assert caught.value is error

    @pytest.mark.parametrize(
        ("run_id", "ttl_s", "named"),
        [
            ("", 900, "run id"),
            ("r", 2, "2"),
            ("r", 0, "0"),
            ("r", 604_801, "604800"),
            ("r", 10**400, "604800"),
        ],
    )
    def test_refused_input(
        self, store: ObjectStore, party: Party, run_id: str, ttl_s: int, named: str
    ) -> None:
        with pytest.raises(DeclarationError, match=named):
            party.acquire(store, run_id, ttl_s)
        assert store.get(LEASE_KEY) is None


class TestHeartbeat:
    def test_it_changes_the_heartbeat_alone(self, store: ObjectStore, party: Party, clock: FakeClock) -> None:
        _put(store)
        clock.advance(901)
        lease = party.acquire(store, "mine", 60)
        before = _fields(store)
        clock.advance(20)
        lease.beat()
        after = _fields(store)
        assert list(after) == list(before)
        assert after.pop("heartbeat_at") == timestamp(clock.now()) != before.pop("heartbeat_at")
        assert after.pop("write_id") != before.pop("write_id")
        assert after == before

    def test_it_is_throttled(self, store: ObjectStore, party: Party, clock: FakeClock) -> None:
        counting = CountingStore(store)
        lease = party.acquire(counting, "mine", 60)
        for _ in range(19):
            clock.advance(1)
            lease.beat()
        assert counting.calls["put_if_match"] == 0
        clock.advance(1)
        lease.beat()
        lease.beat()
        assert counting.calls["put_if_match"] == 1

    def test_it_moves_the_deadline(self, store: ObjectStore, party: Party, clock: FakeClock) -> None:
        lease = party.acquire(store, "mine", 60)
        for _ in range(20):
            clock.advance(50)
            lease.beat()
        clock.advance(54)
        lease.check()
        clock.advance(0.01)
        with pytest.raises(LeaseLostError) as caught:
            lease.check()
        assert caught.value.kind == "lease-unconfirmed"
        assert "'mine'" in str(caught.value)
        assert store.root in str(caught.value)

    def test_the_deadline_counts_from_before_the_heartbeat_was_sent(
        self, store: ObjectStore, party: Party, clock: FakeClock
    ) -> None:
        slow = FaultyStore(store, lambda *_: Fault(hook=lambda: clock.advance(10)))
        lease = party.acquire(slow, "mine", 60)
        clock.advance(44)
        lease.check()
        clock.advance(0.01)
        with pytest.raises(LeaseLostError):
            lease.check()

    def test_a_lease_past_its_deadline_stays_lost(
        self, store: ObjectStore, party: Party, clock: FakeClock
    ) -> None:
        counting = CountingStore(store)
        lease = party.acquire(counting, "mine", 60)
        clock.advance(55)
        with pytest.raises(LeaseLostError):
            lease.beat()
        with pytest.raises(LeaseLostError):
            lease.check()
        assert counting.calls["put_if_match"] == 0

    def test_another_worker_s_heartbeat_is_no_loss_and_is_not_written_again(
        self, store: ObjectStore, party: Party, clock: FakeClock
    ) -> None:
        counting = CountingStore(store)
        first = party.acquire(counting, "mine", 60)
        second = party.acquire(store, "mine", 60)
        clock.advance(20)
        second.beat()
        before = store.get(LEASE_KEY)
        clock.advance(5)
        first.beat()
        assert store.get(LEASE_KEY) == before
        assert counting.calls["put_if_match"] == 1
        # Good for as long as the other's heartbeat is.
        clock.advance(54 - 5)
        first.check()
        clock.advance(0.01)
        with pytest.raises(LeaseLostError):
            first.check()

    def test_another_worker_s_old_heartbeat_is_renewed(
        self, store: ObjectStore, party: Party, clock: FakeClock
    ) -> None:
        first = party.acquire(store, "mine", 60)
        second = party.acquire(store, "mine", 60)
        clock.advance(20)
        second.beat()
        clock.advance(25)
        first.beat()
        assert _fields(store)["heartbeat_at"] == timestamp(clock.now())
        clock.advance(54)
        first.check()

    def test_a_takeover_is_a_loss_that_names_the_holder(
        self, store: ObjectStore, party: Party, clock: FakeClock
    ) -> None:
        lease = party.acquire(store, "mine", 60)
        data = _put(store, run_id="thief")
        clock.advance(20)
        with pytest.raises(LeaseLostError, match="'thief'") as caught:
            lease.beat()
        assert caught.value.context["holder"].run_id == "thief"
        assert store.get(LEASE_KEY) == data
        with pytest.raises(LeaseLostError, match="'thief'"):
            lease.check()

    @pytest.mark.parametrize("left", [None, b"garbage"])
    def test_a_lease_that_is_gone_is_a_loss(
        self, store: ObjectStore, party: Party, clock: FakeClock, left: bytes | None
    ) -> None:
        lease = party.acquire(store, "mine", 60)
        store.delete(LEASE_KEY)
        if left is not None:
            store.put(LEASE_KEY, left)
        clock.advance(20)
        with pytest.raises(LeaseLostError, match="gone"):
            lease.beat()
        assert store.get(LEASE_KEY) == left

    @pytest.mark.parametrize("landed", [True, False])
    def test_a_lost_answer_is_read_back(
        self, store: ObjectStore, party: Party, clock: FakeClock, landed: bool
    ) -> None:
        faulty = FaultyStore(store, lambda *_: None)
        lease = party.acquire(faulty, "mine", 60)
        fault = Fault(after=answer_lost()) if landed else Fault(before=answer_lost())
        faulty.plan = lambda number, *_: fault if number == 2 else None
        clock.advance(20)
        lease.beat()
        assert faulty.numbered == (2 if landed else 3)
        clock.advance(54)
        lease.check()

    def test_an_answer_that_stays_lost_counts_when_it_is_seen_later(
        self, store: ObjectStore, party: Party, clock: FakeClock
    ) -> None:
        """The write landed, the read-back failed: the next heartbeat meets its own version."""
        faulty = FaultyStore(store, lambda *_: None, methods=READS + WRITES)
        lease = party.acquire(faulty, "mine", 60)
        start = faulty.numbered
        faults = {start + 1: Fault(after=answer_lost()), start + 2: Fault(before=StoreUnavailableError("x"))}
        faulty.plan = lambda number, *_: faults.get(number)
        clock.advance(20)
        lease.beat()
        clock.advance(10)
        lease.beat()
        assert _fields(store)["heartbeat_at"] == timestamp(clock.now() - timedelta(seconds=10))
        clock.advance(44)
        lease.check()
        clock.advance(0.01)
        with pytest.raises(LeaseLostError):
            lease.check()

    def test_an_outage_is_no_loss_before_the_deadline(
        self, store: ObjectStore, party: Party, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        faulty = FaultyStore(store, lambda *_: None)
        lease = party.acquire(faulty, "mine", 60)
        faulty.plan = lambda *_: Fault(before=StoreUnavailableError("down"))
        clock.advance(53)
        with caplog.at_level(logging.WARNING):
            lease.beat()
        assert "not confirmed" in caplog.text
        clock.advance(2)
        with pytest.raises(LeaseLostError):
            lease.beat()


class TestThread:
    def test_it_beats_when_due_until_told_to_stop(
        self, store: ObjectStore, party: Party, clock: FakeClock
    ) -> None:
        counting = CountingStore(store)
        lease = party.acquire(counting, "mine", 60)
        waits: list[float] = []

        def wait(seconds: float) -> bool:
            waits.append(seconds)
            clock.advance(seconds)
            return len(waits) > 5

        lease.beat_until(wait)
        assert waits == [20.0] * 6
        assert counting.calls["put_if_match"] == 5
        lease.check()

    def test_it_tries_again_while_the_store_is_down_and_then_gives_up(
        self, store: ObjectStore, party: Party, clock: FakeClock
    ) -> None:
        faulty = FaultyStore(store, lambda *_: None)
        lease = party.acquire(faulty, "mine", 60)
        errors = itertools.cycle([StoreUnavailableError("down"), AccessError("expired")])
        faulty.plan = lambda *_: Fault(before=next(errors))
        waits: list[float] = []

        def wait(seconds: float) -> bool:
            waits.append(seconds)
            clock.advance(seconds)
            assert len(waits) < 100
            return False

        lease.beat_until(wait)
        assert waits[:3] == [20.0, 2.0, 2.0]
        assert sum(waits) == pytest.approx(54, abs=2.01)
        with pytest.raises(LeaseLostError):
            lease.check()

    def test_a_loss_that_it_saw_is_raised_by_check(
        self, store: ObjectStore, party: Party, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        lease = party.acquire(store, "mine", 60)
        _put(store, run_id="thief")

        def wait(seconds: float) -> bool:
            clock.advance(seconds)
            return False

        lease.beat_until(wait)
        assert "lease lost" in caplog.text
        with pytest.raises(LeaseLostError, match="'thief'"):
            lease.check()

    def test_keep_runs_it_for_the_block(
        self, store: ObjectStore, party: Party, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Time on the fake clock passes in the block; the thread's waiting is cut short by hand."""
        turns = threading.Semaphore(0)
        beaten = threading.Semaphore(0)

        class Turns(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                beaten.release()
                turns.acquire()
                return self.is_set()

            def set(self) -> None:
                super().set()
                turns.release()

        monkeypatch.setattr("sweep.control.lease.Event", Turns)
        lease = party.acquire(store, "mine", 60)
        names = {thread.name for thread in threading.enumerate()}
        with lease.keep():
            assert {thread.name for thread in threading.enumerate()} - names == {"lease-mine"}
            assert beaten.acquire(timeout=30)
            for _ in range(3):
                clock.advance(50)
                turns.release()
                assert beaten.acquire(timeout=30)
                lease.check()
        assert {thread.name for thread in threading.enumerate()} == names
        assert _fields(store)["heartbeat_at"] == timestamp(clock.now())


class TestRelease:
    def test_nothing_is_left(self, store: ObjectStore, party: Party) -> None:
        lease = party.acquire(store, "mine")
        assert lease.release() is True
        assert store.get(LEASE_KEY) is None
        assert [info.key for info in store.list()] == []

    def test_the_run_may_write_no_more(self, store: ObjectStore, party: Party) -> None:
        lease = party.acquire(store, "mine")
        lease.release()
        with pytest.raises(LeaseLostError, match="released"):
            lease.check()

    def test_no_thread_may_write_while_the_lease_is_being_removed(
        self, store: ObjectStore, party: Party
    ) -> None:
        faulty = FaultyStore(store, lambda *_: None)
        lease = party.acquire(faulty, "mine")

        def check() -> None:
            with pytest.raises(LeaseLostError):
                lease.check()

        faulty.plan = lambda *_: Fault(hook=check)
        assert lease.release() is True

    def test_the_mechanism_is_the_one_that_the_store_offers(self, store: ObjectStore, party: Party) -> None:
        counting = CountingStore(store)
        lease = party.acquire(counting, "mine")
        counting.calls.clear()
        lease.release()
        writes = {name: counting.calls[name] for name in WRITES if counting.calls[name]}
        if store.capabilities.conditional_delete:
            assert writes == {"delete_if_match": 1}
        else:
            assert writes == {"put_if_match": 1, "delete": 1}

    def test_an_absent_lease_is_false(self, store: ObjectStore, party: Party) -> None:
        lease = party.acquire(store, "mine")
        store.delete(LEASE_KEY)
        assert lease.release() is False

    def test_another_run_s_lease_is_left_with_a_warning(
        self, store: ObjectStore, party: Party, caplog: pytest.LogCaptureFixture
    ) -> None:
        lease = party.acquire(store, "mine")
        data = _put(store, run_id="thief")
        with caplog.at_level(logging.WARNING):
            assert lease.release() is False
        assert store.get(LEASE_KEY) == data
        assert any(getattr(record, "holder", None) == "thief" for record in caplog.records)

    def test_a_heartbeat_of_another_worker_in_between_is_met(
        self, store: ObjectStore, party: Party, clock: FakeClock
    ) -> None:
        faulty = FaultyStore(store, lambda *_: None)
        lease = party.acquire(faulty, "mine", 60)
        twin = party.acquire(store, "mine", 60)
        clock.advance(20)
        start = faulty.numbered
        faulty.plan = lambda number, *_: Fault(hook=twin.beat) if number == start + 1 else None
        assert lease.release() is True
        assert store.get(LEASE_KEY) is None

    @pytest.mark.parametrize("landed", [True, False])
    @pytest.mark.parametrize("call", [1, 2])
    def test_a_lost_answer_is_read_back(
        self, store: ObjectStore, party: Party, landed: bool, call: int
    ) -> None:
        faulty = FaultyStore(store, lambda *_: None)
        lease = party.acquire(faulty, "mine")
        start = faulty.numbered
        fault = Fault(after=answer_lost()) if landed else Fault(before=answer_lost())
        faulty.plan = lambda number, *_: fault if number == start + call else None
        assert lease.release() is True
        assert read_holder(store) is None
        if landed or call == 1 or store.capabilities.conditional_delete:
            assert store.get(LEASE_KEY) is None

    def test_a_plain_delete_whose_answer_was_lost_is_not_sent_again(self, party: Party) -> None:
        """It may arrive late; the tombstone that it may meet keeps the next run out meanwhile."""
        store = open_store(f"memory://lease-{next(_names)}")
        faulty = FaultyStore(
            store, lambda number, name, key: Fault(before=answer_lost()) if name == "delete" else None
        )
        lease = party.acquire(faulty, "mine")
        faulty.log.clear()
        before = faulty.numbered
        assert lease.release() is True
        assert faulty.numbered - before == 2
        assert store.get(LEASE_KEY) is not None
        assert read_holder(store) is None

    def test_a_takeover_while_releasing_survives(self, store: ObjectStore, party: Party) -> None:
        """Whatever a sweep with plain writes does between two calls of the release, its lease stays."""
        for step in itertools.count(1):
            lease_store = FaultyStore(store, lambda *_: None, methods=READS + WRITES)
            lease = party.acquire(lease_store, "mine")
            start = lease_store.numbered
            taken: list[bytes] = []

            def take(taken: list[bytes] = taken) -> None:
                store.delete(LEASE_KEY)
                taken.append(_put(store, run_id="reference"))

            # The last call of a release by tombstone is a plain delete: its residual is in the notes.
            last = 1 if store.capabilities.conditional_delete else 0
            calls = (2 if store.capabilities.conditional_delete else 4) - 1 + last
            if step > calls:
                break
            lease_store.plan = lambda number, *_, at=start + step, take=take: (
                Fault(hook=take) if number == at else None
            )
            lease.release()
            assert store.get(LEASE_KEY) == taken[0]
            store.delete(LEASE_KEY)

    def test_a_delete_that_comes_late_is_not_sent_without_a_new_tombstone(
        self, party: Party, clock: FakeClock
    ) -> None:
        store = open_store(f"memory://lease-{next(_names)}")
        faulty = FaultyStore(store, lambda *_: None, methods=READS + WRITES)
        lease = party.acquire(faulty, "mine")
        faulty.log.clear()
        slow = iter([Fault(hook=lambda: clock.advance(6))])
        faulty.plan = lambda number, name, key: next(slow, None) if name == "put_if_match" else None
        assert lease.release() is True
        changes = [name for name, _ in faulty.log if name in WRITES]
        assert changes == ["put_if_match", "put_if_match", "delete"]
        assert store.get(LEASE_KEY) is None

    def test_a_store_that_turns_out_to_offer_no_conditional_delete_gets_a_tombstone(
        self, party: Party, tmp_path: Path
    ) -> None:
        inner = open_store(tmp_path / "store")
        unsupported = DeclarationError("no", kind="unsupported")
        faulty = FaultyStore(
            inner, lambda number, name, key: Fault(before=unsupported) if name == "delete_if_match" else None
        )
        lease = party.acquire(faulty, "mine")
        assert lease.release() is True
        assert faulty.calls["delete"] == 1
        assert inner.get(LEASE_KEY) is None

    def test_a_release_that_never_gets_through_says_so(self, store: ObjectStore, party: Party) -> None:
        faulty = FaultyStore(store, lambda *_: None)
        lease = party.acquire(faulty, "mine")
        faulty.plan = lambda *_: Fault(before=answer_lost())
        with pytest.raises(StoreUnavailableError) as caught:
            lease.release()
        assert caught.value.kind == "lease-contended"
        assert _fields(store)["run_id"] == "mine"


class TestTombstone:
    @pytest.fixture
    def store(self) -> ObjectStore:
        return open_store(f"memory://lease-{next(_names)}")

    @pytest.fixture
    def buried(self, store: ObjectStore, party: Party) -> bytes:
        """What a run leaves that is killed between its tombstone and its delete."""
        faulty = FaultyStore(store, lambda *_: None)
        lease = party.acquire(faulty, "dead")
        killed = KeyboardInterrupt()
        faulty.plan = lambda number, name, key: Fault(before=killed) if name == "delete" else None
        with pytest.raises(KeyboardInterrupt):
            lease.release()
        data = store.get(LEASE_KEY)
        assert data is not None
        return data

    def test_it_is_no_lease_for_anybody(self, store: ObjectStore, buried: bytes) -> None:
        assert json.loads(buried)["spec"] != _SPEC
        assert read_holder(store) is None

    @pytest.mark.parametrize("run_id", ["other", "dead"])
    def test_a_young_one_is_waited_for_and_then_claimed(
        self, store: ObjectStore, party: Party, clock: FakeClock, buried: bytes, run_id: str
    ) -> None:
        begun = clock.monotonic()
        lease = party.acquire(store, run_id)
        assert 300 <= clock.monotonic() - begun <= 305
        assert (lease.claimed_from, lease.readmitted) == (None, False)
        lease.check()

    def test_an_old_one_is_claimed_at_once(
        self, store: ObjectStore, party: Party, clock: FakeClock, buried: bytes
    ) -> None:
        clock.advance(301)
        begun = clock.monotonic()
        party.acquire(store, "other")
        assert clock.monotonic() == begun

    @pytest.mark.parametrize("released_at", ["soon", "2099-01-01T00:00:00+00:00"])
    def test_one_whose_time_means_nothing_is_watched(
        self, store: ObjectStore, party: Party, clock: FakeClock, buried: bytes, released_at: str
    ) -> None:
        store.put(LEASE_KEY, json.dumps({**json.loads(buried), "released_at": released_at}).encode())
        begun = clock.monotonic()
        party.acquire(store, "other")
        assert clock.monotonic() - begun > 300

    def test_the_wait_ends_with_the_delete(
        self, store: ObjectStore, party: Party, clock: FakeClock, buried: bytes
    ) -> None:
        def plan(number: int, name: str, key: str) -> Fault | None:
            return Fault(hook=lambda: store.delete(LEASE_KEY)) if number == 3 else None

        begun = clock.monotonic()
        party.acquire(FaultyStore(store, plan, methods=READS), "other")
        assert clock.monotonic() - begun < 10


class TestUnlock:
    def test_the_named_run_is_removed(self, store: ObjectStore, party: Party) -> None:
        lease = party.acquire(store, "dead", 60)
        holder = party.unlock(store, "dead")
        assert (holder.run_id, holder.ttl_s) == ("dead", 60)
        assert store.get(LEASE_KEY) is None
        assert lease.run_id == "dead"

    def test_another_run_is_refused(self, store: ObjectStore, party: Party) -> None:
        data = _put(store)
        with pytest.raises(LeaseHeldError, match="'stage-example'"):
            party.unlock(store, "dead")
        assert store.get(LEASE_KEY) == data

    @pytest.mark.parametrize("left", [None, b"garbage"])
    def test_nobody_is_refused(self, store: ObjectStore, party: Party, left: bytes | None) -> None:
        if left is not None:
            store.put(LEASE_KEY, left)
        with pytest.raises(DeclarationError, match="nobody"):
            party.unlock(store, "dead")
        assert store.get(LEASE_KEY) == left


class TestFence:
    @pytest.fixture
    def fenced(self, store: ObjectStore, party: Party) -> FencedStore:
        lease = party.acquire(store, "mine", 60)
        store.put("a", b"12345")
        return FencedStore(store, lease)

    def _writes(self, fenced: FencedStore, key: str, etag: str) -> list[Callable[[], object]]:
        return [
            lambda: fenced.put(key, b"1"),
            lambda: fenced.put_if_absent(key, b"1"),
            lambda: fenced.put_if_match(key, b"1", etag),
            lambda: fenced.touch(key),
            lambda: fenced.delete(key),
            lambda: fenced.delete_if_match(key, etag),
        ]

    def test_it_is_a_store(self, fenced: FencedStore, store: ObjectStore) -> None:
        assert isinstance(fenced, ObjectStore)
        assert (fenced.root, fenced.concurrency) == (store.root, store.concurrency)
        assert fenced.capabilities == store.capabilities
        assert fenced.sibling(".status").root == store.root + ".status"

    def test_it_writes_while_the_lease_holds(self, fenced: FencedStore, store: ObjectStore) -> None:
        fenced.put("b", b"1")
        assert store.get("b") == b"1"
        assert fenced.touch("b")
        assert fenced.put_if_absent("b", b"2") is Refused.EXISTS
        seen = fenced.get_versioned("b")
        assert seen is not None
        assert isinstance(fenced.put_if_match("b", b"3", seen.etag), Written)
        fenced.delete("b")
        assert store.get("b") is None

    def test_no_write_passes_after_the_loss_and_every_read_does(
        self, fenced: FencedStore, store: ObjectStore, clock: FakeClock
    ) -> None:
        clock.advance(55)
        seen = fenced.get_versioned("a")
        assert seen is not None
        for write in self._writes(fenced, "a", seen.etag):
            with pytest.raises(LeaseLostError):
                write()
        assert fenced.get("a") == store.get("a") == b"12345"
        assert fenced.get_range("a", 1, 2) == b"23"
        assert fenced.get_suffix("a", 2) == b"45"
        assert {info.key for info in fenced.list()} == {LEASE_KEY, "a"}
        assert len(fenced.list_dir().objects) == 2

    def test_a_holder_with_lone_surrogates_can_be_printed(self, store: ObjectStore, party: Party) -> None:
        _put(store, run_id="a\ud800b", acquired_at="\udfff", scope=["\ud800"], claimed_from="\ud800")
        with pytest.raises(LeaseHeldError) as caught:
            party.unlock(store, "dead")
        assert r"a\ud800b" in caught.value.message.replace("\\\\", "\\")
        holder = read_holder(store)
        assert isinstance(holder, Holder)
        assert repr(holder).encode()
        for text in (holder.run_id, holder.acquired_at, holder.claimed_from, *(holder.scope or ())):
            assert str(text).encode().startswith((b"a", b"\\"))


def test_a_foreign_ttl_of_this_run_is_not_waited_for(store: ObjectStore, party: Party) -> None:
    _put(store, run_id="mine", ttl_s=10**18)
    lease = party.acquire(store, "mine")
    assert lease.ttl_s == 10**18
    assert lease._due_in_s() <= 604_800 < threading.TIMEOUT_MAX
