"""Folding one level of one node, block by block, from sources that may be moving.

Memory holds one block of inputs and the output level.

Source: semantics 4.1, 5, 6.4, 6.7, 11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweep.artifacts.reading import read_blocks
from sweep.artifacts.source import BlockRequest, ForeignGuard, Missing, Source, Unreadable
from sweep.errors import ArtifactError, ColumnMovedError
from sweep.fold.blocks import Blank, FoldedBlock, Span, cells_read, gather_block, merge_block
from sweep.fold.level import Cells, LevelData, join_blocks
from sweep.model.fields import FieldMap
from sweep.model.provenance import Demotion, SourceCounts
from sweep.stage.tally import Tally
from sweep.store.base import ObjectStore

__all__ = ["BLOCK_CELLS", "Folded", "Folder", "Slot", "usable_sources"]

BLOCK_CELLS = 1024

_DAMAGE = frozenset({"array-document", "array-shape", "checksum", "chunk", "vlen-framing"})
"""Kinds of errors that say: these bytes are torn, whoever reads them."""

type _BlockFold = Callable[[int, int], tuple[list[Span], FoldedBlock]]


@dataclass(frozen=True, slots=True)
class Slot:
    """An inhabited place of a row of sources: its rank, and what stands there."""

    rank: int
    source: Source | Missing | Unreadable


def usable_sources(slots: Sequence[Slot]) -> list[Source]:
    """The committed sources of a row."""
    return [slot.source for slot in slots if isinstance(slot.source, Source)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """One folded level with its counters; ``refused`` are indexes into the row of slots."""

    data: LevelData
    counts: SourceCounts
    refused: frozenset[int]
    demotions: tuple[Demotion, ...]
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Reads and folds for one run."""

    store: ObjectStore
    fields: FieldMap
    guard: ForeignGuard

    def gather(self, slots: Sequence[Slot], *, cell_order: int, slot_cells: int, n_out: int) -> Folded:
        """Copy the cells of child columns side by side.

        Parameters
        ----------
        slots : sequence of Slot
            In rank order.
        cell_order : int
            The resolution group that is read.
        slot_cells : int
            Cells of that group in one source.
        n_out : int
            Cells of the level.
        """

        def block(start: int, stop: int) -> tuple[list[Span], FoldedBlock]:
            spans = self._spans(slots, cell_order, slot_cells, start, stop)
            return spans, gather_block(self.fields, stop - start, spans)

        return self._fold(slots, n_out, BLOCK_CELLS, block, merging=False, disjoint=True)

    def merge(
        self, slots: Sequence[Slot], *, cell_order: int, slot_cells: int, n_out: int, fan_in: int
    ) -> Folded:
        """Fold ``fan_in`` consecutive cells of finer overviews into each output cell."""

        def block(start: int, stop: int) -> tuple[list[Span], FoldedBlock]:
            spans = self._spans(slots, cell_order, slot_cells, start * fan_in, stop * fan_in)
            return spans, merge_block(self.fields, stop - start, fan_in, [spans])

        step = max(1, BLOCK_CELLS // fan_in)
        return self._fold(slots, n_out, step, block, merging=True, disjoint=fan_in <= slot_cells)

    def join(self, slots: Sequence[Slot], *, cell_order: int, n_cells: int) -> Folded:
        """Fold the same cell of every window's overview; the slots stand in label order."""

        def block(start: int, stop: int) -> tuple[list[Span], FoldedBlock]:
            strands = [
                self._spans([Slot(0, slot.source)], cell_order, n_cells, start, stop, first=place)
                for place, slot in enumerate(slots)
                if isinstance(slot.source, Source)
            ]
            spans = [span for strand in strands for span in strand]
            return spans, merge_block(self.fields, stop - start, 1, strands)

        return self._fold(slots, n_cells, BLOCK_CELLS, block, merging=True, disjoint=len(slots) == 1)

    def _spans(
        self,
        slots: Sequence[Slot],
        cell_order: int,
        slot_cells: int,
        start: int,
        stop: int,
        first: int = 0,
    ) -> list[Span]:
        requests: list[BlockRequest] = []
        places: list[tuple[int, int, int]] = []
        for index, slot in enumerate(slots, start=first):
            base = slot.rank * slot_cells
            low, high = max(base, start), min(base + slot_cells, stop)
            if low < high and isinstance(slot.source, Source):
                requests.append(
                    BlockRequest(
                        source=slot.source,
                        cell_order=cell_order,
                        n_cells=slot_cells,
                        start=low - base,
                        stop=high - base,
                    )
                )
                places.append((index, low - start, high - start))
        names = [spec.name for spec in self.fields.arrays()]
        try:
            blocks = read_blocks(self.store, requests, names, self.guard)
        except ColumnMovedError:
            raise
        except ArtifactError as error:
            raise self._disowned(error, [request.source for request in requests]) from error
        return [
            Span(source=index, start=low, stop=high, arrays=arrays)
            for (index, low, high), arrays in zip(places, blocks, strict=True)
        ]

    def _disowned(self, error: ArtifactError, sources: Sequence[Source]) -> ArtifactError:
        """Take the stamp from a damaged artifact that a sweep wrote, so that the next one folds it anew.

        A leaf's column is not ours to touch: the error says who can mend it.
        """
        key = str(error.context.get("key"))
        owner = next((source for source in sources if key.startswith(f"{source.key}/")), None)
        if owner is None or error.kind not in _DAMAGE:
            return error
        if not isinstance(owner.stamp.get("run_id"), str):
            remedy = "re-run the leaf that wrote it, then sweep again"
        else:
            self.store.delete(f"{owner.key}/zarr.json")
            remedy = "a sweep wrote it; its stamp is removed now, so that sweeping again folds it anew"
        return ArtifactError(f"{error.message}; {remedy}", kind=error.kind, **error.context)

    def _fold(
        self,
        slots: Sequence[Slot],
        n_out: int,
        step: int,
        block: _BlockFold,
        *,
        merging: bool,
        disjoint: bool,
    ) -> Folded:
        outputs: list[Mapping[str, Cells]] = []
        refused: set[int] = set()
        ledger = _Demotions(disjoint=disjoint)
        tally = Tally()
        for start in range(0, n_out, step):
            stop = min(start + step, n_out)
            spans, folded = block(start, stop)
            outputs.append(folded.arrays)
            refused |= folded.refused
            ledger.add(folded.blanks, stop - start)
            read = cells_read(self.fields, spans, merging=merging)
            tally += Tally(fold_blocks=1, fold_cells_read=read, fold_peak_cells=read)
        return Folded(
            data=join_blocks(self.fields.arrays(), outputs, n_out),
            counts=_count(slots, refused),
            refused=frozenset(refused),
            demotions=ledger.records(),
            tally=tally,
        )


def _count(slots: Sequence[Slot], refused: set[int]) -> SourceCounts:
    committed = len(usable_sources(slots)) - len(refused)
    missing = sum(isinstance(slot.source, Missing) for slot in slots)
    return SourceCounts(folded=committed, missing=missing, unreadable=len(slots) - committed - missing)


class _Demotions:
    """Half pairs of packed fields, gathered over the blocks of one level."""

    def __init__(self, *, disjoint: bool) -> None:
        self._disjoint = disjoint
        self._contributors: dict[tuple[str, str], set[int]] = {}
        self._cells: dict[tuple[str, str], int] = {}
        self._of: dict[str, str] = {}

    def add(self, blanks: Sequence[Blank], n_out: int) -> None:
        masks: dict[tuple[str, str], NDArray[np.bool_]] = {}
        for blank in blanks:
            case = (blank.field.name, blank.reason)
            self._of[blank.field.name] = blank.field.of
            self._contributors.setdefault(case, set()).add(blank.source)
            mask = masks.setdefault(case, np.zeros(n_out, dtype=np.bool_))
            mask[blank.start : blank.stop] = True
        for case, mask in masks.items():
            if case[1] == "word-missing" or self._disjoint:
                self._cells[case] = self._cells.get(case, 0) + int(mask.sum())

    def records(self) -> tuple[Demotion, ...]:
        return tuple(
            Demotion(
                field=name,
                reason=reason,
                contributors=len(self._contributors[name, reason]),
                of=self._of[name],
                cells=self._cells.get((name, reason)),
            )
            for name, reason in sorted(self._contributors)
        )
