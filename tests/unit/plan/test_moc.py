"""Root coverage: ranges of real stores, and what is malformed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.decimals import whole_sphere

from sweep.errors import DeclarationError
from sweep.model.nodes import decimals_of, words_of
from sweep.plan.moc import compact_ranges, expand_ranges

KITCHEN_SINK = [
    ["11111", "11121"],
    ["11131", "11132"],
    ["12344", "12344"],
    ["14433", "14433"],
    ["61234", "61234"],
    ["-21111", "-21112"],
    ["-34443", "-34443"],
]
KITCHEN_SINK_LEAVES = [
    "11111", "11112", "11113", "11114", "11121", "11131", "11132", "12344", "14433", "61234", "-21111",
    "-21112", "-34443",
]  # fmt: skip


def test_ranges_of_a_real_store() -> None:
    cells = expand_ranges(KITCHEN_SINK, 4)
    assert cells.dtype == np.uint64
    assert decimals_of(cells) == KITCHEN_SINK_LEAVES
    assert compact_ranges(words_of(KITCHEN_SINK_LEAVES[::-1])) == KITCHEN_SINK


def test_the_whole_sphere_is_one_range_for_each_base_cell() -> None:
    ranges = compact_ranges(words_of(whole_sphere(2)))
    bases = ["1", "2", "3", "4", "5", "6", "-1", "-2", "-3", "-4", "-5", "-6"]
    assert ranges == [[base + "11", base + "44"] for base in bases]
    assert sorted(decimals_of(expand_ranges(ranges, 2))) == sorted(whole_sphere(2))


def test_order_zero() -> None:
    assert compact_ranges(words_of(["2", "1", "-1"])) == [["1", "1"], ["2", "2"], ["-1", "-1"]]
    assert decimals_of(expand_ranges([["2", "2"], ["1", "1"]], 0)) == ["1", "2"]


def test_ranges_may_overlap_and_come_in_any_sequence() -> None:
    ranges = [["-111", "-112"], ["121", "124"], ["114", "122"], ["113", "113"], ["111", "131"]]
    expected = ["111", "112", "113", "114", "121", "122", "123", "124", "131", "-111", "-112"]
    assert decimals_of(expand_ranges(ranges, 2)) == expected


def test_nothing() -> None:
    assert len(expand_ranges([], 4)) == 0
    assert compact_ranges(np.empty(0, dtype=np.uint64)) == []


@pytest.mark.parametrize(
    ("ranges", "order", "named"),
    [
        ([["11111", "61111"]], 4, ["['11111', '61111']", "one base cell"]),
        ([["11111", "-11112"]], 4, ["['11111', '-11112']", "one base cell"]),
        ([["11111", "11112"], ["11122", "11121"]], 4, ["['11122', '11121']", "ascend"]),
        ([["1111", "1112"]], 4, ["'1111'", "order 4"]),
        ([["11111", "111121"]], 4, ["'111121'", "order 4"]),
        ([["11115", "11115"]], 4, ["'11115'"]),
        ([[11111, "11112"]], 4, ["11111"]),
        ([["11111"]], 4, ["['11111']", "[first, last]"]),
        ([["11111", "11112", "11113"]], 4, ["[first, last]"]),
        (["11111"], 4, ["'11111'", "[first, last]"]),
        ({"11111": "11112"}, 4, ["dict"]),
        (None, 4, ["NoneType"]),
        ([], "4", ["order '4'"]),
        ([], -1, ["order -1"]),
        ([], True, ["order True"]),
        ([], 28, ["order 28"]),
    ],
)
def test_malformed_ranges_are_named(ranges: Any, order: Any, named: list[str]) -> None:
    with pytest.raises(DeclarationError) as caught:
        expand_ranges(ranges, order)
    assert all(text in str(caught.value) for text in named)
    assert caught.value.kind == "coverage"


def test_ranges_are_of_one_order() -> None:
    with pytest.raises(DeclarationError, match=r"orders \[2, 3\]"):
        compact_ranges(words_of(["111", "1111"]))
