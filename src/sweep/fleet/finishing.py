"""Firing the finisher and waiting for its word.

Source: semantics 12.5 (8), 12.6.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from sweep.control.records import Failure
from sweep.errors import StoreUnavailableError
from sweep.fleet.barrier import Barrier, run_error
from sweep.fleet.poller import FAULTS_IN_A_ROW, Poller
from sweep.fleet.transport import Delivery, Envelope
from sweep.model.invocation import FinisherInvocation, serialise

__all__ = ["fire_finisher"]

log = logging.getLogger(__name__)


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
        The finisher, or the transport, ended the run.
    """
    started = barrier.clock.monotonic()
    deadline = started + min(barrier.timeout_s, barrier.budget.left_s)
    error = "no word from the finisher within the barrier's time"
    for attempt in range(1, attempts + 1):
        envelope = Envelope(
            key=f"finisher-{attempt}", payload=serialise(replace(invocation, attempt=attempt))
        )
        (outcome,) = barrier.transport.submit([envelope])
        if outcome.delivery is Delivery.REFUSED and outcome.retry_after_s is None:
            return False, f"not accepted: {outcome.reason}"
        landed, said = _watch(barrier, poller, attempt, deadline)
        if landed or said is None:
            barrier.budget.charge(barrier.clock.monotonic() - started)
            return landed, error
        error = said
    return False, error


def _watch(barrier: Barrier, poller: Poller, attempt: int, deadline: float) -> tuple[bool, str | None]:
    """Wait for one attempt: landed; or why to fire again; or (False, None) when the time is over."""
    fired = barrier.clock.monotonic()
    due_at = barrier.due_at(fired)
    while True:
        try:
            if poller.finisher():
                return True, None
            failures = [each for each in poller.failures() if _is_of(each, attempt)]
        except StoreUnavailableError:
            failures = []
        for failure in failures:
            error = run_error(failure)
            if error is not None:
                raise error
            return False, f"{failure.error_class}: {failure.error}"
        for lost in barrier.transport.lost():
            if lost.key == f"finisher-{attempt}":
                return False, f"{lost.cause}: {lost.detail}"
        now = barrier.clock.monotonic()
        if now >= deadline or poller.faults >= FAULTS_IN_A_ROW:
            return False, None
        if due_at is not None and now > due_at:
            return False, "no word from the finisher within its time"
        barrier.clock.sleep(max(0.0, min(barrier.interval_s(now - fired), deadline - now)))


def _is_of(failure: Failure, attempt: int) -> bool:
    return failure.unit == "finisher" and failure.attempt == attempt
