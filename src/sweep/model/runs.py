"""What names a run, and small choices that every kind of run takes.

Source: format 1.6 (run ids), semantics 10 (touch policies).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal

from sweep.errors import DeclarationError
from sweep.model.clock import Clock, file_stamp

__all__ = [
    "TOUCH_POLICIES",
    "TouchPolicy",
    "check_run_id",
    "check_touch_policy",
    "new_run_id",
    "refuse_companions",
]

type TouchPolicy = Literal["auto", "always", "never"]
TOUCH_POLICIES: tuple[TouchPolicy, ...] = ("auto", "always", "never")

_RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}")


def new_run_id(clock: Clock, new_id: Callable[[], str]) -> str:
    """A fresh sweep run id: ``stage-{clock}-{6 hex}``."""
    return f"stage-{file_stamp(clock.now())}-{new_id()[:6]}"


def check_run_id(run_id: object) -> str:
    """A run id that can stand in the names of objects.

    Raises
    ------
    DeclarationError
        It cannot: it is empty, too long, or has slashes, spaces or the like.
    """
    if isinstance(run_id, str) and _RUN_ID.fullmatch(run_id):
        return run_id
    raise DeclarationError(
        f"run id {run_id!r}: expected 1-128 letters, digits, dots, dashes and underscores, as it names "
        "objects; leave it out for a fresh one",
        kind="run-id",
    )


def refuse_companions(*, families: Iterable[str] = (), icechunk: object = False, where: str = "") -> None:
    """Refuse by name what other programs roll up beside a ladder.

    Raises
    ------
    DeclarationError
        Rollup families or Icechunk companions are asked for.
    """
    named = list(families)
    if named:
        raise DeclarationError(
            f"{where}rollup families are not offered: {', '.join(named)}; a staged sweep folds the overview "
            "ladder alone",
            kind="families",
        )
    if icechunk:
        raise DeclarationError(
            f"{where}Icechunk companions are not offered: a staged sweep writes no references; leave "
            "icechunk out",
            kind="icechunk",
        )


def check_touch_policy(policy: object, *, where: str = "") -> TouchPolicy:
    """One of the touch policies; ``where`` begins the message.

    Raises
    ------
    DeclarationError
        It is none of them.
    """
    for known in TOUCH_POLICIES:
        if policy == known:
            return known
    raise DeclarationError(
        f"{where}touch policy {policy!r} is not one of {', '.join(TOUCH_POLICIES)}", kind="touch"
    )
