"""A clock that moves only when it is told to."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

__all__ = ["FakeClock"]


class FakeClock:
    """A :class:`~sweep.model.clock.Clock` on which ``sleep`` advances the time at once.

    Parameters
    ----------
    start : datetime, optional
        What ``now`` says at first. ``monotonic`` starts at 1,000 seconds.
    """

    def __init__(self, start: datetime = datetime(2026, 11, 29, 16, 31, 5, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed_s = 0.0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic(self) -> float:
        return 1000.0 + self._elapsed_s

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self._elapsed_s += max(seconds, 0.0)

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        self.sleep(seconds)
