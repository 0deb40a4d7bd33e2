"""Runs in sorted arrays of packed words.

Words of one order ascend in path order, so what lies under a node is one contiguous run:
counting, slicing and coarsening need neither a sort nor a dict.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweep.model.nodes import Words, ancestors

__all__ = ["distinct", "distinct_ancestors", "is_member", "run_starts", "sorted_distinct", "spans"]

_SUFFIX = np.uint64(0x3F)
_BASE_BITS = np.uint64(60)


def distinct[T: np.generic](values: NDArray[T]) -> NDArray[T]:
    """The distinct values of a sorted array."""
    return values[run_starts(values)]


def sorted_distinct[T: np.integer[Any]](values: NDArray[T]) -> NDArray[T]:
    """The distinct values of an array in any sequence.

    ``np.unique`` hashes integers, and packed words of one order collide in its table: a
    million of them take seconds where a sort takes milliseconds.
    """
    if (values[1:] > values[:-1]).all():
        return values
    return distinct(np.sort(values))


def is_member(values: NDArray[Any], among: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values occur in a sorted array; for the reason above not ``np.isin``."""
    if len(among) == 0:
        return np.zeros(len(values), dtype=np.bool_)
    places = np.minimum(np.searchsorted(among, values), len(among) - 1)
    found: NDArray[np.bool_] = among[places] == values
    return found


def run_starts(values: NDArray[Any]) -> NDArray[np.int64]:
    """Where each run of equal neighbours begins."""
    if len(values) == 0:
        return np.empty(0, dtype=np.int64)
    return np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])


def distinct_ancestors(words: Words, order: int) -> Words:
    """The distinct ancestors at ``order`` of sorted words of one order, which is not coarser."""
    return distinct(ancestors(words, order))


def spans(words: Words, nodes: Words) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the descendants of each node start and stop in sorted ``words``.

    Parameters
    ----------
    words : ndarray of uint64, sorted
        Cells, none coarser than a node.
    nodes : ndarray of uint64, shape (n_nodes,)
        Nodes of orders up to 27, in any sequence.

    Returns
    -------
    starts, stops : ndarray of int64, shape (n_nodes,)
    """
    suffix = nodes & _SUFFIX
    first = nodes ^ suffix
    size = np.uint64(1) << (_BASE_BITS - np.uint64(2) * suffix)
    return np.searchsorted(words, first), np.searchsorted(words, first + size)
