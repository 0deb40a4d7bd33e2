"""The outside world of a run, built once at a composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sweep.events import Observer
from sweep.model.clock import Clock

__all__ = ["Runtime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The outside world of a run: time, fresh ids, who listens, and what we call ourselves.

    ``new_id`` returns 32 or more lowercase hex digits, never the same twice.
    """

    clock: Clock
    new_id: Callable[[], str]
    observer: Observer
    program: str
