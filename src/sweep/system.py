"""The outside world on an ordinary machine, for composition roots."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from sweep._version import __version__
from sweep.errors import DeclarationError
from sweep.events import Observer, ignore
from sweep.stage.runtime import Runtime

__all__ = ["SystemClock", "import_extra", "system_runtime"]


def import_extra(module: str, extra: str) -> Any:
    """An optional library, imported when it is first needed.

    Raises
    ------
    DeclarationError
        It is not installed; the message says which extra brings it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise DeclarationError(
            f"this needs {error.name}, which is not installed: install sweep with its extra {extra!r} (in a "
            f"clone: pip install '.[{extra}]')",
            kind="extra",
            extra=extra,
        ) from error


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
