"""Finding the leaves of a store from its run records.

Discovery lists the root once and never walks the tree.

Source: semantics 2.1.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from sweep.control.run_records import RecordedLeaves, read_run_record
from sweep.errors import ArtifactError, DeclarationError
from sweep.model.keys import is_run_record
from sweep.model.manifest import Manifest
from sweep.model.nodes import Words, checked_words, decimals_of, path_of
from sweep.plan.leaves import WorkSet, work_set_of_arrays
from sweep.plan.runs import sorted_distinct
from sweep.store.base import ObjectStore
from sweep.store.io import map_calls

__all__ = ["DiscoveredLeaves", "discover_leaves"]

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
    windows: list[str | None] = []
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
            found, labels = _leaves(store, manifest, record)
            words.append(found)
            windows += labels
    if inexact:
        log.warning("shard keys stored as floats skipped", extra={"event": "inexact-keys", "n_keys": inexact})
    all_words = np.concatenate(words) if words else np.empty(0, dtype=np.uint64)
    has_windows = any(label is not None for label in windows)
    work = work_set_of_arrays(all_words, windows if has_windows else None, manifest.shard_order)
    return DiscoveredLeaves(work=work, skipped_records=tuple(skipped))


def _leaves(store: ObjectStore, manifest: Manifest, record: RecordedLeaves) -> tuple[Words, list[str | None]]:
    if record.windows is not None:
        return record.words, list(record.windows)
    if not manifest.is_windowed:
        return record.words, [None] * len(record.words)
    shards = sorted_distinct(record.words)
    found: list[int] = []
    labels: list[str | None] = []
    listed = map_calls(store, lambda node: _windows_at(store, manifest, node), decimals_of(shards))
    for word, windows in zip(shards.tolist(), listed, strict=True):
        found += [word] * len(windows)
        labels += windows
    return np.array(found, dtype=np.uint64), labels


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
