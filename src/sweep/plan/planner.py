"""What one tuple does: its dispatch nodes, their units, and the leaves under each.

Everything is held in sorted arrays; nodes become Python objects one at a time, when they
are iterated.

Source: semantics 2.3, 2.5, 3.6.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweep.model.nodes import Words, ancestors, decimals_of, orders_of, ranks_in, string_order
from sweep.model.windows import is_label
from sweep.plan.leaves import WorkSet
from sweep.plan.runs import distinct, distinct_ancestors, run_starts, sorted_distinct, spans
from sweep.plan.scope import admit
from sweep.plan.tuples import OrderTuple
from sweep.plan.units import CLOSE, NODE, Unit, refuse_unwindowed, window_unit

__all__ = ["NodePlan", "TuplePlan", "candidates", "plan_tuple"]

log = logging.getLogger(__name__)

_SPELLED_AT_ONCE = 4096


def candidates(work: WorkSet, covered: Words | None) -> Words:
    """Every shard that a fold may find: those of the work set, dirt-only ones, the covered.

    Parameters
    ----------
    work : WorkSet
    covered : ndarray of uint64 or None
        Shards of the store's root coverage; None where that cannot be used.

    Returns
    -------
    ndarray of uint64
        Sorted and distinct, at the shard order.
    """
    parts = [work.shards(), work.dirt] + ([] if covered is None else [covered])
    parts = [part for part in parts if len(part)]
    if len(parts) == 0:
        return np.empty(0, dtype=np.uint64)
    return sorted_distinct(np.concatenate(parts))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodePlan:
    """One dispatch node: what it does, and what lies under it.

    Attributes
    ----------
    node : str
        Its decimal.
    word : int
        Its packed word.
    order_tuple : OrderTuple
    leaves : ndarray of uint64
        Candidate shards under it, sorted.
    units : tuple of Unit
        In the sequence of folding; empty where only dirt-only shards lie beneath.
    """

    node: str
    word: int
    order_tuple: OrderTuple
    leaves: Words
    units: tuple[Unit, ...]
    _dirty_words: Words
    _dirty_codes: NDArray[np.int32]
    _labels: tuple[str, ...]

    def descendants(self, node_order: int) -> tuple[Words, list[Words]]:
        """The ladder nodes of one order with the candidate shards under each.

        Parameters
        ----------
        node_order : int
            From the dispatch order to the child order.

        Returns
        -------
        nodes : ndarray of uint64, shape (n_nodes,)
            Ascending, which is also the order of their decimals as text.
        leaves : list of ndarray of uint64, length n_nodes
            Views of ``leaves``.
        """
        above = ancestors(self.leaves, node_order)
        starts = run_starts(above)
        if len(starts) == 0:
            return above, []
        return above[starts], np.split(self.leaves, starts[1:])

    def children(self, word: int, child_order: int) -> tuple[Words, NDArray[np.int64]]:
        """The nodes of ``child_order`` that hold candidates under one ladder node.

        Parameters
        ----------
        word : int
            A node of the tuple's orders, under this dispatch node.
        child_order : int
            Not above the node's own order, nor below the shard order.

        Returns
        -------
        children : ndarray of uint64, shape (n_children,)
            Ascending.
        ranks : ndarray of int64, shape (n_children,)
            The base-4 rank of each child in the node.
        """
        node = np.array([word], dtype=np.uint64)
        starts, stops = spans(self.leaves, node)
        children = distinct_ancestors(self.leaves[starts[0] : stops[0]], child_order)
        return children, ranks_in(children, child_order, int(orders_of(node)[0]))

    def labels_under(self, word: int) -> tuple[str, ...]:
        """The labels dirty in the work set under a node at or below this one, sorted."""
        starts, stops = spans(self._dirty_words, np.array([word], dtype=np.uint64))
        codes = sorted_distinct(self._dirty_codes[starts[0] : stops[0]]).tolist()
        return tuple(label for code in codes if code >= 0 and is_label(label := self._labels[code]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TuplePlan:
    """The work of one tuple.

    Attributes
    ----------
    order_tuple : OrderTuple
    nodes : ndarray of uint64, shape (n_nodes,)
        Dispatch nodes in the order of their decimals as text, which is that of processing.
        On a windowed store each has a unit; otherwise a node with dirt-only shards and no
        dirty one stands here without a unit.
    n_ladder_nodes : int
        Nodes of all the tuple's orders that hold candidates, at and under ``nodes``.
    window_units : int
        Units that fold a window, or a whole node of an unwindowed store.
    close_units : int
        All-time closes.
    """

    order_tuple: OrderTuple
    nodes: Words
    n_ladder_nodes: int
    window_units: int
    close_units: int
    _candidates: Words
    _work: WorkSet
    _units: _UnitTable

    @property
    def n_nodes(self) -> int:
        """Number of dispatch nodes."""
        return len(self.nodes)

    @property
    def n_units(self) -> int:
        """Units of every kind."""
        return self.window_units + self.close_units

    def iter_nodes(self) -> Iterator[NodePlan]:
        """The dispatch nodes in processing order, made one at a time."""
        leaf_starts, leaf_stops = spans(self._candidates, self.nodes)
        dirty_starts, dirty_stops = spans(self._work.words, self.nodes)
        for place, (node, word) in enumerate(_named(self.nodes)):
            dirty = slice(dirty_starts[place], dirty_stops[place])
            yield NodePlan(
                node=node,
                word=word,
                order_tuple=self.order_tuple,
                leaves=self._candidates[leaf_starts[place] : leaf_stops[place]],
                units=self._units.of(place),
                _dirty_words=self._work.words[dirty],
                _dirty_codes=self._work.codes[dirty],
                _labels=self._work.labels,
            )


def _named(nodes: Words) -> Iterator[tuple[str, int]]:
    """Decimals and words, spelled some thousand at a time."""
    for first in range(0, len(nodes), _SPELLED_AT_ONCE):
        some = nodes[first : first + _SPELLED_AT_ONCE]
        yield from zip(decimals_of(some), some.tolist(), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _UnitTable:
    """Units of each node: windows as codes in one flat array, then a last unit or none.

    Row i's windows are ``units[codes[starts[i]:stops[i]]]``; ``last`` follows where
    ``has_last[i]``.
    """

    windows: tuple[Unit, ...]
    codes: NDArray[np.int32]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    last: Unit
    has_last: NDArray[np.bool_]

    def of(self, place: int) -> tuple[Unit, ...]:
        codes = self.codes[self.starts[place] : self.stops[place]].tolist()
        units = tuple(self.windows[code] for code in codes)
        return (*units, self.last) if self.has_last[place] else units

    def counts(self) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = self.stops - self.starts + self.has_last
        return counts

    def keep(self, rows: NDArray[np.bool_]) -> _UnitTable:
        return _UnitTable(
            windows=self.windows,
            codes=self.codes,
            starts=self.starts[rows],
            stops=self.stops[rows],
            last=self.last,
            has_last=self.has_last[rows],
        )

    def n_windows(self) -> int:
        return int((self.stops - self.starts).sum())

    def n_last(self) -> int:
        return int(self.has_last.sum())


def plan_tuple(
    order_tuple: OrderTuple,
    *,
    work: WorkSet,
    candidates: Words,
    scope: Words | None,
    is_windowed: bool,
    closes: bool,
    only: Unit | None = None,
) -> TuplePlan:
    """Plan one tuple.

    Parameters
    ----------
    order_tuple : OrderTuple
    work : WorkSet
        Decides the window units.
    candidates : ndarray of uint64, sorted and distinct
        Decide the dispatch nodes; see :func:`candidates`.
    scope : ndarray of uint64 or None
        Admits dispatch nodes, and nothing finer: an admitted node folds all candidates below.
    is_windowed, closes : bool
        Whether the store has windows, and an all-time fold over them.
    only : Unit, optional
        Restricts a windowed store to one window, or to the closes.

    Returns
    -------
    TuplePlan

    Raises
    ------
    DeclarationError
        Kind ``unit``: ``only`` is given for a store without windows.

    Notes
    -----
    Time and memory are linear in candidates and work set, but for one sort of the (node,
    window) pairs; nothing is made for each leaf or node.
    """
    if only is not None and not is_windowed:
        refuse_unwindowed(only)
    dispatch = order_tuple.dispatch_order
    nodes = string_order(distinct_ancestors(candidates, dispatch))
    nodes = nodes[admit(nodes, scope)]
    if is_windowed:
        units = _windowed_units(nodes, work, closes=closes, only=only)
        is_listed = units.counts() > 0
        nodes, units = nodes[is_listed], units.keep(is_listed)
    else:
        units = _whole_units(nodes, work)
    return TuplePlan(
        order_tuple=order_tuple,
        nodes=nodes,
        n_ladder_nodes=_count_ladder_nodes(order_tuple, nodes, candidates),
        window_units=units.n_windows() if is_windowed else units.n_last(),
        close_units=units.n_last() if is_windowed else 0,
        _candidates=candidates,
        _work=work,
        _units=units,
    )


def _count_ladder_nodes(order_tuple: OrderTuple, nodes: Words, shards: Words) -> int:
    total = 0
    level = shards
    for node_order in order_tuple.orders:
        level = distinct_ancestors(level, node_order)
        starts, stops = spans(level, nodes)
        total += int((stops - starts).sum())
    return total


def _folds(nodes: Words, work: WorkSet) -> NDArray[np.bool_]:
    """Where there is something to fold: all nodes but those with only dirt-only refs."""
    starts, stops = spans(work.words, nodes)
    dirt_starts, dirt_stops = spans(work.dirt, nodes)
    folds: NDArray[np.bool_] = (stops > starts) | (dirt_stops == dirt_starts)
    return folds


def _whole_units(nodes: Words, work: WorkSet) -> _UnitTable:
    no_windows = np.zeros(len(nodes), dtype=np.int64)
    return _UnitTable(
        windows=(),
        codes=np.empty(0, dtype=np.int32),
        starts=no_windows,
        stops=no_windows,
        last=NODE,
        has_last=_folds(nodes, work),
    )


def _windowed_units(nodes: Words, work: WorkSet, *, closes: bool, only: Unit | None) -> _UnitTable:
    words, codes = _dirty_pairs(nodes, work, _wanted(work, only))
    starts, stops = spans(words, nodes)
    has_close = closes and (only is None or only.kind == "close")
    return _UnitTable(
        windows=tuple(window_unit(label) for label in work.labels),
        codes=codes,
        starts=starts,
        stops=stops,
        last=CLOSE,
        has_last=_folds(nodes, work) & np.bool_(has_close),
    )


def _wanted(work: WorkSet, only: Unit | None) -> NDArray[np.bool_]:
    """Which labels make units: those that can name a window, and are asked for."""
    bad = [label for label in work.labels if not is_label(label)]
    if bad:
        log.warning(
            "dropping leaf windows whose labels cannot name a window",
            extra={"event": "windows-dropped", "labels": bad[:5], "n_labels": len(bad)},
        )
    return np.array(
        [is_label(label) and (only is None or only.window == label) for label in work.labels], dtype=np.bool_
    )


def _dirty_pairs(
    nodes: Words, work: WorkSet, is_wanted: NDArray[np.bool_]
) -> tuple[Words, NDArray[np.int32]]:
    """The distinct (dispatch node, label) pairs of the work set, sorted by both."""
    if len(nodes) == 0 or len(work.labels) == 0:
        return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int32)
    keep = np.append(is_wanted, False)[work.codes]  # NO_WINDOW is -1, the appended place
    above = ancestors(work.words[keep], int(orders_of(nodes[:1])[0]))
    row = np.zeros(len(above), dtype=np.int64)
    row[run_starts(above)[1:]] = 1
    n_labels = len(work.labels)
    pairs = sorted_distinct(np.cumsum(row) * n_labels + work.codes[keep])
    return distinct(above)[pairs // n_labels], (pairs % n_labels).astype(np.int32)
