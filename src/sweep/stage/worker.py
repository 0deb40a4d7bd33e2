"""The worker: one event in, its share folded, one record out.

``handle_event`` is the one door for every transport. It never raises for a refused or
failed event: an asynchronous invoke's answer is read by nobody, so what went wrong goes
into a failure record below the status prefix, where the dispatcher learns of it in
seconds.

Source: semantics 12.2-12.3, 12.8; format 12.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep.control.records import FINISHER, Failure, describe, reaction_to
from sweep.errors import SweepError
from sweep.model.clock import timestamp
from sweep.model.invocation import (
    FinisherInvocation,
    Invocation,
    StageInvocation,
    credentials_of,
    failure_name,
    finisher_failure_name,
    finisher_name,
    parse_event,
)
from sweep.model.json_text import root_json
from sweep.stage.batch import Worker, record_url, run_batch
from sweep.stage.fleet_finisher import finish_fleet

__all__ = ["Answer", "Worker", "handle_event"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an invoke returns: one fixed set of scalars, null where a role has none."""

    ok: bool
    body: Mapping[str, Any]


_BODY_KEYS = (
    "ok",
    "mode",
    "stage",
    "run_id",
    "dispatch",
    "batch",
    "n_nodes",
    "n_leaves",
    "stage_records",
    "lease_released",
    "written",
    "current",
    "failed",
    "under_covered",
    "duration_s",
    "discover_s",
    "record",
    "stage_record",
    "error",
    "error_class",
)


def handle_event(event: Any, worker: Worker) -> Answer:
    """Do what an event asks.

    Parameters
    ----------
    event
        The decoded JSON of an invoke.
    worker : Worker

    Returns
    -------
    Answer
        ``ok`` is False for a refused or failed event; a failure record was then written, as
        far as the event said where.
    """
    started = worker.runtime.clock.monotonic()
    invocation: Invocation | None = None
    body: dict[str, Any] = {}
    try:
        invocation = parse_event(event)
        if isinstance(invocation, StageInvocation):
            body = run_batch(invocation, worker)
        else:
            body = _run_finisher(invocation, worker)
    except Exception as error:  # the batch boundary: whatever happened, the dispatcher must hear of it
        name, kind, text = describe(error)
        log.error(
            "event failed",
            exc_info=not isinstance(error, SweepError),
            extra={"event": "event-failed", "error_class": name, "kind": kind, "why": text},
        )
        _report_failure(error, event, worker)
        body = {"error": text, "error_class": name}
        if invocation is None and isinstance(error, SweepError):
            body |= {key: error.context.get(key) for key in ("run_id", "dispatch", "batch")}
    return _answer(body, event, invocation, worker.runtime.clock.monotonic() - started)


def _answer(body: Mapping[str, Any], event: Any, invocation: Invocation | None, duration_s: float) -> Answer:
    stage = event.get("stage") if isinstance(event, Mapping) else None
    known: dict[str, Any] = {
        "ok": body.get("error") is None,
        "mode": "sweep",
        "stage": stage.get("role") if isinstance(stage, Mapping) else None,
        "run_id": invocation.run_id if invocation is not None else None,
        "duration_s": duration_s,
    }
    if isinstance(invocation, StageInvocation):
        known |= {
            "dispatch": invocation.dispatch,
            "batch": invocation.batch,
            "n_nodes": len(invocation.nodes),
        }
    known |= body
    return Answer(ok=known["ok"], body={key: known.get(key) for key in _BODY_KEYS})


# -- role finisher ------------------------------------------------------------------------


def _run_finisher(invocation: FinisherInvocation, worker: Worker) -> dict[str, Any]:
    store = worker.open_store(invocation.store_path, invocation.credentials)
    status = worker.open_store(invocation.records_from, invocation.credentials)
    record = finish_fleet(invocation, store, status, worker.runtime)
    released = record.get("lease", {}).get("released")
    return {
        "n_leaves": record.get("n_leaves"),
        "stage_records": record.get("stage_records"),
        "lease_released": released,
        "duration_s": record.get("duration_s"),
        "record": record.get("record"),
        "stage_record": record_url(invocation.records_from, finisher_name()),
    }


# -- failure records ----------------------------------------------------------------------


def _report_failure(error: Exception, event: Any, worker: Worker) -> None:
    """Write the failure record of this attempt, as far as the event says where; never raises."""
    stage = event.get("stage") if isinstance(event, Mapping) else None
    records_from = stage.get("records_from") if isinstance(stage, Mapping) else None
    if not isinstance(stage, Mapping) or not isinstance(records_from, str) or not records_from:
        return
    try:
        failure = _failure(error, stage, worker)
        if failure.unit == FINISHER:
            key = finisher_failure_name(failure.attempt)
        else:
            key = failure_name(failure.dispatch, failure.batch, failure.attempt)
        status = worker.open_store(records_from, credentials_of(event))
        status.put(key, root_json(failure.to_json()))
    except Exception as second:  # noqa: BLE001  telemetry of a failure must not hide the failure
        log.error("failure record not written", extra={"event": "failure-record-failed", "why": str(second)})


def _failure(error: Exception, stage: Mapping[str, Any], worker: Worker) -> Failure:
    name, kind, text = describe(error)
    asked = stage.get("nodes")
    nodes = tuple(map(str, asked)) if isinstance(asked, list) else ()
    return Failure(
        run_id=str(stage.get("run_id")),
        run_started=str(stage.get("run_started", "")),
        dispatch=_number(stage.get("dispatch"), 0),
        batch=_number(stage.get("batch"), 0),
        attempt=_number(stage.get("attempt"), 1),
        unit=FINISHER if stage.get("role") == "finisher" else stage.get("unit"),
        window=stage.get("window"),
        nodes=nodes,
        remaining=tuple(error.context.get("remaining", nodes)) if isinstance(error, SweepError) else nodes,
        reaction=reaction_to(error),
        error_class=name,
        kind=kind,
        error=text,
        request_id=worker.request_id,
        at=timestamp(worker.runtime.clock.now()),
    )


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
