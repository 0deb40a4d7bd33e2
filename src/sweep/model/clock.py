"""The clock seam and the two spellings of time in a store.

Source: format 1.6 (JSON and clock conventions).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "file_stamp", "parse_timestamp", "timestamp"]


class Clock(Protocol):
    """Time as the package sees it; tests hand in a fake."""

    def now(self) -> datetime:
        """The present moment, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        ...


def timestamp(moment: datetime) -> str:
    """``moment`` as UTC whole seconds: ``2026-11-29T16:26:39+00:00``."""
    return moment.astimezone(UTC).replace(microsecond=0).isoformat()


def file_stamp(moment: datetime) -> str:
    """``moment`` as it stands in object names: ``20261129T162639Z``."""
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def parse_timestamp(text: object) -> datetime | None:
    """The moment that ``text`` spells, in UTC, or None where it spells none.

    A text without a zone is read as UTC. A moment that lies outside the years 1-9999 in UTC
    is none.
    """
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
