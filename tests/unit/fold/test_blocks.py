"""Blocks of a fold, against folds of single cells written apart from the package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mortie
import numpy as np
import pytest
from tests.support import numpy_folds
from tests.support.made import digest, fields_of, listed, ragged, words
from tests.support.numpy_folds import Digest

from sweep.errors import ArtifactError
from sweep.fold.blocks import FoldedBlock, Span, cells_read, gather_block, merge_block
from sweep.fold.level import Cells

FIELDS = fields_of()
NAMES = [spec.name for spec in FIELDS.arrays()]
PLACES = mortie.generate_morton_children(int(mortie.decimal_to_word("1234", dtype=int)), 8)
TIME = 5102790400000000000  # semantics 14.2
type Arrays = dict[str, Cells | None]


def cells_of(rng: np.random.Generator, n_cells: int, *, filled: float = 0.7) -> Arrays:
    """Every array of some cells; digests have up to 40 rows, so that they are compressed."""
    holds = rng.random(n_cells) < filled
    n_rows = np.where(holds, rng.integers(1, 40, n_cells), 0).tolist()
    means = [np.sort(rng.integers(0, 50, n)).astype(float) for n in n_rows]
    payload = [digest(*((m, float(rng.integers(1, 9))) for m in cell)) for cell in means]
    return {
        "count": np.where(holds, rng.integers(1, 99, n_cells), 0),
        "h_min": np.where(holds, rng.normal(size=n_cells), np.nan).astype(np.float32),
        "i_max": np.where(rng.random(n_cells) < filled, rng.integers(-50, 50, n_cells), -9999).astype(
            np.int32
        ),
        "h": ragged(payload),
        "h_locations": ragged([words(*rng.choice(PLACES, n).tolist()) for n in n_rows]),
        "h_times": ragged([words(*(TIME + rng.integers(0, 9, n) * 8).tolist()) for n in n_rows]),
        "flux": ragged([digest((1.0, 0.5)) if hold else b"" for hold in holds]),
        "comp": np.where(holds, rng.integers(1, 2**63, n_cells, dtype=np.uint64), 0).astype(np.uint64),
    }


def span(source: int, start: int, arrays: Mapping[str, Cells | None], n_cells: int = 4) -> Span:
    return Span(source=source, start=start, stop=start + n_cells, arrays=arrays)


def without(arrays: Arrays, *names: str) -> Arrays:
    return {name: None if name in names else cells for name, cells in arrays.items()}


def values(block: FoldedBlock) -> dict[str, str]:
    """All cells as text, in which NaN equals NaN."""
    return {name: str(listed(cells)) for name, cells in block.arrays.items()}


# -- gather -------------------------------------------------------------------------------


def test_a_gather_copies_and_fills() -> None:
    rng = np.random.default_rng(1)
    first, second = cells_of(rng, 4), cells_of(rng, 4)
    block = gather_block(FIELDS, 16, [span(0, 4, first), span(1, 12, second)])
    assert list(block.arrays) == NAMES
    for spec in FIELDS.arrays():
        fill = [b"" if spec.is_ragged else spec.fill.item()] * 4
        expected = [*fill, *listed(first[spec.name]), *fill, *listed(second[spec.name])]
        assert str(listed(block.arrays[spec.name])) == str(expected)
    assert (block.refused, block.blanks) == (frozenset(), ())


def test_an_absent_array_is_fill_and_refuses_nobody() -> None:
    arrays = without(cells_of(np.random.default_rng(1), 4), "count", "comp", "flux")
    block = gather_block(FIELDS, 4, [span(0, 0, arrays)])
    assert listed(block.arrays["count"]) == [0] * 4
    assert listed(block.arrays["flux"]) == [b""] * 4
    assert str(listed(block.arrays["h"])) == str(listed(arrays["h"]))
    assert (block.refused, block.blanks) == (frozenset(), ())


@pytest.mark.parametrize(
    "lost", [["h"], ["h_times"], ["h_locations"], ["h", "h_times"], ["h_times", "h_locations"]]
)
@pytest.mark.parametrize("merging", [False, True])
def test_a_partial_companion_group_is_refused(lost: list[str], merging: bool) -> None:
    rng = np.random.default_rng(2)
    sound, partial = cells_of(rng, 4), without(cells_of(rng, 4), *lost)
    spans = [span(0, 0, sound), span(7, 4, partial)]
    alone = [span(0, 0, sound), span(7, 4, without(partial, "h", "h_times", "h_locations"))]
    if merging:
        block, expected = (merge_block(FIELDS, 2, 4, [each]) for each in (spans, alone))
    else:
        block, expected = (gather_block(FIELDS, 8, each) for each in (spans, alone))
    assert block.refused == {7}
    assert expected.refused == frozenset()
    for name in ("h", "h_locations", "h_times", "count", "h_min", "i_max", "flux"):
        assert values(block)[name] == values(expected)[name]
    if not merging:
        assert listed(block.arrays["h"])[4:] == [b""] * 4
        assert listed(block.arrays["comp"])[4:] == listed(partial["comp"])


def test_a_whole_companion_group_absent_is_silent() -> None:
    arrays = without(cells_of(np.random.default_rng(3), 4), "h", "h_times", "h_locations")
    assert gather_block(FIELDS, 4, [span(0, 0, arrays)]).refused == frozenset()


@pytest.mark.parametrize("name", ["count", "flux"])
def test_an_array_of_another_class_is_an_error_that_names_it(name: str) -> None:
    arrays = cells_of(np.random.default_rng(4), 4)
    arrays[name] = ragged([b""] * 4) if name == "count" else np.zeros(4)
    with pytest.raises(ArtifactError, match=f"'{name}'"):
        gather_block(FIELDS, 4, [span(0, 0, arrays)])


# -- merges by single cells ---------------------------------------------------------------


def _digest_at(arrays: Mapping[str, Cells | None], name: str, cell: int) -> Digest:
    def companion(suffix: str) -> Any:
        cells = arrays.get(f"{name}_{suffix}")
        return None if cells is None else np.frombuffer(listed(cells)[cell], dtype="<u8")

    rows = np.frombuffer(listed(arrays[name])[cell], dtype="<f4").reshape(-1, 2)
    return Digest(rows=rows, locations=companion("locations"), times=companion("times"))


def by_single_cells(
    groups: Sequence[Sequence[tuple[Mapping[str, Cells | None], int]]],
) -> dict[str, list[Any]]:
    """Fold each group of (arrays, cell) into one cell."""
    out: dict[str, list[Any]] = {name: [] for name in NAMES}
    for group in groups:
        for name, law, fill, dtype in (
            ("count", "sum", 0, "int64"),
            ("h_min", "min", np.nan, "float32"),
            ("i_max", "max", -9999, "int32"),
        ):
            column = [fill if a.get(name) is None else listed(a[name])[c] for a, c in group]
            vector = np.array(column, dtype=dtype)
            out[name] += numpy_folds.fold_exact(vector, factor=len(group), method=law, fill=fill).tolist()
        for name in ("h", "flux"):
            parts = [_digest_at(a, name, c) for a, c in group if a.get(name) is not None]
            none = numpy_folds.empty_digest(located=name == "h", timed=name == "h")
            merged = numpy_folds.merge_digests(parts or [none], delta=24)
            out[name].append(merged.rows.astype("<f4").tobytes())
            if name == "h":
                assert merged.locations is not None
                assert merged.times is not None
                out["h_locations"].append(merged.locations.astype("<u8").tobytes())
                out["h_times"].append(merged.times.astype("<u8").tobytes())
        pairs = [
            (listed(a["comp"])[c], numpy_folds.row_count(_digest_at(a, "h", c)))
            for a, c in group
            if a.get("comp") is not None and a.get("h") is not None
        ]
        out["comp"].append(numpy_folds.merge_packed(pairs))
    return out


def as_text(expected: Mapping[str, list[Any]]) -> dict[str, str]:
    return {name: str(cells) for name, cells in expected.items()}


@pytest.mark.parametrize("fan_in", [1, 4, 16])
def test_a_merge_folds_runs_of_cells(fan_in: int) -> None:
    """Four sources of 16 cells; the third is not there, and the last has no flux and no h_min."""
    rng = np.random.default_rng(fan_in)
    sources = [cells_of(rng, 16) for _ in range(4)]
    sources[3] = without(sources[3], "flux", "h_min")
    spans = [span(n, 16 * n, sources[n], 16) for n in (0, 1, 3)]
    block = merge_block(FIELDS, 64 // fan_in, fan_in, [spans])
    gone: Arrays = dict.fromkeys(NAMES)
    cells = [(sources[n] if n != 2 else gone, c) for n in range(4) for c in range(16)]
    groups = [cells[start : start + fan_in] for start in range(0, 64, fan_in)]
    assert values(block) == as_text(by_single_cells(groups))
    assert (block.refused, block.blanks) == (frozenset(), ())


def test_one_source_cell_alone_passes_verbatim() -> None:
    """A digest longer than its budget stays as it is where nothing else falls into the cell."""
    rows = tuple((float(n), 1.0) for n in range(200))
    arrays: Arrays = without(cells_of(np.random.default_rng(0), 4), *NAMES)
    arrays["flux"] = ragged([b"", digest(*rows), b"", b""])
    block = merge_block(FIELDS, 1, 4, [[span(0, 0, arrays)]])
    assert listed(block.arrays["flux"]) == [digest(*rows)]


@pytest.mark.parametrize("n_windows", [1, 2, 3, 5])
def test_strands_join_cell_by_cell(n_windows: int) -> None:
    rng = np.random.default_rng(n_windows)
    windows = [cells_of(rng, 8) for _ in range(n_windows)]
    windows[-1] = without(windows[-1], "count", "flux")
    strands = [[span(n, 0, each, 8)] for n, each in enumerate(windows)]
    block = merge_block(FIELDS, 8, 1, strands)
    expected = by_single_cells([[(each, cell) for each in windows] for cell in range(8)])
    assert values(block) == as_text(expected)


def test_float_sums_of_windows_are_pairwise_in_order() -> None:
    """Semantics 11: two at a time, so the sum differs from one over all windows at once."""
    fields = fields_of({"s": {"class": "exact", "method": "sum", "dtype": "float32", "fill_value": "NaN"}})
    parts = [1e8, *[3.0] * 7, np.nan, -1e8]
    strands = [[span(n, 0, {"s": np.array([part], dtype=np.float32)}, 1)] for n, part in enumerate(parts)]
    total = np.float32(parts[0])
    for part in parts[1:]:
        total = total if np.isnan(part) else np.float32(total + np.float32(part))
    assert listed(merge_block(fields, 1, 1, strands).arrays["s"]) == [float(total)] == [0.0]
    assert np.array(parts, dtype=np.float32)[[*range(8), 9]].sum() != 0.0


# -- half pairs ---------------------------------------------------------------------------


def test_a_source_without_words_blanks_what_it_covers() -> None:
    rng = np.random.default_rng(5)
    sources = [cells_of(rng, 4, filled=1.0) for _ in range(4)]
    sources[1] = without(sources[1], "comp")
    block = merge_block(FIELDS, 4, 4, [[span(n, 4 * n, each) for n, each in enumerate(sources)]])
    found = listed(block.arrays["comp"])
    assert found[1] == 0
    assert all(found[n] for n in (0, 2, 3))
    (blank,) = block.blanks
    assert (blank.field.name, blank.reason, blank.source) == ("comp", "word-missing", 1)
    assert (blank.start, blank.stop) == (1, 2)
    assert block.refused == frozenset()


def test_a_blank_covers_cells_that_sources_share() -> None:
    """With a fan-in wider than a source, its blank takes the others' words with it."""
    rng = np.random.default_rng(6)
    sources = [cells_of(rng, 4, filled=1.0) for _ in range(4)]
    sources[1] = without(sources[1], "comp")
    spans = [span(n, 4 * n, each) for n, each in enumerate(sources)]
    block = merge_block(FIELDS, 2, 8, [spans])
    found = listed(block.arrays["comp"])
    assert found[0] == 0
    assert found[1] != 0
    assert (block.blanks[0].start, block.blanks[0].stop) == (0, 1)


def test_a_source_without_divisor_contributes_nothing() -> None:
    rng = np.random.default_rng(7)
    sources = [cells_of(rng, 4, filled=1.0) for _ in range(2)]
    lost = without(sources[1], "h", "h_times", "h_locations")
    block = merge_block(FIELDS, 1, 8, [[span(0, 0, sources[0]), span(1, 4, lost)]])
    alone = merge_block(FIELDS, 1, 8, [[span(0, 0, sources[0])]])
    assert listed(block.arrays["comp"]) == listed(alone.arrays["comp"]) != [0]
    (blank,) = block.blanks
    assert (blank.reason, blank.source, blank.start, blank.stop) == ("divisor-missing", 1, 0, 1)
    assert block.refused == frozenset()


def test_a_source_with_neither_half_is_silent() -> None:
    rng = np.random.default_rng(8)
    arrays = without(cells_of(rng, 4), "comp", "h", "h_times", "h_locations")
    block = merge_block(FIELDS, 1, 4, [[span(0, 0, arrays)]])
    assert (listed(block.arrays["comp"]), block.blanks) == ([0], ())


def test_a_window_without_words_blanks_the_field_at_its_node() -> None:
    rng = np.random.default_rng(9)
    windows = [cells_of(rng, 4, filled=1.0) for _ in range(3)]
    windows[1] = without(windows[1], "comp")
    block = merge_block(FIELDS, 4, 1, [[span(n, 0, each)] for n, each in enumerate(windows)])
    assert listed(block.arrays["comp"]) == [0] * 4
    assert [(blank.source, blank.start, blank.stop) for blank in block.blanks] == [(1, 0, 4)]


def test_a_refused_digest_still_weighs_the_words() -> None:
    """The payload is there, so the pair is whole; only the digest field skips the source."""
    rng = np.random.default_rng(10)
    whole = cells_of(rng, 4, filled=1.0)
    partial = without(whole, "h_times")
    block = merge_block(FIELDS, 1, 4, [[span(0, 0, partial)]])
    expected = merge_block(FIELDS, 1, 4, [[span(0, 0, whole)]])
    assert listed(block.arrays["comp"]) == listed(expected.arrays["comp"]) != [0]
    assert listed(block.arrays["h"]) == [b""]
    assert block.refused == {0}
    assert block.blanks == ()


# -- the meter ----------------------------------------------------------------------------


def test_cells_read_are_counted_by_array_range() -> None:
    rng = np.random.default_rng(11)
    whole, part = cells_of(rng, 4), without(cells_of(rng, 4), "count", "h")
    spans = [span(0, 0, whole), span(1, 4, part), Span(source=2, start=8, stop=9, arrays=whole)]
    assert cells_read(FIELDS, spans, merging=False) == 8 * 4 + 6 * 4 + 8 * 1
    # a merge reads the divisor of the packed field again
    assert cells_read(FIELDS, spans, merging=True) == 9 * 4 + 6 * 4 + 9 * 1
    assert cells_read(FIELDS, [], merging=True) == 0
