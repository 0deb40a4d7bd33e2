"""A pass: every tuple from fine to coarse, every unit of every dispatch node.

Source: semantics 1.1 (the pass), 3.6 (units, isolation); format 11 (rows).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.errors import SweepError
from sweep.events import TupleFinished, TupleStarted, UnitFinished
from sweep.model.nodes import Words
from sweep.model.provenance import Actuals
from sweep.plan.leaves import WorkSet
from sweep.plan.planner import NodePlan, TuplePlan, plan_tuple
from sweep.plan.tuples import OrderTuple
from sweep.plan.units import Unit
from sweep.stage.close import CloseFold
from sweep.stage.context import PassContext
from sweep.stage.tally import Tally, UnitError
from sweep.stage.unit import FATAL, UnitFold

__all__ = ["PassPlan", "PassResult", "StageRow", "plan_pass", "run_pass"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassPlan:
    """The tuples of one pass, finest first; ``partition`` is ``(index, of)`` or None."""

    tuples: tuple[TuplePlan, ...]
    partition: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """What one tuple did."""

    order_tuple: OrderTuple
    n_nodes: int
    window_units: int
    close_units: int
    tally: Tally
    duration_s: float
    partition: tuple[int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """The row as run records and stage records hold it, in its key order."""
        row: dict[str, Any] = {
            "dispatch_order": self.order_tuple.dispatch_order,
            "orders": list(self.order_tuple.orders),
            "nodes": self.n_nodes,
            "window_units": self.window_units,
            "close_units": self.close_units,
            **self.tally.counters(),
            "duration_s": self.duration_s,
        }
        if self.tally.unit_errors:
            row["unit_errors"] = [error.to_json() for error in self.tally.unit_errors]
        if self.partition is not None:
            row["partition"] = {"index": self.partition[0], "of": self.partition[1]}
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """Rows in the order of processing, what was seen of each level, and what was left.

    ``remaining`` names the dispatch nodes that were not begun because the pass was asked to
    stop.
    """

    rows: tuple[StageRow, ...]
    actuals: Actuals
    remaining: tuple[str, ...] = ()


def plan_pass(
    tuples: Sequence[OrderTuple],
    *,
    work: WorkSet,
    candidates: Words,
    scope: Words | None,
    is_windowed: bool,
    closes: bool,
    only: Unit | None = None,
    partition: tuple[int, int] | None = None,
) -> PassPlan:
    """Plan every tuple of a pass. Raises as :func:`sweep.plan.planner.plan_tuple`."""
    plans = tuple(
        plan_tuple(
            each,
            work=work,
            candidates=candidates,
            scope=scope,
            is_windowed=is_windowed,
            closes=closes,
            only=only,
        )
        for each in tuples
    )
    return PassPlan(tuples=plans, partition=partition)


def run_pass(
    context: PassContext, plan: PassPlan, *, should_stop: Callable[[], bool] = lambda: False
) -> PassResult:
    """Fold every tuple of ``plan``.

    Parameters
    ----------
    context : PassContext
    plan : PassPlan
    should_stop : callable
        Asked before each dispatch node; once it says so, no further node is begun.

    Raises
    ------
    SweepError
        Errors that end a run; on an unwindowed store, whatever stopped a unit.
    """
    actuals = Actuals()
    rows: list[StageRow] = []
    remaining: list[str] = []

    def is_over() -> bool:
        return bool(remaining) or should_stop()

    for each in plan.tuples:
        row, seen, left = _run_tuple(context, each, plan.partition, is_over)
        rows.append(row)
        actuals.merge(seen)
        remaining += left
    return PassResult(rows=tuple(rows), actuals=actuals, remaining=tuple(remaining))


def _run_tuple(
    context: PassContext,
    plan: TuplePlan,
    partition: tuple[int, int] | None,
    should_stop: Callable[[], bool],
) -> tuple[StageRow, Actuals, list[str]]:
    """One tuple: its row, what was seen of its levels, and the nodes that were not begun."""
    runtime = context.runtime
    started = runtime.clock.monotonic()
    order_tuple = plan.order_tuple
    runtime.observer(
        TupleStarted(
            dispatch_order=order_tuple.dispatch_order,
            orders=order_tuple.orders,
            n_nodes=plan.n_nodes,
            n_units=plan.n_units,
            n_ladder_nodes=plan.n_ladder_nodes,
            partition=None if partition is None else partition[0],
        )
    )
    tally, actuals = Tally(), Actuals()
    remaining: list[str] = []
    n_nodes = 0
    n_units: Counter[str] = Counter()
    for node in plan.iter_nodes():
        if remaining or should_stop():
            remaining.append(node.node)
            continue
        n_nodes += 1
        for unit in node.units:
            n_units[unit.kind] += 1
            done, seen = _run_unit(context, node, unit)
            tally += done
            actuals.merge(seen)
            runtime.observer(
                UnitFinished(
                    dispatch_order=order_tuple.dispatch_order,
                    node=node.node,
                    unit=unit.label,
                    written=done.written + done.columns_written,
                    current=done.current + done.columns_current,
                    failed=done.failed,
                )
            )
    row = StageRow(
        order_tuple=order_tuple,
        n_nodes=n_nodes,
        window_units=n_units["window"] + n_units["node"],
        close_units=n_units["close"],
        tally=tally,
        duration_s=runtime.clock.monotonic() - started,
        partition=partition,
    )
    _tell(context, row)
    return row, actuals, remaining


def _tell(context: PassContext, row: StageRow) -> None:
    tally = row.tally
    context.runtime.observer(
        TupleFinished(
            dispatch_order=row.order_tuple.dispatch_order,
            written=tally.written + tally.columns_written,
            current=tally.current + tally.columns_current,
            failed=tally.failed,
            duration_s=row.duration_s,
        )
    )
    log.info("tuple done", extra={"event": "tuple-done", "run_id": context.run_id, "row": row.to_json()})


def _run_unit(context: PassContext, node: NodePlan, unit: Unit) -> tuple[Tally, Actuals]:
    """One unit. A windowed store goes on past a unit that failed; the row names it."""
    fold = CloseFold(context, node) if unit.kind == "close" else UnitFold(context, node, unit)
    failure = Tally()
    try:
        fold.run()
    except FATAL:
        raise
    except SweepError as error:
        if not context.manifest.is_windowed:
            raise
        context.end_where_gone(error)
        text = f"{type(error).__name__}: {error.message}"
        log.warning(
            "unit failed",
            extra={"event": "unit-failed", "node": node.node, "unit": unit.label, "error": text},
        )
        failure = Tally(
            failed=1,
            unit_errors=(UnitError(node=node.node, unit=unit.label, error=text),),
            problems=(f"node {node.node}, {unit.label}: {error.message}",),
        )
    return fold.tally + failure, fold.actuals
