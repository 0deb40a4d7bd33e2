"""Stage records and failure records: how workers answer.

A worker's answer is an object of a name that was known before it was asked. A record is
never replaced by an older or a poorer one, so that an event delivered twice changes
nothing.

Source: format 12; semantics 12.2-12.3.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sweep.errors import (
    AccessError,
    AdmissionError,
    CapacityError,
    DeclarationError,
    ForeignWriteError,
    LeaseHeldError,
    StoreUnavailableError,
    SweepError,
)
from sweep.model.invocation import FAILURE_SPEC, STAGE_RECORD_SPEC
from sweep.model.json_text import root_json
from sweep.store.base import ObjectStore, Refused

__all__ = [
    "Failure",
    "Reaction",
    "describe",
    "is_better",
    "parse_failure",
    "parse_stage_record",
    "put_stage_record",
    "reaction_to",
]

log = logging.getLogger(__name__)

type Reaction = Literal["retry", "split", "refused", "held", "stop"]
"""What a dispatcher does about a failure: fire again, fire smaller, give this batch up, or end the run."""

_SWAPS = 8


def reaction_to(error: BaseException) -> Reaction:
    """The reaction that an error asks for."""
    if isinstance(error, DeclarationError):
        return "refused"
    if isinstance(error, LeaseHeldError):
        return "held"
    if isinstance(error, AdmissionError | ForeignWriteError | AccessError):
        return "stop"
    if isinstance(error, CapacityError | MemoryError):
        return "split"
    return "retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a worker says of an attempt that did not do all that it was asked.

    ``remaining`` names the nodes that are still to be done; those of the batch that are not
    in it are done and stand in the batch's stage record.
    """

    run_id: str
    run_started: str
    dispatch: int
    batch: int
    attempt: int
    unit: str | None
    window: str | None
    nodes: tuple[str, ...]
    remaining: tuple[str, ...]
    reaction: Reaction
    error_class: str
    kind: str
    error: str
    request_id: str | None
    at: str

    def to_json(self) -> dict[str, Any]:
        return {
            "spec": FAILURE_SPEC,
            "run_id": self.run_id,
            "run_started": self.run_started,
            "dispatch": self.dispatch,
            "batch": self.batch,
            "attempt": self.attempt,
            "unit": self.unit,
            "window": self.window,
            "nodes": list(self.nodes),
            "remaining": list(self.remaining),
            "reaction": self.reaction,
            "error_class": self.error_class,
            "kind": self.kind,
            "error": self.error,
            "request_id": self.request_id,
            "at": self.at,
        }


def parse_failure(raw: bytes) -> Failure | None:
    """The failure that an object holds, or None where it holds none."""
    document = _object(raw)
    if document.get("spec") != FAILURE_SPEC:
        return None
    reaction = document.get("reaction")
    try:
        return Failure(
            run_id=str(document["run_id"]),
            run_started=str(document["run_started"]),
            dispatch=int(document["dispatch"]),
            batch=int(document["batch"]),
            attempt=int(document["attempt"]),
            unit=document.get("unit"),
            window=document.get("window"),
            nodes=tuple(map(str, document["nodes"])),
            remaining=tuple(map(str, document["remaining"])),
            reaction=reaction if reaction in ("retry", "split", "refused", "held", "stop") else "retry",
            error_class=str(document.get("error_class")),
            kind=str(document.get("kind")),
            error=str(document.get("error")),
            request_id=document.get("request_id"),
            at=str(document.get("at")),
        )
    except (KeyError, TypeError, ValueError):
        return None


def parse_stage_record(raw: bytes, run_id: str) -> Mapping[str, Any] | None:
    """A stage record of this run, or None for anything else."""
    document = _object(raw)
    if (
        document.get("spec") != STAGE_RECORD_SPEC
        or document.get("role") != "stage"
        or document.get("run_id") != run_id
    ):
        return None
    return document


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(raw)
    except ValueError:
        return {}
    return document if isinstance(document, Mapping) else {}


def put_stage_record(status: ObjectStore, name: str, record: Mapping[str, Any]) -> bool:
    """Put a record unless a newer or richer one stands under its name.

    Returns
    -------
    bool
        Whether this one was written.

    Raises
    ------
    AccessError, StoreUnavailableError
        The status prefix cannot be written: the record is the transport, so the worker fails.
    """
    data = root_json(record)
    for _ in range(_SWAPS):
        found = status.get_versioned(name)
        if found is None:
            outcome = status.put_if_absent(name, data)
        elif not is_better(record, _object(found.data)):
            log.info("stage record kept", extra={"event": "record-kept", "key": name})
            return False
        else:
            outcome = status.put_if_match(name, data, found.etag)
        if not isinstance(outcome, Refused):
            return True
    raise StoreUnavailableError(f"{name} was rewritten by others {_SWAPS} times in a row", key=name)


def is_better(ours: Mapping[str, Any], standing: Mapping[str, Any]) -> bool:
    """Whether our record should replace the one that stands.

    One of another run, of an older drive, of another share, or no record at all gives way.
    Of the same share in the same drive, the one with fewer failures and more nodes counts,
    and the first of equals stays.
    """
    if any(standing.get(key) != ours.get(key) for key in ("spec", "run_id", "unit", "window", "dispatch")):
        return True
    started = str(standing.get("run_started")), str(ours.get("run_started"))
    if started[0] != started[1]:
        return started[0] < started[1]
    if set(_nodes(standing)) != set(_nodes(ours)):
        return len(_nodes(ours)) > len(_nodes(standing))
    return _failed(ours) < _failed(standing)


def _nodes(record: Mapping[str, Any]) -> Sequence[str]:
    nodes = record.get("nodes")
    return nodes if isinstance(nodes, list) else []


def _failed(record: Mapping[str, Any]) -> int:
    rows = record.get("stages")
    rows = rows if isinstance(rows, list) else []
    return sum(int(row.get("failed") or 0) + int(row.get("under_covered") or 0) for row in rows)


def describe(error: BaseException) -> tuple[str, str, str]:
    """``(class, kind, message)`` of an error, for a record."""
    if isinstance(error, SweepError):
        return type(error).__name__, error.kind, error.message
    return type(error).__name__, "unexpected", str(error) or type(error).__name__
