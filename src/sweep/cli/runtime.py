"""The outside world as the command line hands it in."""

from __future__ import annotations

import logging
import time
import uuid
from datetime import UTC, datetime

from sweep._version import __version__
from sweep.events import Observer
from sweep.stage.context import Runtime

__all__ = ["SystemClock", "configure_logging", "system_runtime"]


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def system_runtime(observer: Observer) -> Runtime:
    """A runtime on the machine's clocks and random ids."""
    return Runtime(
        clock=SystemClock(),
        new_id=lambda: uuid.uuid4().hex,
        observer=observer,
        program=f"sweep {__version__}",
    )


_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class _Formatter(logging.Formatter):
    """One line a record, its ``extra`` fields behind the message."""

    def format(self, record: logging.LogRecord) -> str:
        extra = {key: value for key, value in vars(record).items() if key not in _PLAIN}
        fields = " ".join(f"{key}={value}" for key, value in extra.items() if key != "event")
        return f"{record.levelname.lower()}: {record.getMessage()} {fields}".rstrip()


def configure_logging(verbosity: int) -> None:
    """Send the package's log to standard error: nothing, ``-v`` INFO, ``-vv`` DEBUG."""
    logger = logging.getLogger("sweep")
    if verbosity <= 0:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter())
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)
