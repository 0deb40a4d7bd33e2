"""The lease object: what it says, and what a run that wants the store makes of it. No I/O.

Source: format 10 (the object), semantics 9 (admission).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sweep.model.clock import parse_timestamp, timestamp
from sweep.model.json_text import loads, printable, root_json
from sweep.model.keys import LEASE

__all__ = [
    "DEFAULT_TTL_S",
    "LEASE_KEY",
    "LEASE_SPEC",
    "TOMBSTONE_SPEC",
    "Create",
    "Decision",
    "Holder",
    "Readmit",
    "Refuse",
    "TakeOver",
    "Tombstone",
    "decide",
    "encode",
    "fresh_fields",
    "load",
    "parse",
    "renewed_fields",
    "tombstone_fields",
]

LEASE_KEY = LEASE
LEASE_SPEC = "zagg-sweep-lease/1"
# Another spec than the lease's: every sweep reads such an object as debris that may be claimed.
TOMBSTONE_SPEC = "sweep-lease-released/1"
DEFAULT_TTL_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a store, as the lease object says it.

    Attributes
    ----------
    run_id : str
        Empty where the object names none.
    acquired_at, heartbeat_at : str
        As they stand in the object; a text that spells no time counts as expired.
    ttl_s : float
        Seconds that a heartbeat is good for.
    scope : tuple of str or None
        Decimals of the scope; informative.
    claimed_from : str or None
        The run from which this one took over.
    write_id : str or None
        Names the write; None for a lease of the reference.
    """

    run_id: str
    acquired_at: str
    heartbeat_at: str
    ttl_s: float
    scope: tuple[str, ...] | None = None
    claimed_from: str | None = None
    write_id: str | None = None

    def heartbeat_age_s(self, now: datetime) -> float | None:
        """Seconds since the heartbeat; None where it spells no time."""
        moment = parse_timestamp(self.heartbeat_at)
        return None if moment is None else (now - moment).total_seconds()

    def is_expired(self, now: datetime) -> bool:
        """Whether the heartbeat is older than the ttl, or spells no time."""
        age_s = self.heartbeat_age_s(now)
        return age_s is None or age_s > self.ttl_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """A lease that its run has given up and is about to delete."""

    run_id: str
    released_at: str
    write_id: str

    def age_s(self, now: datetime) -> float | None:
        """Seconds since the release; None where it spells no time."""
        moment = parse_timestamp(self.released_at)
        return None if moment is None else (now - moment).total_seconds()


@dataclass(frozen=True, slots=True)
class Create:
    """Nobody holds the store: create the object."""


@dataclass(frozen=True, slots=True)
class Readmit:
    """The object is this run's own."""

    holder: Holder


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The object is expired or debris: replace this version of it."""

    claimed_from: str | None


@dataclass(frozen=True, slots=True)
class Refuse:
    """Another run holds the store."""

    holder: Holder


type Decision = Create | Readmit | TakeOver | Refuse | Tombstone


def decide(data: bytes | None, run_id: str, now: datetime) -> Decision:
    """What ``run_id`` does about the lease object ``data`` (None: there is none).

    A :class:`Tombstone` is handed back: how long to wait for it is the caller's to say.

    Source: semantics 9 (acquire, expired).
    """
    if data is None:
        return Create()
    match parse(data):
        case None:
            return TakeOver(None)
        case Tombstone() as tombstone:
            return tombstone
        case Holder() as holder if holder.run_id == run_id:
            return Readmit(holder)
        case Holder() as holder:
            return TakeOver(holder.run_id or None) if holder.is_expired(now) else Refuse(holder)


def parse(data: bytes) -> Holder | Tombstone | None:
    """The holder or tombstone in ``data``; None for debris (bad JSON, no object, another spec)."""
    fields = load(data)
    if fields is None:
        return None
    if fields.get("spec") == TOMBSTONE_SPEC:
        return Tombstone(
            run_id=_text(fields.get("run_id")),
            released_at=_text(fields.get("released_at")),
            write_id=_text(fields.get("write_id")),
        )
    if fields.get("spec") != LEASE_SPEC:
        return None
    scope = fields.get("scope")
    return Holder(
        run_id=_text(fields.get("run_id")),
        acquired_at=_text(fields.get("acquired_at")),
        heartbeat_at=_text(fields.get("heartbeat_at")),
        ttl_s=_ttl_s(fields.get("ttl_s")),
        scope=tuple(printable(str(each)) for each in scope) if isinstance(scope, list) else None,
        claimed_from=_text(fields.get("claimed_from")) or None,
        write_id=_text(fields.get("write_id")) or None,
    )


def load(data: bytes) -> dict[str, Any] | None:
    """The JSON object in ``data``, or None where it holds none."""
    try:
        fields = loads(data)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def encode(fields: Mapping[str, Any]) -> bytes:
    """``fields`` as root objects are written (format 1.6)."""
    return root_json(fields)


def fresh_fields(
    *,
    run_id: str,
    scope: Sequence[str] | None,
    now: datetime,
    ttl_s: float,
    claimed_from: str | None,
    write_id: str,
) -> dict[str, Any]:
    """A new lease, in the key order of format 10; ``write_id`` is this package's own key."""
    fields: dict[str, Any] = {
        "spec": LEASE_SPEC,
        "run_id": run_id,
        "scope": None if scope is None else list(scope),
        "acquired_at": timestamp(now),
        "heartbeat_at": timestamp(now),
        "ttl_s": ttl_s,
    }
    if claimed_from is not None:
        fields["claimed_from"] = claimed_from
    return {**fields, "write_id": write_id}


def renewed_fields(fields: Mapping[str, Any], *, now: datetime, write_id: str) -> dict[str, Any]:
    """``fields`` with a new heartbeat and write id; every other key stays as and where it is."""
    return {**fields, "heartbeat_at": timestamp(now), "write_id": write_id}


def tombstone_fields(*, run_id: str, now: datetime, write_id: str) -> dict[str, Any]:
    """The object that stands between a release and its delete."""
    return {
        "spec": TOMBSTONE_SPEC,
        "run_id": run_id,
        "released_at": timestamp(now),
        "write_id": write_id,
    }


def _text(value: object) -> str:
    """A text as it can be printed; the object's own stays as it is in what is written again."""
    return printable(value) if isinstance(value, str) else ""


def _ttl_s(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value == 0:
        return DEFAULT_TTL_S
    try:
        return value if math.isfinite(value) else DEFAULT_TTL_S
    except OverflowError:
        return DEFAULT_TTL_S  # a whole number beyond every float
