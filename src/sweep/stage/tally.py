"""Counters of a pass, and the error lines that go with them.

Source: format 11 (stage rows); semantics 4, 6.7.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

__all__ = ["Tally", "UnitError", "not_usable"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitError:
    """What stopped a unit, or kept one artifact of it from being folded."""

    node: str
    unit: str
    error: str

    def to_json(self) -> dict[str, str]:
        """The item of a row's ``unit_errors``."""
        return {"node": self.node, "unit": self.unit, "error": self.error}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What was done. Tallies add up; the peak of a block is a maximum.

    ``problems`` are lines for people: sources that could not be read and writes that
    failed. ``unit_errors`` are the units that a windowed store isolated.
    """

    written: int = 0
    current: int = 0
    empty: int = 0
    failed: int = 0
    under_covered: int = 0
    columns_written: int = 0
    columns_current: int = 0
    revalidated: int = 0
    fold_blocks: int = 0
    fold_cells_read: int = 0
    fold_peak_cells: int = 0
    unit_errors: tuple[UnitError, ...] = ()
    problems: tuple[str, ...] = ()

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            written=self.written + other.written,
            current=self.current + other.current,
            empty=self.empty + other.empty,
            failed=self.failed + other.failed,
            under_covered=self.under_covered + other.under_covered,
            columns_written=self.columns_written + other.columns_written,
            columns_current=self.columns_current + other.columns_current,
            revalidated=self.revalidated + other.revalidated,
            fold_blocks=self.fold_blocks + other.fold_blocks,
            fold_cells_read=self.fold_cells_read + other.fold_cells_read,
            fold_peak_cells=max(self.fold_peak_cells, other.fold_peak_cells),
            unit_errors=self.unit_errors + other.unit_errors,
            problems=self.problems + other.problems,
        )

    def counters(self) -> dict[str, Any]:
        """The counters of a stage row, in its key order."""
        return {
            "written": self.written,
            "current": self.current,
            "empty": self.empty,
            "failed": self.failed,
            "under_covered": self.under_covered,
            "columns_written": self.columns_written,
            "columns_current": self.columns_current,
            "revalidated": self.revalidated,
            "fold_blocks": self.fold_blocks,
            "fold_cells_read": self.fold_cells_read,
            "fold_peak_cells": self.fold_peak_cells,
        }


def not_usable(problem: str) -> Tally:
    """One failure: a source or an artifact that could not be used, told to the log."""
    log.warning("artifact not usable", extra={"event": "artifact-failed", "problem": problem})
    return Tally(failed=1, problems=(problem,))
