"""What an artifact records of where it came from, and how records add up.

Source: format 4.1-4.2, 6; semantics 4.1-4.2, 7.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sweep.errors import ArtifactError
from sweep.model.clock import parse_timestamp, timestamp
from sweep.model.ladder import Level

__all__ = [
    "Actuals",
    "Demotion",
    "Generation",
    "LevelActuals",
    "SourceCounts",
    "generation_of",
    "join_time_ranges",
    "sum_generations",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCounts:
    """How many sources of a fold were used, absent, or could not be read."""

    folded: int = 0
    missing: int = 0
    unreadable: int = 0

    def __add__(self, other: SourceCounts) -> SourceCounts:
        return SourceCounts(
            folded=self.folded + other.folded,
            missing=self.missing + other.missing,
            unreadable=self.unreadable + other.unreadable,
        )

    def to_json(self) -> dict[str, int]:
        """The ``source_children`` block."""
        return {"folded": self.folded, "missing": self.missing, "unreadable": self.unreadable}

    @classmethod
    def parse(cls, block: Any) -> SourceCounts:
        """Counters as recorded; what is absent or no whole number counts as zero."""
        block = block if isinstance(block, Mapping) else {}
        return cls(**{key: _count(block.get(key)) for key in ("folded", "missing", "unreadable")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Which leaves and which runs an artifact stands for: the key of skip-if-current."""

    n_leaves: int = 0
    max_leaf_timestamp: str | None = None
    run_ids: frozenset[str] = field(default_factory=frozenset)

    def to_json(self) -> dict[str, Any]:
        """The ``generation`` block; run ids sorted."""
        return {
            "n_leaves": self.n_leaves,
            "max_leaf_timestamp": self.max_leaf_timestamp,
            "run_ids": sorted(self.run_ids),
        }

    @classmethod
    def parse(cls, block: Any) -> Generation | None:
        """The recorded generation, or None where ``block`` is no object."""
        if not isinstance(block, Mapping):
            return None
        stamp = block.get("max_leaf_timestamp")
        run_ids = block.get("run_ids")
        return cls(
            n_leaves=_count(block.get("n_leaves")),
            max_leaf_timestamp=stamp if isinstance(stamp, str) else None,
            run_ids=frozenset(map(str, run_ids)) if isinstance(run_ids, list) else frozenset(),
        )


def generation_of(block: Any, stamp: Mapping[str, Any]) -> Generation:
    """What a source contributes to the generation of the artifact above it.

    Parameters
    ----------
    block
        The source's recorded ``generation``; a leaf column has none.
    stamp : mapping
        The source's commit stamp.
    """
    recorded = Generation.parse(block)
    if recorded is None:
        written_at = stamp.get("written_at")
        return Generation(n_leaves=1, max_leaf_timestamp=written_at if isinstance(written_at, str) else None)
    own = stamp.get("run_id")
    run_ids = recorded.run_ids | {own} if isinstance(own, str) else recorded.run_ids
    return Generation(
        n_leaves=recorded.n_leaves, max_leaf_timestamp=recorded.max_leaf_timestamp, run_ids=run_ids
    )


def sum_generations(parts: Iterable[Generation]) -> Generation:
    """Leaves added, the newest stamp, the union of the runs."""
    n_leaves = 0
    newest: str | None = None
    run_ids: set[str] = set()
    for part in parts:
        n_leaves += part.n_leaves
        if part.max_leaf_timestamp is not None and (newest is None or part.max_leaf_timestamp > newest):
            newest = part.max_leaf_timestamp
        run_ids |= part.run_ids
    return Generation(n_leaves=n_leaves, max_leaf_timestamp=newest, run_ids=frozenset(run_ids))


def join_time_ranges(ranges: Iterable[Any]) -> list[str] | None:
    """The union of stamp time ranges as ``[start, end]`` texts, or None where none is readable.

    Raises
    ------
    ArtifactError
        The union ends before it starts.
    """
    starts, ends = [], []
    for each in ranges:
        if isinstance(each, list | tuple) and len(each) == 2:
            start, end = map(parse_timestamp, each)
            if start is not None and end is not None:
                starts.append(start)
                ends.append(end)
    if not starts:
        return None
    first, last = min(starts), max(ends)
    if last < first:
        raise ArtifactError(
            f"time_range {timestamp(first)} .. {timestamp(last)} ends before it starts: a source's stamp "
            "is wrong; rewrite that leaf",
            kind="time-range",
        )
    return [timestamp(first), timestamp(last)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demotion:
    """A packed field that sources could not feed: which half was missing, and where."""

    field: str
    reason: str
    contributors: int
    of: str
    cells: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The item of ``demotions``; ``cells`` only where there are some."""
        record: dict[str, Any] = {
            "field": self.field,
            "class": "packed",
            "reason": self.reason,
            "contributors": self.contributors,
            "of": self.of,
        }
        if self.cells:
            record["cells"] = self.cells
        return record


@dataclass(slots=True)
class LevelActuals:
    """What a run saw of one level: one row of counters for each artifact."""

    cells: int
    regime: str
    merges_from_raw: int
    rows: dict[str, SourceCounts] = field(default_factory=dict)

    def total(self) -> SourceCounts:
        """The counters of all rows together."""
        return sum(self.rows.values(), SourceCounts())

    def to_json(self) -> dict[str, Any]:
        """The level's entry in a run record."""
        return {
            "cells": self.cells,
            "regime": self.regime,
            "merges_from_raw": self.merges_from_raw,
            "source_children": self.total().to_json(),
        }


class Actuals:
    """Per-level observations of a run, assigned by artifact and never added twice."""

    def __init__(self) -> None:
        self.levels: dict[int, LevelActuals] = {}
        self.closes: dict[str, SourceCounts] = {}
        """All-time folds by artifact; they stand in no record."""

    def observe(
        self, level: Level, *, artifact: str, regime: str, merges_from_raw: int, counts: SourceCounts
    ) -> None:
        """Record one artifact (``"{node}|{stem}"``) of a level."""
        seen = self.levels.get(level.node_order)
        if seen is None:
            seen = LevelActuals(cells=level.cell_order, regime=regime, merges_from_raw=merges_from_raw)
            self.levels[level.node_order] = seen
        seen.merges_from_raw = max(seen.merges_from_raw, merges_from_raw)
        seen.rows[artifact] = counts

    def short(self) -> dict[str, int]:
        """Artifacts (``"{node}|{stem}"``) that lack sources, with how many, as last seen."""
        rows = {name: counts for seen in self.levels.values() for name, counts in seen.rows.items()}
        return {name: counts.missing for name, counts in (rows | self.closes).items() if counts.missing}

    def merge(self, other: Actuals) -> None:
        """Take over the observations of another pass, row by row."""
        self.closes.update(other.closes)
        for node_order, theirs in other.levels.items():
            ours = self.levels.get(node_order)
            if ours is None:
                self.levels[node_order] = LevelActuals(
                    cells=theirs.cells,
                    regime=theirs.regime,
                    merges_from_raw=theirs.merges_from_raw,
                    rows=dict(theirs.rows),
                )
                continue
            ours.merges_from_raw = max(ours.merges_from_raw, theirs.merges_from_raw)
            ours.rows.update(theirs.rows)

    def to_json(self) -> dict[str, Any]:
        """The ``levels`` block of a run record, finest first."""
        return {str(order): self.levels[order].to_json() for order in sorted(self.levels, reverse=True)}

    def children_json(self) -> dict[str, Any]:
        """The ``level_actuals`` block of a stage record: one row for each artifact."""
        return {
            str(order): {
                "cells": seen.cells,
                "regime": seen.regime,
                "merges_from_raw": seen.merges_from_raw,
                "children": {artifact: counts.to_json() for artifact, counts in seen.rows.items()},
            }
            for order, seen in sorted(self.levels.items(), reverse=True)
        }

    @classmethod
    def parse(cls, block: Any) -> Actuals:
        """Observations as a stage record holds them; what is malformed is passed over."""
        actuals = cls()
        for order, seen in block.items() if isinstance(block, Mapping) else ():
            children = seen.get("children") if isinstance(seen, Mapping) else None
            if not str(order).isdigit() or not isinstance(children, Mapping):
                continue
            actuals.levels[int(order)] = LevelActuals(
                cells=_count(seen.get("cells")),
                regime=str(seen.get("regime")),
                merges_from_raw=_count(seen.get("merges_from_raw")),
                rows={str(artifact): SourceCounts.parse(counts) for artifact, counts in children.items()},
            )
        return actuals


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
