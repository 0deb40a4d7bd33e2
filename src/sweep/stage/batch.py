"""A batch of dispatch nodes on a worker: refuse, admit, fold, record.

Source: semantics 12.2; format 12.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sweep.artifacts.coverage import load_coverage
from sweep.artifacts.manifest_io import read_manifest
from sweep.control.discovery import find_work
from sweep.control.fence import FencedStore
from sweep.control.lease import Lease
from sweep.control.lease_object import DEFAULT_TTL_S
from sweep.control.records import is_better, parse_stage_record, put_stage_record
from sweep.errors import CapacityError, DeclarationError
from sweep.model.invocation import (
    STAGE_RECORD_SPEC,
    Credentials,
    StageInvocation,
    finisher_name,
    partial_name,
    record_name,
)
from sweep.model.manifest import Manifest
from sweep.model.nodes import words_of
from sweep.model.runs import refuse_companions
from sweep.plan.leaves import WorkSet
from sweep.plan.partitions import partition_cells
from sweep.plan.planner import candidates
from sweep.plan.tuples import OrderTuple, span_tuple
from sweep.plan.units import Unit, check_unit
from sweep.stage.context import pass_context
from sweep.stage.fleet_finisher import already_finished
from sweep.stage.passes import PassResult, plan_pass, run_pass
from sweep.stage.runtime import Runtime
from sweep.stage.tally import Tally
from sweep.store.base import ObjectStore

__all__ = ["STOP_MARGIN_S", "Worker", "record_url", "run_batch"]

log = logging.getLogger(__name__)

STOP_MARGIN_S = 30.0
"""Seconds before the platform's own deadline at which a worker begins no further node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """What surrounds one invoke.

    Attributes
    ----------
    runtime : Runtime
    open_store : callable
        Opens a root (the store, or the status prefix) with the event's credentials; may hand
        out one that is already open.
    remaining_s : callable, optional
        Seconds until the platform ends this invoke; None where nothing ends it.
    request_id : str, optional
        The platform's name for this invoke.
    rss_mb : callable, optional
        The process's resident memory now, in MiB.
    """

    runtime: Runtime
    open_store: Callable[[str, Credentials | None], ObjectStore]
    remaining_s: Callable[[], float] | None = None
    request_id: str | None = None
    rss_mb: Callable[[], float] | None = None

    def is_out_of_time(self) -> bool:
        return self.remaining_s is not None and self.remaining_s() < STOP_MARGIN_S


def run_batch(invocation: StageInvocation, worker: Worker) -> dict[str, Any]:
    """Fold a batch and put its record.

    Returns
    -------
    dict
        The scalars of the answer that this role has.

    Raises
    ------
    DeclarationError
        The batch is refused; nothing was written and no lease taken.
    CapacityError
        The deadline came near; what is done stands in a record of its own name, what is left
        in the context's ``remaining``.
    SweepError
        As the pass raised it, or the record could not be put.
    """
    started = worker.runtime.clock.monotonic()
    refuse_companions(families=invocation.families, where=f"{invocation.where}: ")
    store = worker.open_store(invocation.store_path, invocation.credentials)
    status = worker.open_store(invocation.records_from, invocation.credentials)
    manifest = read_manifest(store)
    order_tuple, unit = _share(invocation, manifest)
    name = record_name(invocation.dispatch, invocation.batch)
    answer: dict[str, Any] = {"stage_record": record_url(invocation.records_from, name)}
    if _is_late(status, invocation, name):
        log.info("event came late", extra={"event": "event-late", "run_id": invocation.run_id})
        return answer
    discover_started = worker.runtime.clock.monotonic()
    work = find_work(store, manifest, invocation.leaves, dirt_only=invocation.dirt_only)
    if invocation.leaves is None:
        answer["discover_s"] = worker.runtime.clock.monotonic() - discover_started
    lease = _admit(invocation, worker, store, status, name)
    if lease is None:
        return answer
    result, is_stale = _fold(invocation, worker, store, manifest, order_tuple, unit, work, lease)
    record = _stage_record(invocation, worker, manifest, work, result, is_stale, started)
    if result.remaining:
        if record["nodes"]:
            part = partial_name(invocation.dispatch, invocation.batch, invocation.attempt)
            put_stage_record(status, part, record)
        raise _out_of_time(invocation, result.remaining)
    put_stage_record(status, name, record)
    tally = sum((row.tally for row in result.rows), Tally())
    return answer | {
        "n_leaves": work.n_leaves,
        "written": tally.written,
        "current": tally.current,
        "failed": tally.failed,
        "under_covered": tally.under_covered,
    }


def _out_of_time(invocation: StageInvocation, remaining: tuple[str, ...]) -> CapacityError:
    """The worker stopped itself before its deadline; a record holds what is done."""
    return CapacityError(
        f"{invocation.where}: stopped before the deadline with {len(remaining)} of "
        f"{len(invocation.nodes)} nodes left; they are fired again in smaller batches",
        kind="out-of-time",
        remaining=remaining,
    )


def record_url(prefix: str, name: str) -> str:
    """The full address of a record."""
    return f"{prefix.rstrip('/')}/{name}"


def _share(invocation: StageInvocation, manifest: Manifest) -> tuple[OrderTuple, Unit | None]:
    """What is refused by looking at the manifest, before the lease."""
    try:
        order_tuple = span_tuple(
            manifest.shard_order, invocation.tuple_width, invocation.dispatch, invocation.child_order
        )
        if invocation.partition is not None:
            partition_cells(invocation.partition["index"], invocation.partition["of"])
    except DeclarationError as error:
        raise DeclarationError(f"{invocation.where}: {error.message}", kind=error.kind) from error
    unit = check_unit(invocation.unit, invocation.window, manifest.is_windowed, where=invocation.where)
    return order_tuple, unit


def _is_late(status: ObjectStore, invocation: StageInvocation, name: str) -> bool:
    """Whether the run that sent this event is over, or has this batch's record already."""
    if already_finished(status.get(finisher_name()), invocation.run_started):
        return True
    raw = status.get(name)
    standing = parse_stage_record(raw, invocation.run_id) if raw is not None else None
    if standing is None:
        return False
    asked = {
        "spec": STAGE_RECORD_SPEC,
        "run_id": invocation.run_id,
        "run_started": invocation.run_started,
        "dispatch": invocation.dispatch,
        "unit": invocation.unit,
        "window": invocation.window,
        "nodes": list(invocation.nodes),
    }
    return not is_better(asked, standing)


def _admit(
    invocation: StageInvocation, worker: Worker, store: ObjectStore, status: ObjectStore, name: str
) -> Lease | None:
    """The lease, or None where the run ended while this event was on its way to it.

    A lease that was made here was made after the finisher's release or before anyone else
    came; in the first case nobody would release it again.
    """
    lease = Lease.acquire(
        store,
        run_id=invocation.run_id,
        ttl_s=invocation.lease_ttl_s or DEFAULT_TTL_S,
        clock=worker.runtime.clock,
        new_id=worker.runtime.new_id,
    )
    if lease.readmitted or not _is_late(status, invocation, name):
        return lease
    log.info("event came late", extra={"event": "event-late", "run_id": invocation.run_id})
    lease.release()
    return None


def _fold(
    invocation: StageInvocation,
    worker: Worker,
    store: ObjectStore,
    manifest: Manifest,
    order_tuple: OrderTuple,
    unit: Unit | None,
    work: WorkSet,
    lease: Lease,
) -> tuple[PassResult, bool]:
    runtime = worker.runtime
    with lease.keep():
        context = pass_context(
            FencedStore(store, lease),
            manifest,
            run_id=invocation.run_id,
            runtime=runtime,
            run_started=invocation.run_started,
        )
        coverage = load_coverage(store, manifest.shard_order)
        partition = invocation.partition
        plan = plan_pass(
            [order_tuple],
            work=work,
            candidates=candidates(work, None if coverage is None else coverage.words),
            scope=words_of(list(invocation.nodes)),
            is_windowed=manifest.is_windowed,
            closes=manifest.closes,
            only=unit,
            partition=None if partition is None else (partition["index"], partition["of"]),
        )
        return run_pass(context, plan, should_stop=worker.is_out_of_time), coverage is None


def _stage_record(
    invocation: StageInvocation,
    worker: Worker,
    manifest: Manifest,
    work: WorkSet,
    result: PassResult,
    is_stale: bool,
    started: float,
) -> dict[str, Any]:
    left = set(result.remaining)
    done = [node for node in invocation.nodes if node not in left]
    record: dict[str, Any] = {
        "spec": STAGE_RECORD_SPEC,
        "role": "stage",
        "run_id": invocation.run_id,
        "pipeline_run_id": invocation.pipeline_run_id,
        "run_started": invocation.run_started,
        "dispatch": invocation.dispatch,
        "batch": invocation.batch,
        "unit": invocation.unit,
        "window": invocation.window,
        "closes": manifest.closes,
        "tuple_width": invocation.tuple_width,
        "n_nodes": len(invocation.nodes),
        "n_leaves": work.n_leaves,
        "n_dirt_only": work.n_dirt_only,
        "skipped_leaves": list(work.skipped),
        "partition": dict(invocation.partition) if invocation.partition is not None else None,
        "stages": [row.to_json() for row in result.rows],
        "level_actuals": result.actuals.children_json(),
        "duration_s": worker.runtime.clock.monotonic() - started,
    }
    if is_stale:
        record["root_moc_stale"] = True
    # Beyond the reference's keys, which its finisher passes over.
    record |= {"nodes": done, "attempt": invocation.attempt, "request_id": worker.request_id}
    short = {name: counts.missing for name, counts in result.actuals.closes.items() if counts.missing}
    if short:
        record["under_covered"] = short
    if worker.rss_mb is not None:
        record["rss_mb"] = worker.rss_mb()
    return record
