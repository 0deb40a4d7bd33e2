"""Fleets whose transport, workers, store or dispatcher misbehave on cue.

After each: the nodes are those of an undisturbed run, at once or after one more run; no stamp
contradicts what it vouches for; the summary says what happened; a finished run left no lease.
Source: semantics 9, 12.3, 12.6-12.8; format 7.5.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.compare import compare_objects
from tests.support.fleets import RUN, EventClock, Json, run_fleet_on
from tests.support.small_stores import WIDTH, Objects, plain_store, windowed_store
from tests.support.stamps import broken_stamps, swept_artifacts
from tests.support.sweeping import loaded, make_runtime, objects_in, sweep

from sweep.control.lease import LEASE_KEY, Lease, read_holder
from sweep.errors import AccessError, ForeignWriteError, LeaseHeldError, LeaseLostError, StoreUnavailableError
from sweep.fleet.inline import InlineTransport
from sweep.fleet.options import FleetSummary
from sweep.fleet.transport import Delivery, Envelope, Limits, Lost, Submission
from sweep.model.invocation import Credentials, status_prefix
from sweep.stage.worker import Worker
from sweep.store.base import ObjectStore
from sweep.store.open import open_store
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import READS, WRITES, Fault, FaultyStore

STORES: dict[str, Callable[[], Objects]] = {"plain": plain_store, "windowed": windowed_store}
both_stores = pytest.mark.parametrize("name", STORES)
CONTENTS = ("get", "get_range", "get_suffix")
ACCEPTED = Delivery.ACCEPTED
TTL_S = 900
# A worker without a word counts as lost after this long.
PATIENT = Limits(run_s=60.0, workers=1)


class Killed(BaseException):
    """A process is gone: nothing of the package may catch this."""


def nodes_of(objects: Objects) -> Objects:
    """Everything below the base cells."""
    return {key: data for key, data in objects.items() if re.match(r"-?[1-6]/", key)}


def nodes_in(store: ObjectStore) -> Objects:
    """Everything below the base cells."""
    return nodes_of(objects_in(store))


def roots_in(store: ObjectStore) -> Objects:
    """Everything else but the records of runs."""
    return {
        key: data for key, data in objects_in(store).items() if not re.match(r"-?[1-6]/|sweep_stats_", key)
    }


class Misbehaving:
    """Workers in this process behind a transport that does as ``cue`` says.

    The cue is called with the number of a submission (from 0), its envelope and this
    transport. It returns what is answered; None is: deliver, and accept.
    """

    name = "misbehaving"

    def __init__(self, inner: InlineTransport, clock: EventClock, cue: Cue, limits: Limits = PATIENT) -> None:
        self.inner = inner
        self.clock = clock
        self.cue = cue
        self.limits = limits
        self.sent: list[Envelope] = []
        self._lost: list[Lost] = []

    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        return [self._submit(envelope) for envelope in envelopes]

    def _submit(self, envelope: Envelope) -> Submission:
        self.sent.append(envelope)
        answer = self.cue(len(self.sent) - 1, envelope, self)
        return answer or self.deliver(envelope)

    def deliver(self, envelope: Envelope) -> Submission:
        """Run the event; a worker that is killed is known to be dead."""
        FakeClock.sleep(self.clock, 1.0)
        try:
            return self.inner.submit([envelope])[0]
        except Killed:
            self._lost.append(Lost(key=envelope.key, cause="killed", detail="on cue"))
            return Submission(key=envelope.key, delivery=ACCEPTED)

    def lost(self) -> list[Lost]:
        found, self._lost = self.inner.lost() + self._lost, []
        return found

    def pending(self) -> int:
        return 0

    def close(self, *, cancel: bool = False) -> None:
        self.inner.close(cancel=cancel)


type Cue = Callable[[int, Envelope, Misbehaving], Submission | None]


def behave(_number: int, _envelope: Envelope, _fleet: Misbehaving) -> Submission | None:
    return None


def at(number: int, act: Cue) -> Cue:
    """Misbehave at one submission."""
    return lambda n, envelope, fleet: act(n, envelope, fleet) if n == number else None


def lose(_number: int, envelope: Envelope, _fleet: Misbehaving) -> Submission:
    """Accept an event and forget it."""
    return Submission(key=envelope.key, delivery=ACCEPTED)


type Wrap = Callable[[ObjectStore], ObjectStore]


def as_it_is(store: ObjectStore) -> ObjectStore:
    return store


class Place:
    """A store, its clock, and fleets over it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.store = loaded(STORES[name]())
        self.clock = EventClock()
        self.status = open_store(status_prefix(self.store.root, RUN))

    def fleet(
        self,
        cue: Cue = behave,
        *,
        wrap: Wrap = as_it_is,
        **more: Any,
    ) -> Misbehaving:
        """Workers that open stores through ``wrap``."""

        def open_wrapped(root: str, _credentials: Credentials | None) -> ObjectStore:
            return wrap(open_store(root))

        worker = Worker(runtime=make_runtime(self.clock), open_store=open_wrapped)
        return Misbehaving(InlineTransport(worker), self.clock, cue, **more)

    def run(self, fleet: Misbehaving | None = None, **options: Any) -> FleetSummary:
        options = {"tuple_width": WIDTH, "barrier_timeout_s": 400.0} | options
        return run_fleet_on(self.store, fleet or self.fleet(), clock=self.clock, **options)

    def assert_whole(self, summary: FleetSummary) -> None:
        """The run did everything, and left what an undisturbed one leaves."""
        assert summary.is_complete, summary.document
        assert summary.document["short_orders"] == []
        assert self.differences(same_runs=True) == []
        self.assert_sound(summary)

    def assert_sound(self, summary: FleetSummary | None) -> None:
        """Nothing is half-written under a stamp; a finished run left no lease."""
        assert broken_stamps(objects_in(self.store)) == []
        if summary is not None and summary.document["finisher"]["landed"]:
            assert read_holder(self.store) is None
            assert LEASE_KEY not in objects_in(self.store)

    def assert_heals(self) -> None:
        """One more run leaves what one undisturbed run would have left."""
        assert broken_stamps(objects_in(self.store)) == []
        self.clock.advance(2 * TTL_S)
        summary = self.run(run_id="stage-again", max_nodes=2)
        assert summary.is_complete
        self.assert_sound(summary)
        assert self.differences(same_runs=False) == []

    def differences(self, *, same_runs: bool) -> list[str]:
        nodes, roots = undisturbed(self.name)
        found = compare_objects(nodes, nodes_in(self.store), same_runs=same_runs)
        return found + compare_objects(roots, roots_in(self.store), same_runs=same_runs)


@functools.cache
def undisturbed(name: str) -> tuple[Objects, Objects]:
    """The nodes and the root objects that a run leaves when all goes well."""
    place = Place(name)
    assert place.run().is_complete
    assert len(swept_artifacts(objects_in(place.store))) > 5
    return nodes_in(place.store), roots_in(place.store)


@functools.cache
def n_events(name: str) -> int:
    """Events of such a run; the last is the finisher's."""
    place = Place(name)
    fleet = place.fleet()
    place.run(fleet)
    assert json.loads(fleet.sent[-1].payload)["stage"]["role"] == "finisher"
    return len(fleet.sent)


def retries(summary: FleetSummary) -> int:
    return sum(int(row["retries"]) for row in summary.document["stages"])


def test_an_undisturbed_fleet_leaves_the_nodes_of_one_process() -> None:
    for name, objects in STORES.items():
        store = loaded(objects())
        sweep(store, tuple_width=WIDTH, run_id=RUN)
        assert compare_objects(nodes_in(store), undisturbed(name)[0], same_runs=True) == []


# -- events ---------------------------------------------------------------------------------


@both_stores
def test_any_event_may_be_lost(name: str) -> None:
    for number in range(n_events(name)):
        place = Place(name)
        fleet = place.fleet(at(number, lose))
        summary = place.run(fleet)
        place.assert_whole(summary)
        is_finisher = number == n_events(name) - 1
        assert retries(summary) == (not is_finisher)
        assert len(fleet.sent) == n_events(name) + 1
        assert sum(json.loads(each.payload)["stage"].get("attempt") == 2 for each in fleet.sent) == 1


@both_stores
def test_an_event_that_is_lost_for_good_is_named_and_healed(name: str) -> None:
    for number in range(n_events(name) - 1):
        place = Place(name)
        fleet = place.fleet(at(number, lose))
        summary = place.run(fleet, attempts=1)
        stage = json.loads(fleet.sent[number].payload)["stage"]
        (missing,) = summary.unfinished
        named = (missing["batch"], missing["nodes"], missing["unit"], missing["window"], missing["attempts"])
        assert named == (stage["batch"], stage["nodes"], stage.get("unit"), stage.get("window"), 1)
        assert missing["error"] == "no record and no word within its time"
        assert not summary.is_complete
        assert stage["dispatch"] in summary.document["short_orders"]
        assert place.differences(same_runs=False) != []
        place.assert_sound(summary)
        place.assert_heals()


def twice_at_once(_number: int, envelope: Envelope, fleet: Misbehaving) -> Submission:
    with ThreadPoolExecutor(2) as pool:
        one, _ = pool.map(fleet.deliver, [envelope, envelope])
        return one


@both_stores
def test_every_event_delivered_twice_at_once(name: str) -> None:
    for _ in range(3):
        place = Place(name)
        fleet = place.fleet(twice_at_once)
        summary = place.run(fleet)
        place.assert_whole(summary)
        assert len(fleet.sent) == n_events(name)
        assert summary.document["finisher"]["stage_records"] == n_events(name) - 1


@both_stores
def test_every_event_again_an_hour_after_the_run(name: str) -> None:
    place = Place(name)
    fleet = place.fleet()
    place.assert_whole(place.run(fleet))
    before, records = objects_in(place.store), objects_in(place.status)
    place.clock.advance(3600.0)
    for envelope in [*fleet.sent, *reversed(fleet.sent)]:
        fleet.deliver(envelope)
    assert objects_in(place.store) == before
    assert objects_in(place.status) == records
    assert fleet.lost() == []


@both_stores
def test_every_earlier_event_again_behind_each_event(name: str) -> None:
    """Late doubles of the finest nodes arrive while coarser ones are folded, and after the finisher."""

    def again(number: int, envelope: Envelope, fleet: Misbehaving) -> Submission:
        outcome = fleet.deliver(envelope)
        for earlier in fleet.sent[:number]:
            fleet.deliver(earlier)
        return outcome

    place = Place(name)
    summary = place.run(place.fleet(again))
    place.assert_whole(summary)
    # no record gave way to that of a double, which finds everything current
    usual = Place(name).run()
    for key in ("written", "columns_written", "current", "under_covered"):
        assert summary.count(key) == usual.count(key)
    assert summary.under_covered == usual.under_covered


@both_stores
def test_a_wave_that_arrives_late_and_backwards(name: str) -> None:
    place = Place(name)
    order: list[str] = []

    def later(number: int, envelope: Envelope, fleet: Misbehaving) -> Submission:
        def arrive() -> None:
            order.append(envelope.key)
            fleet.deliver(envelope)

        place.clock.after(50.0 - number, arrive)
        return Submission(key=envelope.key, delivery=ACCEPTED)

    fleet = place.fleet(later)
    place.assert_whole(place.run(fleet))
    sent = [envelope.key for envelope in fleet.sent]
    assert order != sent
    assert sorted(order) == sorted(sent)


@both_stores
def test_a_slow_event_is_fired_again_and_both_arrive(name: str) -> None:
    """The first attempt was not lost: it lands long after the second, when coarser nodes are done."""
    for number in range(n_events(name)):
        place = Place(name)

        def slow(_number: int, envelope: Envelope, fleet: Misbehaving, place: Place = place) -> Submission:
            place.clock.after(90.0, lambda: fleet.deliver(envelope))
            return Submission(key=envelope.key, delivery=ACCEPTED)

        summary = place.run(place.fleet(at(number, slow)))
        place.assert_whole(summary)
        before = objects_in(place.store)
        place.clock.sleep(100.0)
        assert objects_in(place.store) == before


@both_stores
def test_a_double_that_wakes_after_the_run_leaves_no_lease(name: str) -> None:
    """It saw neither its own record nor the finisher's, and then slept before it asked for the lease."""
    for number in range(n_events(name) - 1):
        place = Place(name)
        twin = place.fleet()
        summaries: list[FleetSummary] = []
        naps: list[Callable[[], object]] = []

        def plan(
            _number: int, _method: str, key: str, naps: list[Callable[[], object]] = naps
        ) -> Fault | None:
            return Fault(hook=naps.pop()) if key == LEASE_KEY and naps else None

        def sleepy(store: ObjectStore, plan: Callable[..., Fault | None] = plan) -> ObjectStore:
            return FaultyStore(store, plan, methods=READS)

        slow = place.fleet(wrap=sleepy)

        def cue(
            _number: int,
            envelope: Envelope,
            fleet: Misbehaving,
            place: Place = place,
            naps: list[Callable[[], object]] = naps,
            slow: Misbehaving = slow,
            twin: Misbehaving = twin,
            summaries: list[FleetSummary] = summaries,
        ) -> Submission:
            # The whole run happens while the slow one sleeps; its own dispatcher is gone by then.
            naps.append(lambda: summaries.append(place.run(twin, keep_complete=True)))
            slow.deliver(envelope)
            raise Killed

        with pytest.raises(Killed):
            place.run(place.fleet(at(number, cue)))
        (summary,) = summaries
        place.assert_whole(summary)


# -- submissions ----------------------------------------------------------------------------


@both_stores
@pytest.mark.parametrize("retry_after_s", [0.0, 3.0])
def test_throttled_submissions_cost_time_and_no_attempt(name: str, retry_after_s: float) -> None:
    seen: dict[str, int] = {}

    def throttle(_number: int, envelope: Envelope, _fleet: Misbehaving) -> Submission | None:
        seen[envelope.key] = seen.get(envelope.key, 0) + 1
        if seen[envelope.key] > 3:
            return None
        return Submission(
            key=envelope.key, delivery=Delivery.REFUSED, reason="slow down", retry_after_s=retry_after_s
        )

    place = Place(name)
    summary = place.run(place.fleet(throttle), attempts=1)
    place.assert_whole(summary)
    assert retries(summary) == 0
    assert set(seen.values()) == {4}
    assert len(seen) == n_events(name)


@both_stores
@pytest.mark.parametrize("is_taken", [True, False])
def test_submissions_of_which_nobody_knows(name: str, is_taken: bool) -> None:
    """A connection breaks at every first attempt, after or before the event was taken."""

    def doubtful(_number: int, envelope: Envelope, fleet: Misbehaving) -> Submission | None:
        if "attempt" in json.loads(envelope.payload)["stage"]:
            return None
        if is_taken:
            fleet.deliver(envelope)
        return Submission(key=envelope.key, delivery=Delivery.MAYBE, reason="connection reset")

    place = Place(name)
    place.assert_whole(place.run(place.fleet(doubtful)))


# -- workers --------------------------------------------------------------------------------


def worker_faults(
    name: str, make: Callable[[], BaseException], methods: tuple[str, ...], number: int
) -> bool:
    """A run of which one worker's n-th store call fails; whether there was such a call."""
    place = Place(name)
    calls = [0]
    hit = [False]

    def plan(_number: int, _method: str, _key: str) -> Fault | None:
        calls[0] += 1
        if calls[0] != number:
            return None
        hit[0] = True
        return Fault(before=make())

    fleet = place.fleet(wrap=lambda store: FaultyStore(store, plan, methods=methods))
    summary = place.run(fleet)
    if hit[0]:
        assert summary.document["finisher"]["landed"]
        place.assert_sound(summary)
        if not summary.is_complete or place.differences(same_runs=True):
            place.assert_heals()
    return hit[0]


def away() -> StoreUnavailableError:
    return StoreUnavailableError("the store is away on cue", kind="unavailable")


WAYS: dict[str, Callable[[], BaseException]] = {"killed": Killed, "away": away}


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_ends_at_some_writes(way: str) -> None:
    n_hit = sum(worker_faults("plain", WAYS[way], WRITES, number) for number in range(1, 400, 13))
    assert n_hit > 10


@pytest.mark.slow
@pytest.mark.timeout(600)
@both_stores
@pytest.mark.parametrize("methods", [WRITES, READS], ids=["writes", "reads"])
@pytest.mark.parametrize("way", WAYS)
def test_a_worker_ends_at_any_call(name: str, way: str, methods: tuple[str, ...], short: bool) -> None:
    number = 1
    while worker_faults(name, WAYS[way], methods, number):
        number += 29 if short else 1
    assert number > 100


def record_faults(place: Place, error: Exception, times: int) -> Wrap:
    """Workers whose PUTs of stage records fail."""
    left = [times]

    def plan(_number: int, _method: str, key: str) -> Fault | None:
        if not key.startswith("stage-") or not left[0]:
            return None
        left[0] -= 1
        return Fault(before=error)

    return lambda store: FaultyStore(store, plan) if store.root == place.status.root else store


@both_stores
def test_a_record_that_could_not_be_put_is_asked_for_again(name: str) -> None:
    place = Place(name)
    summary = place.run(place.fleet(wrap=record_faults(place, away(), 1)))
    place.assert_whole(summary)
    assert retries(summary) == 1


@both_stores
def test_a_status_prefix_that_takes_no_record_ends_the_run(name: str) -> None:
    place = Place(name)
    with pytest.raises(AccessError, match="read only"):
        place.run(place.fleet(wrap=record_faults(place, AccessError("read only"), 99)))
    place.assert_sound(None)
    summary = place.run(max_nodes=2, keep_complete=True)
    place.assert_whole(summary)


# -- the dispatcher's sight -----------------------------------------------------------------


def deaf(calls: range) -> Callable[[str], ObjectStore]:
    """Opens a status prefix of which the named LISTs fail; the first is made before anything is fired."""

    def plan(number: int, _method: str, _key: str) -> Fault | None:
        return Fault(before=away()) if number in calls else None

    return lambda prefix: FaultyStore(open_store(prefix), plan, methods=("list",))


@both_stores
@pytest.mark.parametrize("first", [2, 3, 4, 7])
def test_four_deaf_polls_are_lived_through(name: str, first: int) -> None:
    place = Place(name)
    summary = place.run(status=deaf(range(first, first + 4)))
    place.assert_whole(summary)
    assert (retries(summary), summary.document["barrier_timed_out"]) == (0, False)


@both_stores
def test_a_prefix_that_is_never_listed(name: str) -> None:
    place = Place(name)
    started = place.clock.monotonic()
    summary = place.run(status=deaf(range(2, 10**6)))
    assert place.clock.monotonic() - started < 100.0
    assert not summary.is_complete
    assert summary.document["barrier_timed_out"] is True
    assert summary.document["short_orders"] == [2, 1, 0]
    assert len(summary.unfinished) == n_events(name) - 1
    assert summary.document["finisher"]["landed"] is False
    assert summary.document["finisher"]["error"]
    # the workers did their work all the same, unheard
    assert compare_objects(undisturbed(name)[0], nodes_in(place.store), same_runs=True) == []
    place.assert_heals()


def test_a_prefix_that_cannot_be_listed_at_first_fires_nothing() -> None:
    place = Place("plain")
    before = objects_in(place.store)
    fleet = place.fleet()
    with pytest.raises(StoreUnavailableError):
        place.run(fleet, status=deaf(range(1, 10**6)))
    assert (fleet.sent, objects_in(place.store)) == ([], before)


# -- other runs -----------------------------------------------------------------------------


@both_stores
def test_another_run_takes_the_store_between_two_events(name: str) -> None:
    for number in range(1, n_events(name)):
        place = Place(name)

        def take(_number: int, _envelope: Envelope, _fleet: Misbehaving, place: Place = place) -> None:
            place.clock.advance(2 * TTL_S)
            make_holder(place)

        with pytest.raises(LeaseHeldError, match="stage-other"):
            place.run(place.fleet(at(number, take)))
        place.assert_sound(None)
        holder = read_holder(place.store)
        assert holder is not None
        assert holder.run_id == "stage-other"
        sweep(place.store, clock=place.clock, tuple_width=WIDTH, run_id="stage-other")
        assert compare_objects(undisturbed(name)[0], nodes_in(place.store), same_runs=False) == []
        place.clock.advance(5.0)
        place.assert_sound(place.run(keep_complete=True, max_nodes=2))
        assert place.differences(same_runs=False) == []


def make_holder(place: Place) -> None:
    Lease.acquire(
        place.store, run_id="stage-other", ttl_s=TTL_S, clock=place.clock, new_id=make_runtime().new_id
    )


@both_stores
@pytest.mark.parametrize("number", [3, 20, 45])
def test_a_worker_that_was_taken_over_writes_no_more(name: str, number: int) -> None:
    """Another run sweeps the whole store while this one's worker sleeps at a read."""
    place = Place(name)
    after: list[Objects] = []

    def sleep_long() -> None:
        place.clock.advance(2 * TTL_S)
        sweep(place.store, clock=place.clock, tuple_width=WIDTH, run_id="stage-other")
        after.append(objects_in(place.store))

    calls = [0]

    def plan(_number: int, _method: str, _key: str) -> Fault | None:
        calls[0] += 1
        return Fault(hook=sleep_long) if calls[0] == number else None

    fleet = place.fleet(
        wrap=lambda store: FaultyStore(store, plan, methods=("get_range", "get_suffix", "get"))
    )
    with pytest.raises((LeaseLostError, ForeignWriteError)):
        place.run(fleet)
    # later batches found a free store and took it, and all that they had to do was done
    assert nodes_in(place.store) == nodes_of(after[0])
    assert len(after) == 1
    place.assert_heals()


# -- the dispatcher dies --------------------------------------------------------------------


def dies_at(step: int, place: Place) -> bool:
    """Run a dispatcher that dies at its n-th step: an event (before or after it ran), a LIST or a GET."""
    steps = [0]

    def count() -> None:
        steps[0] += 1
        if steps[0] == step:
            raise Killed

    def cue(_number: int, envelope: Envelope, fleet: Misbehaving) -> Submission:
        count()
        outcome = fleet.deliver(envelope)
        count()
        return outcome

    def status(prefix: str) -> ObjectStore:
        return FaultyStore(open_store(prefix), lambda *_: Fault(hook=count), methods=READS)

    try:
        place.run(place.fleet(cue), status=status)
    except Killed:
        return True
    return False


def redriven(name: str, step: int, **options: Any) -> bool:
    """A run that is driven to its end after the dispatcher died; whether it did."""
    place = Place(name)
    if not dies_at(step, place):
        return False
    place.assert_sound(None)
    summary = place.run(**options)
    place.assert_whole(summary)
    return True


@both_stores
@pytest.mark.parametrize("options", [{"max_nodes": 2}, {"max_nodes": None, "keep_complete": True}], ids=str)
def test_a_dispatcher_that_died_at_some_step_is_driven_again(name: str, options: Json) -> None:
    n_died = sum(redriven(name, step, **options) for step in range(1, 60, 5))
    assert n_died > 3


@pytest.mark.slow
@both_stores
@pytest.mark.parametrize("max_nodes", [1, 2, None])
@pytest.mark.parametrize("keep", [True, False])
def test_a_dispatcher_that_died_at_any_step_is_driven_again(
    name: str, max_nodes: int | None, keep: bool, short: bool
) -> None:
    step = 1
    while redriven(name, step, max_nodes=max_nodes, keep_complete=keep):
        step += 9 if short else 1
    assert step > 20


# -- the finisher ---------------------------------------------------------------------------


@both_stores
@pytest.mark.parametrize("hours", [0, 1])
def test_a_finisher_that_runs_twice(name: str, hours: int) -> None:
    place = Place(name)

    def twice(_number: int, envelope: Envelope, fleet: Misbehaving) -> Submission:
        outcome = fleet.deliver(envelope)
        before = objects_in(place.store), objects_in(place.status)
        place.clock.advance(3600.0 * hours)
        fleet.deliver(envelope)
        assert (objects_in(place.store), objects_in(place.status)) == before
        return outcome

    place.assert_whole(place.run(place.fleet(at(n_events(name) - 1, twice))))


@both_stores
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_finisher_that_is_lost(name: str, times: int) -> None:
    place = Place(name)

    def cue(number: int, envelope: Envelope, _fleet: Misbehaving) -> Submission | None:
        is_lost = 0 <= number - (n_events(name) - 1) < times
        return Submission(key=envelope.key, delivery=ACCEPTED) if is_lost else None

    summary = place.run(place.fleet(cue))
    if times < 3:
        place.assert_whole(summary)
        return
    assert summary.document["finisher"]["landed"] is False
    assert summary.document["finisher"]["error"] == "no word from the finisher within its time"
    assert not summary.is_complete
    place.assert_sound(summary)
    resumed = place.run(keep_complete=True)
    assert resumed.document["stages"] == []
    place.assert_whole(resumed)
