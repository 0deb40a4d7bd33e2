"""Firing the finisher: retried, refused, throttled, lost, late.

Source: semantics 12.5 (8), 12.6.
"""

from __future__ import annotations

import pytest
from tests.support.fleets import EventClock, Json, PlayedFleet, Script, played_barrier
from tests.support.sweeping import memory

from sweep.errors import AccessError, FleetUnreachableError, LeaseHeldError, StoreUnavailableError
from sweep.fleet.finishing import fire_finisher
from sweep.fleet.transport import Delivery, Limits, Submission
from sweep.model.invocation import FinisherInvocation
from sweep.store.base import ObjectStore
from sweep.testing.stores import Fault, FaultyStore

INVOCATION = FinisherInvocation(
    store_path="ROOT",
    run_id="stage-played",
    records_from="ROOT.status/run-stage-played",
    touch_policy="auto",
    barrier_timed_out=False,
    short_orders=(),
    leaves=(),
)


class Played:
    """A finisher that follows one script for each attempt, the last one for all that follow."""

    def __init__(self, *scripts: Script, limits: Limits | None = None) -> None:
        self.clock = EventClock()
        self.scripts = list(scripts)
        self.fleet = PlayedFleet(memory(), self.clock, self._play, limits)

    def _play(self, event: Json, fleet: PlayedFleet) -> Submission | Delivery | None:
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        return script(event, fleet)

    def run(
        self,
        *,
        attempts: int = 3,
        timeout_s: float = 1000.0,
        budget_s: float = 10_000.0,
        status: ObjectStore | None = None,
    ) -> tuple[bool, str]:
        barrier = played_barrier(self.fleet, status, timeout_s=timeout_s, budget_s=budget_s)
        started = self.clock.monotonic()
        try:
            return fire_finisher(INVOCATION, barrier=barrier, poller=barrier.poller, attempts=attempts)
        finally:
            self.waited_s = self.clock.monotonic() - started
            self.charged_s = budget_s - barrier.budget.left_s

    @property
    def tried(self) -> list[int]:
        return [event.get("attempt", 1) for event in self.fleet.fired]


def finishes(event: Json, fleet: PlayedFleet) -> None:
    fleet.status.put("finisher.json", b"{}")


def is_lost(event: Json, fleet: PlayedFleet) -> None:
    pass


def after(seconds: float, what: Script = finishes) -> Script:
    def play(event: Json, fleet: PlayedFleet) -> None:
        assert isinstance(fleet.clock, EventClock)
        fleet.clock.after(seconds, lambda: what(event, fleet))

    return play


def test_it_lands() -> None:
    played = Played(after(20.0))
    assert played.run() == (True, "")
    assert played.tried == [1]
    assert 20.0 <= played.waited_s < 23.0
    assert played.charged_s == pytest.approx(played.waited_s)
    assert played.fleet.fired[0]["key"] == "finisher-1"
    assert "attempt" not in played.fleet.fired[0]


def test_a_record_that_stood_before_is_not_its_word() -> None:
    played = Played(is_lost)
    played.fleet.status.put("finisher.json", b"{}")
    barrier = played_barrier(played.fleet, timeout_s=30.0)
    barrier.poller.snapshot()
    landed, error = fire_finisher(INVOCATION, barrier=barrier, poller=barrier.poller, attempts=3)
    assert (landed, error) == (False, "no word from the finisher within the barrier's time")


@pytest.mark.parametrize(
    "first",
    [
        lambda event, fleet: fleet.fail(event, "retry"),
        lambda event, fleet: fleet.fail(event, "split"),
        lambda event, fleet: fleet.lose(event),
        after(30.0, lambda event, fleet: fleet.lose(event)),
        is_lost,
    ],
    ids=["failed", "out of memory", "killed", "killed later", "silent"],
)
def test_it_is_fired_again(first: Script) -> None:
    played = Played(first, finishes, limits=Limits(run_s=60.0))
    assert played.run() == (True, "")
    assert played.tried == [1, 2]
    assert played.waited_s < 70.0
    assert played.charged_s == pytest.approx(played.waited_s)


def test_not_for_ever() -> None:
    played = Played(lambda event, fleet: fleet.fail(event, "retry"))
    assert played.run(attempts=3) == (False, "PlayedError: asked to retry")
    assert played.tried == [1, 2, 3]
    played = Played(is_lost, limits=Limits(run_s=60.0))
    assert played.run(attempts=2) == (False, "no word from the finisher within its time")
    assert played.charged_s == pytest.approx(played.waited_s)


def test_a_refusal_is_final() -> None:
    played = Played(lambda event, fleet: fleet.fail(event, "refused"))
    assert played.run() == (False, "PlayedError: asked to refused")
    assert played.tried == [1]


def test_the_last_error_is_told_when_time_is_over() -> None:
    played = Played(lambda event, fleet: fleet.fail(event, "retry"), is_lost)
    assert played.run(timeout_s=50.0) == (False, "PlayedError: asked to retry")
    assert played.waited_s == pytest.approx(50.0)


def test_failures_of_others_are_not_its_own() -> None:
    def stranger(event: Json, fleet: PlayedFleet) -> None:
        fleet.fail({"role": "stage", "dispatch": 0, "batch": 0}, "stop")
        fleet.fail(event | {"attempt": 2}, "refused")
        after(10.0)(event, fleet)

    played = Played(stranger)
    assert played.run() == (True, "")
    assert played.tried == [1]


def test_a_held_store_ends_the_run() -> None:
    played = Played(lambda event, fleet: fleet.fail(event, "held", error="held by stage-other"))
    with pytest.raises(LeaseHeldError, match="held by stage-other"):
        played.run()


def test_what_may_have_been_taken_is_waited_for() -> None:
    def taken(event: Json, fleet: PlayedFleet) -> Delivery:
        after(5.0)(event, fleet)
        return Delivery.MAYBE

    played = Played(taken)
    assert played.run() == (True, "")
    assert played.tried == [1]


def test_a_throttle_uses_up_no_attempt() -> None:
    def throttled(event: Json, fleet: PlayedFleet) -> Submission:
        return Submission(key=event["key"], delivery=Delivery.REFUSED, reason="busy", retry_after_s=9.0)

    played = Played(throttled, throttled, throttled, throttled, finishes)
    assert played.run(attempts=1) == (True, "")
    assert played.tried == [1] * 5
    assert played.waited_s == 36.0
    played = Played(throttled)
    assert played.run(timeout_s=20.0) == (False, "not accepted: busy")
    assert played.waited_s == 20.0


def test_refused_by_the_transport() -> None:
    played = Played(lambda event, fleet: Delivery.REFUSED)
    assert played.run() == (False, "not accepted: as played")
    assert played.tried == [1]


def test_a_fleet_that_cannot_be_reached() -> None:
    def unreachable(event: Json, fleet: PlayedFleet) -> None:
        raise AccessError("no such function", kind="no-function")

    with pytest.raises(FleetUnreachableError, match="no such function"):
        Played(unreachable).run()


def test_a_spent_budget_leaves_one_check() -> None:
    assert Played(finishes).run(budget_s=0.0) == (True, "")
    landed, error = Played(after(1.0)).run(budget_s=0.0)
    assert (landed, error) == (False, "no word from the finisher within the barrier's time")


@pytest.mark.parametrize(("faults", "landed"), [(4, True), (10**6, False)])
def test_a_status_prefix_that_does_not_answer(faults: int, landed: bool) -> None:
    played = Played(finishes)

    def plan(number: int, _method: str, _key: str) -> Fault | None:
        return Fault(before=StoreUnavailableError("deaf")) if number <= faults else None

    found, _ = played.run(status=FaultyStore(played.fleet.status, plan, methods=("list",)))
    assert found is landed
    assert played.waited_s < 5.0
