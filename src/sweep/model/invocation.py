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
from sweep.model.nodes import order_of, word_of

__all__ = [
    "FAILURE_SPEC",
    "STAGE_RECORD_SPEC",
    "Credentials",
    "FinisherInvocation",
    "Invocation",
    "Leaves",
    "StageInvocation",
    "failure_name",
    "finisher_name",
    "parse_event",
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


def failure_name(dispatch: int, batch: int, attempt: int) -> str:
    """The failure record of one attempt at a batch."""
    return f"error-{dispatch:02d}-{batch:04d}-{attempt}.json"


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
        event["leaves"] = [list(ref) for ref in leaves]
    if dirt_only:
        event["dirt_only"] = [list(ref) for ref in dirt_only]
    return event


# -- parsing ------------------------------------------------------------------------------


def parse_event(event: Any) -> Invocation:
    """Read an event and refuse, by name, what cannot be done.

    Raises
    ------
    DeclarationError
        Carries every problem found; its ``run_id``, ``dispatch``, ``batch`` and
        ``records_from`` stand in the context as far as they could be read.
    """
    if not isinstance(event, Mapping):
        raise DeclarationError(f"event is of type {type(event).__name__}, expected an object", kind="event")
    stage = event.get("stage")
    stage = stage if isinstance(stage, Mapping) else {}
    reader = _Reader(event, stage)
    role = stage.get("role")
    if event.get("mode") != "sweep":
        reader.problem(f"mode {event.get('mode')!r}, expected 'sweep'")
    elif role not in ("stage", "finisher"):
        reader.problem(f"stage.role {role!r}, expected 'stage' or 'finisher'")
    invocation = None if reader.problems else (reader.stage() if role == "stage" else reader.finisher())
    if reader.problems or invocation is None:
        raise DeclarationError.of(reader.where(), reader.problems, kind="event", **reader.context())
    return invocation


class _Reader:
    """Reads typed values out of an event and gathers what is wrong."""

    def __init__(self, event: Mapping[str, Any], stage: Mapping[str, Any]) -> None:
        self._event = event
        self._stage = stage
        self.problems: list[str] = []

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def where(self) -> str:
        stage = self._stage
        role = "finisher" if stage.get("role") == "finisher" else "stage"
        if role == "finisher":
            return f"finisher event of run {stage.get('run_id')!r}"
        return (
            f"stage event of run {stage.get('run_id')!r}, dispatch order {stage.get('dispatch')!r}, "
            f"batch {stage.get('batch')!r}"
        )

    def context(self) -> dict[str, Any]:
        keys = ("role", "run_id", "dispatch", "batch", "attempt", "records_from")
        return {key: self._stage[key] for key in keys if isinstance(self._stage.get(key), str | int)} | {
            "store_path": self._event.get("store_path")
        }

    def stage(self) -> StageInvocation:
        stage = self._stage
        unit, window = stage.get("unit"), stage.get("window")
        self._check_unit(unit, window)
        dispatch = self._whole("dispatch", 0)
        nodes = self._nodes(dispatch)
        partition = stage.get("partition")
        return StageInvocation(
            store_path=self._text(self._event, "store_path"),
            run_id=self._text(stage, "run_id"),
            run_started=self._text(stage, "run_started"),
            dispatch=dispatch,
            tuple_width=self._whole("tuple_width", 1, default=3),
            child_order=self._whole("child_order", 0) if stage.get("child_order") is not None else None,
            records_from=self._text(stage, "records_from"),
            nodes=nodes,
            batch=self._whole("batch", 0, default=0),
            leaves=self._leaves(),
            unit=unit,
            window=window,
            pipeline_run_id=stage.get("pipeline_run_id"),
            lease_ttl_s=self._whole("lease_ttl_s", 1) if stage.get("lease_ttl_s") is not None else None,
            families=tuple(map(str, stage.get("families") or ())),
            partition=partition if isinstance(partition, Mapping) else None,
            dirt_only=self._refs("dirt_only"),
            attempt=self._whole("attempt", 1, default=1),
            credentials=self._credentials(),
        )

    def finisher(self) -> FinisherInvocation:
        stage = self._stage
        orders = stage.get("short_orders") or []
        if not isinstance(orders, list) or not all(isinstance(order, int) for order in orders):
            self.problem(f"short_orders {orders!r}, expected a list of orders")
            orders = []
        return FinisherInvocation(
            store_path=self._text(self._event, "store_path"),
            run_id=self._text(stage, "run_id"),
            records_from=self._text(stage, "records_from"),
            touch_policy=str(stage.get("touch_policy", "auto")),
            barrier_timed_out=bool(stage.get("barrier_timed_out", False)),
            short_orders=tuple(orders),
            leaves=self._leaves(),
            pipeline_run_id=stage.get("pipeline_run_id"),
            lease_ttl_s=self._whole("lease_ttl_s", 1) if stage.get("lease_ttl_s") is not None else None,
            dirt_only=self._refs("dirt_only"),
            attempt=self._whole("attempt", 1, default=1),
            credentials=self._credentials(),
        )

    def _check_unit(self, unit: Any, window: Any) -> None:
        if unit not in (None, "window", "close"):
            self.problem(f"unknown unit {unit!r}, expected 'window' or 'close'")
        elif unit == "window" and not isinstance(window, str):
            self.problem("unit 'window' names no window")
        elif unit != "window" and window is not None:
            self.problem(f"window {window!r} is given, but the unit is {unit!r}, not 'window'")

    def _text(self, block: Mapping[str, Any], key: str) -> str:
        value = block.get(key)
        if isinstance(value, str) and value:
            return value
        self.problem(f"no {key} ({value!r}): expected text")
        return ""

    def _whole(self, key: str, least: int, default: int | None = None) -> int:
        value = self._stage.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        self.problem(f"{key} {value!r}, expected a whole number of at least {least}")
        return least

    def _nodes(self, dispatch: int) -> tuple[str, ...]:
        nodes = self._stage.get("nodes")
        if not isinstance(nodes, list) or not nodes:
            self.problem(f"nodes is {nodes!r}: an empty node set has nothing to fold")
            return ()
        bad, off = [], []
        for node in nodes:
            try:
                word_of(node)
            except DeclarationError:
                bad.append(node)
            else:
                if order_of(node) != dispatch:
                    off.append(f"{node} (order {order_of(node)})")
        if bad:
            self.problem(f"nodes {', '.join(map(repr, bad))} are no decimals")
        if off:
            self.problem(f"nodes off the dispatch order {dispatch}: {', '.join(off)}")
        return tuple(node for node in nodes if isinstance(node, str))

    def _leaves(self) -> Leaves:
        if "leaves" not in self._event:
            return None
        return self._refs("leaves")

    def _refs(self, key: str) -> tuple[Ref, ...]:
        refs = self._event.get(key) or []
        if not isinstance(refs, list):
            self.problem(f"{key} is of type {type(refs).__name__}, expected a list of [word, window]")
            return ()
        try:
            return tuple(_ref(ref) for ref in refs)
        except DeclarationError as error:
            self.problem(f"{key}: {error.message}")
            return ()

    def _credentials(self) -> Credentials | None:
        block = self._event.get("output_credentials")
        if block is None:
            return None
        if not isinstance(block, Mapping):
            self.problem("output_credentials is no object")
            return None
        missing = [key for key in ("accessKeyId", "secretAccessKey") if not block.get(key)]
        if missing:
            self.problem(f"output_credentials lacks {', '.join(missing)}")
            return None
        return Credentials(
            access_key_id=str(block["accessKeyId"]),
            secret_access_key=str(block["secretAccessKey"]),
            session_token=block.get("sessionToken"),
            endpoint_url=block.get("endpointUrl"),
            region=block.get("region"),
        )


def _ref(ref: Any) -> Ref:
    if isinstance(ref, list | tuple) and len(ref) == 2:
        word, window = ref
        if (
            isinstance(word, int)
            and not isinstance(word, bool)
            and (window is None or isinstance(window, str))
        ):
            return word, window
    raise DeclarationError(f"{ref!r} is no [word, window] pair", kind="leaf-ref")
