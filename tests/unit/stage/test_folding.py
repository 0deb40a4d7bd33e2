"""Levels folded block by block, from sources in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from tests.support.made import fields_of, level_data, listed, memory_store

from sweep.artifacts.source import ForeignGuard, Missing, Source, Unreadable
from sweep.fold.level import LevelData
from sweep.model.fields import FieldMap
from sweep.model.provenance import Demotion, SourceCounts
from sweep.stage import folding
from sweep.stage.folding import Folded, Folder, Slot, usable_sources

FIELDS = fields_of()
N_ARRAYS = len(FIELDS.arrays())
DIVISOR = ("h", "h_locations", "h_times")


def folder_of(fields: FieldMap = FIELDS) -> Folder:
    return Folder(store=memory_store(), fields=fields, guard=ForeignGuard(run_id="r", run_started="t"))


def source(n_cells: int, seed: int, *, lacks: Sequence[str] = ()) -> Source:
    data = level_data(FIELDS, n_cells, seed)
    arrays = {name: cells for name, cells in data.arrays.items() if name not in lacks}
    return Source(key=f"s{seed}", stamp={}, block={}, data=replace(data, arrays=arrays))


def text(data: LevelData) -> Mapping[str, str]:
    return {name: str(listed(cells)) for name, cells in data.arrays.items()}


def test_a_gather_of_many_blocks() -> None:
    """Three children of 1,024 cells, the third place without a node."""
    children = {0: source(1024, 1), 1: source(1024, 2), 3: source(1024, 3, lacks=["count"])}
    slots = [Slot(rank, each) for rank, each in children.items()]
    folded = folder_of().gather(slots, cell_order=7, slot_cells=1024, n_out=4096)
    for spec in FIELDS.arrays():
        fill = [b"" if spec.is_ragged else spec.fill.item()] * 1024
        expected: list[object] = []
        for rank in range(4):
            data = children[rank].data if rank in children else None
            expected += (
                fill if data is None or spec.name not in data.arrays else listed(data.arrays[spec.name])
            )
        assert str(listed(folded.data.arrays[spec.name])) == str(expected)
    assert folded.counts == SourceCounts(folded=3)
    # the meter: a block of 1,024 output cells for each child's place
    assert folded.tally.fold_blocks == 4
    assert folded.tally.fold_cells_read == (3 * N_ARRAYS - 1) * 1024
    assert folded.tally.fold_peak_cells == N_ARRAYS * 1024


def merge(slots: Sequence[Slot], fan_in: int = 4, n_out: int = 1024, slot_cells: int = 1024) -> Folded:
    return folder_of().merge(slots, cell_order=7, slot_cells=slot_cells, n_out=n_out, fan_in=fan_in)


def test_the_meter_of_a_merge() -> None:
    slots = [Slot(rank, source(1024, rank)) for rank in range(4)]
    folded = merge(slots)
    # blocks of 1,024 // 4 outputs; each array once, the divisor of the packed field again
    assert folded.tally.fold_blocks == 4
    assert folded.tally.fold_peak_cells == (N_ARRAYS + 1) * 1024
    assert folded.tally.fold_cells_read == 4 * (N_ARRAYS + 1) * 1024


@pytest.mark.parametrize("block_cells", [4, 64, 100_000])
def test_values_do_not_depend_on_the_block(monkeypatch: pytest.MonkeyPatch, block_cells: int) -> None:
    slots = [Slot(0, source(256, 1)), Slot(2, source(256, 2, lacks=["comp"])), Slot(3, source(256, 3))]
    windows = [Slot(n, each.source) for n, each in enumerate(slots)]

    def all_folds() -> list[Folded]:
        return [
            folder_of().gather(slots, cell_order=7, slot_cells=256, n_out=1024),
            merge(slots, n_out=256, slot_cells=256),
            merge(slots, fan_in=1024, n_out=1, slot_cells=256),
            folder_of().join(windows, cell_order=7, n_cells=256),
        ]

    before = all_folds()
    monkeypatch.setattr(folding, "BLOCK_CELLS", block_cells)
    for old, new in zip(before, all_folds(), strict=True):
        assert text(new.data) == text(old.data)
        assert (new.counts, new.refused, new.demotions) == (old.counts, old.refused, old.demotions)
    assert all_folds()[0].tally.fold_blocks == -(-1024 // block_cells)


def test_a_row_is_counted_slot_by_slot() -> None:
    slots = [
        Slot(0, source(16, 1)),
        Slot(1, Missing("a")),
        Slot(2, Unreadable("b", "torn")),
        Slot(3, source(16, 2, lacks=["h_times"])),
    ]
    assert [each.key for each in usable_sources(slots)] == ["s1", "s2"]
    for folded in (
        folder_of().gather(slots, cell_order=7, slot_cells=16, n_out=64),
        merge(slots, n_out=16, slot_cells=16),
        folder_of().join(slots, cell_order=7, n_cells=16),
    ):
        assert folded.counts == SourceCounts(folded=1, missing=1, unreadable=2)
        assert folded.refused == {3}


def test_nothing_usable_is_all_fill() -> None:
    slots = [Slot(0, Missing("a")), Slot(1, Unreadable("b", "torn"))]
    folded = merge(slots, n_out=16, slot_cells=16)
    assert folded.counts == SourceCounts(missing=1, unreadable=1)
    assert folded.data.populated(FIELDS.arrays()) == 0
    assert folded.tally.fold_cells_read == 0


@pytest.mark.parametrize("block_cells", [16, 1024])
def test_demotions_count_a_source_once_and_cells_once(
    monkeypatch: pytest.MonkeyPatch, block_cells: int
) -> None:
    monkeypatch.setattr(folding, "BLOCK_CELLS", block_cells)
    slots = [
        Slot(0, source(64, 1, lacks=["comp"])),
        Slot(1, source(64, 2)),
        Slot(2, source(64, 3, lacks=["comp"])),
        Slot(3, source(64, 4, lacks=DIVISOR)),
    ]
    folded = merge(slots, n_out=64, slot_cells=64)
    assert folded.demotions == (
        Demotion(field="comp", reason="divisor-missing", contributors=1, of="h", cells=16),
        Demotion(field="comp", reason="word-missing", contributors=2, of="h", cells=32),
    )
    assert folded.counts == SourceCounts(folded=4)
    found = listed(folded.data.arrays["comp"])
    assert [any(found[n : n + 16]) for n in range(0, 64, 16)] == [False, True, False, False]


def test_cells_of_a_missing_divisor_are_counted_only_where_spans_are_disjoint() -> None:
    lost = [Slot(0, source(64, 1, lacks=DIVISOR)), Slot(1, source(64, 2))]
    (wide,) = merge(lost, fan_in=256, n_out=1, slot_cells=64).demotions
    assert (wide.reason, wide.contributors, wide.cells) == ("divisor-missing", 1, None)
    (joined,) = folder_of().join(lost, cell_order=7, n_cells=64).demotions
    assert (joined.reason, joined.contributors, joined.cells) == ("divisor-missing", 1, None)
    (alone,) = folder_of().join(lost[:1], cell_order=7, n_cells=64).demotions
    assert alone.cells == 64


def test_a_window_without_words_blanks_its_node() -> None:
    windows = [Slot(n, source(64, n, lacks=["comp"] if n == 1 else [])) for n in range(3)]
    folded = folder_of().join(windows, cell_order=7, n_cells=64)
    assert folded.demotions == (
        Demotion(field="comp", reason="word-missing", contributors=1, of="h", cells=64),
    )
    assert not any(listed(folded.data.arrays["comp"]))
