"""Packing dispatch nodes into events that fit a payload.

Greedy in node order and linear in leaves: leaves are bucketed under their nodes once, and
costs are summed, never re-serialised, until a batch is closed; then it is measured as the
event that it will be.

Source: semantics 12.1, 12.4.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sweep.errors import DeclarationError
from sweep.model.nodes import Words, decimals_of, string_order
from sweep.model.windows import is_label
from sweep.plan.leaves import Ref, WorkSet
from sweep.plan.runs import distinct_ancestors, sorted_distinct, spans
from sweep.plan.scope import admit
from sweep.plan.tuples import OrderTuple

__all__ = ["Batch", "FanOut", "check_knob", "close_fan_out", "fan_outs", "pack", "refs_of"]

log = logging.getLogger(__name__)

_POWERS = 10 ** np.arange(1, 20, dtype=np.uint64)
_SLACK_BYTES = 64
_NODE_BYTES = 4  # two quotes, a comma and a space
_REF_BYTES = 6  # brackets, and two commas with a space each


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FanOut:
    """Dispatch nodes that are fired together, with the leaves that go with each.

    Attributes
    ----------
    order_tuple : OrderTuple
    unit : {"window", "close"} or None
    window : str or None
    nodes : ndarray of uint64, shape (n_nodes,)
        In the order of their decimals as text.
    words : ndarray of uint64, shape (n_leaves,)
        Leaves, bucketed by node.
    codes : ndarray of int32, shape (n_leaves,)
        Windows, as places in ``labels``; -1 for none.
    labels : tuple of str
    starts, stops : ndarray of int64, shape (n_nodes,)
        Node i's leaves are ``words[starts[i]:stops[i]]``.
    dirt : ndarray of uint64
        Dirt-only shards of the work set, sorted.
    """

    order_tuple: OrderTuple
    unit: Literal["window", "close"] | None
    window: str | None
    nodes: Words
    words: Words
    codes: NDArray[np.int32]
    labels: tuple[str, ...]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    dirt: Words

    @property
    def n_nodes(self) -> int:
        return len(self.nodes)

    def subset(self, keep: NDArray[np.bool_]) -> FanOut:
        """The same fan-out with some of its nodes."""
        return replace(self, nodes=self.nodes[keep], starts=self.starts[keep], stops=self.stops[keep])

    def costs(self) -> NDArray[np.int64]:
        """Bytes that each node and its leaves add to an event, shape (n_nodes,)."""
        by_label = np.array([*(len(json.dumps(label)) for label in self.labels), len("null")], dtype=np.int64)
        refs = _running(_n_digits(self.words) + by_label[self.codes] + _REF_BYTES)
        names = np.array([len(name) for name in decimals_of(self.nodes)], dtype=np.int64)
        costs = names + _NODE_BYTES + refs[self.stops] - refs[self.starts]
        if len(self.dirt):
            starts, stops = spans(self.dirt, self.nodes)
            refs = _running(_n_digits(self.dirt) + len("null") + _REF_BYTES)
            costs += refs[stops] - refs[starts]
        return np.asarray(costs, dtype=np.int64)


def _n_digits(words: Words) -> NDArray[np.int64]:
    return np.searchsorted(_POWERS, words, side="right") + 1


def _running(costs: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(costs)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Nodes ``start`` to ``stop`` (exclusive) of a fan-out: what one event carries.

    ``discover`` says that the leaves do not fit and the worker finds them itself.
    """

    fan_out: FanOut
    start: int
    stop: int
    discover: bool = False

    @property
    def n_nodes(self) -> int:
        return self.stop - self.start

    @property
    def n_leaves(self) -> int:
        each = slice(self.start, self.stop)
        return int((self.fan_out.stops[each] - self.fan_out.starts[each]).sum())

    def node_words(self) -> Words:
        return self.fan_out.nodes[self.start : self.stop]

    def nodes(self) -> tuple[str, ...]:
        """The decimals of the batch's nodes."""
        return tuple(decimals_of(self.node_words()))

    def leaves(self) -> tuple[Ref, ...] | None:
        """The refs of the event, or None for ``discover``."""
        if self.discover:
            return None
        refs: list[Ref] = []
        labels: tuple[str | None, ...] = (*self.fan_out.labels, None)
        for place in range(self.start, self.stop):
            each = slice(self.fan_out.starts[place], self.fan_out.stops[place])
            words, codes = self.fan_out.words[each].tolist(), self.fan_out.codes[each].tolist()
            refs += [(word, labels[code]) for word, code in zip(words, codes, strict=True)]
        return tuple(refs)

    def dirt_only(self) -> tuple[Ref, ...]:
        """Dirt-only refs under the batch's nodes."""
        if len(self.fan_out.dirt) == 0 or self.discover:
            return ()
        starts, stops = spans(self.fan_out.dirt, np.sort(self.node_words()))
        pairs = zip(starts.tolist(), stops.tolist(), strict=True)
        return tuple((word, None) for low, high in pairs for word in self.fan_out.dirt[low:high].tolist())

    def halves(self) -> tuple[Batch, Batch]:
        """The batch cut in two; it has at least two nodes."""
        middle = (self.start + self.stop) // 2
        return replace(self, stop=middle), replace(self, start=middle)


def fan_outs(
    order_tuple: OrderTuple, *, work: WorkSet, scope: Words | None, is_windowed: bool
) -> tuple[FanOut, ...]:
    """What one tuple fires before its barrier: one fan-out, or one for each window label.

    Nodes are those above the work set (dirt-only shards included) that the scope admits.
    """
    everything = _fan_out(order_tuple, work, scope, unit=None, window=None, rows=None, with_dirt=True)
    if not is_windowed:
        return (everything,) if everything.n_nodes else ()
    found = []
    by_code = np.argsort(work.codes, kind="stable")
    bounds = np.searchsorted(work.codes[by_code], np.arange(len(work.labels) + 1))
    for code, label in enumerate(work.labels):
        if not is_label(label):
            log.warning(
                "leaves of an impossible window are left out",
                extra={"event": "window-dropped", "window": label},
            )
            continue
        rows = by_code[bounds[code] : bounds[code + 1]]
        each = _fan_out(order_tuple, work, scope, unit="window", window=label, rows=rows, with_dirt=False)
        if each.n_nodes:
            found.append(each)
    return tuple(found)


def close_fan_out(order_tuple: OrderTuple, *, work: WorkSet, scope: Words | None) -> FanOut | None:
    """The closes of one tuple: every node of the work set, with the leaves of all windows."""
    each = _fan_out(order_tuple, work, scope, unit="close", window=None, rows=None, with_dirt=True)
    return each if each.n_nodes else None


def _fan_out(
    order_tuple: OrderTuple,
    work: WorkSet,
    scope: Words | None,
    *,
    unit: Literal["window", "close"] | None,
    window: str | None,
    rows: NDArray[np.int64] | None,
    with_dirt: bool,
) -> FanOut:
    words = work.words if rows is None else work.words[rows]
    codes = work.codes if rows is None else work.codes[rows]
    dirt = work.dirt if with_dirt else work.dirt[:0]
    shards = sorted_distinct(np.concatenate([words, dirt]))
    nodes = string_order(distinct_ancestors(shards, order_tuple.dispatch_order))
    nodes = nodes[admit(nodes, scope)]
    starts, stops = spans(words, nodes)
    return FanOut(
        order_tuple=order_tuple,
        unit=unit,
        window=window,
        nodes=nodes,
        words=words,
        codes=codes,
        labels=work.labels,
        starts=starts,
        stops=stops,
        dirt=dirt,
    )


def pack(
    fan_out: FanOut,
    *,
    cap_bytes: int,
    max_nodes: int | None,
    measure: Callable[[Batch], int],
) -> list[Batch]:
    """Cut a fan-out into batches.

    Parameters
    ----------
    fan_out : FanOut
    cap_bytes : int
        The transport's payload limit.
    max_nodes : int or None
        Nodes of one batch at most; None for as many as fit.
    measure : callable
        The bytes of the real event of a batch, with a batch number of seven digits.

    Returns
    -------
    list of Batch
        In node order. A node that does not fit alone goes as ``discover``, with a warning.
    """
    if fan_out.n_nodes == 0:
        return []
    empty = Batch(fan_out=fan_out, start=0, stop=0)
    budget = cap_bytes - measure(empty) - _SLACK_BYTES
    batches: list[Batch] = []
    for start, stop in _greedy(fan_out.costs(), budget, max_nodes or fan_out.n_nodes):
        batches += _fitting(Batch(fan_out=fan_out, start=start, stop=stop), cap_bytes, measure)
    return batches


def _greedy(costs: NDArray[np.int64], budget: int, max_nodes: int) -> list[tuple[int, int]]:
    ends = np.cumsum(costs)
    cuts: list[tuple[int, int]] = []
    start, n_nodes = 0, len(costs)
    while start < n_nodes:
        spent = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, spent + budget, side="right"))
        stop = min(max(fitting, start + 1), start + max_nodes, n_nodes)
        cuts.append((start, stop))
        start = stop
    return cuts


def _fitting(batch: Batch, cap_bytes: int, measure: Callable[[Batch], int]) -> list[Batch]:
    if measure(batch) <= cap_bytes:
        return [batch]
    if batch.n_nodes > 1:
        return [part for half in batch.halves() for part in _fitting(half, cap_bytes, measure)]
    log.warning(
        "a node's leaves do not fit one event; the worker will discover them",
        extra={
            "event": "discover",
            "node": batch.nodes()[0],
            "dispatch": batch.fan_out.order_tuple.dispatch_order,
            "n_leaves": batch.n_leaves,
            "n_dirt_only": len(batch.dirt_only()),
        },
    )
    return [replace(batch, discover=True)]


def check_knob(name: str, value: object, *, least: int, none_means: str | None = None) -> int | None:
    """A whole number of at least ``least``; None only where ``none_means`` says what it means.

    Raises
    ------
    DeclarationError
        Names the knob and the value; booleans, fractions and texts are refused.
    """
    if value is None and none_means is not None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    extra = f", or none for {none_means}" if none_means else ""
    raise DeclarationError(
        f"{name} is {value!r}, expected a whole number of at least {least}{extra}", kind="knob"
    )


def refs_of(work: WorkSet) -> tuple[Ref, ...]:
    """Every ref of a work set, in the order of decimals as text, null window first."""
    split = int(np.searchsorted(work.words, np.uint64(7 << 60)))
    order: Sequence[NDArray[np.int64]] = (np.arange(split, len(work.words)), np.arange(split))
    places = np.concatenate(order)
    labels: tuple[str | None, ...] = (*work.labels, None)
    pairs = zip(work.words[places].tolist(), work.codes[places].tolist(), strict=True)
    return tuple((word, labels[code]) for word, code in pairs)
