"""Waiting for what another process or thread is about to do."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["eventually"]


def eventually[T](look: Callable[[], T], *, timeout_s: float = 20.0, poll_s: float = 0.005) -> T:
    """What ``look`` returns once it is true.

    Raises
    ------
    AssertionError
        It did not become true in time.
    """
    deadline = time.monotonic() + timeout_s
    while not (seen := look()):
        assert time.monotonic() < deadline, f"still {seen!r} after {timeout_s:g} s"
        time.sleep(poll_s)
    return seen
