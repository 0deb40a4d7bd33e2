"""What the root objects of a store tell: its coverage, its lease, and the sweeps before now.

Source: format 8 (coverage), 10 (lease), 11 (run record).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sweep.artifacts.coverage import read_coverage
from sweep.control.lease_object import LEASE_KEY, Holder, Tombstone, parse
from sweep.model.clock import Clock
from sweep.model.json_text import loads
from sweep.model.keys import COVERAGE
from sweep.model.manifest import Manifest
from sweep.model.nodes import Words
from sweep.plan.runs import is_member
from sweep.store.base import ObjectStore
from sweep.store.io import map_calls

__all__ = [
    "CoverageInfo",
    "LeaseInfo",
    "SweepInfo",
    "coverage_info",
    "coverage_problems",
    "lease_info",
    "recent_sweeps",
]

_RECENT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepInfo:
    """One sweep as its run record tells it; ``finished_at`` is the clock in the record's name."""

    key: str
    run_id: str
    finished_at: str
    n_leaves: int
    written: int
    failed: int
    under_covered: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseInfo:
    """Who holds the store; ``heartbeat_age_s`` is None where the heartbeat spells no time."""

    run_id: str
    acquired_at: str
    heartbeat_at: str
    heartbeat_age_s: float | None
    ttl_s: float
    is_expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageInfo:
    """The root coverage: usable, absent or unusable.

    ``n_unrecorded`` counts its shards that no run record names, ``n_uncovered`` the recorded
    shards that it lacks.
    """

    state: Literal["usable", "absent", "unusable"]
    n_shards: int = 0
    n_unrecorded: int = 0
    n_uncovered: int = 0
    generated_at: str | None = None
    source: str | None = None


def coverage_info(store: ObjectStore, manifest: Manifest, recorded: Words) -> tuple[CoverageInfo, Words]:
    """The root coverage beside the recorded shards, and the shards that it holds."""
    raw = store.get(COVERAGE)
    coverage = read_coverage(raw, manifest.shard_order)
    if coverage is None:
        return CoverageInfo(state="absent" if raw is None else "unusable"), recorded[:0]
    texts = {key: coverage.document.get(key) for key in ("generated_at", "source")}
    info = CoverageInfo(
        state="usable",
        n_shards=len(coverage.words),
        n_unrecorded=int((~is_member(coverage.words, recorded)).sum()),
        n_uncovered=int((~is_member(recorded, coverage.words)).sum()),
        **{key: value if isinstance(value, str) else None for key, value in texts.items()},
    )
    return info, coverage.words


def coverage_problems(coverage: CoverageInfo) -> list[str]:
    """What is wrong with the root coverage, and what mends it."""
    if coverage.state == "unusable":
        return [f"{COVERAGE} cannot be used: sweep the store again to write it afresh"]
    if coverage.n_uncovered:
        return [f"{COVERAGE} lacks {coverage.n_uncovered} recorded shards: sweep the store to add them"]
    return []


def lease_info(store: ObjectStore, clock: Clock) -> tuple[LeaseInfo | None, list[str]]:
    """Who holds the store, and what is wrong with the lease object."""
    raw = store.get(LEASE_KEY)
    if raw is None:
        return None, []
    now = clock.now()
    match parse(raw):
        case Holder() as holder:
            lease = LeaseInfo(
                run_id=holder.run_id,
                acquired_at=holder.acquired_at,
                heartbeat_at=holder.heartbeat_at,
                heartbeat_age_s=holder.heartbeat_age_s(now),
                ttl_s=holder.ttl_s,
                is_expired=holder.is_expired(now),
            )
            expired = f"the lease of run {holder.run_id} has expired: the next sweep takes the store over"
            return lease, [expired] if lease.is_expired else []
        case Tombstone():
            return None, []
        case _:
            return None, [f"{LEASE_KEY} is no lease: the next sweep replaces it"]


def recent_sweeps(store: ObjectStore) -> tuple[tuple[SweepInfo, ...], list[str]]:
    """The last sweeps, newest first, and what is wrong with their records."""
    names = sorted(
        (
            info.key
            for info in store.list_dir("").objects
            if info.key.startswith("sweep_stats_") and info.key.endswith("_stages.json")
        ),
        reverse=True,
    )[:_RECENT]
    sweeps: list[SweepInfo] = []
    problems: list[str] = []
    for name, raw in zip(names, map_calls(store, store.get, names), strict=True):
        record = _json_object(raw)
        if record is None:
            problems.append(f"{name} is no run record: it is torn or was written by something else")
            continue
        sweep = _sweep(name, record)
        sweeps.append(sweep)
        if sweep is sweeps[0] and (sweep.failed or sweep.error):
            why = sweep.error or f"{sweep.failed} failed"
            problems.append(f"the last sweep, {sweep.run_id}, did not end well: {why}; see {name}")
    return tuple(sweeps), problems


def _json_object(raw: bytes | None) -> Mapping[str, Any] | None:
    try:
        value = loads(raw or b"")
    except ValueError:
        return None
    return value if isinstance(value, Mapping) else None


def _sweep(key: str, record: Mapping[str, Any]) -> SweepInfo:
    rows = record.get("stages")
    stages = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    totals = {name: sum(_whole(row.get(name)) for row in stages) for name in _COUNTED}
    error = record.get("error")
    return SweepInfo(
        key=key,
        run_id=str(record.get("run_id") or ""),
        finished_at=key.removeprefix("sweep_stats_").removesuffix("_stages.json"),
        n_leaves=_whole(record.get("n_leaves")),
        written=totals["written"],
        failed=totals["failed"],
        under_covered=totals["under_covered"],
        error=None if error is None else str(error),
    )


_COUNTED = ("written", "failed", "under_covered")


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
