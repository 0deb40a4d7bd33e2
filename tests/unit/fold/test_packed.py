"""Packed composition words: lane means, the floor, and dropped words."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.numpy_folds import merge_packed, pack_lanes

from sweep.fold.packed import fold_packed


def fold_one(pairs: list[tuple[int, int]]) -> int:
    words = np.array([word for word, _ in pairs], dtype=np.uint64)
    counts = np.array([count for _, count in pairs], dtype=np.int64)
    return int(fold_packed(words, counts, fan_in=len(pairs))[0])


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        # The vectors of semantics 14.3.
        (
            [(pack_lanes([255, 0, 128, 1, 0, 0, 0, 255]), 10), (pack_lanes([0, 0, 64, 0, 0, 255, 0, 0]), 30)],
            4611896025170313280,
        ),
        ([(1, 1), (0, 999)], 1),
        ([(1, 1), (0, 1)], 1),
        ([(2, 1), (3, 1)], 2),
        # Rules of semantics 6.4 one by one.
        ([(3, 1), (4, 1)], 4),
        ([(0xFF, 0), (0x10, -3)], 0),
        ([(0xFF, 0), (0x10, 2), (0x20, -1)], 0x10),
        ([(2**64 - 1, 7), (2**64 - 1, 9)], 2**64 - 1),
        ([(0, 5), (0, 6)], 0),
    ],
)
def test_lane_means(pairs: list[tuple[int, int]], expected: int) -> None:
    assert fold_one(pairs) == expected


def test_blocks_fold_as_single_cells_do() -> None:
    rng = np.random.default_rng(8)
    words = rng.integers(0, 2**64, 160, dtype=np.uint64) & rng.integers(0, 2**64, 160, dtype=np.uint64)
    counts = rng.integers(-1, 4, 160)
    for fan_in in (1, 4, 16):
        pairs = list(zip(words.tolist(), counts.tolist(), strict=True))
        expected = [merge_packed(pairs[i : i + fan_in]) for i in range(0, 160, fan_in)]
        assert fold_packed(words, counts, fan_in=fan_in).tolist() == expected
