"""The dispatcher: tuple by tuple from fine to coarse, then the finisher. It never writes.

Source: semantics 12.5-12.7.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sweep.artifacts.manifest_io import read_manifest
from sweep.control.discovery import discover_leaves
from sweep.control.records import parse_stage_record
from sweep.errors import DeclarationError, StoreUnavailableError
from sweep.events import BarrierProgress, RunFinished, RunStarted
from sweep.fleet.barrier import Barrier, Budget, Verdict
from sweep.fleet.board import Board, Task
from sweep.fleet.finishing import fire_finisher
from sweep.fleet.options import FleetOptions, FleetSummary, check_fleet_options
from sweep.fleet.poller import Poller
from sweep.fleet.transport import Transport
from sweep.model.clock import timestamp
from sweep.model.invocation import (
    FinisherInvocation,
    StageInvocation,
    finisher_name,
    serialise,
    status_prefix,
)
from sweep.model.manifest import Manifest
from sweep.model.nodes import Words, ancestors, decimals_of, words_of
from sweep.plan.leaves import WorkSet, work_set
from sweep.plan.packing import Batch, FanOut, close_fan_out, fan_outs, pack, refs_of
from sweep.plan.runs import is_member, sorted_distinct
from sweep.plan.scope import parse_scope
from sweep.plan.tuples import OrderTuple, fixed_tuples, sized_tuples
from sweep.stage.context import Runtime
from sweep.stage.run import new_run_id
from sweep.store.base import ObjectStore
from sweep.store.io import fetch

__all__ = ["Dispatcher", "FleetPlan", "TuplePacking", "dispatch"]

log = logging.getLogger(__name__)

_MEASURED_NUMBER = 9_999_999
_SHOWN = 50


def dispatch(
    store: ObjectStore,
    status: Callable[[str], ObjectStore],
    transport: Transport,
    options: FleetOptions,
    runtime: Runtime,
) -> FleetSummary:
    """Run a fleet over a store.

    Parameters
    ----------
    store : ObjectStore
        Read for the manifest and, without given leaves, the run records.
    status : callable
        Opens the status prefix of a run, for listing and reading.
    transport : Transport
    options : FleetOptions
    runtime : Runtime

    Returns
    -------
    FleetSummary

    Raises
    ------
    DeclarationError
        The store or the request is refused; nothing was fired.
    LeaseHeldError, LeaseLostError, ForeignWriteError, AccessError
        A worker or the transport ended the run; what is queued or running ends by itself, and
        the run can be resumed under its id.
    """
    dispatcher = Dispatcher(store, status, transport, options, runtime)
    return dispatcher.run()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TuplePacking:
    """The batches of one tuple: those before its barrier, and its closes."""

    order_tuple: OrderTuple
    batches: tuple[Batch, ...]
    closes: tuple[Batch, ...]

    @property
    def n_nodes(self) -> int:
        nodes = [batch.node_words() for batch in (*self.batches, *self.closes)]
        return len(sorted_distinct(np.concatenate(nodes))) if nodes else 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetPlan:
    """Everything known before anything is fired."""

    manifest: Manifest
    work: WorkSet
    scope: Words | None
    tuples: tuple[OrderTuple, ...]
    run_id: str
    run_started: str
    records_from: str
    max_nodes: int | None
    cap_bytes: int


@dataclass(slots=True)
class _Report:
    """What the run has come to so far."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    short: set[int] = field(default_factory=set)
    unfinished: list[dict[str, Any]] = field(default_factory=list)
    invokes: int = 0
    timed_out: bool = False


class Dispatcher:
    """One fleet run; see :func:`dispatch`."""

    def __init__(
        self,
        store: ObjectStore,
        status: Callable[[str], ObjectStore],
        transport: Transport,
        options: FleetOptions,
        runtime: Runtime,
    ) -> None:
        check_fleet_options(options)
        self._store = store
        self._transport = transport
        self._options = options
        self._runtime = runtime
        self._open_status = status
        self._report = _Report()
        self._kept: dict[tuple[int, str | None, str | None], Words] = {}
        self._next_number: dict[int, int] = {}
        self._redone: dict[int, Words] = {}

    @property
    def root(self) -> str:
        """The store's address."""
        return self._store.root

    # -- planning -------------------------------------------------------------------------

    def plan(self) -> FleetPlan:
        """Read the manifest, find the leaves, lay out the schedule; nothing is fired."""
        options = self._options
        try:
            manifest = read_manifest(self._store)
        except DeclarationError as error:
            raise _NoLadder(error.message) from error
        run_id = options.run_id or new_run_id(self._runtime)
        if options.leaves is None:
            work = discover_leaves(self._store, manifest).work
        else:
            work = work_set(options.leaves, manifest.shard_order, dirt_only=options.dirt_only)
        if options.target_nodes:
            tuples = sized_tuples(
                manifest.shard_order, target=options.target_nodes, max_width=options.tuple_width
            )
        else:
            tuples = fixed_tuples(manifest.shard_order, options.tuple_width)
        return FleetPlan(
            manifest=manifest,
            work=work,
            scope=parse_scope(options.scope),
            tuples=tuples,
            run_id=run_id,
            run_started=timestamp(self._runtime.clock.now()),
            records_from=status_prefix(self._store.root, run_id),
            max_nodes=options.max_nodes,
            cap_bytes=self._transport.limits.payload_bytes,
        )

    def packed(self, plan: FleetPlan, order_tuple: OrderTuple) -> TuplePacking:
        """The batches of one tuple, less what a kept record says is done."""
        manifest = plan.manifest
        outs = fan_outs(order_tuple, work=plan.work, scope=plan.scope, is_windowed=manifest.is_windowed)
        closes: list[Batch] = []
        if manifest.closes:
            close = close_fan_out(order_tuple, work=plan.work, scope=plan.scope)
            closes = self._pack(plan, close) if close is not None else []
        batches = [batch for out in outs for batch in self._pack(plan, out)]
        return TuplePacking(order_tuple=order_tuple, batches=tuple(batches), closes=tuple(closes))

    def _pack(self, plan: FleetPlan, fan_out: FanOut) -> list[Batch]:
        left = self._left(fan_out)
        max_nodes = plan.max_nodes or self._share(left.n_nodes)

        return pack(
            left,
            cap_bytes=plan.cap_bytes,
            max_nodes=max_nodes,
            measure=lambda batch: self.measure(plan, batch),
        )

    def measure(self, plan: FleetPlan, batch: Batch) -> int:
        """The bytes of a batch's event, with the longest number and attempt that it may carry."""
        return len(serialise(self._invocation(plan, batch, _MEASURED_NUMBER, attempt=9)))

    def _share(self, n_nodes: int) -> int:
        """Nodes of one event where nobody says: one on an elastic fleet, else a few rounds."""
        workers = self._transport.limits.workers
        return 1 if workers is None else max(1, n_nodes // (4 * workers))

    def _left(self, fan_out: FanOut) -> FanOut:
        """The nodes of a fan-out that are still to be done."""
        dispatch_order = fan_out.order_tuple.dispatch_order
        kept = self._kept.get((dispatch_order, fan_out.unit, fan_out.window))
        if kept is None:
            left = fan_out
        else:
            done = is_member(fan_out.nodes, kept)
            for words in self._redone.values():
                above = sorted_distinct(ancestors(words, dispatch_order))
                done &= ~is_member(fan_out.nodes, above)
            left = fan_out.subset(~done)
        if left.n_nodes:
            seen = self._redone.get(dispatch_order, left.nodes[:0])
            self._redone[dispatch_order] = sorted_distinct(np.concatenate([seen, left.nodes]))
        return left

    def _invocation(self, plan: FleetPlan, batch: Batch, number: int, attempt: int) -> StageInvocation:
        fan_out = batch.fan_out
        return StageInvocation(
            store_path=self._store.root,
            run_id=plan.run_id,
            run_started=plan.run_started,
            dispatch=fan_out.order_tuple.dispatch_order,
            tuple_width=self._options.tuple_width,
            child_order=fan_out.order_tuple.child_order,
            records_from=plan.records_from,
            nodes=batch.nodes(),
            batch=number,
            leaves=batch.leaves(),
            unit=fan_out.unit,  # type: ignore[arg-type]  # one of the wire's words by construction
            window=fan_out.window,
            pipeline_run_id=self._options.pipeline_run_id,
            lease_ttl_s=self._options.lease_ttl_s,
            dirt_only=batch.dirt_only(),
            attempt=attempt,
            credentials=self._options.credentials,
        )

    # -- the run --------------------------------------------------------------------------

    def run(self) -> FleetSummary:
        """Fire every tuple, then the finisher."""
        started = self._runtime.clock.monotonic()
        try:
            plan = self.plan()
        except _NoLadder as error:
            return self._declined(str(error), started)
        status = self._open_status(plan.records_from)
        poller = Poller(status)
        self._take_stock(poller, status, plan)
        plan = self._after_finish(plan, status)
        self._runtime.observer(
            RunStarted(
                run_id=plan.run_id,
                store_root=self._store.root,
                n_leaves=plan.work.n_leaves,
                n_tuples=len(plan.tuples),
                n_units=0,
            )
        )
        barrier = self._barrier(plan, poller)
        self._climb(plan, barrier)
        finisher = self._finish(plan, poller, status, barrier)
        return self._summary(
            plan, finisher, started, skipped=None if self._report.rows else "no dispatch nodes"
        )

    def _after_finish(self, plan: FleetPlan, status: ObjectStore) -> FleetPlan:
        """Start the drive in a later second than an earlier drive of this run ended.

        Workers take an event for a late one when its drive began before ``finisher.json`` says
        that the run was over, and clocks on the wire are whole seconds.
        """
        raw = status.get(finisher_name())
        try:
            document = json.loads(raw) if raw is not None else None
        except ValueError:
            document = None
        finished_at = document.get("finished_at") if isinstance(document, Mapping) else None
        run_started = plan.run_started
        while isinstance(finished_at, str) and finished_at >= run_started:
            self._runtime.clock.sleep(0.25)
            run_started = timestamp(self._runtime.clock.now())
        return replace(plan, run_started=run_started)

    def _take_stock(self, poller: Poller, status: ObjectStore, plan: FleetPlan) -> None:
        """Records that stand before the fan-out: ignored, or kept where that is asked for."""
        names = poller.snapshot()
        if not self._options.keep_complete or not names:
            return
        kept: dict[tuple[int, str | None, str | None], list[str]] = {}
        for raw in fetch(status, names):
            record = parse_stage_record(raw, plan.run_id) if raw is not None else None
            if record is None:
                continue
            order = record.get("dispatch")
            number = record.get("batch")
            if not isinstance(order, int) or not isinstance(number, int):
                continue
            self._next_number[order] = max(self._next_number.get(order, 0), number + 1)
            if _is_clean(record):
                share = (order, record.get("unit"), record.get("window"))
                kept.setdefault(share, []).extend(record["nodes"])
        self._kept = {share: sorted_distinct(words_of(nodes)) for share, nodes in kept.items()}

    def _barrier(self, plan: FleetPlan, poller: Poller) -> Barrier:
        options = self._options

        def payload(task: Task) -> bytes:
            self._report.invokes += 1
            return serialise(self._invocation(plan, task.batch, task.number, task.attempt))

        return Barrier(
            transport=self._transport,
            poller=poller,
            clock=self._runtime.clock,
            payload=payload,
            timeout_s=options.barrier_timeout_s,
            poll_s=options.poll_s,
            budget=Budget(left_s=options.budget_s),
            progress=self._progress,
        )

    def _progress(self, boards: Sequence[Board], waited_s: float) -> None:
        tasks = [task for board in boards for task in board.tasks]
        if not tasks:
            return
        order_tuple = tasks[-1].batch.fan_out.order_tuple
        self._runtime.observer(
            BarrierProgress(
                dispatch_order=order_tuple.dispatch_order,
                orders=order_tuple.orders,
                seen=sum(task.status == "done" for task in tasks),
                expected=len(tasks),
                retries=sum(board.retries for board in boards),
                given_up=sum(task.status == "given-up" for task in tasks),
                elapsed_s=waited_s,
            )
        )

    def _climb(self, plan: FleetPlan, barrier: Barrier) -> None:
        closing: tuple[Board, dict[str, Any]] | None = None
        for order_tuple in plan.tuples:
            packing = self.packed(plan, order_tuple)
            if not packing.batches and not packing.closes:
                continue
            first = self._next_number.get(order_tuple.dispatch_order, 0)
            board = Board(packing.batches, first_number=first, attempts=self._options.attempts)
            row = self._row(order_tuple, packing)
            verdict = barrier.wait([board] if closing is None else [closing[0], board])
            if closing is not None:
                self._settle_close(*closing, verdict)
            self._settle(board, row, verdict)
            closing = None
            if packing.closes:
                close = Board(
                    packing.closes,
                    first_number=max(board.next_number, first),
                    attempts=self._options.attempts,
                )
                barrier.fire([close])
                closing = close, row
        if closing is not None:
            verdict = barrier.wait([closing[0]])
            self._settle_close(*closing, verdict)

    def _row(self, order_tuple: OrderTuple, packing: TuplePacking) -> dict[str, Any]:
        row: dict[str, Any] = {
            "dispatch_order": order_tuple.dispatch_order,
            "orders": list(order_tuple.orders),
            "width": order_tuple.width or len(order_tuple.orders),
            "fold_max": order_tuple.fold_max,
            "nodes": packing.n_nodes,
            "batches": len(packing.batches),
        }
        self._report.rows.append(row)
        return row

    def _settle(self, board: Board, row: dict[str, Any], verdict: Verdict) -> None:
        missing = board.given_up()
        row |= {
            "batches": len(board.tasks),
            "barrier_timed_out": verdict.timed_out and bool(missing),
            "barrier_s": verdict.waited_s,
            "records_seen": board.n_done(),
        }
        self._note_missing(missing, row, verdict)
        row["retries"] = board.retries

    def _settle_close(self, board: Board, row: dict[str, Any], verdict: Verdict) -> None:
        row |= {"close_batches": len(board.tasks), "close_records_seen": board.n_done()}
        self._note_missing(board.given_up(), row, verdict)

    def _note_missing(self, missing: Sequence[Task], row: dict[str, Any], verdict: Verdict) -> None:
        if not missing:
            return
        self._report.timed_out |= verdict.timed_out
        self._report.short.update(row["orders"])
        named = [_unit(task) for task in missing]
        self._report.unfinished += named
        row["missing_unit_count"] = row.get("missing_unit_count", 0) + len(named)
        row["missing_units"] = (row.get("missing_units", []) + named)[:_SHOWN]
        for each in named[:_SHOWN]:
            log.warning("batch not finished", extra={"event": "batch-unfinished", **each})

    # -- the end --------------------------------------------------------------------------

    def _finish(
        self, plan: FleetPlan, poller: Poller, status: ObjectStore, barrier: Barrier
    ) -> dict[str, Any]:
        if not self._report.rows:
            return {"landed": False, "fired": False}
        invocation = FinisherInvocation(
            store_path=self._store.root,
            run_id=plan.run_id,
            records_from=plan.records_from,
            touch_policy=self._options.touch_policy,
            barrier_timed_out=self._report.timed_out,
            short_orders=tuple(sorted(self._report.short, reverse=True)),
            leaves=refs_of(plan.work),
            pipeline_run_id=self._options.pipeline_run_id,
            lease_ttl_s=self._options.lease_ttl_s,
            credentials=self._options.credentials,
        )
        if len(serialise(replace(invocation, attempt=9))) > plan.cap_bytes:
            log.info("the finisher discovers the work set", extra={"event": "finisher-discovers"})
            invocation = replace(invocation, leaves=None)
        landed, error = fire_finisher(
            invocation, barrier=barrier, poller=poller, attempts=self._options.attempts
        )
        if not landed:
            return {"landed": False, "fired": True, "error": error}
        return {"landed": True, "fired": True, **_finisher_facts(status)}

    def _summary(
        self, plan: FleetPlan, finisher: dict[str, Any], started: float, *, skipped: str | None
    ) -> FleetSummary:
        report, options = self._report, self._options
        duration_s = self._runtime.clock.monotonic() - started
        document = {
            "run_id": plan.run_id,
            "pipeline_run_id": options.pipeline_run_id,
            "run_started": plan.run_started,
            "store_root": self._store.root,
            "shard_order": plan.manifest.shard_order,
            "tuple_width": options.tuple_width,
            "stage_target_nodes": options.target_nodes,
            "max_nodes_per_invoke": options.max_nodes,
            "windowed": plan.manifest.is_windowed,
            "all_time": plan.manifest.all_time,
            "families": [],
            "families_unswept": False,
            "scope": None if plan.scope is None else [str(word) for word in plan.scope.tolist()],
            "coverage_computed": False,
            "transport": self._transport.name,
            "records_from": plan.records_from,
            "n_leaves": plan.work.n_leaves,
            "n_dirt_only": plan.work.n_dirt_only,
            "skipped_leaves": list(plan.work.skipped),
            "skipped": skipped,
            "invokes": report.invokes,
            "barrier_timed_out": report.timed_out,
            "short_orders": sorted(report.short, reverse=True),
            "stages": report.rows,
            "all_time_from": "store",
            "finisher": finisher,
            "duration_s": duration_s,
        }
        summary = FleetSummary(run_id=plan.run_id, document=document, unfinished=tuple(report.unfinished))
        rows = finisher.get("stages") or ()
        self._runtime.observer(
            RunFinished(
                run_id=plan.run_id,
                written=sum(row["written"] + row["columns_written"] for row in rows),
                current=sum(row["current"] + row["columns_current"] for row in rows),
                failed=summary.n_failed,
                under_covered=summary.n_under_covered,
                duration_s=duration_s,
            )
        )
        return summary

    def _declined(self, reason: str, started: float) -> FleetSummary:
        """The summary of a run that fired nothing, as the store has no ladder to sweep."""
        document = dict.fromkeys(_SUMMARY_KEYS) | {
            "store_root": self._store.root,
            "tuple_width": self._options.tuple_width,
            "families": [],
            "families_unswept": False,
            "transport": self._transport.name,
            "skipped": f"{_NO_LADDER}: {reason}",
            "invokes": 0,
            "barrier_timed_out": False,
            "short_orders": [],
            "stages": [],
            "finisher": {"landed": False, "fired": False},
            "duration_s": self._runtime.clock.monotonic() - started,
        }
        return FleetSummary(run_id=self._options.run_id or "", document=document)


class _NoLadder(Exception):
    """The store declares nothing that a staged sweep can fold."""


_NO_LADDER = "no sweepable zagg-pyramid/2 ladder"
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


def _is_clean(record: Mapping[str, Any]) -> bool:
    """Whether a record vouches for all its nodes: it names them, and nothing failed."""
    rows = record.get("stages")
    nodes = record.get("nodes")
    if not isinstance(rows, list) or not isinstance(nodes, list) or not nodes:
        return False
    return not any(row.get("failed") or row.get("unit_errors") for row in rows)


def _unit(task: Task) -> dict[str, Any]:
    fan_out = task.batch.fan_out
    return {
        "batch": task.number,
        "nodes": decimals_of(task.batch.node_words())[:_SHOWN],
        "unit": fan_out.unit,
        "window": fan_out.window,
        "attempts": task.attempt,
        "error": task.error,
    }


def _finisher_facts(status: ObjectStore) -> dict[str, Any]:
    try:
        raw = status.get(finisher_name())
        document = json.loads(raw) if raw is not None else {}
    except (StoreUnavailableError, ValueError):
        return {}
    if not isinstance(document, Mapping):
        return {}
    keys = ("stage_records", "levels", "lease", "record", "duration_s", "stages", "finisher")
    return {key: document[key] for key in keys if key in document}
