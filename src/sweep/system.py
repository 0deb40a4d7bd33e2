"""The outside world on an ordinary machine, for composition roots."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime

from sweep._version import __version__
from sweep.events import Observer, ignore
from sweep.stage.context import Runtime

__all__ = ["SystemClock", "system_runtime"]

_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        # Counts while the machine sleeps, where the system has such a clock: a lease does not wait.
        return time.clock_gettime(_BOOTTIME) if _BOOTTIME is not None else time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def system_runtime(observer: Observer = ignore) -> Runtime:
    """A runtime on the machine's clocks and random ids."""
    return Runtime(
        clock=SystemClock(),
        new_id=lambda: uuid.uuid4().hex,
        observer=observer,
        program=f"sweep {__version__}",
    )
