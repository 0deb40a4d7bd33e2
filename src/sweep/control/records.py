"""Stage records and failure records: how workers answer.

A worker's answer is an object of a name that was known before it was asked. A record is
never replaced by an older or a poorer one, so that an event delivered twice changes
nothing.

Source: format 12; semantics 12.2-12.3.
"""

from __future__ import annotations

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
from sweep.model.json_text import loads, root_json
from sweep.model.nodes import is_decimal
from sweep.model.provenance import Actuals
from sweep.store.base import ObjectStore, Refused

__all__ = [
    "FINISHER",
    "Failure",
    "Reaction",
    "counted",
    "describe",
    "is_better",
    "json_object",
    "nodes_of",
    "parse_failure",
    "parse_stage_record",
    "put_stage_record",
    "reaction_to",
    "rows_of",
]

log = logging.getLogger(__name__)

type Reaction = Literal["retry", "split", "refused", "held", "stop"]
"""What a dispatcher does about a failure: fire again, fire smaller, give this batch up, or end the run."""

FINISHER = "finisher"
"""The unit that a failure of the finisher names."""

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
    document = json_object(raw)
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
    except (KeyError, TypeError, ValueError, OverflowError):
        return None  # another program's, or a cut one


def parse_stage_record(raw: bytes, run_id: str) -> Mapping[str, Any] | None:
    """A stage record of this run, or None for anything else."""
    document = json_object(raw)
    if (
        document.get("spec") != STAGE_RECORD_SPEC
        or document.get("role") != "stage"
        or document.get("run_id") != run_id
    ):
        return None
    return document


def json_object(raw: bytes) -> Mapping[str, Any]:
    """The JSON object that ``raw`` spells; an empty one where it spells none."""
    try:
        document = loads(raw)
    except ValueError:
        return {}
    return document if isinstance(document, Mapping) else {}


def put_stage_record(status: ObjectStore, name: str, record: Mapping[str, Any]) -> bool:
    """Put a record unless a newer or richer one stands under its name.

    Returns
    -------
    bool
        Whether this one stands there now.

    Raises
    ------
    AccessError, StoreUnavailableError
        The status prefix cannot be written: the record is the transport, so the worker fails.
    """
    data = root_json(record)
    for _ in range(_SWAPS):
        found = status.get_versioned(name)
        if found is not None and found.data == data:
            return True
        if found is not None and not is_better(record, json_object(found.data)):
            log.info("stage record kept", extra={"event": "record-kept", "key": name})
            return False
        if _swap(status, name, data, None if found is None else found.etag):
            return True
    raise StoreUnavailableError(f"{name} was rewritten by others {_SWAPS} times in a row", key=name)


def _swap(status: ObjectStore, name: str, data: bytes, etag: str | None) -> bool:
    """Whether the write is known to have taken place; what stands is read again where not."""
    try:
        if etag is None:
            return not isinstance(status.put_if_absent(name, data), Refused)
        return not isinstance(status.put_if_match(name, data, etag), Refused)
    except StoreUnavailableError as error:
        if error.kind != "answer-lost":
            raise
        return False


def is_better(ours: Mapping[str, Any], standing: Mapping[str, Any]) -> bool:
    """Whether our record should replace the one that stands.

    One of another run, of an older drive, of another share, or no record at all gives way.
    Of the same share in the same drive, the one with fewer failures and more nodes counts,
    and the first of equals stays.
    """
    if any(standing.get(key) != ours.get(key) for key in ("spec", "run_id", "unit", "window", "dispatch")):
        return True
    theirs, own = str(standing.get("run_started")), str(ours.get("run_started"))
    if theirs != own:
        return theirs < own
    if set(nodes_of(standing)) != set(nodes_of(ours)):
        return len(nodes_of(ours)) > len(nodes_of(standing))
    return _failed(ours) < _failed(standing)


def nodes_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The nodes that a stage record vouches for; none where it does not name them all."""
    nodes = record.get("nodes")
    is_sound = isinstance(nodes, list) and all(is_decimal(node) for node in nodes)
    return tuple(nodes) if isinstance(nodes, list) and is_sound else ()


def rows_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The stage rows of a record; what is no row is passed over."""
    rows = record.get("stages")
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def counted(row: Mapping[str, Any], key: str) -> int:
    """A counter of a stage row, 0 where it says none."""
    value = row.get(key)
    return value if isinstance(value, int) else 0


def _failed(record: Mapping[str, Any]) -> int:
    rows = rows_of(record)
    return sum(counted(row, "failed") for row in rows) + _n_short(record, rows)


def _n_short(record: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> int:
    """Artifacts that lack sources, whether written now or found current.

    A row counts those that were written: a double that finds them current would look better.
    """
    closes, levels = record.get("under_covered"), record.get("level_actuals")
    if not closes and not levels:
        return sum(counted(row, "under_covered") for row in rows)
    return len(Actuals.parse(levels).short()) + (len(closes) if isinstance(closes, Mapping) else 0)


def describe(error: BaseException) -> tuple[str, str, str]:
    """``(class, kind, message)`` of an error, for a record."""
    if isinstance(error, SweepError):
        return type(error).__name__, error.kind, error.message
    return type(error).__name__, "unexpected", str(error) or type(error).__name__
