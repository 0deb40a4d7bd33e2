"""Vectors put together from parts, and cells that count as populated."""

from __future__ import annotations

import itertools

import numpy as np
from tests.support.made import fields_of, level_data, listed, ragged

from sweep.fold.level import LevelData, assemble, join_blocks, slice_cells
from sweep.model.fields import ArraySpec

DENSE = ArraySpec(name="d", dtype=np.dtype(np.int32), fill=np.int32(-9999), attributes={})
RAGGED = ArraySpec(name="r", dtype=np.dtype(np.uint64), fill=None, attributes={})


def test_dense_gaps_are_fill() -> None:
    cells = assemble(DENSE, 8, [(1, 3, np.array([5, 6])), (3, 4, None), (6, 7, np.array([7]))])
    assert isinstance(cells, np.ndarray)
    assert cells.dtype == np.int32
    assert cells.tolist() == [-9999, 5, 6, -9999, -9999, -9999, 7, -9999]


def test_dense_values_take_the_declared_dtype() -> None:
    cells = assemble(DENSE, 2, [(0, 2, np.array([1.0, 2.0], dtype=np.float64))])
    assert isinstance(cells, np.ndarray)
    assert cells.dtype == np.int32


def test_ragged_gaps_are_empty() -> None:
    parts = [(1, 3, ragged([b"ab", b""])), (3, 4, None), (6, 7, ragged([b"c"]))]
    assert listed(assemble(RAGGED, 8, parts)) == [b"", b"ab", b"", b"", b"", b"", b"c", b""]
    assert listed(assemble(RAGGED, 2, [(0, 2, ragged([b"x", b"y"]))])) == [b"x", b"y"]
    assert listed(assemble(RAGGED, 3, [])) == [b"", b"", b""]
    assert listed(assemble(RAGGED, 2, [(0, 2, None)])) == [b"", b""]


def test_blocks_join_to_what_they_were_cut_from() -> None:
    fields = fields_of()
    whole = level_data(fields, 16)
    for cuts in ([0, 16], [0, 1, 7, 16]):
        blocks = [
            {name: slice_cells(cells, a, b) for name, cells in whole.arrays.items()}
            for a, b in itertools.pairwise(cuts)
        ]
        joined = join_blocks(fields.arrays(), blocks, 16)
        assert joined.n_cells == 16
        assert {name: str(listed(cells)) for name, cells in joined.arrays.items()} == {
            name: str(listed(cells)) for name, cells in whole.arrays.items()
        }


def test_populated_cells() -> None:
    """A dense zero of a fill of zero is no data, a NaN never is, and one array is enough."""
    dense = np.array([-9999, 0, -9999, -9999], dtype=np.int32)
    data = LevelData(n_cells=4, arrays={"d": dense, "r": ragged([b"", b"", b"x", b""])})
    assert data.populated([DENSE, RAGGED]) == 2
    assert data.populated([RAGGED]) == 1
    assert data.populated([]) == 0
    floats = ArraySpec(name="f", dtype=np.dtype(np.float32), fill=np.float32(-1.0), attributes={})
    values = np.array([np.nan, -1.0, 0.0, 2.0], dtype=np.float32)
    assert LevelData(n_cells=4, arrays={"f": values}).populated([floats]) == 2
