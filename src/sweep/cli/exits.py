"""Exit codes, and how errors become them."""

from __future__ import annotations

from enum import IntEnum

from sweep.errors import (
    AccessError,
    AdmissionError,
    DeclarationError,
    FleetUnreachableError,
    ForeignWriteError,
    LeaseLostError,
    SweepError,
    TransientError,
)

__all__ = ["Exit", "exit_of"]


class Exit(IntEnum):
    """What a command's exit status says."""

    DONE = 0
    FAILED_UNITS = 1
    REFUSED = 2
    HELD = 3
    NO_FLEET = 4
    LOST = 5
    UNREACHABLE = 6
    BUG = 70
    INTERRUPTED = 130


_BY_ERROR: tuple[tuple[type[SweepError], Exit], ...] = (
    (DeclarationError, Exit.REFUSED),
    (LeaseLostError, Exit.LOST),
    (AdmissionError, Exit.HELD),
    (ForeignWriteError, Exit.LOST),
    (FleetUnreachableError, Exit.NO_FLEET),
    (AccessError, Exit.UNREACHABLE),
    (TransientError, Exit.UNREACHABLE),
)


def exit_of(error: SweepError) -> Exit:
    """The exit code of an error; what has no branch of its own counts as failed work."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.FAILED_UNITS)
