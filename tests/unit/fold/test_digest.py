"""Merges of digests and of their companion words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support import numpy_folds

from sweep.errors import ArtifactError, DeclarationError
from sweep.fold.digest import DigestCells, digest_counts, merge_digests
from sweep.fold.ragged import Ragged, offsets_of
from sweep.model.nodes import words_of

F4 = np.dtype("<f4")
A = [(1, 1), (2, 1), (3, 1), (4, 1)]
B = [(2, 1), (2.5, 2), (10, 1)]
NO_ROWS: list[tuple[float, float]] = []
PLACES_A = "12344 12343 12341 12311"
PLACES_B = "12342 12344 12444"
TIMES = (5102790400000000000, 5102790400000000005)


def ragged(cells: list[bytes]) -> Ragged:
    lengths = np.array([len(cell) for cell in cells], dtype=np.int64)
    return Ragged(offsets_of(lengths), np.frombuffer(b"".join(cells), dtype=np.uint8))


def rows_of(*cells: list[Any], dtype: str = "<f4") -> Ragged:
    return ragged([np.array(cell, dtype=dtype).tobytes() for cell in cells])


def places_of(*cells: str) -> Ragged:
    return ragged([words_of(cell.split()).astype("<u8").tobytes() for cell in cells])


def words(*cells: list[int]) -> Ragged:
    return ragged([np.array(cell, dtype="<u8").tobytes() for cell in cells])


def merge(payload: Ragged, **options: Any) -> DigestCells:
    settings: dict[str, Any] = {"fan_in": 2, "delta": 4, "dtype": F4} | options
    cells = DigestCells(
        payload=payload, locations=settings.pop("locations", None), times=settings.pop("times", None)
    )
    return merge_digests(cells, **settings)


class TestVectors:
    """The vectors of semantics 14.1 and 14.2."""

    def test_delta_4_joins_rows(self) -> None:
        merged = merge(rows_of(A, B), locations=places_of(PLACES_A, PLACES_B))
        assert merged.payload.data.tobytes().hex(" ", 8) == (
            "0000803f0000803f 0000004000000040 abaa2a4000004040 000080400000803f 000020410000803f"
        )
        assert merged.locations is not None
        assert (
            merged.locations.data.view("<u8").tolist()
            == words_of(["12344", "1234", "1234", "12311", "12444"]).tolist()
        )

    @pytest.mark.parametrize("delta", [8, 512])
    def test_a_wide_budget_keeps_all_rows(self, delta: int) -> None:
        merged = merge(rows_of(A, B), delta=delta, locations=places_of(PLACES_A, PLACES_B))
        expected = rows_of([(1, 1), (2, 1), (2, 1), (2.5, 2), (3, 1), (4, 1), (10, 1)])
        assert merged.payload.data.tobytes() == expected.data.tobytes()
        assert merged.locations is not None
        places = "12344 12342 12343 12344 12341 12311 12444"
        assert merged.locations.data.tobytes() == places_of(places).data.tobytes()

    def test_one_contributor_passes_unchanged_above_the_budget(self) -> None:
        merged = merge(rows_of(A, NO_ROWS), delta=2, locations=places_of(PLACES_A, ""))
        assert merged.payload.data.tobytes() == rows_of(A).data.tobytes()
        assert merged.locations is not None
        assert merged.locations.data.tobytes() == places_of(PLACES_A).data.tobytes()

    def test_times_of_a_centroid_are_reduced(self) -> None:
        rows = [(1.0, 1.0)]
        joined = merge(rows_of(rows, rows), delta=1, times=words([TIMES[0]], [TIMES[1]]))
        assert joined.times is not None
        assert joined.times.data.view("<u8").tolist() == [TIMES[1]]
        alone = merge(rows_of(rows, rows), delta=64, times=words([TIMES[1]], [TIMES[0]]))
        assert alone.times is not None
        assert alone.times.data.view("<u8").tolist() == list(TIMES)


class TestCells:
    def test_each_output_cell_has_its_own_sources(self) -> None:
        merged = merge(rows_of(A, B, NO_ROWS, NO_ROWS, NO_ROWS, B, A, A))
        assert merged.payload.n_cells == 4
        assert merged.payload.lengths().tolist() == [5 * 8, 0, 3 * 8, merged.payload.lengths()[3]]
        assert merged.payload.slice(2, 3).data.tobytes() == rows_of(B).data.tobytes()
        assert merged.payload.slice(0, 1).data.tobytes() == merge(rows_of(A, B)).payload.data.tobytes()
        assert merged.payload.slice(3, 4).data.tobytes() == merge(rows_of(A, A)).payload.data.tobytes()

    def test_no_cells_and_no_rows(self) -> None:
        assert merge(Ragged.empty(0)).payload.n_cells == 0
        empty = merge(Ragged.empty(8), locations=Ragged.empty(8), times=Ragged.empty(8))
        assert empty.payload.lengths().tolist() == [0, 0, 0, 0]
        assert empty.locations is not None
        assert empty.locations.n_cells == 4

    def test_float64_rows_are_rounded_to_float32_by_a_merge_alone(self) -> None:
        fine = [(1 / 3, 1.0), (2 / 3, 1.0)]
        merged = merge(rows_of(fine, fine, fine, NO_ROWS, dtype="<f8"), dtype=np.dtype("<f8"), delta=512)
        values = merged.payload.slice(0, 1).data.view("<f8")
        assert values.tolist() == values.astype("<f4").astype("<f8").tolist()
        assert merged.payload.slice(1, 2).data.tobytes() == rows_of(fine, dtype="<f8").data.tobytes()

    def test_payload_bits_of_a_lone_nan_survive(self) -> None:
        raw = bytes.fromhex("010080ff 0000803f".replace(" ", ""))
        assert merge(ragged([b"", raw])).payload.data.tobytes() == raw

    @pytest.mark.parametrize("fan_in", [1, 3, 4, 16])
    @pytest.mark.parametrize("delta", [8, 24, 128])
    def test_merges_as_plain_numpy_does(self, fan_in: int, delta: int) -> None:
        rng = np.random.default_rng([fan_in, delta])
        digests = [_random_digest(rng, delta) for _ in range(6 * fan_in)]
        places = ragged([digest.locations.tobytes() for digest in digests if digest.locations is not None])
        times = ragged([digest.times.tobytes() for digest in digests if digest.times is not None])
        payload = ragged([digest.rows.tobytes() for digest in digests])
        merged = merge(payload, fan_in=fan_in, delta=delta, locations=places, times=times)
        expected = [
            numpy_folds.merge_digests(digests[i : i + fan_in], delta=delta)
            for i in range(0, len(digests), fan_in)
        ]
        assert merged.payload.data.tobytes() == b"".join(one.rows.tobytes() for one in expected)
        assert merged.payload.lengths().tolist() == [one.rows.nbytes for one in expected]
        assert merged.locations is not None
        assert merged.times is not None
        assert merged.locations.data.tobytes() == b"".join(_bytes_of(one.locations) for one in expected)
        assert merged.times.data.tobytes() == b"".join(_bytes_of(one.times) for one in expected)


def _bytes_of(array: Any) -> bytes:
    return bytes(array.tobytes())


def _random_digest(rng: np.random.Generator, delta: int) -> numpy_folds.Digest:
    n = int(rng.choice([0, 1, 5, 300]))
    values = np.round(rng.normal(0, 30, n), 1)
    places = words_of(["1" + "".join(rng.choice(list("1234"), 6)) for _ in range(n)])
    times = (np.uint64(5102790400000000000) + rng.integers(0, 10**9, n).astype(np.uint64)) | np.uint64(2**31)
    return numpy_folds.build_digest(values, np.ones(n), delta=delta, locations=places, times=times)


class TestRefusals:
    def test_a_payload_of_broken_rows_names_its_cell(self) -> None:
        with pytest.raises(ArtifactError, match="payload of source cell 1 has 9 bytes") as caught:
            merge(ragged([b"", b"x" * 9]))
        assert caught.value.context["cell"] == 1

    @pytest.mark.parametrize("name", ["locations", "times"])
    @pytest.mark.parametrize("payload", [rows_of(A, B), rows_of(NO_ROWS, B)])
    def test_a_companion_has_one_word_for_each_row(self, name: str, payload: Ragged) -> None:
        counts = payload.lengths() // 8
        companions = words([2**60] * int(counts[0]), [2**60] * 2)
        with pytest.raises(ArtifactError, match=f"{name} of source cell 1 hold 2 words, expected 3"):
            merge(payload, **{name: companions})

    def test_a_companion_of_other_cells_is_refused(self) -> None:
        with pytest.raises(ArtifactError, match="times hold 3 cells, expected 2"):
            merge(rows_of(NO_ROWS, NO_ROWS), times=Ragged.empty(3))

    @pytest.mark.parametrize("name", ["locations", "times"])
    @pytest.mark.parametrize("delta", [1, 512])
    def test_a_zero_word_in_a_merge_names_its_cell(self, name: str, delta: int) -> None:
        good, one = 2**60 + 1, [(1.0, 1.0)]
        payload = rows_of(one, one, one, one)
        companions = words([good], [good], [good], [0])
        with pytest.raises(ArtifactError, match=f"{name} of output cell 1 .*a word is 0") as caught:
            merge(payload, delta=delta, **{name: companions})
        assert caught.value.context["cell"] == 1

    def test_a_zero_word_of_a_lone_digest_passes(self) -> None:
        merged = merge(rows_of([(1.0, 1.0)], NO_ROWS), locations=words([0], []))
        assert merged.locations is not None
        assert merged.locations.data.tobytes() == bytes(8)

    @pytest.mark.parametrize("delta", [1, 512])
    def test_locations_of_two_base_cells_are_refused(self, delta: int) -> None:
        one = [(1.0, 1.0)]
        payload = rows_of(NO_ROWS, NO_ROWS, one, one)
        with pytest.raises(ArtifactError, match=r"locations of output cell 1 .*several base cells"):
            merge(payload, delta=delta, locations=places_of("", "", "123", "223"))

    @pytest.mark.parametrize("delta", [1, 512])
    def test_a_location_that_is_no_cell_is_refused(self, delta: int) -> None:
        one = [(1.0, 1.0)]
        good, bad = 2**60 + 1, (13 << 60) + 1
        payload = rows_of(one, one, one, one)
        with pytest.raises(ArtifactError, match=r"locations of output cell 1 .*invalid word"):
            merge(payload, delta=delta, locations=words([good], [good], [bad], [bad]))

    def test_other_inner_shapes_are_refused(self) -> None:
        with pytest.raises(DeclarationError, match=r"inner_shape \[3\]"):
            merge(Ragged.empty(2), inner=3)


class TestCounts:
    @pytest.mark.parametrize(
        ("weights", "count"),
        [([], 0), ([0.5], 0), ([1.5], 2), ([2.5], 2), ([1.0, 2.0, 3.0], 6), ([2.0**24, 1.0, 1.0], 2**24)],
    )
    def test_weights_are_summed_and_rounded_half_to_even(self, weights: list[float], count: int) -> None:
        assert digest_counts(rows_of([(9.0, w) for w in weights]), F4).tolist() == [count]

    @pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
    def test_the_sum_is_numpys_in_the_stored_dtype(self, dtype: str) -> None:
        rng = np.random.default_rng(4)
        cells = [rng.uniform(0, 9, (n, 2)).astype(dtype) for n in (0, 1, 7, 8, 9, 128, 129, 700, 3)]
        payload = ragged([cell.tobytes() for cell in cells])
        expected = [round(float(cell[:, 1].sum())) for cell in cells]
        assert digest_counts(payload, np.dtype(dtype)).tolist() == expected

    @pytest.mark.parametrize("weight", [np.inf, np.nan])
    def test_weights_without_a_sum_are_refused(self, weight: float) -> None:
        with pytest.raises(ArtifactError, match="digest of cell 1: its weights add up to"):
            digest_counts(rows_of(NO_ROWS, [(1.0, weight)]), F4)
