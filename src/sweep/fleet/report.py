"""What a drive has come to: a row for each tuple, and the summary of the whole.

Source: semantics 12.7.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from sweep.fleet.barrier import Verdict
from sweep.fleet.board import Board, Task
from sweep.fleet.options import FleetOptions, FleetSummary
from sweep.fleet.planning import FleetPlan, TuplePacking
from sweep.plan.tuples import OrderTuple

__all__ = ["NO_LADDER", "Report", "Row", "declined"]

log = logging.getLogger(__name__)

NO_LADDER = "no sweepable zagg-pyramid/2 ladder"
_SHOWN = 50
_SUMMARY_KEYS = (
    "run_id",
    "pipeline_run_id",
    "run_started",
    "store_root",
    "shard_order",
    "tuple_width",
    "stage_target_nodes",
    "max_nodes_per_invoke",
    "windowed",
    "all_time",
    "families",
    "families_unswept",
    "scope",
    "coverage_computed",
    "transport",
    "records_from",
    "n_leaves",
    "n_dirt_only",
    "skipped_leaves",
    "skipped",
    "invokes",
    "barrier_timed_out",
    "short_orders",
    "stages",
    "all_time_from",
    "finisher",
    "duration_s",
)


@dataclass(slots=True, kw_only=True)
class Row:
    """One tuple of the summary, filled in as its barriers end."""

    order_tuple: OrderTuple
    n_nodes: int
    n_batches: int
    timed_out: bool = False
    barrier_s: float = 0.0
    records_seen: int = 0
    missing: list[dict[str, Any]] = field(default_factory=list)
    closes: tuple[int, int] | None = None
    retries: int = 0

    def settle(self, board: Board, verdict: Verdict) -> None:
        """The barrier of the tuple's units has ended."""
        self.n_batches = len(board.tasks)
        self.barrier_s = verdict.waited_s
        self.records_seen = board.n_done()
        self._note(board, verdict)

    def settle_closes(self, board: Board, verdict: Verdict) -> None:
        """The barrier of its closes has ended."""
        self.closes = len(board.tasks), board.n_done()
        self._note(board, verdict)

    def _note(self, board: Board, verdict: Verdict) -> None:
        missing = [_missing(task) for task in board.given_up()]
        self.timed_out |= verdict.timed_out and bool(missing)
        self.retries += board.retries
        self.missing += missing
        for each in missing[:_SHOWN]:
            log.warning("batch not finished", extra={"event": "batch-unfinished", **each})

    def to_json(self) -> dict[str, Any]:
        orders = self.order_tuple.orders
        row: dict[str, Any] = {
            "dispatch_order": self.order_tuple.dispatch_order,
            "orders": list(orders),
            "width": len(orders),
            "fold_max": self.order_tuple.fold_max,
            "nodes": self.n_nodes,
            "batches": self.n_batches,
            "barrier_timed_out": self.timed_out,
            "barrier_s": self.barrier_s,
            "records_seen": self.records_seen,
        }
        if self.missing:
            row |= {"missing_unit_count": len(self.missing), "missing_units": self.missing[:_SHOWN]}
        if self.closes is not None:
            row |= {"close_batches": self.closes[0], "close_records_seen": self.closes[1]}
        return row | {"retries": self.retries}


def _missing(task: Task) -> dict[str, Any]:
    fan_out = task.batch.fan_out
    return {
        "batch": task.number,
        "nodes": list(task.batch.nodes())[:_SHOWN],
        "unit": fan_out.unit,
        "window": fan_out.window,
        "attempts": task.attempt,
        "error": task.error,
    }


@dataclass(slots=True)
class Report:
    """What the run has come to so far."""

    rows: list[Row] = field(default_factory=list)
    invokes: int = 0

    def open_row(self, packing: TuplePacking) -> Row:
        row = Row(order_tuple=packing.order_tuple, n_nodes=packing.n_nodes, n_batches=len(packing.batches))
        self.rows.append(row)
        return row

    @property
    def timed_out(self) -> bool:
        return any(row.timed_out for row in self.rows)

    @property
    def short_orders(self) -> tuple[int, ...]:
        """Every order of a tuple that lacks a record, descending."""
        short = {order for row in self.rows if row.missing for order in row.order_tuple.orders}
        return tuple(sorted(short, reverse=True))

    def summary(
        self,
        plan: FleetPlan,
        options: FleetOptions,
        *,
        transport: str,
        finisher: dict[str, Any],
        skipped: str | None,
        duration_s: float,
    ) -> FleetSummary:
        """The summary of a run that came to its end."""
        document = _document(
            {
                "run_id": plan.run_id,
                "pipeline_run_id": options.pipeline_run_id,
                "run_started": plan.run_started,
                "store_root": plan.store_path,
                "shard_order": plan.manifest.shard_order,
                "tuple_width": options.tuple_width,
                "stage_target_nodes": options.target_nodes,
                "max_nodes_per_invoke": options.max_nodes,
                "windowed": plan.manifest.is_windowed,
                "all_time": plan.manifest.all_time,
                "scope": None if plan.scope is None else [str(word) for word in plan.scope.tolist()],
                "transport": transport,
                "records_from": plan.records_from,
                "n_leaves": plan.work.n_leaves,
                "n_dirt_only": plan.work.n_dirt_only,
                "skipped_leaves": list(plan.work.skipped),
                "skipped": skipped,
                "invokes": self.invokes,
                "barrier_timed_out": self.timed_out,
                "short_orders": list(self.short_orders),
                "stages": [row.to_json() for row in self.rows],
                "all_time_from": "store",
                "finisher": finisher,
                "duration_s": duration_s,
            }
        )
        unfinished = tuple(each for row in self.rows for each in row.missing)
        return FleetSummary(run_id=plan.run_id, document=document, unfinished=unfinished)


def declined(
    reason: str, options: FleetOptions, *, store_path: str, transport: str, duration_s: float
) -> FleetSummary:
    """The summary of a run that fired nothing, as the store has no ladder to sweep."""
    document = _document(
        {
            "store_root": store_path,
            "tuple_width": options.tuple_width,
            "transport": transport,
            "skipped": f"{NO_LADDER}: {reason}",
            "invokes": 0,
            "barrier_timed_out": False,
            "short_orders": [],
            "stages": [],
            "finisher": {"landed": False, "fired": False},
            "duration_s": duration_s,
        }
    )
    return FleetSummary(run_id=options.run_id or "", document=document)


def _document(said: dict[str, Any]) -> dict[str, Any]:
    """All keys of a summary in their order; what is not said is null."""
    fixed: dict[str, Any] = {"families": [], "families_unswept": False, "coverage_computed": False}
    return dict.fromkeys(_SUMMARY_KEYS) | fixed | said
