"""The schedules of the specification, and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sweep.errors import DeclarationError
from sweep.model.nodes import words_of
from sweep.plan.tuples import OrderTuple, fixed_tuples, sized_tuples, span_tuple


def orders(tuples: tuple[OrderTuple, ...]) -> list[list[int]]:
    return [list(each.orders) for each in tuples]


@pytest.mark.parametrize(
    ("shard_order", "width", "expected"),
    [
        (9, 3, [[8, 7, 6], [5, 4, 3], [2, 1, 0]]),
        (4, 3, [[3], [2, 1, 0]]),
        (6, 3, [[5, 4, 3], [2, 1, 0]]),
        (5, 2, [[4], [3, 2], [1, 0]]),
        (1, 3, [[0]]),
        (3, 1, [[2], [1], [0]]),
    ],
)
def test_fixed_width(shard_order: int, width: int, expected: list[list[int]]) -> None:
    tuples = fixed_tuples(shard_order, width)
    assert orders(tuples) == expected
    assert all(each.width is None and each.fold_max is None for each in tuples)
    assert tuples[-1].dispatch_order == 0
    assert tuples[0].child_order == shard_order


@pytest.mark.parametrize(
    ("shard_order", "target", "expected", "fold_max"),
    [
        (9, 8, [[8, 7], [6, 5], [4, 3], [2, 1], [0]], [5, 5, 5, 5, 1]),
        (6, 8, [[5, 4], [3, 2], [1, 0]], [5, 5, 5]),
        (4, 4, [[3], [2], [1], [0]], [1, 1, 1, 1]),
        (6, 5, [[5, 4], [3, 2], [1, 0]], [5, 5, 5]),
        (6, 20, [[5, 4], [3, 2], [1, 0]], [5, 5, 5]),
        (6, 21, [[5, 4, 3], [2, 1, 0]], [21, 21]),
        (6, 84, [[5, 4, 3], [2, 1, 0]], [21, 21]),
    ],
)
def test_sized_without_density(
    shard_order: int, target: int, expected: list[list[int]], fold_max: list[int]
) -> None:
    tuples = sized_tuples(shard_order, target=target)
    assert orders(tuples) == expected
    assert [each.fold_max for each in tuples] == fold_max
    assert [each.width for each in tuples] == [len(each.orders) for each in tuples]


def test_sized_tuples_of_width_four() -> None:
    tuples = sized_tuples(8, target=85, max_width=4)
    assert orders(tuples) == [[7, 6, 5, 4], [3, 2, 1, 0]]
    assert [each.fold_max for each in tuples] == [85, 85]


def test_sized_by_density() -> None:
    # Two chains that part at order 2, so no node of order 2 has more than 3 of the orders 2-4.
    chains = words_of(["121111", "122222", "-122222"])
    tuples = sized_tuples(5, target=5, covered=chains)
    assert orders(tuples) == [[4, 3, 2], [1, 0]]
    assert [each.fold_max for each in tuples] == [3, 2]
    narrow = sized_tuples(5, target=4, max_width=5, covered=chains)
    assert orders(narrow) == [[4, 3, 2], [1, 0]], "width 4 has 1 + 2 x 3 nodes under 12"
    wide = sized_tuples(5, target=8, max_width=5, covered=chains)
    assert orders(wide) == [[4, 3, 2, 1, 0]]
    assert wide[0].fold_max == 8


def test_no_coverage_is_unknown_density() -> None:
    assert sized_tuples(6, covered=words_of([])) == sized_tuples(6)


@pytest.mark.parametrize("width", [0, -1, True, 1.5, "3"])
def test_a_width_is_a_whole_number_from_one(width: Any) -> None:
    schedules: list[Callable[[], object]] = [
        lambda: fixed_tuples(4, width),
        lambda: sized_tuples(4, max_width=width),
        lambda: span_tuple(4, width, 0),
    ]
    for schedule in schedules:
        with pytest.raises(DeclarationError) as caught:
            schedule()
        assert f"tuple width is {width!r}" in str(caught.value)
        assert caught.value.kind == "tuple"


@pytest.mark.parametrize("target", [0, -8, False, 2.0])
def test_a_target_is_a_whole_number_from_one(target: Any) -> None:
    with pytest.raises(DeclarationError, match="target nodes") as caught:
        sized_tuples(4, target=target)
    assert repr(target) in str(caught.value)


@pytest.mark.parametrize("shard_order", [0, -1])
def test_there_must_be_an_order_above_the_shards(shard_order: int) -> None:
    with pytest.raises(DeclarationError, match=f"shard order is {shard_order}"):
        fixed_tuples(shard_order, 3)
    with pytest.raises(DeclarationError, match=f"shard order is {shard_order}"):
        sized_tuples(shard_order)


def test_a_span_may_be_any() -> None:
    assert span_tuple(9, 3, 1, 7) == OrderTuple(dispatch_order=1, child_order=7)
    assert span_tuple(9, 3, 8, 9).orders == (8,)


@pytest.mark.parametrize(("dispatch", "child"), [(3, 3), (4, 3), (-1, 3), (3, 5), (True, 3), (0, 2.0)])
def test_a_bad_span_names_its_numbers(dispatch: Any, child: Any) -> None:
    with pytest.raises(DeclarationError) as caught:
        span_tuple(4, 3, dispatch, child)
    message = str(caught.value)
    assert f"dispatch {dispatch!r} and child_order {child!r}" in message
    assert "<= 4" in message


def test_dispatch_alone_is_one_of_the_schedule() -> None:
    assert span_tuple(4, 3, 3) == OrderTuple(dispatch_order=3, child_order=4)
    assert span_tuple(9, 3, 3) == OrderTuple(dispatch_order=3, child_order=6)


@pytest.mark.parametrize("dispatch", [1, 4, -3, True])
def test_an_unknown_dispatch_order_names_those_that_exist(dispatch: Any) -> None:
    with pytest.raises(DeclarationError) as caught:
        span_tuple(9, 3, dispatch)
    message = str(caught.value)
    for text in (f"dispatch {dispatch!r}", "shard order 9", "width 3", "6, 3, 0"):
        assert text in message


def test_child_order_alone_is_refused() -> None:
    with pytest.raises(DeclarationError, match="child_order 4 alone"):
        span_tuple(4, 3, None, 4)
    with pytest.raises(DeclarationError, match="neither"):
        span_tuple(4, 3)
