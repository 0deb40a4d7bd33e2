"""One window unit: every level of a tuple under one dispatch node, for one stem.

Source: semantics 4, 7.1-7.3, 8.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.artifacts.envelope import parse_envelope, updated_envelope
from sweep.artifacts.source import Missing, Opened, Source, StoredSource, Unreadable, open_sources
from sweep.artifacts.writer import Committed, Member, Origin
from sweep.errors import AccessError, AdmissionError, ColumnMovedError, ForeignWriteError, SweepError
from sweep.model.keys import column_key, envelope_key, overview_key
from sweep.model.ladder import Level
from sweep.model.nodes import Words, decimals_of
from sweep.model.provenance import (
    Actuals,
    Generation,
    SourceCounts,
    join_time_ranges,
    sum_generations,
)
from sweep.plan.planner import NodePlan
from sweep.plan.units import Unit
from sweep.stage.context import PassContext
from sweep.stage.folding import Folded, Slot, usable_sources
from sweep.stage.tally import Tally, not_usable

__all__ = ["FATAL", "UnitFold", "as_overview", "origin_of"]

FATAL = (AdmissionError, ForeignWriteError, AccessError)
"""Errors that end the run wherever they are met: nothing further can succeed, or may."""


def origin_of(
    context: PassContext, node: str, stem: str, sources: Sequence[Source], folded: Folded
) -> Origin:
    """What an artifact records of the sources that it was folded from."""
    is_windowed = context.manifest.is_windowed
    return Origin(
        node=node,
        stem=stem,
        window=stem if is_windowed else None,
        generation=sum_generations(source.generation() for source in sources),
        counts=folded.counts,
        granules=sum(source.granules for source in sources),
        time_range=join_time_ranges(s.stamp.get("time_range") for s in sources) if is_windowed else None,
        demotions=folded.demotions,
    )


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the skip gate found of a node's overview."""

    artifact: Opened
    entry: Mapping[str, Any] | None
    envelope: Mapping[str, Any]


class UnitFold:
    """Folds one unit and says what it did.

    Parameters
    ----------
    context : PassContext
    plan : NodePlan
        The dispatch node.
    unit : Unit
        A window unit, or the whole node of an unwindowed store.
    """

    def __init__(self, context: PassContext, plan: NodePlan, unit: Unit) -> None:
        self._context = context
        self._plan = plan
        self._unit = unit
        self._stem = unit.stem
        self._tuple = plan.order_tuple
        self._ladder = context.manifest.ladder
        self._levels = self._ladder.levels_in(self._tuple.orders)
        self._columns: dict[int, Opened] = {}
        self._finer: dict[int, Source | None] = {}
        self._done: dict[int, Source | None] = {}
        self._current: set[int] = set()
        self._retired = 0
        self.tally = Tally()
        self.actuals = Actuals()

    def run(self) -> None:
        """Fold every level, then the stage column.

        Raises
        ------
        SweepError
            A fold failed; what was counted until then stands in ``tally``.
        """
        members = self._ladder.stage_members(self._tuple.dispatch_order)
        try:
            if members or any(self._ladder.is_gather(level) for level in self._levels):
                words, _ = self._plan.descendants(self._tuple.child_order)
                self._open_columns(words, count=True)
            for level in self._levels:
                words, _ = self._plan.descendants(level.node_order)
                self._retire(self._finer.values())
                self._finer, self._done = self._done, {}
                for word, node in zip(words.tolist(), decimals_of(words), strict=True):
                    self._overview(level, word, node)
            if members:
                self._stage_column(members)
        finally:
            self._retire([*self._columns.values(), *self._finer.values(), *self._done.values()])
            self.tally += Tally(revalidated=self._retired)

    # -- sources --------------------------------------------------------------------------

    def _open(self, keys: Sequence[str], block_name: str) -> list[Opened]:
        return open_sources(self._context.store, keys, block_name, self._context.guard)

    def _open_columns(self, words: Words, *, count: bool) -> None:
        opened = self._open([column_key(node, self._stem) for node in decimals_of(words)], "zagg_column")
        for word, each in zip(words.tolist(), opened, strict=True):
            if count and isinstance(each, Unreadable):
                self._fail(f"{each.key}: {each.reason}")
            self._columns[word] = each

    def _fail(self, problem: str) -> None:
        self.tally += not_usable(problem)

    def _column_slots(self, word: int) -> list[Slot]:
        words, ranks = self._plan.children(word, self._tuple.child_order)
        return [
            Slot(rank, self._columns[child])
            for child, rank in zip(words.tolist(), ranks.tolist(), strict=True)
        ]

    def _overview_slots(self, word: int, source: Level, *, count: bool) -> list[Slot]:
        words, ranks = self._plan.children(word, source.node_order)
        children = words.tolist()
        if source.node_order in self._tuple.orders:  # the level that this unit folded just before
            found: list[Source | Missing | Unreadable] = [
                self._finer.get(child) or Missing(node)
                for child, node in zip(children, decimals_of(words), strict=True)
            ]
        else:
            keys = [overview_key(node, self._stem) for node in decimals_of(words)]
            found = [as_overview(each, source) for each in self._open(keys, "zagg_overview")]
        if count:
            for each in found:
                if isinstance(each, Unreadable):
                    self._fail(f"{each.key}: {each.reason}")
        return [Slot(rank, each) for rank, each in zip(ranks.tolist(), found, strict=True)]

    # -- overviews ------------------------------------------------------------------------

    def _overview(self, level: Level, word: int, node: str) -> None:
        slots = self._slots(level, word, count=True)
        stored = self._stored(level, node)
        generation, depth = _sum(slots), self._depth(level, slots)
        if self._is_current(stored, level, generation, depth):
            self._keep(stored, level, word, node)
            return
        self._done[word] = None
        folded, slots = self._fold_twice(level, word, slots)
        if folded is None:
            return
        self.tally += folded.tally
        if folded.counts.folded == 0:
            self.tally += Tally(empty=1)
            return
        if folded.counts.missing:
            self.tally += Tally(under_covered=1)
        sources = usable_sources(slots)
        origin = origin_of(self._context, node, self._stem, sources, folded)
        regime, depth = self._ladder.regime(level), self._depth(level, slots)
        try:
            written = self._context.writer.overview(
                level, origin, regime=regime, merges_from_raw=depth, data=folded.data
            )
            self._envelope(written, level, node, stored)
        except FATAL:
            raise
        except SweepError as error:
            self._fail(f"{overview_key(node, self._stem)}: {error.message}")
            return
        self.tally += Tally(written=1)
        self._observe(level, node, regime, depth, folded.counts)
        self._done[word] = Source(key=written.key, stamp=written.stamp, block=written.block, data=folded.data)

    def _slots(self, level: Level, word: int, *, count: bool = False) -> list[Slot]:
        if self._ladder.is_gather(level):
            return self._column_slots(word)
        return self._overview_slots(word, self._source_level(level), count=count)

    def _source_level(self, level: Level) -> Level:
        source = self._ladder.merge_source(level)
        assert source is not None
        return source

    def _depth(self, level: Level, slots: Sequence[Slot]) -> int:
        sources = usable_sources(slots)
        if self._ladder.is_gather(level):
            return max((source.member_depth(level.cell_order) for source in sources), default=1)
        return 1 + max((source.merges_from_raw for source in sources), default=1)

    def _fold_twice(self, level: Level, word: int, slots: list[Slot]) -> tuple[Folded | None, list[Slot]]:
        """Fold, and once more from fresh readers where a source moved meanwhile."""
        for attempt in range(2):
            try:
                return self._fold(level, slots), slots
            except ColumnMovedError as error:
                slots = self._reopen(level, word, slots)
                if attempt:
                    self._fail(error.message)
        return None, slots

    def _reopen(self, level: Level, word: int, slots: Sequence[Slot]) -> list[Slot]:
        self._retire([slot.source for slot in slots])
        if self._ladder.is_gather(level):
            words, _ = self._plan.children(word, self._tuple.child_order)
            self._open_columns(words, count=False)
        return self._slots(level, word)

    def _retire(self, sources: Iterable[object]) -> None:
        """Keep the count of readers that will not be asked again."""
        for source in sources:
            if isinstance(source, StoredSource):
                self._retired += source.revalidated
                source.revalidated = 0

    def _fold(self, level: Level, slots: Sequence[Slot]) -> Folded:
        folder = self._context.folder
        if self._ladder.is_gather(level):
            return folder.gather(
                slots,
                cell_order=level.cell_order,
                slot_cells=_cells(level.cell_order, self._tuple.child_order),
                n_out=level.n_cells,
            )
        source = self._source_level(level)
        return folder.merge(
            slots,
            cell_order=source.cell_order,
            slot_cells=source.n_cells,
            n_out=level.n_cells,
            fan_in=_cells(source.cell_order, level.cell_order),
        )

    # -- the skip gate --------------------------------------------------------------------

    def _stored(self, level: Level, node: str) -> _Stored:
        (artifact,) = self._open([overview_key(node, self._stem)], "zagg_overview")
        if self._context.manifest.is_windowed:
            entry = artifact.block if isinstance(artifact, StoredSource) else None
            return _Stored(artifact, entry, {})
        envelope = parse_envelope(self._context.store.get(envelope_key(node)))
        return _Stored(artifact, envelope.get(self._stem), envelope)

    def _is_current(self, stored: _Stored, level: Level, generation: Generation, depth: int) -> bool:
        entry = stored.entry
        if not isinstance(entry, Mapping) or not isinstance(
            as_overview(stored.artifact, level), StoredSource
        ):
            return False
        is_named = self._context.manifest.is_windowed or entry.get("object") == f"{self._stem}.zarr"
        return (
            is_named
            and Generation.parse(entry.get("generation")) == generation
            and entry.get("regime") == self._ladder.regime(level)
            and entry.get("merges_from_raw") == depth
        )

    def _keep(self, stored: _Stored, level: Level, word: int, node: str) -> None:
        assert isinstance(stored.artifact, StoredSource)
        assert stored.entry is not None
        entry = stored.entry
        counts = SourceCounts.parse(entry.get("source_children"))
        self.tally += Tally(current=1)
        self._observe(level, node, entry["regime"], entry["merges_from_raw"], counts)
        self._done[word] = stored.artifact
        self._current.add(word)

    def _observe(self, level: Level, node: str, regime: str, depth: int, counts: SourceCounts) -> None:
        self.actuals.observe(
            level, artifact=f"{node}|{self._stem}", regime=regime, merges_from_raw=depth, counts=counts
        )

    def _envelope(self, written: Committed, level: Level, node: str, stored: _Stored) -> None:
        if self._context.manifest.is_windowed:
            return
        data = updated_envelope(
            stored.envelope, written, node=node, node_order=level.node_order, stem=self._stem
        )
        if data is not None:
            self._context.store.put(envelope_key(node), data)

    # -- the stage column -----------------------------------------------------------------

    def _stage_column(self, members: Sequence[int]) -> None:
        if self._is_column_current():
            self.tally += Tally(columns_current=1)
            return
        for attempt in range(2):
            try:
                self._write_column(members)
                return
            except FATAL:
                raise
            except SweepError as error:
                if attempt:
                    self._fail(f"{column_key(self._plan.node, self._stem)}: {error.message}")
                    return
                self._retire(self._columns.values())
                words, _ = self._plan.descendants(self._tuple.child_order)
                self._open_columns(words, count=False)

    def _is_column_current(self) -> bool:
        (column,) = self._open([column_key(self._plan.node, self._stem)], "zagg_column")
        return (
            self._plan.word in self._current
            and isinstance(column, StoredSource)
            and Generation.parse(column.block.get("generation")) == _sum(self._column_slots(self._plan.word))
        )

    def _write_column(self, members: Sequence[int]) -> None:
        slots = self._column_slots(self._plan.word)
        sources = usable_sources(slots)
        folds: list[tuple[Folded, Member]] = []
        for cell_order in members:
            folded = self._context.folder.gather(
                slots,
                cell_order=cell_order,
                slot_cells=_cells(cell_order, self._tuple.child_order),
                n_out=_cells(cell_order, self._tuple.dispatch_order),
            )
            if folded.counts.folded == 0 and not folds:
                return  # the finest member decides, and its blocks do not count
            depth = max((source.member_depth(cell_order) for source in sources), default=1)
            folds.append((folded, Member(cell_order=cell_order, merges_from_raw=depth, data=folded.data)))
        finest = folds[0][0]
        self.tally += sum((folded.tally for folded, _ in folds), Tally())
        origin = origin_of(self._context, self._plan.node, self._stem, sources, finest)
        self._context.writer.column(origin, [member for _, member in folds])
        self.tally += Tally(columns_written=1)
        if finest.counts.missing:
            self.tally += Tally(under_covered=1)


def _cells(fine: int, coarse: int) -> int:
    return 1 << (2 * (fine - coarse))


def _sum(slots: Sequence[Slot]) -> Generation:
    return sum_generations(source.generation() for source in usable_sources(slots))


def as_overview(opened: Opened, level: Level) -> Opened:
    """An overview as a merge source: it needs a provenance block at the declared cells."""
    if not isinstance(opened, StoredSource):
        return opened
    if not opened.block:
        return Missing(opened.key)
    found = opened.block.get("cell_order")
    if found != level.cell_order:
        return Unreadable(opened.key, f"its cells are at order {found!r}, declared is {level.cell_order}")
    return opened
