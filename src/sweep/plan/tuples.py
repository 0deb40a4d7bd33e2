"""The schedule: which consecutive node orders one worker climbs.

Source: semantics 3.2-3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sweep.errors import DeclarationError
from sweep.model.nodes import Words
from sweep.plan.runs import distinct_ancestors, spans

__all__ = ["DEFAULT_TARGET", "DEFAULT_WIDTH", "OrderTuple", "fixed_tuples", "sized_tuples", "span_tuple"]

DEFAULT_WIDTH = 3
DEFAULT_TARGET = 8
"""Ladder nodes under one dispatch node that a sized tuple aims at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderTuple:
    """Node orders from ``child_order - 1`` up to ``dispatch_order``, folded by one worker.

    ``width`` and ``fold_max`` (the most ladder nodes below one dispatch node) are set on
    sized tuples only.
    """

    dispatch_order: int
    child_order: int
    width: int | None = None
    fold_max: int | None = None

    @property
    def orders(self) -> tuple[int, ...]:
        """The node orders in the sequence of folding, finest first."""
        return tuple(range(self.child_order - 1, self.dispatch_order - 1, -1))


def fixed_tuples(shard_order: int, width: int = DEFAULT_WIDTH) -> tuple[OrderTuple, ...]:
    """Tuples of one width, counted from the root, finest first.

    Raises
    ------
    DeclarationError
        ``width`` or ``shard_order`` is below 1.
    """
    _check_whole("tuple width", width)
    _check_shard_order(shard_order)
    return tuple(
        OrderTuple(dispatch_order=dispatch, child_order=min(dispatch + width, shard_order))
        for dispatch in reversed(range(0, shard_order, width))
    )


def sized_tuples(
    shard_order: int,
    *,
    target: int = DEFAULT_TARGET,
    max_width: int = DEFAULT_WIDTH,
    covered: Words | None = None,
) -> tuple[OrderTuple, ...]:
    """Tuples as wide as ``target`` ladder nodes for one dispatch node allow, finest first.

    Parameters
    ----------
    shard_order : int
    target : int
        Ladder nodes (of the tuple's orders) under one dispatch node. A tuple of width 1 has
        one, so it always qualifies.
    max_width : int
    covered : ndarray of uint64, sorted, optional
        Shards that the store holds or will hold. With them the fullest dispatch node is
        counted; without, every node is taken as full.

    Raises
    ------
    DeclarationError
        ``target``, ``max_width`` or ``shard_order`` is below 1.
    """
    _check_whole("target nodes of a tuple", target)
    _check_whole("tuple width", max_width)
    _check_shard_order(shard_order)
    coverage = None if covered is None or len(covered) == 0 else _by_order(covered, shard_order)
    tuples: list[OrderTuple] = []
    child = shard_order
    while child > 0:
        for width in range(min(max_width, child), 0, -1):
            fold_max = _fold_max(child - width, child, coverage)
            if fold_max <= target:
                break
        tuples.append(
            OrderTuple(dispatch_order=child - width, child_order=child, width=width, fold_max=fold_max)
        )
        child -= width
    return tuple(tuples)


def _by_order(covered: Words, shard_order: int) -> list[Words]:
    """The covered nodes of each order 0 to ``shard_order``."""
    by_order = [covered]
    for order in range(shard_order - 1, -1, -1):
        by_order.append(distinct_ancestors(by_order[-1], order))
    return by_order[::-1]


def _fold_max(dispatch: int, child: int, coverage: Sequence[Words] | None) -> int:
    if coverage is None:
        return int((4 ** (child - dispatch) - 1) // 3)
    nodes = coverage[dispatch]
    below = np.zeros(len(nodes), dtype=np.int64)
    for order in range(dispatch, child):
        starts, stops = spans(coverage[order], nodes)
        below += stops - starts
    return int(below.max())


def span_tuple(
    shard_order: int, width: int, dispatch: int | None = None, child_order: int | None = None
) -> OrderTuple:
    """The tuple that a worker was told to fold.

    Parameters
    ----------
    shard_order : int
    width : int
        The run's tuple width, whose schedule ``dispatch`` alone has to match.
    dispatch : int
    child_order : int, optional
        With it the span is taken as given.

    Raises
    ------
    DeclarationError
        Kind ``tuple``: the numbers make no span, or no tuple of the schedule.
    """
    schedule = fixed_tuples(shard_order, width)
    if dispatch is None:
        given = "neither" if child_order is None else f"child_order {child_order} alone"
        raise _refusal(f"a span needs dispatch, with or without child_order; got {given}")
    if child_order is not None:
        if _is_whole(dispatch) and _is_whole(child_order) and 0 <= dispatch < child_order <= shard_order:
            return OrderTuple(dispatch_order=dispatch, child_order=child_order)
        raise _refusal(
            f"dispatch {dispatch!r} and child_order {child_order!r} make no span: expected "
            f"0 <= dispatch < child_order <= {shard_order} (the shard order)"
        )
    for each in schedule:
        if _is_whole(dispatch) and each.dispatch_order == dispatch:
            return each
    orders = ", ".join(str(each.dispatch_order) for each in schedule)
    raise _refusal(
        f"dispatch {dispatch!r} is no dispatch order of shard order {shard_order} at tuple width {width}: "
        f"those are {orders}; name child_order for another span"
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _refusal(f"{name} is {value!r}, expected a whole number of at least 1")


def _check_shard_order(shard_order: int) -> None:
    if shard_order < 1:
        raise _refusal(f"shard order is {shard_order}: there is no order above the shards to sweep")


def _refusal(message: str) -> DeclarationError:
    return DeclarationError(message, kind="tuple")
