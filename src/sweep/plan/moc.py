"""The arithmetic of root coverage: ranges of decimals to words and back.

Source: format 8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweep.errors import DeclarationError
from sweep.model.nodes import MAX_SHARD_ORDER, Words, decimals_of, orders_of, words_of
from sweep.plan.runs import sorted_distinct

__all__ = ["compact_ranges", "expand_ranges"]

_BASE_BITS = np.uint64(60)


def expand_ranges(ranges: Any, order: Any) -> Words:
    """The cells of inclusive ranges of decimals.

    Parameters
    ----------
    ranges : list of [first, last]
        Decimals at ``order``, in one base cell each. Ranges may overlap and come in any
        sequence.
    order : int

    Returns
    -------
    ndarray of uint64, shape (n_cells,)
        Sorted and distinct.

    Raises
    ------
    DeclarationError
        Kind ``coverage``: a range is malformed; the first such one is named.

    Notes
    -----
    Holds about three words a cell, and makes no Python object for a cell.
    """
    if isinstance(order, bool) or not isinstance(order, int) or not 0 <= order <= MAX_SHARD_ORDER:
        raise _refusal(f"order {order!r}, expected 0-{MAX_SHARD_ORDER}")
    if not isinstance(ranges, list | tuple):
        raise _refusal(f"ranges is of type {type(ranges).__name__}, expected a list of [first, last]")
    for each in ranges:
        if not isinstance(each, list | tuple) or len(each) != 2:
            raise _refusal(f"range {each!r} is not [first, last]")
    if not ranges:
        return np.empty(0, dtype=np.uint64)
    first, last = _paths([each[0] for each in ranges], order), _paths([each[1] for each in ranges], order)
    base_shift = np.uint64(2 * order)
    bad = (first >> base_shift != last >> base_shift) | (first > last)
    if bad.any():
        raise _refusal(f"range {ranges[int(np.flatnonzero(bad)[0])]!r} does not ascend inside one base cell")
    first, last = _disjoint(first, last)
    counts = (last - first + np.uint64(1)).astype(np.int64)
    begins = np.cumsum(counts) - counts
    steps = np.arange(int(counts.sum()), dtype=np.uint64)
    paths = steps + np.repeat(first - begins.astype(np.uint64), counts)
    return (paths << (_BASE_BITS - base_shift)) | np.uint64(order)


def _paths(decimals: list[Any], order: int) -> Words:
    """Base cell and digits of each decimal as one integer."""
    try:
        words = words_of(decimals)
    except DeclarationError as error:
        raise _refusal(error.message) from error
    wrong = orders_of(words) != order
    if wrong.any():
        raise _refusal(f"{decimals[int(np.flatnonzero(wrong)[0])]!r} is not at order {order}")
    return words >> np.uint64(60 - 2 * order)


def _disjoint(first: Words, last: Words) -> tuple[Words, Words]:
    """The same cells in ascending ranges that do not overlap."""
    sequence = np.argsort(first, kind="stable")
    first, reach = first[sequence], np.maximum.accumulate(last[sequence])
    begins = np.ones(len(first), dtype=np.bool_)
    begins[1:] = first[1:] > reach[:-1]
    ends = np.append(begins[1:], True)
    return first[begins], reach[ends]


def compact_ranges(words: Words) -> list[list[str]]:
    """Cells as inclusive runs of consecutive decimals, in the order of their words.

    Parameters
    ----------
    words : ndarray of uint64
        Cells of one order, in any sequence.

    Returns
    -------
    list of [str, str]
        First and last decimal of each run. A run does not cross base cells.

    Raises
    ------
    DeclarationError
        Kind ``coverage``: the cells are of several orders.
    """
    cells = sorted_distinct(words)
    if len(cells) == 0:
        return []
    orders = np.unique(orders_of(cells))
    if len(orders) > 1:
        raise _refusal(f"cells of the orders {orders.tolist()} cannot make ranges, expected one order")
    first, last = _run_ends(cells, int(orders[0]))
    return [list(pair) for pair in zip(decimals_of(first), decimals_of(last), strict=True)]


def _run_ends(cells: Words, order: int) -> tuple[Words, Words]:
    step = np.uint64(1 << (60 - 2 * order))
    base = cells >> _BASE_BITS
    breaks: NDArray[np.bool_] = (cells[1:] - cells[:-1] != step) | (base[1:] != base[:-1])
    edge = np.ones(1, dtype=np.bool_)
    return cells[np.concatenate([edge, breaks])], cells[np.concatenate([breaks, edge])]


def _refusal(text: str) -> DeclarationError:
    return DeclarationError(f"malformed coverage: {text}", kind="coverage")
