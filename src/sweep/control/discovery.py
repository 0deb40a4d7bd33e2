"""Finding the leaves of a store from its run records.

Discovery lists the root once and never walks the tree.

Source: semantics 2.1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweep.control.run_records import RecordedLeaves, read_run_record
from sweep.errors import ArtifactError, DeclarationError
from sweep.model.keys import is_run_record
from sweep.model.manifest import Manifest
from sweep.model.nodes import Words, checked_words, decimals_of, path_of
from sweep.plan.leaves import NO_WINDOW, Ref, WindowCodes, WorkSet, work_set, work_set_of_arrays
from sweep.plan.runs import sorted_distinct
from sweep.store.base import ObjectStore
from sweep.store.io import map_calls

__all__ = ["DiscoveredLeaves", "discover_leaves", "find_work"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiscoveredLeaves:
    """The work set that the run records give, and the records that could not be used."""

    work: WorkSet
    skipped_records: tuple[str, ...]


def discover_leaves(store: ObjectStore, manifest: Manifest) -> DiscoveredLeaves:
    """Every leaf that a run record of the store vouches for.

    Raises
    ------
    AccessError, StoreUnavailableError
        The root cannot be listed, or a record not be read.
    """
    names = sorted(info.key for info in store.list_dir("").objects if is_run_record(info.key))
    words: list[Words] = []
    windows: list[WindowCodes] = []
    skipped: list[str] = []
    inexact = 0
    for name, data in zip(names, map_calls(store, store.get, names), strict=True):
        try:
            record = read_run_record(data) if data is not None else None
            if record is not None:
                checked_words(record.words)
        except (ArtifactError, DeclarationError) as error:
            log.warning(
                "run record skipped", extra={"event": "run-record-skipped", "key": name, "why": error.message}
            )
            skipped.append(f"{name}: {error.message}")
            continue
        if record is not None:
            inexact += record.inexact
            found, codes = _leaves(store, manifest, record)
            words.append(found)
            windows.append(codes)
    if inexact:
        log.warning("shard keys stored as floats skipped", extra={"event": "inexact-keys", "n_keys": inexact})
    all_words = np.concatenate(words) if words else np.empty(0, dtype=np.uint64)
    work = work_set_of_arrays(all_words, _joined(windows), manifest.shard_order)
    return DiscoveredLeaves(work=work, skipped_records=tuple(skipped))


def find_work(
    store: ObjectStore,
    manifest: Manifest,
    leaves: Iterable[Ref | int] | None,
    *,
    dirt_only: Iterable[Ref | int] = (),
) -> WorkSet:
    """The work set that is asked for; where ``leaves`` is None, what the run records give.

    Raises as :func:`discover_leaves` and :func:`sweep.plan.leaves.work_set`.
    """
    if leaves is None:
        return discover_leaves(store, manifest).work
    return work_set(leaves, manifest.shard_order, dirt_only=dirt_only)


def _joined(parts: list[WindowCodes]) -> WindowCodes | None:
    """The windows of several columns behind one another; None where there is none."""
    labels: list[str] = []
    codes: list[NDArray[np.int32]] = []
    for part in parts:
        codes.append(np.where(part.codes < 0, NO_WINDOW, part.codes + len(labels)).astype(np.int32))
        labels += part.labels
    return WindowCodes(codes=np.concatenate(codes), labels=tuple(labels)) if labels else None


def _leaves(store: ObjectStore, manifest: Manifest, record: RecordedLeaves) -> tuple[Words, WindowCodes]:
    if record.codes is not None:
        return record.words, record.codes
    if not manifest.is_windowed:
        none = np.full(len(record.words), NO_WINDOW, dtype=np.int32)
        return record.words, WindowCodes(codes=none, labels=())
    shards = sorted_distinct(record.words)
    code_of: dict[str | None, int] = {None: NO_WINDOW}
    listed = map_calls(store, lambda node: _windows_at(store, manifest, node), decimals_of(shards))
    codes = [code_of.setdefault(label, len(code_of) - 1) for windows in listed for label in windows]
    labels = tuple(label for label in code_of if label is not None)
    counts = np.array([len(windows) for windows in listed], dtype=np.int64)
    return np.repeat(shards, counts), WindowCodes(codes=np.array(codes, dtype=np.int32), labels=labels)


def _windows_at(store: ObjectStore, manifest: Manifest, node: str) -> list[str | None]:
    """The windows whose stats sidecar stands in a shard's directory."""
    names = [info.key.rsplit("/", 1)[-1] for info in store.list_dir(path_of(node)).objects]
    labels: set[str | None] = set()
    for name in names:
        if manifest.spec == "morton-hive/3":
            if name.endswith(".stats.json") and not name.endswith(".pyramid.stats.json"):
                labels.add(name.removesuffix(".stats.json"))
        elif name == "stats.json":
            labels.add(None)
        elif name.startswith("stats_") and name.endswith(".json"):
            labels.add(name.removeprefix("stats_").removesuffix(".json"))
    return sorted(labels, key=lambda label: (label is not None, label or ""))
