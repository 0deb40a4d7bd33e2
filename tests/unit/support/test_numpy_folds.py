"""The judges of other tests give the written examples of the format.

Source: semantics 14.1-14.3.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from mortie import decimal_to_word
from tests.support.numpy_folds import Digest, merge_digests, merge_packed, pack_lanes

A = [(1, 1), (2, 1), (3, 1), (4, 1)]
B = [(2, 1), (2.5, 2), (10, 1)]
PLACES_A = ["12344", "12343", "12341", "12311"]
PLACES_B = ["12342", "12344", "12444"]


def digest(rows: Sequence[tuple[float, float]], places: list[str]) -> Digest:
    return Digest(rows=np.array(rows, np.float32), locations=np.asarray(decimal_to_word(places), np.uint64))


def test_a_tight_budget_joins_rows_and_their_places() -> None:
    merged = merge_digests([digest(A, PLACES_A), digest(B, PLACES_B)], delta=4)
    assert merged.rows.astype("<f4").tobytes().hex() == (
        "0000803f0000803f0000004000000040abaa2a4000004040000080400000803f000020410000803f"
    )
    expected = decimal_to_word(["12344", "1234", "1234", "12311", "12444"])
    assert merged.locations is not None
    assert merged.locations.tolist() == np.asarray(expected).tolist()


def test_a_wide_budget_keeps_rows_in_order_of_mean_and_then_place() -> None:
    merged = merge_digests([digest(A, PLACES_A), digest(B, PLACES_B)], delta=512)
    assert merged.rows[:, 0].tolist() == [1, 2, 2, 2.5, 3, 4, 10]
    expected = decimal_to_word(["12344", "12342", "12343", "12344", "12341", "12311", "12444"])
    assert merged.locations is not None
    assert merged.locations.tolist() == np.asarray(expected).tolist()


def test_a_lone_digest_passes_unchanged_over_its_budget() -> None:
    none = Digest(rows=np.empty((0, 2), np.float32), locations=np.empty(0, np.uint64))
    lone = digest(A, PLACES_A)
    assert merge_digests([none, lone, none], delta=2) is lone


@pytest.mark.parametrize(
    ("parts", "lanes"),
    [
        (
            [([255, 0, 128, 1, 0, 0, 0, 255], 10), ([0, 0, 64, 0, 0, 255, 0, 0], 30)],
            [64, 0, 80, 1, 0, 191, 0, 64],
        ),
        ([([1], 1), ([0], 999)], [1]),
        ([([1], 1), ([0], 1)], [1]),
        ([([2], 1), ([3], 1)], [2]),
        ([([7], 0)], [0]),
    ],
)
def test_packed_words(parts: list[tuple[list[int], int]], lanes: list[int]) -> None:
    assert merge_packed([(pack_lanes(part), n) for part, n in parts]) == pack_lanes(lanes)


def test_the_written_packed_word() -> None:
    assert pack_lanes([64, 0, 80, 1, 0, 191, 0, 64]) == 4611896025170313280
