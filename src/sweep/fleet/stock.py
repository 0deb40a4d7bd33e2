"""What stands below the status prefix before a drive begins, and what of it need not be done again.

Source: semantics 12.5 (4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import MAXYEAR, datetime
from typing import Any

import numpy as np

from sweep.control.records import counted, json_object, nodes_of, parse_stage_record, rows_of
from sweep.model.clock import parse_timestamp
from sweep.model.invocation import finisher_name
from sweep.model.nodes import Words, ancestors, words_of
from sweep.plan.packing import FanOut
from sweep.plan.runs import is_member, sorted_distinct
from sweep.store.base import ObjectInfo, ObjectStore
from sweep.store.io import fetch

__all__ = ["Stock", "newest_moment", "take_stock"]

type Share = tuple[tuple[int, ...], str | None, str | None]
"""What a record speaks of beside its nodes: the tuple's orders, unit, window."""

_NO_WORDS: Words = np.empty(0, dtype=np.uint64)


@dataclass(slots=True, kw_only=True, eq=False)
class Stock:
    """What records of earlier drives vouch for, and what this drive does again all the same.

    A unit is left out where a record says that it is done and nothing below it is done
    again. It is asked tuple by tuple, from fine to coarse, closes after their windows.

    Attributes
    ----------
    done : mapping
        Nodes by share.
    next_numbers : mapping
        The first free batch number of each dispatch order.
    """

    done: Mapping[Share, Words] = field(default_factory=dict)
    next_numbers: Mapping[int, int] = field(default_factory=dict)
    _again: dict[str | None, list[Words]] = field(default_factory=dict)

    def left(self, fan_out: FanOut) -> FanOut:
        """The nodes of a fan-out that are still to be done."""
        if not self.done:
            return fan_out
        order = fan_out.order_tuple.dispatch_order
        share = fan_out.order_tuple.orders, fan_out.unit, fan_out.window
        is_done = is_member(fan_out.nodes, self.done.get(share, _NO_WORDS))
        for words in self._below(fan_out):
            is_done &= ~is_member(fan_out.nodes, sorted_distinct(ancestors(words, order)))
        left = fan_out.subset(~is_done)
        if fan_out.unit != "close":  # nothing is folded from a close
            self._again.setdefault(fan_out.window, []).append(left.nodes)
        return left

    def _below(self, fan_out: FanOut) -> Iterable[Words]:
        """What is done again and folded into this fan-out: its own window's, or every one's in a close."""
        if fan_out.unit != "close":
            return tuple(self._again.get(fan_out.window, ()))
        return [words for each in self._again.values() for words in each]


def take_stock(status: ObjectStore, names: Sequence[str], run_id: str) -> Stock:
    """Read the stage records of a run.

    Raises
    ------
    AccessError, StoreUnavailableError
        A record cannot be read.
    """
    done: dict[Share, list[str]] = {}
    next_numbers: dict[int, int] = {}
    for raw in fetch(status, names):
        record = parse_stage_record(raw, run_id) if raw is not None else None
        if record is None:
            continue
        order, number = record.get("dispatch"), record.get("batch")
        if isinstance(order, int) and isinstance(number, int):
            next_numbers[order] = max(next_numbers.get(order, 0), number + 1)
        share = _share(record)
        if share is not None:
            done.setdefault(share, []).extend(nodes_of(record))
    words = {share: sorted_distinct(words_of(nodes)) for share, nodes in done.items()}
    return Stock(done=words, next_numbers=next_numbers)


def _share(record: Mapping[str, Any]) -> Share | None:
    """What a record vouches for: one tuple, in which nothing failed; None where it does not."""
    rows = rows_of(record)
    if len(rows) != 1 or counted(rows[0], "failed") or rows[0].get("unit_errors"):
        return None
    orders = rows[0].get("orders")
    if not isinstance(orders, list) or not all(isinstance(order, int) for order in orders):
        return None
    unit, window = record.get("unit"), record.get("window")
    if not isinstance(unit, str | None) or not isinstance(window, str | None):
        return None
    return tuple(orders), unit, window


def newest_moment(status: ObjectStore, records: Iterable[ObjectInfo]) -> datetime | None:
    """When the newest drive before this one began or ended, as far as its objects say it."""
    dated = [(info.modified, info.key) for info in records if info.modified is not None]
    newest = max(dated)[1] if dated else None
    moments = []
    for key, name in ((newest, "run_started"), (finisher_name(), "finished_at")):
        raw = status.get(key) if key is not None else None
        moment = parse_timestamp(json_object(raw).get(name)) if raw is not None else None
        # Another drive must be able to begin later.
        if moment is not None and moment.year < MAXYEAR:
            moments.append(moment)
    return max(moments, default=None)
