"""The event that asks a worker for its share: a versionless wire contract.

One place builds and parses it. Keys, their order and their meaning are those of the
reference's dispatcher and worker, so that either side may be the peer's. What we add is
sent only where it is needed (``attempt`` from the second try on).

Source: semantics 12.1-12.3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sweep.errors import DeclarationError
from sweep.model._event_reader import EventReader

__all__ = [
    "FAILURE_SPEC",
    "STAGE_RECORD_SPEC",
    "Credentials",
    "FinisherInvocation",
    "Invocation",
    "Leaves",
    "StageInvocation",
    "credentials_of",
    "failure_name",
    "finisher_failure_name",
    "finisher_name",
    "parse_event",
    "partial_name",
    "record_name",
    "serialise",
    "status_prefix",
]

type Ref = tuple[int, str | None]
type Leaves = tuple[Ref, ...] | None
"""Inline refs, or None for ``discover: true``."""

STAGE_RECORD_SPEC = "zagg-sweep-stage-record/1"
FAILURE_SPEC = "sweep-failure-record/1"


def status_prefix(root: str, run_id: str) -> str:
    """Where a run's records lie: beside the store, not in it."""
    return f"{root.rstrip('/')}.status/run-{run_id}"


def record_name(dispatch: int, batch: int) -> str:
    """The stage record of a batch."""
    return f"stage-{dispatch:02d}-{batch:04d}.json"


def partial_name(dispatch: int, batch: int, attempt: int) -> str:
    """The stage record of an attempt that did a part of its batch.

    It is not the batch's own name, on which a barrier waits: a finisher, ours or the
    reference's, reads it like every other stage record.
    """
    return f"stage-{dispatch:02d}-{batch:04d}-part{attempt}.json"


def failure_name(dispatch: int, batch: int, attempt: int) -> str:
    """The failure record of one attempt at a batch."""
    return f"error-{dispatch:02d}-{batch:04d}-{attempt}.json"


def finisher_failure_name(attempt: int) -> str:
    """The failure record of one attempt at finishing."""
    return f"error-finisher-{attempt}.json"


def finisher_name() -> str:
    """The last object of a fleet run."""
    return "finisher.json"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Credentials:
    """Keys for the output store, as an event carries them; never shown."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None
    endpoint_url: str | None = None
    region: str | None = None

    def __repr__(self) -> str:
        return "Credentials(...)"

    def to_json(self) -> dict[str, str]:
        pairs = {
            "accessKeyId": self.access_key_id,
            "secretAccessKey": self.secret_access_key,
            "sessionToken": self.session_token,
            "endpointUrl": self.endpoint_url,
            "region": self.region,
        }
        return {key: value for key, value in pairs.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInvocation:
    """Fold dispatch nodes of one tuple: whole, one window of them, or their close.

    ``unit`` is None (whole nodes), ``"window"`` or ``"close"``; ``attempt`` counts from 1.
    """

    store_path: str
    run_id: str
    run_started: str
    dispatch: int
    tuple_width: int
    child_order: int | None
    records_from: str
    nodes: tuple[str, ...]
    batch: int
    leaves: Leaves
    unit: Literal["window", "close"] | None = None
    window: str | None = None
    pipeline_run_id: str | None = None
    lease_ttl_s: int | None = None
    families: tuple[str, ...] = ()
    partition: Mapping[str, int] | None = None
    dirt_only: tuple[Ref, ...] = ()
    attempt: int = 1
    credentials: Credentials | None = None

    @property
    def where(self) -> str:
        """Run, dispatch order and batch, as every message about it begins."""
        return f"run {self.run_id}, dispatch order {self.dispatch}, batch {self.batch}"

    def to_json(self) -> dict[str, Any]:
        """The event, keys in wire order."""
        stage: dict[str, Any] = {
            "role": "stage",
            "run_id": self.run_id,
            "run_started": self.run_started,
            "dispatch": self.dispatch,
            "tuple_width": self.tuple_width,
        }
        if self.child_order is not None:
            stage["child_order"] = self.child_order
        stage["records_from"] = self.records_from
        stage |= _optional(self.pipeline_run_id, self.lease_ttl_s)
        if self.families:
            stage["families"] = list(self.families)
        if self.unit is not None:
            stage["unit"] = self.unit
        if self.window is not None:
            stage["window"] = self.window
        stage["nodes"] = list(self.nodes)
        stage["batch"] = self.batch
        if self.partition is not None:
            stage["partition"] = dict(self.partition)
        if self.attempt > 1:
            stage["attempt"] = self.attempt
        return _event(self.store_path, stage, self.credentials, self.leaves, self.dirt_only)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinisherInvocation:
    """Write the root objects of a run and end it."""

    store_path: str
    run_id: str
    records_from: str
    touch_policy: str
    barrier_timed_out: bool
    short_orders: tuple[int, ...]
    leaves: Leaves
    pipeline_run_id: str | None = None
    lease_ttl_s: int | None = None
    dirt_only: tuple[Ref, ...] = ()
    attempt: int = 1
    credentials: Credentials | None = None

    @property
    def where(self) -> str:
        return f"run {self.run_id}, finisher"

    def to_json(self) -> dict[str, Any]:
        """The event, keys in wire order."""
        stage: dict[str, Any] = {
            "role": "finisher",
            "run_id": self.run_id,
            "records_from": self.records_from,
            "touch_policy": self.touch_policy,
            "barrier_timed_out": self.barrier_timed_out,
            "short_orders": list(self.short_orders),
            **_optional(self.pipeline_run_id, self.lease_ttl_s),
        }
        if self.attempt > 1:
            stage["attempt"] = self.attempt
        return _event(self.store_path, stage, self.credentials, self.leaves, self.dirt_only)


type Invocation = StageInvocation | FinisherInvocation


def serialise(invocation: Invocation) -> bytes:
    """The event as it goes over the wire; its length is what payload limits measure."""
    return json.dumps(invocation.to_json()).encode()


def _optional(pipeline_run_id: str | None, lease_ttl_s: int | None) -> dict[str, Any]:
    pairs = {"pipeline_run_id": pipeline_run_id, "lease_ttl_s": lease_ttl_s}
    return {key: value for key, value in pairs.items() if value is not None}


def _event(
    store_path: str,
    stage: dict[str, Any],
    credentials: Credentials | None,
    leaves: Leaves,
    dirt_only: Sequence[Ref],
) -> dict[str, Any]:
    event: dict[str, Any] = {"mode": "sweep", "store_path": store_path, "stage": stage}
    if credentials is not None:
        event["output_credentials"] = credentials.to_json()
    if leaves is None:
        event["discover"] = True
    else:
        event["leaves"] = leaves  # JSON writes tuples as lists; a copy of a million refs is felt
    if dirt_only:
        event["dirt_only"] = tuple(dirt_only)
    return event


# -- parsing ------------------------------------------------------------------------------


def parse_event(event: Any) -> Invocation:
    """Read an event and refuse, by name, what cannot be done. Unknown keys are passed over.

    Raises
    ------
    DeclarationError
        Carries every problem found; its ``run_id``, ``dispatch``, ``batch`` and
        ``records_from`` stand in the context as far as they could be read.
    """
    if not isinstance(event, Mapping):
        raise DeclarationError(f"event is of type {type(event).__name__}, expected an object", kind="event")
    reader = EventReader(event)
    role = reader.stage.get("role")
    invocation: Invocation | None = None
    if event.get("mode") != "sweep":
        reader.problem(f"mode {event.get('mode')!r}, expected 'sweep'")
    elif role == "stage":
        invocation = _read_stage(reader)
    elif role == "finisher":
        invocation = _read_finisher(reader)
    else:
        reader.problem(f"stage.role {role!r}, expected 'stage' or 'finisher'")
    if reader.problems or invocation is None:
        raise DeclarationError.of(reader.where(), reader.problems, kind="event", **reader.context())
    return invocation


def credentials_of(event: Any) -> Credentials | None:
    """The credentials of an event that may be of no use otherwise, or None."""
    return _read_credentials(EventReader(event)) if isinstance(event, Mapping) else None


def _read_stage(reader: EventReader) -> StageInvocation:
    unit, window = reader.stage.get("unit"), reader.stage.get("window")
    _check_unit(reader, unit, window)
    dispatch = reader.whole("dispatch", 0)
    return StageInvocation(
        store_path=reader.root(),
        run_id=reader.text("run_id"),
        run_started=reader.text("run_started"),
        dispatch=dispatch,
        tuple_width=reader.whole("tuple_width", 1, default=3),
        child_order=reader.optional_whole("child_order", 0),
        records_from=reader.text("records_from"),
        nodes=reader.nodes(dispatch),
        batch=reader.whole("batch", 0, default=0),
        leaves=_read_leaves(reader),
        unit=unit,
        window=window,
        pipeline_run_id=reader.optional_text("pipeline_run_id"),
        lease_ttl_s=reader.optional_whole("lease_ttl_s", 1),
        families=reader.texts("families"),
        partition=reader.partition(),
        dirt_only=reader.refs("dirt_only"),
        attempt=reader.whole("attempt", 1, default=1),
        credentials=_read_credentials(reader),
    )


def _read_finisher(reader: EventReader) -> FinisherInvocation:
    return FinisherInvocation(
        store_path=reader.root(),
        run_id=reader.text("run_id"),
        records_from=reader.text("records_from"),
        touch_policy=reader.optional_text("touch_policy") or "auto",
        barrier_timed_out=reader.flag("barrier_timed_out"),
        short_orders=reader.orders("short_orders"),
        leaves=_read_leaves(reader),
        pipeline_run_id=reader.optional_text("pipeline_run_id"),
        lease_ttl_s=reader.optional_whole("lease_ttl_s", 1),
        dirt_only=reader.refs("dirt_only"),
        attempt=reader.whole("attempt", 1, default=1),
        credentials=_read_credentials(reader),
    )


def _check_unit(reader: EventReader, unit: Any, window: Any) -> None:
    if unit not in (None, "window", "close"):
        reader.problem(f"unknown unit {unit!r} (window {window!r}), expected 'window' or 'close'")
    elif unit == "window" and not isinstance(window, str):
        reader.problem(f"unit 'window' names no window ({window!r})")
    elif unit != "window" and window is not None:
        reader.problem(f"window {window!r} is given, but the unit is {unit!r}, not 'window'")


def _read_leaves(reader: EventReader) -> Leaves:
    """The work set; an empty list is an empty work set, and only no list at all means discovery."""
    return None if reader.event.get("leaves") is None else reader.refs("leaves")


def _read_credentials(reader: EventReader) -> Credentials | None:
    """Values are never shown, not even those that are refused."""
    block = reader.event.get("output_credentials")
    if block is None:
        return None
    if not isinstance(block, Mapping):
        reader.problem("output_credentials is no object")
        return None
    missing = [key for key in ("accessKeyId", "secretAccessKey") if not block.get(key)]
    if missing:
        reader.problem(f"output_credentials lacks {', '.join(missing)}")
        return None
    keys = ("accessKeyId", "secretAccessKey", "sessionToken", "endpointUrl", "region")
    strange = [key for key in keys if not isinstance(block.get(key), str | None)]
    if strange:
        reader.problem(f"output_credentials: {', '.join(strange)} is no text")
        return None
    return Credentials(
        access_key_id=block["accessKeyId"],
        secret_access_key=block["secretAccessKey"],
        session_token=block.get("sessionToken"),
        endpoint_url=block.get("endpointUrl"),
        region=block.get("region"),
    )
