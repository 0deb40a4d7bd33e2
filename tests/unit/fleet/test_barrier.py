"""The barrier: fire, watch, give second chances, and stop waiting when the time is over.

Source: semantics 12.5-12.6.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.fleets import (
    EventClock,
    Json,
    PlayedFleet,
    Script,
    board_of,
    by_try,
    lands,
    played_barrier,
)
from tests.support.sweeping import memory

from sweep.control.records import Reaction
from sweep.errors import (
    AccessError,
    FleetUnreachableError,
    ForeignWriteError,
    LeaseHeldError,
    LeaseLostError,
    StoreUnavailableError,
    SweepError,
)
from sweep.fleet.barrier import Budget, run_error
from sweep.fleet.board import Board
from sweep.fleet.transport import Delivery, Envelope, Limits, Submission
from sweep.store.base import ObjectStore
from sweep.testing.stores import CountingStore, Fault, FaultyStore


def fleet_of(script: Script = lands, limits: Limits | None = None) -> PlayedFleet:
    return PlayedFleet(memory(), EventClock(), script, limits)


def later(seconds: float, what: Script = lands) -> Script:
    """A worker that does so after some time."""

    def play(event: Json, fleet: PlayedFleet) -> None:
        assert isinstance(fleet.clock, EventClock)
        fleet.clock.after(seconds, lambda: what(event, fleet))

    return play


def fails(reaction: Reaction, **more: Any) -> Script:
    return lambda event, fleet: fleet.fail(event, reaction, **more)


def dies(cause: str) -> Script:
    return lambda event, fleet: fleet.lose(event, cause)


def is_lost(event: Json, fleet: PlayedFleet) -> None:
    """The worker that is never heard of."""


def statuses(board: Board) -> list[tuple[int, str, int]]:
    return [(task.number, task.status, task.attempt) for task in board.tasks]


# -- the plain case -------------------------------------------------------------------------


def test_all_records_at_once() -> None:
    fleet = fleet_of()
    board = board_of(3, first=4)
    verdict = played_barrier(fleet).wait([board])
    assert (verdict.timed_out, verdict.waited_s) == (False, 0.0)
    assert statuses(board) == [(4, "done", 1), (5, "done", 1), (6, "done", 1)]
    assert fleet.tries() == [(4, 1), (5, 1), (6, 1)]


def test_nothing_to_wait_for() -> None:
    fleet = fleet_of()
    verdict = played_barrier(fleet).wait([board_of(0)])
    assert (verdict.timed_out, verdict.waited_s, fleet.fired) == (False, 0.0, [])


def test_records_that_come_one_after_another() -> None:
    delays = itertools.count(10, 10)
    fleet = fleet_of(lambda event, fleet: later(next(delays))(event, fleet))
    board = board_of(3)
    verdict = played_barrier(fleet).wait([board])
    assert not verdict.timed_out
    assert 30.0 <= verdict.waited_s <= 33.1
    assert board.n_done() == 3


def test_a_record_that_stood_before_counts_when_it_is_rewritten() -> None:
    fleet = fleet_of(later(50.0))
    fleet.status.put("stage-02-0000.json", b"stale")
    barrier = played_barrier(fleet)
    barrier.poller.snapshot()
    verdict = barrier.wait([board_of(1)])
    assert not verdict.timed_out
    assert verdict.waited_s >= 50.0


def test_a_record_that_stood_before_is_not_enough() -> None:
    fleet = fleet_of(is_lost)
    fleet.status.put("stage-02-0000.json", b"stale")
    barrier = played_barrier(fleet, timeout_s=60.0)
    barrier.poller.snapshot()
    board = board_of(1)
    verdict = barrier.wait([board])
    assert (verdict.timed_out, verdict.waited_s) == (True, 60.0)
    assert [task.error for task in board.given_up()] == ["the barrier's time is over"]


def test_many_are_fired_in_slices() -> None:
    sizes: list[int] = []

    class Slices(PlayedFleet):
        def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
            sizes.append(len(envelopes))
            return super().submit(envelopes)

    fleet = Slices(memory(), EventClock(), lands)
    board = board_of(600, order=5)
    played_barrier(fleet).wait([board])
    assert sizes == [256, 256, 88]
    assert board.n_done() == 600


# -- time -----------------------------------------------------------------------------------


def test_polls_grow_from_fast_to_slow_and_end_at_the_deadline() -> None:
    fleet = fleet_of(is_lost)
    assert isinstance(fleet.clock, EventClock)
    verdict = played_barrier(fleet, timeout_s=102.0, poll_s=4.0).wait([board_of(1)])
    naps = fleet.clock.naps
    assert verdict.timed_out
    assert verdict.waited_s == pytest.approx(102.0)
    assert naps[0] == 0.05
    assert naps[:-1] == sorted(naps[:-1])
    assert naps[-2] == 4.0
    assert 0.0 < naps[-1] <= 4.0
    assert max(naps) == 4.0


def test_a_fast_poll_is_never_slower_than_the_slow_one() -> None:
    fleet = fleet_of()
    barrier = played_barrier(fleet, poll_s=0.01)
    assert [barrier.interval_s(waited_s) for waited_s in (0.0, 1.0, 1e6)] == [0.01, 0.01, 0.01]


def test_the_budget_is_charged_and_shared() -> None:
    fleet = fleet_of(is_lost)
    barrier = played_barrier(fleet, timeout_s=40.0, budget_s=100.0)
    waited = [barrier.wait([board_of(1)]).waited_s for _ in range(4)]
    assert waited == [40.0, 40.0, pytest.approx(20.0), 0.0]
    assert barrier.budget.left_s == 0.0


def test_a_spent_budget_leaves_one_check() -> None:
    status = CountingStore(memory())
    fleet = PlayedFleet(status, EventClock(), by_try({(1, 1): is_lost}))
    board = board_of(3)
    verdict = played_barrier(fleet, budget_s=0.0).wait([board])
    assert (verdict.timed_out, verdict.waited_s) == (True, 0.0)
    assert [status for _, status, _ in statuses(board)] == ["done", "given-up", "done"]
    assert status.calls["list"] == 2


def test_a_budget_is_never_negative() -> None:
    budget = Budget(left_s=5.0)
    budget.charge(7.0)
    assert budget.left_s == 0.0


def test_an_expiry_is_said(caplog: pytest.LogCaptureFixture) -> None:
    played_barrier(fleet_of(is_lost), timeout_s=10.0).wait([board_of(1)])
    assert [entry.__dict__["event"] for entry in caplog.records] == ["barrier-timeout"]


def test_progress_is_told_at_every_poll() -> None:
    seen: list[tuple[int, float]] = []
    fleet = fleet_of(later(1.0))
    barrier = played_barrier(
        fleet, progress=lambda boards, waited_s: seen.append((boards[0].n_done(), waited_s))
    )
    barrier.wait([board_of(2)])
    assert seen[0] == (0, 0.0)
    assert seen[-1][0] == 2
    assert [moment for _, moment in seen] == sorted(moment for _, moment in seen)


# -- second chances -------------------------------------------------------------------------


def test_a_lost_worker_is_fired_again_as_soon_as_it_is_known() -> None:
    fleet = fleet_of(by_try({(1, 1): dies("killed")}))
    board = board_of(3)
    verdict = played_barrier(fleet).wait([board])
    assert (verdict.timed_out, verdict.waited_s) == (False, 0.0)
    assert fleet.tries() == [(0, 1), (1, 1), (2, 1), (1, 2)]
    assert statuses(board) == [(0, "done", 1), (1, "done", 2), (2, "done", 1)]
    assert board.retries == 1


@pytest.mark.parametrize("cause", ["memory", "time"])
def test_a_worker_that_died_of_size_is_fired_smaller(cause: str) -> None:
    fleet = fleet_of(by_try({(0, 1): dies(cause)}))
    board = board_of(1, size=4)
    assert not played_barrier(fleet).wait([board]).timed_out
    assert fleet.tries() == [(0, 1), (1, 2), (2, 2)]
    assert [len(event["nodes"]) for event in fleet.fired] == [4, 2, 2]


def test_a_silent_attempt_is_lost_after_its_own_time() -> None:
    fleet = fleet_of(by_try({(0, 1): is_lost}), Limits(run_s=60.0, start_s=20.0))
    board = board_of(1)
    verdict = played_barrier(fleet).wait([board])
    assert not verdict.timed_out
    assert 80.0 < verdict.waited_s < 86.0
    assert fleet.tries() == [(0, 1), (0, 2)]


def test_attempts_end() -> None:
    fleet = fleet_of(is_lost, Limits(run_s=60.0))
    board = board_of(2, attempts=3)
    verdict = played_barrier(fleet).wait([board])
    assert not verdict.timed_out  # all is settled: nobody is waited for
    assert sorted(fleet.tries()) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]
    assert statuses(board) == [(0, "given-up", 3), (1, "given-up", 3)]


def test_without_a_limit_silence_lasts_until_the_barrier_ends() -> None:
    fleet = fleet_of(is_lost)
    assert played_barrier(fleet, timeout_s=500.0).wait([board_of(1)]).waited_s == 500.0
    assert fleet.tries() == [(0, 1)]


def test_a_failure_is_answered_in_seconds() -> None:
    fleet = fleet_of(by_try({(0, 1): later(3.0, fails("retry"))}), Limits(run_s=900.0))
    board = board_of(1)
    verdict = played_barrier(fleet).wait([board])
    assert 3.0 <= verdict.waited_s < 4.0
    assert statuses(board) == [(0, "done", 2)]


def test_a_refusal_is_final_and_holds_nobody_up() -> None:
    fleet = fleet_of(by_try({(1, 1): fails("refused")}), Limits(run_s=900.0))
    board = board_of(2)
    verdict = played_barrier(fleet).wait([board])
    assert (verdict.timed_out, verdict.waited_s) == (False, 0.0)
    assert statuses(board) == [(0, "done", 1), (1, "given-up", 1)]
    assert board.given_up()[0].error == "PlayedError: asked to refused"


def test_a_part_counts_and_the_rest_is_fired_again() -> None:
    def part(event: Json, fleet: PlayedFleet) -> None:
        fleet.land_part(event)
        fleet.fail(event, "split", remaining=event["nodes"][1:])

    fleet = fleet_of(by_try({(0, 1): part}))
    board = board_of(2, size=3)
    assert not played_barrier(fleet).wait([board]).timed_out
    assert statuses(board) == [(0, "done", 1), (1, "done", 1), (2, "done", 2), (3, "done", 2)]
    first = fleet.fired[0]["nodes"]
    assert [event["nodes"] for event in fleet.fired[2:]] == [[first[1]], [first[2]]]


def test_a_part_alone_ends_nothing() -> None:
    """The record of a part stands before its failure is heard: the barrier waits for the rest."""

    def part(event: Json, fleet: PlayedFleet) -> None:
        fleet.land_part(event)
        later(20.0, fails("split", remaining=event["nodes"][1:]))(event, fleet)

    fleet = fleet_of(by_try({(0, 1): part}))
    board = board_of(1, size=2)
    verdict = played_barrier(fleet).wait([board])
    assert verdict.waited_s >= 20.0
    assert [event["nodes"] for event in fleet.fired[1:]] == [fleet.fired[0]["nodes"][1:]]


def test_late_and_double_words_change_nothing() -> None:
    """An attempt is given up as lost, and its failure arrives while the next one runs."""

    def slow(event: Json, fleet: PlayedFleet) -> None:
        later(70.0, fails("refused"))(event, fleet)
        later(75.0, fails("refused"))(event, fleet)

    fleet = fleet_of(by_try({(0, 1): slow, (0, 2): later(30.0)}), Limits(run_s=60.0))
    board = board_of(1)
    assert not played_barrier(fleet).wait([board]).timed_out
    assert statuses(board) == [(0, "done", 2)]


def test_both_attempts_land() -> None:
    fleet = fleet_of(by_try({(0, 1): later(90.0), (0, 2): later(50.0)}), Limits(run_s=60.0))
    board = board_of(1)
    verdict = played_barrier(fleet).wait([board])
    assert 90.0 <= verdict.waited_s < 100.0
    assert statuses(board) == [(0, "done", 2)]


# -- what a transport says ------------------------------------------------------------------


def throttled(retry_after_s: float) -> Script:
    return lambda event, fleet: Submission(
        key=event["key"], delivery=Delivery.REFUSED, reason="busy", retry_after_s=retry_after_s
    )


def test_a_throttle_waits_and_uses_up_no_attempt() -> None:
    answers = iter([throttled(7.0)] * 5)
    fleet = fleet_of(lambda event, fleet: next(answers, lands)(event, fleet))
    board = board_of(1, attempts=1)
    verdict = played_barrier(fleet).wait([board])
    assert not verdict.timed_out
    assert verdict.waited_s >= 35.0
    assert fleet.tries() == [(0, 1)] * 6
    assert statuses(board) == [(0, "done", 1)]


@pytest.mark.parametrize("retry_after_s", [0.0, -1.0, 3.0])
def test_a_throttle_without_end_is_named(retry_after_s: float) -> None:
    fleet = fleet_of(throttled(retry_after_s))
    board = board_of(1)
    verdict = played_barrier(fleet, timeout_s=20.0).wait([board])
    assert (verdict.timed_out, verdict.waited_s) == (True, 20.0)
    assert board.given_up()[0].error == "not accepted: busy"


def test_what_is_refused_for_good_is_named() -> None:
    fleet = fleet_of(by_try({(0, 1): lambda event, fleet: Delivery.REFUSED}))
    board = board_of(2)
    assert not played_barrier(fleet).wait([board]).timed_out
    assert statuses(board) == [(0, "given-up", 1), (1, "done", 1)]
    assert board.given_up()[0].error == "not accepted: as played"


def maybe(event: Json, fleet: PlayedFleet) -> Delivery:
    return Delivery.MAYBE


def test_what_may_have_been_taken_is_sent_again() -> None:
    fleet = fleet_of(by_try({(0, 1): maybe, (0, 2): maybe}))
    board = board_of(1)
    verdict = played_barrier(fleet).wait([board])
    assert not verdict.timed_out
    assert verdict.waited_s >= 1.0 + 2.0
    assert fleet.tries() == [(0, 1), (0, 2), (0, 3)]


def test_what_was_taken_after_all_is_not_sent_again() -> None:
    def taken(event: Json, fleet: PlayedFleet) -> Delivery:
        fleet.land(event)
        return Delivery.MAYBE

    fleet = fleet_of(taken)
    board = board_of(1)
    assert not played_barrier(fleet).wait([board]).timed_out
    assert fleet.tries() == [(0, 1)]


def test_the_last_doubtful_attempt_is_waited_for() -> None:
    def taken(event: Json, fleet: PlayedFleet) -> Delivery:
        later(40.0)(event, fleet)
        return Delivery.MAYBE

    fleet = fleet_of(taken)
    board = board_of(1, attempts=1)
    verdict = played_barrier(fleet).wait([board])
    assert not verdict.timed_out
    assert statuses(board) == [(0, "done", 1)]


def test_a_fleet_that_cannot_be_reached() -> None:
    def unreachable(event: Json, fleet: PlayedFleet) -> None:
        raise AccessError("no such function", kind="no-function", function="f")

    with pytest.raises(FleetUnreachableError, match="no such function") as caught:
        played_barrier(fleet_of(unreachable)).wait([board_of(1)])
    assert (caught.value.kind, caught.value.context) == ("no-function", {"function": "f"})


# -- what ends the run ----------------------------------------------------------------------

ENDINGS: list[tuple[Reaction, str, type[SweepError]]] = [
    ("held", "LeaseHeldError", LeaseHeldError),
    ("stop", "LeaseLostError", LeaseLostError),
    ("stop", "ForeignWriteError", ForeignWriteError),
    ("stop", "AccessError", AccessError),
    ("stop", "AdmissionError", LeaseLostError),
]


@pytest.mark.parametrize(("reaction", "name", "cls"), ENDINGS)
def test_a_worker_ends_the_run(reaction: Reaction, name: str, cls: type[SweepError]) -> None:
    fleet = fleet_of(by_try({(1, 1): later(5.0, fails(reaction, error_class=name, kind="k", error="why"))}))
    with pytest.raises(cls, match=r"why \(reported by dispatch order 2, batch 1\)") as caught:
        played_barrier(fleet).wait([board_of(3)])
    assert type(caught.value) is cls
    assert caught.value.context["run_id"] == "stage-played"


@pytest.mark.parametrize("reaction", ["retry", "split", "refused"])
def test_other_failures_end_no_run(reaction: Reaction) -> None:
    fleet = fleet_of()
    fleet.fail({"role": "stage", "dispatch": 2, "batch": 0}, reaction)
    (failure,) = played_barrier(fleet).poller.failures()
    assert run_error(failure) is None


# -- a status prefix that does not answer ----------------------------------------------------


def deaf(status: ObjectStore, n_polls: int) -> FaultyStore:
    """A store whose first ``n_polls`` LISTs fail."""

    def plan(number: int, _method: str, _key: str) -> Fault | None:
        return Fault(before=StoreUnavailableError("deaf")) if number <= n_polls else None

    return FaultyStore(status, plan, methods=("list",))


def test_four_faults_in_a_row_are_lived_through() -> None:
    fleet = fleet_of()
    board = board_of(2)
    barrier = played_barrier(fleet, deaf(fleet.status, 4))
    assert not barrier.wait([board]).timed_out
    assert board.n_done() == 2


def test_five_end_the_barrier_early() -> None:
    fleet = fleet_of()
    board = board_of(2)
    verdict = played_barrier(fleet, deaf(fleet.status, 10**6)).wait([board])
    assert verdict.timed_out
    assert verdict.waited_s < 5.0
    assert len(board.given_up()) == 2


def test_failures_that_cannot_be_read_hide_no_records() -> None:
    fleet = fleet_of(by_try({(1, 1): fails("retry")}))

    def plan(_number: int, _method: str, _key: str) -> Fault | None:
        return Fault(before=StoreUnavailableError("deaf"))

    board = board_of(2)
    verdict = played_barrier(fleet, FaultyStore(fleet.status, plan, methods=("get",))).wait([board])
    assert verdict.timed_out
    assert verdict.waited_s < 5.0
    assert [status for _, status, _ in statuses(board)] == ["done", "given-up"]


# -- two boards ------------------------------------------------------------------------------


def test_closes_run_beside_the_next_tuple() -> None:
    fleet = fleet_of()
    barrier = played_barrier(fleet)
    closes = board_of(2, first=5, unit="close", order=3)
    fleet.script = later(30.0)
    barrier.fire([closes])
    assert statuses(closes) == [(5, "fired", 1), (6, "fired", 1)]
    board = board_of(2, order=2)
    fleet.script = later(10.0)
    verdict = barrier.wait([closes, board])
    assert fleet.tries() == [(5, 1), (6, 1), (0, 1), (1, 1)]
    assert 30.0 <= verdict.waited_s < 34.0
    assert (closes.n_done(), board.n_done()) == (2, 2)


def test_a_missing_close_is_its_own_boards() -> None:
    fleet = fleet_of(lambda event, fleet: None if event["unit"] == "close" else fleet.land(event))
    closes, board = board_of(1, first=5, unit="close", order=3), board_of(2)
    verdict = played_barrier(fleet, timeout_s=50.0).wait([closes, board])
    assert verdict.timed_out
    assert (len(closes.given_up()), board.given_up()) == (1, [])


def test_lists_begin_behind_what_was_seen() -> None:
    """A long barrier costs short LISTs: keys before the first missing record are not asked for again."""
    status = memory()
    starts: list[str | None] = []

    class Watched(CountingStore):
        def list(self, prefix: str = "", *, start_after: str | None = None) -> Any:
            starts.append(start_after)
            return super().list(prefix, start_after=start_after)

    clock = EventClock()
    delays = {9_998: 1.0, 9_999: 40.0, 10_000: 1.0, 10_001: 20.0}
    fleet = PlayedFleet(status, clock, lambda event, fleet: later(delays[event["batch"]])(event, fleet))
    board = board_of(4, first=9_998, order=3)
    assert not played_barrier(fleet, Watched(status)).wait([board]).timed_out
    pointers = [start for start in starts if start and start.startswith("stage-")]
    assert list(dict.fromkeys(pointers)) == [
        "stage-03-10000.jso",
        "stage-03-10001.jso",
        "stage-03-9999.jso",
    ]
