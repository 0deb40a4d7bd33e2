"""Firing the finisher and waiting for its word.

Source: semantics 12.5 (8), 12.6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sweep.control.records import FINISHER, Failure
from sweep.errors import StoreUnavailableError
from sweep.fleet.barrier import Barrier, pause_s, run_error
from sweep.fleet.poller import FAULTS_IN_A_ROW, Poller
from sweep.fleet.transport import Delivery, Envelope
from sweep.model.invocation import FinisherInvocation, serialise

__all__ = ["fire_finisher"]


def fire_finisher(
    invocation: FinisherInvocation, *, barrier: Barrier, poller: Poller, attempts: int
) -> tuple[bool, str]:
    """Fire the finisher, again where it is lost or fails for a while.

    Returns
    -------
    landed : bool
        Whether ``finisher.json`` was seen.
    error : str
        The last error, where it was not.

    Raises
    ------
    LeaseHeldError, LeaseLostError, ForeignWriteError, AccessError
        The finisher ended the run.
    FleetUnreachableError
        No event can reach a worker.
    """
    started = barrier.clock.monotonic()
    try:
        return _Finishing(invocation, barrier, poller).run(attempts)
    finally:
        barrier.budget.charge(barrier.clock.monotonic() - started)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    """How one attempt ended; ``is_final`` where another one would change nothing."""

    landed: bool = False
    is_final: bool = False
    error: str = ""


class _Finishing:
    def __init__(self, invocation: FinisherInvocation, barrier: Barrier, poller: Poller) -> None:
        self._invocation = invocation
        self._barrier = barrier
        self._poller = poller
        self._clock = barrier.clock
        self._deadline = self._clock.monotonic() + min(barrier.timeout_s, barrier.budget.left_s)

    def run(self, attempts: int) -> tuple[bool, str]:
        error = ""
        for attempt in range(1, attempts + 1):
            word = self._try(attempt)
            error = word.error or error
            if word.landed:
                return True, ""
            if word.is_final:
                break
        return False, error or "no word from the finisher within the barrier's time"

    def _try(self, attempt: int) -> _Word:
        envelope = Envelope(
            key=f"{FINISHER}-{attempt}", payload=serialise(replace(self._invocation, attempt=attempt))
        )
        while True:
            (outcome,) = self._barrier.submit([envelope])
            if outcome.delivery is not Delivery.REFUSED:
                return self._watch(attempt)
            left_s = self._deadline - self._clock.monotonic()
            if outcome.retry_after_s is None or left_s <= 0:
                return _Word(is_final=True, error=f"not accepted: {outcome.reason}")
            self._clock.sleep(min(pause_s(outcome), left_s))

    def _watch(self, attempt: int) -> _Word:
        """Wait for one attempt."""
        fired = self._clock.monotonic()
        due_at = self._barrier.due_at(fired)
        while True:
            word = self._look(attempt)
            if word is not None:
                return word
            now = self._clock.monotonic()
            if now >= self._deadline or self._poller.faults >= FAULTS_IN_A_ROW:
                return _Word(is_final=True)
            if due_at is not None and now > due_at:
                return _Word(error="no word from the finisher within its time")
            self._clock.sleep(min(self._barrier.interval_s(now - fired), self._deadline - now))

    def _look(self, attempt: int) -> _Word | None:
        """What this attempt has come to, or None where nothing was heard of it."""
        try:
            if self._poller.finisher():
                return _Word(landed=True)
            failures = [each for each in self._poller.failures() if _is_of(each, attempt)]
        except StoreUnavailableError:
            failures = []
        for failure in failures:
            error = run_error(failure)
            if error is not None:
                raise error
            text = f"{failure.error_class}: {failure.error}"
            return _Word(is_final=failure.reaction == "refused", error=text)
        for lost in self._barrier.transport.lost():
            if lost.key == f"{FINISHER}-{attempt}":
                return _Word(error=f"{lost.cause}: {lost.detail}")
        return None


def _is_of(failure: Failure, attempt: int) -> bool:
    return failure.unit == FINISHER and failure.attempt == attempt
