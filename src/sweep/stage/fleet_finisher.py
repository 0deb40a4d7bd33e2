"""The finisher of a fleet run: from stage records to root objects.

Source: semantics 12.3; format 11, 12.2.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sweep.artifacts.manifest_io import read_manifest
from sweep.control.discovery import find_work
from sweep.control.fence import FencedStore
from sweep.control.lease import Lease
from sweep.control.lease_object import DEFAULT_TTL_S
from sweep.control.records import json_object, nodes_of, parse_stage_record, rows_of
from sweep.errors import DeclarationError
from sweep.model.clock import timestamp
from sweep.model.invocation import STAGE_RECORD_SPEC, FinisherInvocation, finisher_name
from sweep.model.json_text import root_json
from sweep.model.manifest import Manifest
from sweep.model.provenance import Actuals
from sweep.model.runs import check_touch_policy
from sweep.plan.leaves import WorkSet
from sweep.stage.context import pass_context
from sweep.stage.finisher import Finish, finish
from sweep.stage.run import put_run_record
from sweep.stage.runtime import Runtime
from sweep.store.base import ObjectInfo, ObjectStore
from sweep.store.io import fetch

__all__ = ["already_finished", "finish_fleet", "standing_finish"]

log = logging.getLogger(__name__)


def already_finished(raw: bytes | None, run_started: str) -> bool:
    """Whether ``finisher.json`` says that the drive which began at ``run_started`` is over.

    A drive begun later, under the same run id, is not; nor is one of which it does not say
    when it ended, as the reference's does not.
    """
    finished_at = json_object(raw).get("finished_at") if raw is not None else None
    return isinstance(finished_at, str) and finished_at > run_started


def finish_fleet(
    invocation: FinisherInvocation, store: ObjectStore, status: ObjectStore, runtime: Runtime
) -> dict[str, Any]:
    """Merge the run's stage records, write the root objects, release the lease, record it all.

    Returns
    -------
    dict
        The finisher record.

    Raises
    ------
    DeclarationError
        The run has no stage record, or the store is refused.
    LeaseHeldError, LeaseLostError
        Another run holds the store.
    AccessError, StoreUnavailableError
        A root object or the finisher's record cannot be written.
    """
    touch_policy = check_touch_policy(invocation.touch_policy, where=f"{invocation.where}: ")
    standing = standing_finish(status, invocation.short_orders)
    if standing is not None:
        log.info("finisher came late", extra={"event": "finisher-late", "run_id": invocation.run_id})
        return standing
    started = runtime.clock.monotonic()
    lease = Lease.acquire(
        store,
        run_id=invocation.run_id,
        ttl_s=invocation.lease_ttl_s or DEFAULT_TTL_S,
        clock=runtime.clock,
        new_id=runtime.new_id,
    )
    with lease.keep():
        manifest = read_manifest(store)
        records = _stage_records(status, invocation)
        work = find_work(store, manifest, invocation.leaves, dirt_only=invocation.dirt_only)
        actuals = Actuals()
        for record in sorted(records, key=lambda each: str(each.get("run_started"))):
            actuals.merge(Actuals.parse(record.get("level_actuals")))
        context = pass_context(FencedStore(store, lease), manifest, run_id=invocation.run_id, runtime=runtime)
        finished = finish(
            context,
            lease,
            shards=work.shards(),
            actuals=actuals,
            touch_policy=touch_policy,
            withheld=invocation.short_orders,
        )
    record = _run_record(invocation, store, manifest, work, records, actuals, finished)
    record["duration_s"] = runtime.clock.monotonic() - started
    key = put_run_record(store, root_json(record), runtime.clock)
    final = {
        "spec": STAGE_RECORD_SPEC,
        "role": "finisher",
        **{name: value for name, value in record.items() if name != "spec"},
        "record": key,
        "under_covered": _short(actuals, records),
        "finished_at": timestamp(runtime.clock.now()),
    }
    status.put(finisher_name(), root_json(final))
    return final


def standing_finish(status: ObjectStore, short_orders: Collection[int]) -> dict[str, Any] | None:
    """The finisher's record that stands, where finishing again would change nothing.

    It would where a stage record is newer, or where orders that were withheld no longer are.
    """
    objects = status.list_dir("").objects
    finished = next((info for info in objects if info.key == finisher_name()), None)
    raw = None if finished is None else status.get(finished.key)
    if finished is None or raw is None:
        return None
    document = json_object(raw)
    if not document or set(short_orders) < set(document.get("short_orders") or ()):
        return None
    if any(_is_after(info, finished, status, document) for info in _records_of(objects)):
        return None
    return dict(document)


def _is_after(
    info: ObjectInfo, finished: ObjectInfo, status: ObjectStore, document: Mapping[str, Any]
) -> bool:
    """Whether a stage record was put after the finisher's; in the same second its drive decides."""
    if info.modified is None or finished.modified is None:
        return True
    if info.modified != finished.modified:
        return info.modified > finished.modified
    raw = status.get(info.key)
    started = None if raw is None else json_object(raw).get("run_started")
    return str(started) > str(document.get("finished_at"))


def _records_of(objects: Iterable[ObjectInfo]) -> list[ObjectInfo]:
    return [info for info in objects if info.key.startswith("stage-") and info.key.endswith(".json")]


def _stage_records(status: ObjectStore, invocation: FinisherInvocation) -> list[Mapping[str, Any]]:
    names = sorted(info.key for info in _records_of(status.list_dir("").objects))
    records = []
    for name, raw in zip(names, fetch(status, names), strict=True):
        record = parse_stage_record(raw, invocation.run_id) if raw is not None else None
        if record is None:
            log.warning("stage record skipped", extra={"event": "record-skipped", "key": name})
        else:
            records.append(record)
    if not records:
        raise DeclarationError(
            f"{invocation.where}: no stage record of this run stands under {invocation.records_from}; there "
            "is nothing to finish (sweep again under the same run id)",
            kind="no-records",
        )
    return _latest(records)


def _latest(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Records less those whose every node a later drive of the same run did again."""
    newest: dict[tuple[str, ...], str] = {}
    for record in records:
        for place in _places(record):
            newest[place] = max(newest.get(place, ""), str(record.get("run_started")))
    kept = []
    for record in records:
        places = _places(record)
        started = str(record.get("run_started"))
        if not places or any(newest[place] == started for place in places):
            kept.append(record)
    return kept


def _places(record: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What a record speaks of: (dispatch, unit, window, node); empty where it names no nodes."""
    share = tuple(str(record.get(key)) for key in ("dispatch", "unit", "window"))
    return [(*share, node) for node in nodes_of(record)]


def _short(actuals: Actuals, records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Artifacts that lack sources, with how many: folds by their actuals, closes by their records."""
    short = actuals.short()
    for record in records:
        said = record.get("under_covered")
        if isinstance(said, Mapping):
            short |= {name: n_missing for name, n_missing in said.items() if isinstance(n_missing, int)}
    return short


def _run_record(
    invocation: FinisherInvocation,
    store: ObjectStore,
    manifest: Manifest,
    work: WorkSet,
    records: Sequence[Mapping[str, Any]],
    actuals: Actuals,
    finished: Finish,
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "spec": "zagg-sweep/1",
        "mode": "stages",
        "run_id": invocation.run_id,
        "pipeline_run_id": invocation.pipeline_run_id,
        "store_root": store.root,
        "shard_order": manifest.shard_order,
        "transport": "lambda",
        "n_leaves": work.n_leaves,
        "skipped_leaves": list(work.skipped),
        "stage_records": len(records),
        "stages": [row for each in records for row in rows_of(each)],
        "levels": actuals.to_json(),
    }
    if any(each.get("root_moc_stale") for each in records):
        record["root_moc_stale"] = True
    return {
        **record,
        "barrier_timed_out": invocation.barrier_timed_out,
        "short_orders": sorted(invocation.short_orders, reverse=True),
        "finisher": finished.to_json(),
        "lease": {"released": finished.lease_released},
    }
