"""The barrier: fire, watch, give second chances, and stop waiting when the time is over.

Source: semantics 12.6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sweep.control.records import Failure
from sweep.errors import (
    AccessError,
    ForeignWriteError,
    LeaseHeldError,
    LeaseLostError,
    StoreUnavailableError,
    SweepError,
)
from sweep.fleet.board import Board, Task
from sweep.fleet.poller import FAULTS_IN_A_ROW, Poller
from sweep.fleet.transport import Delivery, Envelope, Submission, Transport, no_fleet
from sweep.model.clock import Clock

__all__ = ["Barrier", "Budget", "Verdict", "pause_s", "run_error"]

log = logging.getLogger(__name__)

_SLICE = 256
_FASTEST_POLL_S = 0.05
_TOO_BIG = ("memory", "time")
_DOUBT_S = 1.0
"""Before an event that may have been taken is sent again; doubled at each attempt."""


@dataclass(slots=True, kw_only=True)
class Budget:
    """Seconds that all barriers of a run may take together."""

    left_s: float

    def charge(self, seconds: float) -> None:
        self.left_s = max(0.0, self.left_s - seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a barrier ended. A timeout is soft: the run goes on, and the record says so."""

    timed_out: bool
    waited_s: float


def run_error(failure: Failure) -> SweepError | None:
    """The error that ends the whole run, where a worker's failure asks for it."""
    text = f"{failure.error} (reported by dispatch order {failure.dispatch}, batch {failure.batch})"
    if failure.reaction == "held":
        return LeaseHeldError(text, run_id=failure.run_id)
    if failure.reaction != "stop":
        return None
    kinds: dict[str, type[SweepError]] = {
        "LeaseLostError": LeaseLostError,
        "ForeignWriteError": ForeignWriteError,
        "AccessError": AccessError,
    }
    return kinds.get(failure.error_class, LeaseLostError)(text, kind=failure.kind, run_id=failure.run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """Drives boards to their end.

    Attributes
    ----------
    transport, poller, clock
    payload : callable
        The bytes of a task's event, for its present attempt.
    timeout_s, poll_s : float
    budget : Budget
    progress : callable
        Told of every poll: boards and seconds waited.
    """

    transport: Transport
    poller: Poller
    clock: Clock
    payload: Callable[[Task], bytes]
    timeout_s: float
    poll_s: float
    budget: Budget
    progress: Callable[[Sequence[Board], float], None]

    def wait(self, boards: Sequence[Board]) -> Verdict:
        """Fire what is queued and wait until every task of every board is settled.

        Raises
        ------
        LeaseHeldError, LeaseLostError, ForeignWriteError, AccessError
            A worker's failure ends the run.
        FleetUnreachableError
            As :meth:`submit`.
        """
        started = self.clock.monotonic()
        deadline = started + min(self.timeout_s, self.budget.left_s)
        is_late = self._watch(boards, started, deadline)
        waited_s = self.clock.monotonic() - started
        self.budget.charge(waited_s)
        missing = any(task.is_open for board in boards for task in board.tasks)
        for board in boards:
            board.give_up_open("the barrier's time is over")
        self.progress(boards, waited_s)
        if is_late and missing:
            log.warning(
                "barrier ended early", extra={"event": "barrier-timeout", "waited_s": round(waited_s, 1)}
            )
        return Verdict(timed_out=is_late and missing, waited_s=waited_s)

    def _watch(self, boards: Sequence[Board], started: float, deadline: float) -> bool:
        """Whether time, or the patience with a status prefix that cannot be listed, ran out."""
        while True:
            self.fire(boards)
            if self._look(boards) and not any(True for board in boards for _ in board.open_tasks()):
                return False
            now = self.clock.monotonic()
            if now >= deadline or self.poller.faults >= FAULTS_IN_A_ROW:
                return True
            self.progress(boards, now - started)
            if any(board.ready(now) for board in boards):
                continue
            self.clock.sleep(max(0.0, min(self.interval_s(now - started), deadline - now)))

    def interval_s(self, waited_s: float) -> float:
        """From fast to slow: a tenth of the time waited, within the two bounds."""
        return min(self.poll_s, max(_FASTEST_POLL_S, waited_s / 10))

    # -- firing ---------------------------------------------------------------------------

    def fire(self, boards: Sequence[Board]) -> None:
        """Submit what is queued, in slices, and take note of what became of it."""
        for board in boards:
            ready = board.ready(self.clock.monotonic())
            for start in range(0, len(ready), _SLICE):
                part = ready[start : start + _SLICE]
                envelopes = [Envelope(key=task.key, payload=self.payload(task)) for task in part]
                for task, outcome in zip(part, self.submit(envelopes), strict=True):
                    self._settle(board, task, outcome)

    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        """Hand events to the transport.

        Raises
        ------
        FleetUnreachableError
            No event can reach a worker.
        """
        try:
            return self.transport.submit(envelopes)
        except AccessError as error:
            raise no_fleet(error) from error

    def _settle(self, board: Board, task: Task, outcome: Submission) -> None:
        now = self.clock.monotonic()
        if outcome.delivery is Delivery.ACCEPTED:
            task.status = "fired"
            task.due_at = self.due_at(now)
        elif outcome.delivery is Delivery.MAYBE:
            wait_s = outcome.retry_after_s or _DOUBT_S * 2 ** (task.attempt - 1)
            board.doubt(task, now, outcome.reason, due_at=self.due_at(now), wait_s=wait_s)
        elif outcome.retry_after_s is not None:
            board.put_off(task, now, f"not accepted: {outcome.reason}", wait_s=pause_s(outcome))
        else:
            task.status = "given-up"
            task.error = f"not accepted: {outcome.reason}"

    def due_at(self, now: float) -> float | None:
        """When an attempt that was accepted now counts as lost without a word."""
        limits = self.transport.limits
        if limits.run_s is None:
            return None
        return now + limits.run_s + (limits.start_s or 0.0)

    # -- watching -------------------------------------------------------------------------

    def _look(self, boards: Sequence[Board]) -> bool:
        """One poll; False where the status prefix could not be read this time."""
        try:
            records = self.poller.records(_first_missing(boards))
            for board in boards:
                board.see_records(records)
            failures = self.poller.failures()
        except StoreUnavailableError:
            return False
        now = self.clock.monotonic()
        for failure in failures:
            error = run_error(failure)
            if error is not None:
                raise error
            for board in boards:
                board.hear(failure, now)
        for lost in self.transport.lost():
            for board in boards:
                task = board.find(lost.key)
                if task is not None and task.is_open:
                    why = f"{lost.cause}: {lost.detail}"
                    board.lose(task, now, why, is_too_big=lost.cause in _TOO_BIG)
        for board in boards:
            board.expire(now)
        return True


def pause_s(outcome: Submission) -> float:
    """Seconds before an event that was not taken is sent again; never none, or time would stand still."""
    return max(outcome.retry_after_s or 0.0, _FASTEST_POLL_S)


def _first_missing(boards: Sequence[Board]) -> str | None:
    """The first name, in key order, of a record that is still expected."""
    missing = [name for board in boards if (name := board.first_missing()) is not None]
    return min(missing, default=None)
