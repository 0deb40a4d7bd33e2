"""One sweep in this process: admit, pass, finish, record.

Source: semantics 1.1; format 11.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sweep.artifacts.coverage import load_coverage
from sweep.artifacts.manifest_io import read_manifest
from sweep.control.discovery import discover_leaves
from sweep.control.fence import FencedStore
from sweep.control.lease import MAX_TTL_S, MIN_TTL_S, Lease
from sweep.control.lease_object import DEFAULT_TTL_S
from sweep.errors import DeclarationError, StoreUnavailableError, SweepError
from sweep.events import Admitted, RunFinished, RunStarted
from sweep.model.clock import Clock, file_stamp
from sweep.model.json_text import root_json
from sweep.model.keys import sweep_record_key
from sweep.model.manifest import Manifest
from sweep.model.nodes import Words
from sweep.model.provenance import Actuals
from sweep.model.runs import TouchPolicy, check_run_id, check_touch_policy, new_run_id, refuse_companions
from sweep.plan.leaves import Ref, WorkSet, with_dirt, work_set
from sweep.plan.partitions import check_partitions, partition_cells
from sweep.plan.planner import candidates
from sweep.plan.scope import intersect, parse_scope
from sweep.plan.tuples import OrderTuple, fixed_tuples, sized_tuples
from sweep.stage.context import PassContext, pass_context
from sweep.stage.finisher import Finish, finish
from sweep.stage.passes import PassPlan, StageRow, plan_pass, run_pass
from sweep.stage.runtime import Runtime
from sweep.stage.tally import Tally
from sweep.store.base import ObjectStore, Refused

__all__ = ["SweepOptions", "SweepSummary", "put_run_record", "sweep_store"]

log = logging.getLogger(__name__)

_RECORD_NAMES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """What one sweep is asked to do.

    Attributes
    ----------
    leaves : iterable of (word, window) pairs or words, optional
        The work set; found from the store's run records where None.
    scope
        None or ``"all"`` for the whole store; else decimals or words of nodes.
    tuple_width : int
        Orders that one tuple climbs, at most.
    target_nodes : int, optional
        Ladder nodes under one dispatch node to aim at: sizes the tuples.
    partitions : int, optional
        A power of four; the passes run one after another under one lease.
    lease_ttl_s : int
        Seconds without a heartbeat after which another run may take over.
    run_id, pipeline_run_id : str, optional
        Ours (made where None; a dead run's id re-admits and heals), and that of the run
        which made the leaves.
    touch_policy : {"auto", "always", "never"}
    dirt_only : iterable like ``leaves``
        Leaves whose data is current; they are counted and nothing is folded for them.
    families, icechunk
        Rollup families and Icechunk companions: not offered, and refused by name.
    record : bool
        Write the run record.
    """

    leaves: Iterable[Ref | int] | None = None
    scope: Any = None
    tuple_width: int = 3
    target_nodes: int | None = None
    partitions: int | None = None
    lease_ttl_s: int = DEFAULT_TTL_S
    run_id: str | None = None
    pipeline_run_id: str | None = None
    touch_policy: TouchPolicy = "auto"
    dirt_only: Iterable[Ref | int] = ()
    families: Sequence[str] = ()
    icechunk: bool = False
    record: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """What a sweep did.

    ``record`` is the run record as written (its key is ``record_key``, None where its
    write failed or nothing was swept). ``problems`` names what could not be read or
    written. ``under_covered`` maps each overview that lacks sources, written now or before,
    to how many it lacks.
    """

    run_id: str
    record: dict[str, Any] = field(repr=False)
    record_key: str | None
    tally: Tally
    n_leaves: int
    skipped_records: tuple[str, ...] = field(default=())
    under_covered: Mapping[str, int] = field(default_factory=dict)

    @property
    def problems(self) -> tuple[str, ...]:
        """Lines for people: what could not be read or written."""
        return self.tally.problems

    def to_json(self) -> dict[str, Any]:
        """The run record with the key that it was written under."""
        return {**self.record, "record": self.record_key}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Job:
    """A checked request: everything known before the lease is asked for."""

    manifest: Manifest
    work: WorkSet
    scope: Words | None
    tuples: tuple[OrderTuple, ...]
    partitions: int | None
    options: SweepOptions
    run_id: str
    skipped_records: tuple[str, ...]


def sweep_store(store: ObjectStore, options: SweepOptions, runtime: Runtime) -> SweepSummary:
    """Sweep a store in this process.

    Parameters
    ----------
    store : ObjectStore
    options : SweepOptions
    runtime : Runtime

    Returns
    -------
    SweepSummary
        With an empty record and no lease taken where discovery found no leaf.

    Raises
    ------
    DeclarationError
        The store or the request is refused; nothing was written and no lease taken.
    LeaseHeldError
        Another run holds the store.
    LeaseLostError, ForeignWriteError
        This run must stop; its lease, if still held, expires by itself.
    ArtifactError, AccessError, StoreUnavailableError
        The run failed on the way: the lease stays held under the run id, and a run with the
        same id is admitted again and heals.
    """
    job = _check(store, options, runtime)
    if options.leaves is None and job.work.is_empty and not len(job.work.dirt):
        return SweepSummary(
            run_id=job.run_id,
            record={},
            record_key=None,
            tally=Tally(),
            n_leaves=0,
            skipped_records=job.skipped_records,
        )
    lease = Lease.acquire(
        store,
        run_id=job.run_id,
        ttl_s=options.lease_ttl_s,
        scope=None if job.scope is None else [str(word) for word in job.scope.tolist()],
        clock=runtime.clock,
        new_id=runtime.new_id,
    )
    runtime.observer(Admitted(run_id=job.run_id, claimed_from=lease.claimed_from))
    with lease.keep():
        return _Run(store, job, runtime, lease).run()


def _check(store: ObjectStore, options: SweepOptions, runtime: Runtime) -> _Job:
    """Everything that can be refused before the lease."""
    _check_options(options)
    scope = parse_scope(options.scope)
    partitions = None if options.partitions is None else check_partitions(options.partitions)
    manifest = read_manifest(store)
    shard_order = manifest.shard_order
    if partitions is not None and partitions > 4**shard_order:
        raise DeclarationError(
            f"{partitions} partitions are more than the {4**shard_order} shards of one base cell",
            kind="partitions",
        )
    if options.target_nodes:
        tuples = sized_tuples(shard_order, target=options.target_nodes, max_width=options.tuple_width)
    else:
        tuples = fixed_tuples(shard_order, options.tuple_width)
    skipped: tuple[str, ...] = ()
    if options.leaves is None:
        found = discover_leaves(store, manifest)
        work, skipped = with_dirt(found.work, options.dirt_only, shard_order), found.skipped_records
    else:
        work = work_set(options.leaves, shard_order, dirt_only=options.dirt_only)
    return _Job(
        manifest=manifest,
        work=work,
        scope=scope,
        tuples=tuples,
        partitions=partitions,
        options=options,
        run_id=options.run_id or new_run_id(runtime.clock, runtime.new_id),
        skipped_records=skipped,
    )


def _check_options(options: SweepOptions) -> None:
    refuse_companions(families=options.families, icechunk=options.icechunk)
    check_touch_policy(options.touch_policy)
    if options.run_id is not None:
        check_run_id(options.run_id)
    ttl_s = options.lease_ttl_s
    if type(ttl_s) is not int or not MIN_TTL_S <= ttl_s <= MAX_TTL_S:
        raise DeclarationError(
            f"lease ttl {ttl_s!r}: expected whole seconds, {MIN_TTL_S} to {MAX_TTL_S} "
            f"(default {DEFAULT_TTL_S})",
            kind="lease-ttl",
        )


class _Run:
    """The part of a sweep that holds the lease."""

    def __init__(self, store: ObjectStore, job: _Job, runtime: Runtime, lease: Lease) -> None:
        self._job = job
        self._runtime = runtime
        self._lease = lease
        self._store = store
        self._started = runtime.clock.monotonic()
        self._rows: list[StageRow] = []
        self._actuals = Actuals()
        self._coverage_stale = False

    def run(self) -> SweepSummary:
        fenced = FencedStore(self._store, self._lease)
        context = pass_context(fenced, self._job.manifest, run_id=self._job.run_id, runtime=self._runtime)
        try:
            if self._lease.readmitted or self._lease.claimed_from is not None:
                fenced.reap()  # the run before this one died
            for plan in self._plans(context):
                result = run_pass(context, plan)
                self._rows += result.rows
                self._actuals.merge(result.actuals)
            self._lease.beat()
            finished = finish(
                context,
                self._lease,
                shards=self._job.work.shards(),
                actuals=self._actuals,
                touch_policy=self._job.options.touch_policy,
            )
        except (Exception, KeyboardInterrupt) as error:
            # Whatever ended the run, its record says so; the lease stays as it is.
            text = error.message if isinstance(error, SweepError) else str(error)
            self._record(fenced, {"error": f"{type(error).__name__}: {text}"}, released=False)
            raise
        return self._finished(finished)

    def _plans(self, context: PassContext) -> list[PassPlan]:
        job = self._job
        coverage = load_coverage(context.store, job.manifest.shard_order)
        self._coverage_stale = coverage is None
        shards = candidates(job.work, None if coverage is None else coverage.words)
        plans: list[PassPlan] = []
        if len(job.manifest.fields) and len(shards):
            plans = [self._plan(shards, scope, index) for index, scope in self._parts()]
        self._runtime.observer(
            RunStarted(
                run_id=job.run_id,
                store_root=context.store.root,
                n_leaves=job.work.n_leaves,
                n_tuples=sum(len(plan.tuples) for plan in plans),
                n_units=sum(each.n_units for plan in plans for each in plan.tuples),
            )
        )
        return plans

    def _parts(self) -> list[tuple[int | None, Words | None]]:
        job = self._job
        if job.partitions is None or job.partitions == 1:
            return [(None, job.scope)]
        parts: list[tuple[int | None, Words | None]] = []
        for index in range(job.partitions):
            scope = intersect(job.scope, partition_cells(index, job.partitions))
            if len(scope):
                parts.append((index, scope))
        return parts

    def _plan(self, shards: Words, scope: Words | None, index: int | None) -> PassPlan:
        job = self._job
        return plan_pass(
            job.tuples,
            work=job.work,
            candidates=shards,
            scope=scope,
            is_windowed=job.manifest.is_windowed,
            closes=job.manifest.closes,
            partition=None if index is None or job.partitions is None else (index, job.partitions),
        )

    def _finished(self, finished: Finish) -> SweepSummary:
        # The lease is gone: the record, one object of its own name, is written without the fence.
        tail = {"finisher": finished.to_json()}
        key, record = self._record(self._store, tail, released=finished.lease_released)
        tally = sum((row.tally for row in self._rows), Tally())
        self._runtime.observer(
            RunFinished(
                run_id=self._job.run_id,
                written=tally.written + tally.columns_written,
                current=tally.current + tally.columns_current,
                failed=tally.failed,
                under_covered=tally.under_covered,
                duration_s=record["duration_s"],
            )
        )
        return SweepSummary(
            run_id=self._job.run_id,
            record=record,
            record_key=key,
            tally=tally,
            n_leaves=self._job.work.n_leaves,
            skipped_records=self._job.skipped_records,
            under_covered=self._actuals.short(),
        )

    def _record(
        self, store: ObjectStore, tail: dict[str, Any], *, released: bool
    ) -> tuple[str | None, dict[str, Any]]:
        """Write the run record, fail-open: the sweep counts whether or not its record lands."""
        job = self._job
        record: dict[str, Any] = {
            "spec": "zagg-sweep/1",
            "mode": "stages",
            "run_id": job.run_id,
            "pipeline_run_id": job.options.pipeline_run_id,
            "store_root": store.root,
            "shard_order": job.manifest.shard_order,
            "tuple_width": job.options.tuple_width,
            "n_leaves": job.work.n_leaves,
            "n_dirt_only": job.work.n_dirt_only,
            "skipped_leaves": list(job.work.skipped),
            "scope": None if job.scope is None else [str(word) for word in job.scope.tolist()],
            "partitions": job.partitions,
            "lease": {
                "acquired_at": self._lease.acquired_at,
                "claimed_from": self._lease.claimed_from,
                "ttl_s": job.options.lease_ttl_s,
                "released": released,
            },
            "stages": [row.to_json() for row in self._rows],
            "levels": self._actuals.to_json(),
        }
        if self._coverage_stale:
            record["root_moc_stale"] = True
        record |= tail
        record["duration_s"] = self._runtime.clock.monotonic() - self._started
        if not job.options.record:
            return None, record
        return put_run_record(store, root_json(record), self._runtime.clock), record


def put_run_record(store: ObjectStore, data: bytes, clock: Clock) -> str | None:
    """Put a run record, fail-open, under the first second whose name is free.

    Returns
    -------
    str or None
        Its key; None where it could not be written: the run counts all the same.
    """
    moment = clock.now()
    try:
        for later_s in range(_RECORD_NAMES):
            key = sweep_record_key(file_stamp(moment + timedelta(seconds=later_s)))
            if not isinstance(store.put_if_absent(key, data), Refused):
                return key
        raise StoreUnavailableError(f"{_RECORD_NAMES} names up to {key} are taken", key=key)
    except SweepError as error:
        log.warning("run record not written", extra={"event": "run-record-failed", "why": error.message})
        return None
