"""The dispatcher: tuple by tuple from fine to coarse, then the finisher. It never writes.

Source: semantics 12.5-12.7.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sweep.artifacts.manifest_io import read_manifest
from sweep.control.discovery import find_work
from sweep.control.records import json_object
from sweep.errors import DeclarationError, StoreUnavailableError
from sweep.events import BarrierProgress, RunFinished, RunStarted
from sweep.fleet.barrier import Barrier, Budget
from sweep.fleet.board import Board, Task
from sweep.fleet.finishing import fire_finisher
from sweep.fleet.options import FleetOptions, FleetSummary, check_fleet_options
from sweep.fleet.planning import FleetPlan, Packer, schedule
from sweep.fleet.poller import Poller
from sweep.fleet.report import Report, Row, declined
from sweep.fleet.stock import Stock, newest_moment, take_stock
from sweep.fleet.transport import Transport
from sweep.model.clock import parse_timestamp, timestamp
from sweep.model.invocation import FinisherInvocation, finisher_name, serialise, status_prefix
from sweep.model.runs import new_run_id
from sweep.plan.packing import refs_of
from sweep.plan.scope import parse_scope
from sweep.stage.fleet_finisher import standing_finish
from sweep.stage.runtime import Runtime
from sweep.store.base import ObjectStore

__all__ = ["Dispatcher", "dispatch"]

log = logging.getLogger(__name__)

_NO_LADDER = "no-ladder"
_MEASURED_ATTEMPT = 9
_NEXT_SECOND_S = 2.0
_NAP_S = 0.25


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
        A worker ended the run; what is queued or running ends by itself, and the run can be
        resumed under its id.
    FleetUnreachableError
        No event can reach a worker.
    """
    return Dispatcher(store, status, transport, options, runtime).run()


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

    @property
    def root(self) -> str:
        """The store's address."""
        return self._store.root

    def plan(self) -> FleetPlan:
        """Read the manifest, find the leaves, lay out the schedule; nothing is fired.

        Raises
        ------
        DeclarationError
            Leaves or scope are refused; with kind ``no-ladder``, the store declares nothing that
            a staged sweep can fold.
        """
        options = self._options
        try:
            manifest = read_manifest(self._store)
        except DeclarationError as error:
            raise DeclarationError(error.message, kind=_NO_LADDER, **error.context) from error
        run_id = options.run_id or new_run_id(self._runtime.clock, self._runtime.new_id)
        work = find_work(self._store, manifest, options.leaves, dirt_only=options.dirt_only)
        return FleetPlan(
            store_path=self._store.root,
            manifest=manifest,
            work=work,
            scope=parse_scope(options.scope),
            tuples=schedule(manifest.shard_order, options),
            run_id=run_id,
            run_started=timestamp(self._runtime.clock.now()),
            records_from=status_prefix(self._store.root, run_id),
        )

    def packer(self, plan: FleetPlan, stock: Stock | None = None) -> Packer:
        """What packs the tuples of a plan, one after another."""
        return Packer(plan, self._options, self._transport.limits, stock)

    def run(self) -> FleetSummary:
        """Fire every tuple, then the finisher."""
        clock = self._runtime.clock
        started = clock.monotonic()
        try:
            plan = self.plan()
        except DeclarationError as error:
            if error.kind != _NO_LADDER:
                raise
            return declined(
                error.message,
                self._options,
                store_path=self._store.root,
                transport=self._transport.name,
                duration_s=clock.monotonic() - started,
            )
        status = self._open_status(plan.records_from)
        poller = Poller(status)
        standing = poller.snapshot()
        if standing or poller.is_stale(finisher_name()):
            plan = replace(plan, run_started=self._start_after(newest_moment(status, standing)))
        stock = Stock()
        if self._options.keep_complete:
            stock = take_stock(status, [info.key for info in standing], plan.run_id)
        drive = _Drive(plan, self._options, self._transport, self._runtime, status, poller)
        return drive.run(self.packer(plan, stock), started)

    def _start_after(self, newest: datetime | None) -> str:
        """The start of this drive: a later second than that of any drive before it.

        Workers tell drives of one run by this moment, and clocks on the wire are whole
        seconds. A clock that is ahead of ours by more than that is not waited for.
        """
        clock = self._runtime.clock
        patience = clock.monotonic() + _NEXT_SECOND_S
        while True:
            started = timestamp(clock.now())
            moment = parse_timestamp(started)
            if newest is None or moment is None or moment > newest:
                return started
            if clock.monotonic() >= patience:
                log.warning("an earlier drive's clock is ahead", extra={"event": "clock-behind"})
                return timestamp(newest + timedelta(seconds=1))
            clock.sleep(_NAP_S)


class _Drive:
    """The part of a run that fires."""

    def __init__(
        self,
        plan: FleetPlan,
        options: FleetOptions,
        transport: Transport,
        runtime: Runtime,
        status: ObjectStore,
        poller: Poller,
    ) -> None:
        self._plan = plan
        self._options = options
        self._transport = transport
        self._runtime = runtime
        self._status = status
        self._poller = poller
        self._report = Report()

    def run(self, packer: Packer, started: float) -> FleetSummary:
        plan = self._plan
        self._runtime.observer(
            RunStarted(
                run_id=plan.run_id,
                store_root=plan.store_path,
                n_leaves=plan.work.n_leaves,
                n_tuples=len(plan.tuples),
                n_units=0,
            )
        )
        barrier = self._barrier(packer)
        self._climb(packer, barrier)
        finisher, skipped = self._finish(barrier)
        return self._summary(finisher, skipped, self._runtime.clock.monotonic() - started)

    def _barrier(self, packer: Packer) -> Barrier:
        options = self._options

        def payload(task: Task) -> bytes:
            self._report.invokes += 1
            return serialise(packer.invocation(task.batch, task.number, task.attempt))

        return Barrier(
            transport=self._transport,
            poller=self._poller,
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

    def _climb(self, packer: Packer, barrier: Barrier) -> None:
        """Every tuple behind its barrier; its closes run beside the next tuple."""
        closing: tuple[Board, Row] | None = None
        attempts = self._options.attempts
        for order_tuple in self._plan.tuples:
            packing = packer.packed(order_tuple)
            if packing.is_empty:
                continue
            row = self._report.open_row(packing)
            first = packer.first_number(order_tuple.dispatch_order)
            board = Board(packing.batches, first_number=first, attempts=attempts)
            verdict = barrier.wait([board] if closing is None else [closing[0], board])
            if closing is not None:
                closing[1].settle_closes(closing[0], verdict)
            row.settle(board, verdict)
            closing = None
            if packing.closes:
                closes = Board(packing.closes, first_number=board.next_number, attempts=attempts)
                barrier.fire([closes])
                closing = closes, row
        if closing is not None:
            closing[1].settle_closes(closing[0], barrier.wait([closing[0]]))

    # -- the end --------------------------------------------------------------------------

    def _finish(self, barrier: Barrier) -> tuple[dict[str, Any], str | None]:
        """Fire the finisher, unless there is nothing to finish; and why nothing was fired at all."""
        short_orders = self._report.short_orders
        is_kept = self._poller.has_stale_records and self._options.keep_complete
        if not self._report.rows and not is_kept:
            return {"landed": False, "fired": False}, "no dispatch nodes"
        if self._poller.is_stale(finisher_name()) and standing_finish(self._status, short_orders):
            skipped = None if self._report.rows else "the run is complete already"
            return {"landed": True, "fired": False, **self._finisher_facts()}, skipped
        landed, error = fire_finisher(
            self._invocation(short_orders),
            barrier=barrier,
            poller=self._poller,
            attempts=self._options.attempts,
        )
        if not landed:
            return {"landed": False, "fired": True, "error": error}, None
        return {"landed": True, "fired": True, **self._finisher_facts()}, None

    def _invocation(self, short_orders: tuple[int, ...]) -> FinisherInvocation:
        plan, options = self._plan, self._options
        invocation = FinisherInvocation(
            store_path=plan.store_path,
            run_id=plan.run_id,
            records_from=plan.records_from,
            touch_policy=options.touch_policy,
            barrier_timed_out=self._report.timed_out,
            short_orders=short_orders,
            leaves=refs_of(plan.work),
            pipeline_run_id=options.pipeline_run_id,
            lease_ttl_s=options.lease_ttl_s,
            credentials=options.credentials,
        )
        size = len(serialise(replace(invocation, attempt=_MEASURED_ATTEMPT)))
        if size <= self._transport.limits.payload_bytes:
            return invocation
        log.warning(
            "the work set does not fit one event; the finisher will discover it",
            extra={"event": "discover", "run_id": plan.run_id, "n_leaves": plan.work.n_leaves},
        )
        return replace(invocation, leaves=None)

    def _finisher_facts(self) -> dict[str, Any]:
        try:
            raw = self._status.get(finisher_name())
        except StoreUnavailableError:
            return {}
        document = json_object(raw) if raw is not None else {}
        keys = (
            "stage_records",
            "levels",
            "lease",
            "record",
            "duration_s",
            "stages",
            "finisher",
            "under_covered",
        )
        return {key: document[key] for key in keys if key in document}

    def _summary(self, finisher: dict[str, Any], skipped: str | None, duration_s: float) -> FleetSummary:
        summary = self._report.summary(
            self._plan,
            self._options,
            transport=self._transport.name,
            finisher=finisher,
            skipped=skipped,
            duration_s=duration_s,
        )
        self._runtime.observer(
            RunFinished(
                run_id=summary.run_id,
                written=summary.count("written", "columns_written"),
                current=summary.count("current", "columns_current"),
                failed=summary.n_failed,
                under_covered=summary.n_under_covered,
                duration_s=duration_s,
            )
        )
        return summary
