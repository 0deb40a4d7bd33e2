"""What a store is, and how far it is swept.

Source: format 2 (manifest); semantics 2.1 (leaves). Root objects are read in ``_roots``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sweep.artifacts.manifest_io import read_manifest
from sweep.control.discovery import DiscoveredLeaves, discover_leaves
from sweep.model.clock import Clock
from sweep.model.fields import DigestField, ExactField, Field, PackedField
from sweep.model.manifest import Manifest
from sweep.plan.planner import candidates
from sweep.read._roots import (
    CoverageInfo,
    LeaseInfo,
    SweepInfo,
    coverage_info,
    coverage_problems,
    lease_info,
    recent_sweeps,
)
from sweep.read._survey import Counts, LeafCounts, Survey, survey
from sweep.read.places import cell_km, windows_of
from sweep.store.open import StoreLike, StoreOptions, as_store
from sweep.system import SystemClock

__all__ = [
    "Counts",
    "CoverageInfo",
    "FieldInfo",
    "LeafCounts",
    "LeaseInfo",
    "LevelInfo",
    "StoreInfo",
    "SweepInfo",
    "store_info",
]

DEFAULT_LIMIT = 20_000
_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldInfo:
    """A field: its class, its law, and the arrays beside its own."""

    name: str
    field_class: Literal["exact", "approximate", "packed"]
    law: str
    dtype: str
    companions: tuple[str, ...] = ()
    of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelInfo:
    """One level above the shard, and its overviews by window.

    ``cell_km`` is the side of a square as large as a cell, ``n_cells`` the cells of a node.
    """

    node_order: int
    cell_order: int
    cell_km: float
    n_cells: int
    regime: str
    windows: tuple[Counts, ...]

    def total(self, counter: str) -> int:
        """One counter of :class:`~sweep.read._survey.Counts`, added over the windows."""
        return sum(getattr(counts, counter) for counts in self.windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """What one store is.

    Attributes
    ----------
    root : str
    spec : str or None
        Of the manifest, ``morton-hive/1`` or ``/2``.
    pyramid_spec : str
    name, version : str or None
        Of the dataset.
    shard_order, cell_order : int
    leaf_cells : tuple of int
        Resolutions of a leaf column, finest first.
    is_windowed : bool
    windows : tuple of str
        Labels of the recorded leaves.
    all_time : bool
        An all-time fold over the windows is declared.
    fields : tuple of FieldInfo
    levels : tuple of LevelInfo
        Finest first.
    leaves : LeafCounts
    sweeps : tuple of SweepInfo
        The last ones, newest first.
    lease : LeaseInfo or None
    coverage : CoverageInfo
    is_sample : bool
        Only part of the artifacts was opened.
    n_opened : int
        How many.
    problems : tuple of str
        What is damaged or out of step, at most some of each kind.
    """

    root: str
    spec: str | None
    pyramid_spec: str
    name: str | None
    version: str | None
    shard_order: int
    cell_order: int
    leaf_cells: tuple[int, ...]
    is_windowed: bool
    windows: tuple[str, ...]
    all_time: bool
    fields: tuple[FieldInfo, ...]
    levels: tuple[LevelInfo, ...]
    leaves: LeafCounts
    sweeps: tuple[SweepInfo, ...]
    lease: LeaseInfo | None
    coverage: CoverageInfo
    is_sample: bool
    n_opened: int
    problems: tuple[str, ...]

    def total(self, counter: str) -> int:
        """One counter of :class:`~sweep.read._survey.Counts`, added over levels and windows."""
        return sum(level.total(counter) for level in self.levels)

    @property
    def is_current(self) -> bool:
        """Whether every overview that was looked at stands and matches its leaves."""
        return not any(map(self.total, ("stale", "missing", "unreadable")))

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        return {**asdict(self), "is_current": self.is_current}


def store_info(
    store: StoreLike,
    *,
    options: StoreOptions | None = None,
    clock: Clock | None = None,
    deep: bool = False,
    limit: int = DEFAULT_LIMIT,
) -> StoreInfo:
    """Say what a store is. Reads only.

    Parameters
    ----------
    store : str, path or ObjectStore
        A folder, ``file://``, ``s3://bucket/prefix``, or a store that is open already.
    options : StoreOptions, optional
        How to reach an address on S3.
    clock : Clock, optional
        For the age of a heartbeat; the machine's own where None.
    deep : bool
        Open every artifact, however many there are.
    limit : int
        Otherwise about how many to open; a larger store is sampled by whole subtrees, and
        ``is_sample`` says so.

    Raises
    ------
    DeclarationError
        It is no store that a sweep reads (format 2.4).
    AccessError, StoreUnavailableError
        The store does not answer, or does not give its root objects.

    Notes
    -----
    Damage inside the store is counted and named in ``problems``, never raised. What *stale*
    sees, and what it cannot, is said in :mod:`sweep.read._survey`.
    """
    store = as_store(store, options)
    manifest = read_manifest(store)
    found = discover_leaves(store, manifest)
    coverage, covered = coverage_info(store, manifest, found.work.shards())
    windows = windows_of(manifest, found)
    surveyed = survey(
        store,
        manifest,
        work=found.work,
        shards=candidates(found.work, covered),
        windows=windows,
        limit=None if deep else limit,
    )
    sweeps, sweep_problems = recent_sweeps(store)
    lease, lease_problems = lease_info(store, clock or SystemClock())
    return StoreInfo(
        root=store.root,
        **_declared(manifest),
        windows=windows,
        levels=_levels(manifest, surveyed),
        leaves=surveyed.leaves,
        sweeps=sweeps,
        lease=lease,
        coverage=coverage,
        is_sample=surveyed.is_sample,
        n_opened=surveyed.n_opened,
        problems=tuple(
            text
            for group in (
                _record_problems(manifest, found),
                coverage_problems(coverage),
                sweep_problems,
                lease_problems,
                surveyed.problems,
            )
            for text in _some(group)
        ),
    )


def _some(problems: Sequence[str]) -> Iterator[str]:
    yield from problems[:_SHOWN]
    if len(problems) > _SHOWN:
        yield f"and {len(problems) - _SHOWN} more like this"


def _declared(manifest: Manifest) -> dict[str, Any]:
    dataset = manifest.document.get("dataset")
    version = dataset.get("version") if isinstance(dataset, Mapping) else None
    return {
        "spec": manifest.spec,
        "pyramid_spec": manifest.document["pyramid"]["spec"],
        "name": manifest.name,
        "version": version if version is None else str(version),
        "shard_order": manifest.shard_order,
        "cell_order": manifest.ladder.cell_order,
        "leaf_cells": manifest.ladder.leaf_members(),
        "is_windowed": manifest.is_windowed,
        "all_time": manifest.closes,
        "fields": tuple(map(_field, manifest.fields)),
    }


def _field(each: Field) -> FieldInfo:
    match each:
        case ExactField():
            return FieldInfo(name=each.name, field_class="exact", law=each.law, dtype=each.dtype.name)
        case PackedField():
            return FieldInfo(
                name=each.name, field_class="packed", law=each.method, dtype=each.dtype.name, of=each.of
            )
        case DigestField():
            return FieldInfo(
                name=each.name,
                field_class="approximate",
                law=each.method,
                dtype=each.dtype.name,
                companions=each.siblings(),
            )


def _levels(manifest: Manifest, surveyed: Survey) -> tuple[LevelInfo, ...]:
    return tuple(
        LevelInfo(
            node_order=level.node_order,
            cell_order=level.cell_order,
            cell_km=cell_km(level.cell_order),
            n_cells=level.n_cells,
            regime=manifest.ladder.regime(level),
            windows=counts,
        )
        for level, counts in surveyed.levels
    )


def _record_problems(manifest: Manifest, found: DiscoveredLeaves) -> list[str]:
    work = found.work
    problems = [f"run record not used: {text}" for text in found.skipped_records]
    problems += [
        f"recorded leaf {node} is not at the shard order {manifest.shard_order}" for node in work.skipped
    ]
    if manifest.is_windowed:
        strange = sorted(set(work.labels) - set(windows_of(manifest, found)))
        problems += [f"recorded window {label!r} cannot name a window" for label in strange]
    if work.is_empty:
        problems.append("no run record names a leaf: there is nothing to sweep")
    return problems
