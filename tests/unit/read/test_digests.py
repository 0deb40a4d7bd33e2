"""Quantiles, counts and rows of digests, held against numpy on the samples themselves."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from tests.support.made import digest, ragged

from sweep.errors import ArtifactError, DeclarationError
from sweep.read.digests import DigestArray

FLOAT32 = np.dtype(np.float32)
QUANTILES = (0.0, 0.03, 0.25, 0.5, 0.77, 1.0)


def of_cells(*cells: Sequence[tuple[float, float]]) -> DigestArray:
    return DigestArray.from_ragged(ragged([digest(*cell) for cell in cells]), FLOAT32)


def singles(values: NDArray[np.floating]) -> list[tuple[float, float]]:
    """A centroid for each value."""
    return [(float(value), 1.0) for value in values]


@pytest.mark.parametrize("q", QUANTILES)
def test_single_values_have_the_quantiles_of_hazen(q: float) -> None:
    rng = np.random.default_rng(4)
    samples = [np.sort(rng.normal(size=n).astype(np.float32)) for n in (1, 2, 3, 17, 200)]
    found = of_cells(*map(singles, samples)).quantile(q)
    expected = [np.quantile(sample.astype(np.float64), q, method="hazen") for sample in samples]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_weight_is_as_many_values() -> None:
    # Midpoints at 1, 3.5 and 5.5 of a weight of 6; read off by hand.
    cells = of_cells([(10.0, 2.0), (20.0, 3.0), (40.0, 1.0)])
    assert cells.quantile([0, 1 / 6, 3 / 6, 3.5 / 6, 4.5 / 6, 5.5 / 6, 1])[0] == pytest.approx(
        [10, 10, 18, 20, 30, 40, 40]
    )


def test_a_compressed_digest_stays_near_its_sample() -> None:
    values = np.sort(np.random.default_rng(5).gamma(2.0, size=6400))
    groups = values.reshape(-1, 64)
    cells = of_cells([(float(group.mean()), 64.0) for group in groups])
    for q in (0.1, 0.5, 0.9):
        # A centroid spans a hundredth of the values, so the answer lies within one of them.
        low, high = np.quantile(values, [q - 0.01, q + 0.01])
        assert low <= cells.quantile(q)[0] <= high


def test_cells_are_apart_and_empty_ones_are_nan() -> None:
    cells = of_cells([], [(1.0, 5.0)], [], [], [(7.0, 1.0), (9.0, 1.0)], [])
    np.testing.assert_array_equal(cells.quantile(0.5), [np.nan, 1, np.nan, np.nan, 8, np.nan])
    np.testing.assert_array_equal(cells.counts(), [0, 5, 0, 0, 2, 0])
    assert of_cells([], []).quantile([0.5, 0.6]).shape == (2, 2)
    assert DigestArray.single(np.empty((0, 2), FLOAT32))[0:0].quantile(0.5).shape == (0,)


def test_centroids_in_any_order() -> None:
    ordered = of_cells([(5.0, 1.0)], [(1.0, 2.0), (2.0, 1.0), (3.0, 4.0)])
    shuffled = of_cells([(5.0, 1.0)], [(3.0, 4.0), (1.0, 2.0), (2.0, 1.0)])
    np.testing.assert_array_equal(shuffled.quantile(QUANTILES), ordered.quantile(QUANTILES))


cells_of_rows = st.lists(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(0, 6), st.just(2)),
        elements=st.floats(0.0078125, 1e6, width=32),
    ),
    min_size=1,
    max_size=5,
)


@given(cells_of_rows)
def test_quantiles_rise_within_the_means(cells: list[NDArray[np.float32]]) -> None:
    found = of_cells(*(list(map(tuple, rows.tolist())) for rows in cells)).quantile(np.linspace(0, 1, 23))
    for rows, quantiles in zip(cells, found, strict=True):
        if len(rows) == 0:
            assert np.isnan(quantiles).all()
            continue
        assert quantiles[0] == rows[:, 0].min()
        assert quantiles[-1] == rows[:, 0].max()
        # One step of a double: neighbours are rounded each for themselves.
        assert (np.diff(quantiles) >= -np.spacing(quantiles[1:])).all()


def test_many_cells_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    cells = of_cells(*(singles(np.sort(rng.random(n))) for n in rng.integers(0, 5, 40)))
    whole = cells.quantile([0.2, 0.8])
    monkeypatch.setattr("sweep.read.digests._CELLS_AT_ONCE", 7)
    np.testing.assert_array_equal(cells.quantile([0.2, 0.8]), whole)


@pytest.mark.parametrize("q", [-0.1, 1.5, float("nan"), [0.5, 2.0]])
def test_a_quantile_off_the_scale_is_refused(q: float) -> None:
    with pytest.raises(DeclarationError, match="from 0 to 1"):
        of_cells([(1.0, 1.0)]).quantile(q)


def test_a_payload_of_half_a_row_is_named() -> None:
    with pytest.raises(ArtifactError, match=r"cell 1 has 12 bytes"):
        DigestArray.from_ragged(ragged([digest((1, 1)), b"\0" * 12]), FLOAT32)


class TestIndexing:
    CELLS: tuple[list[tuple[float, float]], ...] = ([(1.0, 1.0)], [], [(2.0, 1.0), (3.0, 2.0)], [(4.0, 1.0)])

    @pytest.mark.parametrize(
        ("key", "places"),
        [
            (slice(1, 3), [1, 2]),
            (slice(None, None, -1), [3, 2, 1, 0]),
            (slice(3, 1), []),
            (..., [0, 1, 2, 3]),
            ((slice(2, None),), [2, 3]),
            (np.array([2, 0, 2]), [2, 0, 2]),
            (np.array([-1]), [3]),
            (np.array([True, False, True, False]), [0, 2]),
        ],
    )
    def test_selections(self, key: object, places: list[int]) -> None:
        selected = of_cells(*self.CELLS)[key]
        assert isinstance(selected, DigestArray)
        assert [selected.rows(i).tolist() for i in range(len(selected))] == [
            [list(row) for row in self.CELLS[place]] for place in places
        ]
        np.testing.assert_array_equal(
            selected.counts(), [sum(weight for _, weight in self.CELLS[place]) for place in places]
        )

    def test_one_cell_is_an_array_of_no_dimension(self) -> None:
        single = of_cells(*self.CELLS)[2]
        assert single.shape == ()
        assert single.item().tolist() == [[2, 1], [3, 2]]

    @pytest.mark.parametrize("key", [4, np.array([4]), np.array([True]), (0, 0)])
    def test_what_is_not_there(self, key: object) -> None:
        with pytest.raises(IndexError):
            of_cells(*self.CELLS)[key]

    def test_selections_of_selections_join(self) -> None:
        cells = of_cells(*self.CELLS)
        joined: Any = np.concatenate([cells[2:], cells[:1]])
        assert isinstance(joined, DigestArray)
        assert joined.counts().tolist() == [3, 1, 1]
        assert joined.rows(0).tolist() == [[2, 1], [3, 2]]

    def test_objects_for_numpy_and_no_arithmetic(self) -> None:
        cells = of_cells(*self.CELLS)
        assert [each.tolist() for each in np.asarray(cells)] == [cells.rows(i).tolist() for i in range(4)]
        with pytest.raises(TypeError):
            cells + np.ones(4)
        with pytest.raises(TypeError, match="take a quantile"):
            cells.astype(np.float64)
        assert copy.deepcopy(cells).counts().tolist() == cells.counts().tolist()
        assert repr(cells) == "DigestArray(4 cells, 4 centroids, float32)"
