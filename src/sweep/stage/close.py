"""The close of a dispatch node: its all-time fold over every window.

Source: semantics 7.4, 11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sweep.artifacts.source import Missing, Source, StoredSource, Unreadable, open_sources
from sweep.artifacts.writer import OVERVIEW_SPEC
from sweep.errors import ColumnMovedError, SweepError
from sweep.model.keys import overview_key, window_of_overview
from sweep.model.ladder import Level
from sweep.model.nodes import decimals_of, path_of
from sweep.model.provenance import Actuals, Generation, SourceCounts, sum_generations
from sweep.model.windows import ALL
from sweep.plan.planner import NodePlan
from sweep.stage.context import PassContext
from sweep.stage.folding import Folded, Slot, usable_sources
from sweep.stage.tally import Tally, not_usable
from sweep.stage.unit import FATAL, as_overview, origin_of

__all__ = ["CloseFold"]

_REGIME = "stage-merge"


class CloseFold:
    """Folds the windows of every ladder node under one dispatch node into ``all.zarr``."""

    def __init__(self, context: PassContext, plan: NodePlan) -> None:
        self._context = context
        self._plan = plan
        self.tally = Tally()
        self.actuals = Actuals()

    def run(self) -> None:
        """Fold every level, finest first.

        Raises
        ------
        SweepError
            A fold failed; what was counted until then stands in ``tally``.
        """
        for level in self._context.manifest.ladder.levels_in(self._plan.order_tuple.orders):
            words, _ = self._plan.descendants(level.node_order)
            for word, node in zip(words.tolist(), decimals_of(words), strict=True):
                self._close(level, word, node)

    def _close(self, level: Level, word: int, node: str) -> None:
        try:
            labels = self._labels(word, node)
        except FATAL:
            raise
        except SweepError as error:
            self._context.end_where_gone(error)
            self._fail(f"{path_of(node)}: {error.message}")
            return
        slots = self._windows(level, node, labels)
        for each in slots:
            if isinstance(each.source, Unreadable):
                self._fail(f"{each.source.key}: {each.source.reason}")
        if not usable_sources(slots):
            self.tally += Tally(empty=1)
        elif self._is_current(node, slots):
            self.tally += Tally(current=1)
            self._note(node, slots, usable_sources(slots))
        else:
            self._fold(level, node, labels, slots)

    def _labels(self, word: int, node: str) -> list[str]:
        """Windows that stand in the node's directory, and those dirty beneath it."""
        listing = self._context.store.list_dir(path_of(node))
        names = (prefix.rsplit("/", 1)[-1] for prefix in listing.prefixes)
        standing = {label for name in names if (label := window_of_overview(name)) is not None}
        return sorted(standing.union(self._plan.labels_under(word)))

    def _windows(self, level: Level, node: str, labels: Sequence[str]) -> list[Slot]:
        keys = [overview_key(node, label) for label in labels]
        opened = open_sources(self._context.store, keys, "zagg_overview", self._context.guard)
        return [Slot(rank, as_overview(each, level)) for rank, each in enumerate(opened)]

    def _is_current(self, node: str, slots: Sequence[Slot]) -> bool:
        (artifact,) = open_sources(
            self._context.store, [overview_key(node, ALL)], "zagg_overview", self._context.guard
        )
        if not isinstance(artifact, StoredSource):
            return False
        block = artifact.block
        generation = sum_generations(source.generation() for source in usable_sources(slots))
        windows = block.get("source_windows")
        return (
            block.get("spec") == OVERVIEW_SPEC
            and Generation.parse(block.get("generation")) == generation
            and block.get("regime") == _REGIME
            and isinstance(windows, Mapping)
            and windows.get("missing") == sum(isinstance(slot.source, Missing) for slot in slots)
        )

    def _fold(self, level: Level, node: str, labels: Sequence[str], slots: list[Slot]) -> None:
        folded: Folded | None = None
        for attempt in range(2):
            try:
                folded = self._context.folder.join(slots, cell_order=level.cell_order, n_cells=level.n_cells)
                break
            except ColumnMovedError as error:
                self._count_revalidated(slots)
                if attempt:
                    self._fail(error.message)
                    return
                slots = self._windows(level, node, labels)
        assert folded is not None
        self.tally += folded.tally
        self._count_revalidated(slots)
        self._write(level, node, slots, folded)

    def _write(self, level: Level, node: str, slots: Sequence[Slot], folded: Folded) -> None:
        used = [
            slot.source
            for place, slot in enumerate(slots)
            if isinstance(slot.source, Source) and place not in folded.refused
        ]
        if not used:
            self.tally += Tally(empty=1)
            return
        counts = sum((SourceCounts.parse(s.block.get("source_children")) for s in used), SourceCounts())
        windows = folded.counts
        origin = origin_of(self._context, node, ALL, usable_sources(slots), folded)
        origin = replace(origin, counts=counts, windows=windows)
        if windows.missing or counts.missing:
            self.tally += Tally(under_covered=1)
        depth = 1 + max(source.merges_from_raw for source in used)
        try:
            self._context.writer.overview(
                level, origin, regime=_REGIME, merges_from_raw=depth, data=folded.data
            )
        except FATAL:
            raise
        except SweepError as error:
            self._fail(f"{overview_key(node, ALL)}: {error.message}")
        else:
            self.tally += Tally(written=1)
            self._note(node, slots, used)

    def _note(self, node: str, slots: Sequence[Slot], used: Sequence[Source]) -> None:
        """What the all-time fold lacks: windows, and sources of the windows it has."""
        windows = sum(isinstance(slot.source, Missing) for slot in slots)
        parts = (SourceCounts.parse(source.block.get("source_children")) for source in used)
        self.actuals.closes[f"{node}|{ALL}"] = sum(parts, SourceCounts(missing=windows))

    def _count_revalidated(self, slots: Sequence[Slot]) -> None:
        for slot in slots:
            if isinstance(slot.source, StoredSource):
                self.tally += Tally(revalidated=slot.source.revalidated)
                slot.source.revalidated = 0

    def _fail(self, problem: str) -> None:
        self.tally += not_usable(problem)
