"""Artifacts as sources of a fold: their states, their stamps, what they record.

A source is opened by one read of its root document.

Source: format 3.4 (states); semantics 7.1, 8.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.artifacts.codecs import ShardIndex
from sweep.artifacts.layout import ArrayLayout
from sweep.errors import AccessError, ForeignWriteError
from sweep.fold.level import Cells, LevelData
from sweep.model.json_text import loads
from sweep.model.provenance import Generation, generation_of
from sweep.store.base import ObjectStore
from sweep.store.io import map_calls

__all__ = [
    "STAMP",
    "BlockRequest",
    "ForeignGuard",
    "Missing",
    "Opened",
    "Source",
    "StoredSource",
    "Unreadable",
    "open_sources",
    "parse_root",
    "root_parts",
]

STAMP = "morton_hive_commit"
"""The attribute that makes an artifact real."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignGuard:
    """Tells stamps that another run wrote after this one started.

    ``run_started`` is the run's first clock after admission, as text.
    """

    run_id: str
    run_started: str

    def check(self, key: str, stamp: Mapping[str, Any]) -> None:
        """Raise ForeignWriteError for a stamp of another run that is newer than our start."""
        run_id, written_at = stamp.get("run_id"), stamp.get("written_at")
        if not isinstance(run_id, str) or run_id == self.run_id:
            return
        if isinstance(written_at, str) and written_at > self.run_started:
            raise ForeignWriteError(
                f"{key} was stamped by run {run_id} at {written_at}, after this run ({self.run_id}) started "
                f"at {self.run_started}: two sweeps are writing this store; stop the other one, then sweep "
                "again",
                key=key,
                run_id=run_id,
            )


@dataclass(frozen=True, slots=True)
class Missing:
    """Nothing committed stands under the key."""

    key: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The root document is there and cannot be used."""

    key: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Source:
    """What feeds a fold: an artifact on the store, or one that was just folded.

    ``block`` is the provenance block (``zagg_column`` or ``zagg_overview``).
    """

    key: str
    stamp: Mapping[str, Any]
    block: Mapping[str, Any]
    data: LevelData | None = None

    def generation(self) -> Generation:
        """What the source contributes to the generation of an artifact above it."""
        return generation_of(self.block.get("generation"), self.stamp)

    @property
    def granules(self) -> int:
        """The granules that its stamp counts; 0 where it counts none."""
        count = self.stamp.get("granule_count")
        return count if isinstance(count, int) else 0

    @property
    def merges_from_raw(self) -> int:
        """The depth that an overview records; 1 where it records none."""
        return _whole(self.block.get("merges_from_raw"))

    def member_depth(self, cell_order: int) -> int:
        """The depth that a column records for one of its groups; 1 where it records none."""
        groups = self.block.get("groups")
        group = groups.get(str(cell_order)) if isinstance(groups, Mapping) else None
        return _whole(group.get("merges_from_raw")) if isinstance(group, Mapping) else 1


@dataclass(slots=True, kw_only=True)
class StoredSource(Source):
    """A committed artifact on the store, read under its stamp.

    ``layouts`` holds what was parsed, by array path. ``straddling`` holds, by array path, the last
    chunk that was decoded where the rest of it is still to be asked for, with its number; folds
    ask in ascending blocks, and a chunk can be longer than a block. ``indexes`` holds the index
    of each shard that was read in parts, by key.
    """

    block_name: str
    document: bytes
    layouts: dict[str, ArrayLayout]
    straddling: dict[str, tuple[int, Cells]] = field(default_factory=dict)
    indexes: dict[str, ShardIndex] = field(default_factory=dict)
    pinned: bool = False
    revalidated: int = 0

    def adopt(self, document: bytes, root: Mapping[str, Any]) -> None:
        """Take over a rewritten artifact: its stamp and provenance, nothing of its arrays."""
        self.document = document
        self.stamp, self.block = root_parts(root, self.block_name)
        self.layouts, self.straddling, self.indexes = {}, {}, {}
        self.revalidated += 1


type Opened = StoredSource | Missing | Unreadable


def open_sources(
    store: ObjectStore, keys: Sequence[str], block_name: str, guard: ForeignGuard | None = None
) -> list[Opened]:
    """Open artifacts by their root documents.

    Parameters
    ----------
    store : ObjectStore
    keys : sequence of str
        zarr roots.
    block_name : str
        ``zagg_column`` or ``zagg_overview``.
    guard : ForeignGuard, optional
        Checks each stamp found.

    Raises
    ------
    ForeignWriteError
        Another run wrote one of them after this run started.
    StoreUnavailableError
        The store did not answer.
    """

    def read(key: str) -> bytes | Unreadable | None:
        try:
            return store.get(f"{key}/zarr.json")
        except AccessError as error:
            return Unreadable(key, error.message)

    found = map_calls(store, read, keys)
    opened = [
        raw if isinstance(raw, Unreadable) else _state(key, raw, block_name)
        for key, raw in zip(keys, found, strict=True)
    ]
    if guard is not None:
        for each in opened:
            if isinstance(each, StoredSource):
                guard.check(each.key, each.stamp)
    return opened


def _state(key: str, raw: bytes | None, block_name: str) -> Opened:
    if raw is None:
        return Missing(key)
    root = parse_root(raw)
    if isinstance(root, str):
        return Unreadable(key, root)
    stamp, block = root_parts(root, block_name)
    if not stamp:
        return Missing(key)
    return StoredSource(key=key, stamp=stamp, block=block, block_name=block_name, document=raw, layouts={})


def parse_root(raw: bytes) -> Mapping[str, Any] | str:
    """The attributes of a group document, or why it cannot be used."""
    try:
        root = loads(raw)
    except ValueError as error:
        return f"root document is not JSON ({len(raw)} bytes, {error})"
    if not isinstance(root, Mapping) or root.get("node_type") != "group" or root.get("zarr_format") != 3:
        return "root document is no zarr v3 group"
    attributes = root.get("attributes", {})
    return attributes if isinstance(attributes, Mapping) else "attributes are no object"


def root_parts(root: Mapping[str, Any], block_name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Stamp and provenance block among root attributes; empty where they are no objects."""
    stamp, block = root.get(STAMP), root.get(block_name)
    return (
        stamp if isinstance(stamp, Mapping) else {},
        block if isinstance(block, Mapping) else {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRequest:
    """Cells ``start`` to ``stop`` (exclusive) of one resolution group of a source."""

    source: Source
    cell_order: int
    n_cells: int
    start: int
    stop: int


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 1
