"""Units: what one worker does for a dispatch node.

Source: semantics 3.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sweep.errors import DeclarationError
from sweep.model.windows import ALL, is_label, stem_of

__all__ = ["CLOSE", "NODE", "Unit", "UnitKind", "check_unit", "refuse_unwindowed", "window_unit"]

type UnitKind = Literal["node", "window", "close"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A node whole (unwindowed stores), one window of it, or its all-time close."""

    kind: UnitKind
    window: str | None = None

    @property
    def stem(self) -> str:
        """The base name of the objects that the unit writes."""
        return stem_of(self.window)

    @property
    def label(self) -> str:
        """What records and messages call the unit."""
        return "close" if self.kind == "close" else self.stem


NODE = Unit(kind="node")
CLOSE = Unit(kind="close")


def window_unit(window: str) -> Unit:
    """The unit of one window."""
    return Unit(kind="window", window=window)


def check_unit(kind: object, window: object, is_windowed: bool | None, *, where: str = "unit") -> Unit | None:
    """Read the restriction of a run to one unit.

    Parameters
    ----------
    kind : str or None
        ``window`` or ``close``; None for no restriction.
    window : str or None
        The label, with ``window`` only.
    is_windowed : bool or None
        Whether the store has windows; None leaves that check to the planner.
    where : str
        Begins every message: the run, dispatch order and batch, where they are known.

    Returns
    -------
    Unit or None

    Raises
    ------
    DeclarationError
        Kind ``unit``.
    """
    if kind is None and window is None:
        return None
    if kind not in ("window", "close"):
        raise _refusal(where, f"unknown unit {kind!r} (window {window!r}), expected 'window' or 'close'")
    if kind == "close":
        if window is not None:
            raise _refusal(where, f"unit 'close' takes no window, got {window!r}")
        unit = CLOSE
    elif window is None:
        raise _refusal(where, "unit 'window' names no window: give its label")
    elif not isinstance(window, str) or not is_label(window):
        raise _refusal(
            where,
            f"unit 'window' names {window!r}, which labels no window: expected 1-32 letters, digits or "
            f"dashes, and not {ALL!r}",
        )
    else:
        unit = window_unit(window)
    if is_windowed is False:
        refuse_unwindowed(unit, where=where)
    return unit


def refuse_unwindowed(unit: Unit, *, where: str = "unit") -> None:
    """Refuse a named unit on a store without windows.

    Raises
    ------
    DeclarationError
        Always, of kind ``unit``.
    """
    named = f"'close' (window {unit.window!r})" if unit.kind == "close" else f"'window' {unit.window!r}"
    raise _refusal(where, f"unit {named} is named, but the store has no windows: name no unit")


def _refusal(where: str, text: str) -> DeclarationError:
    return DeclarationError(f"{where}: {text}", kind="unit")
