"""Opening artifacts and reading their cells while others may be rewriting them.

A source is opened by one read of its root document. Every block read from it is followed
by another read of that document: an unchanged stamp makes the block whole, and pins the
source; a moved one makes it worth nothing, and it is read again from the new stamp, or
the fold starts over where the source had already served.

Departs from semantics 8.1 in form: one validation covers all arrays of a block instead of
one each. What a reader is promised is the same.

Source: format 3.4 (states); semantics 8.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.artifacts._cells import read_cells
from sweep.artifacts.layout import ArrayLayout
from sweep.errors import AccessError, ArtifactError, ColumnMovedError, ForeignWriteError
from sweep.fold.level import Cells, LevelData, slice_cells
from sweep.model.provenance import Generation, generation_of
from sweep.store.base import ObjectStore
from sweep.store.io import map_calls

__all__ = [
    "ATTEMPTS",
    "BlockRequest",
    "ForeignGuard",
    "Missing",
    "Opened",
    "Source",
    "StoredSource",
    "Unreadable",
    "open_sources",
    "read_blocks",
]

ATTEMPTS = 3
"""Times that a block is read before its source counts as moved."""

STAMP = "morton_hive_commit"


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
        return generation_of(self.block.get("generation"), self.stamp)

    @property
    def granules(self) -> int:
        count = self.stamp.get("granule_count")
        return count if isinstance(count, int) else 0

    @property
    def merges_from_raw(self) -> int:
        return _whole(self.block.get("merges_from_raw"))

    def member_depth(self, cell_order: int) -> int:
        """The depth that a column records for one of its groups; 1 where it records none."""
        groups = self.block.get("groups")
        group = groups.get(str(cell_order)) if isinstance(groups, Mapping) else None
        return _whole(group.get("merges_from_raw")) if isinstance(group, Mapping) else 1


@dataclass(slots=True, kw_only=True)
class StoredSource(Source):
    """A committed artifact on the store, read under its stamp."""

    block_name: str
    document: bytes
    layouts: dict[str, ArrayLayout]
    pinned: bool = False
    revalidated: int = 0

    def adopt(self, document: bytes, root: Mapping[str, Any]) -> None:
        """Take over a rewritten artifact: its stamp and provenance, none of its layouts."""
        self.document = document
        self.stamp, self.block = _parts(root, self.block_name)
        self.layouts = {}
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

    def read(key: str) -> bytes | None | Unreadable:
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
    stamp, block = _parts(root, block_name)
    if not stamp:
        return Missing(key)
    return StoredSource(
        key=key, stamp=stamp, block=block, block_name=block_name, document=raw, layouts={}
    )


def parse_root(raw: bytes) -> Mapping[str, Any] | str:
    """The attributes of a group document, or why it cannot be used."""
    try:
        root = json.loads(raw)
    except ValueError as error:
        return f"root document is not JSON ({len(raw)} bytes, {error})"
    if not isinstance(root, Mapping) or root.get("node_type") != "group" or root.get("zarr_format") != 3:
        return "root document is no zarr v3 group"
    attributes = root.get("attributes", {})
    return attributes if isinstance(attributes, Mapping) else "attributes are no object"


def _parts(root: Mapping[str, Any], block_name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
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


type Block = Mapping[str, Cells | None]
"""Array name to cells; None for an array that the source does not have."""


def read_blocks(
    store: ObjectStore, requests: Sequence[BlockRequest], names: Sequence[str], guard: ForeignGuard | None
) -> list[Block]:
    """Read blocks of several sources at once, each validated against its stamp.

    Raises
    ------
    ColumnMovedError
        A source was rewritten after it had served, or again and again.
    ForeignWriteError
        It was rewritten by another run after this run started.
    ArtifactError
        An array's bytes cannot be decoded though its stamp stands.
    """
    results: list[Block | None] = [_in_memory(request, names) for request in requests]
    pending = [place for place, block in enumerate(results) if block is None]
    for _ in range(ATTEMPTS):
        if not pending:
            break
        tries = read_cells(store, [requests[place] for place in pending], names)
        sources = [_stored(requests[place]) for place in pending]
        documents = map_calls(store, lambda source: store.get(f"{source.key}/zarr.json"), sources)
        moved = []
        for place, source, got, document in zip(pending, sources, tries, documents, strict=True):
            if _stands(source, document):
                if isinstance(got, ArtifactError):
                    raise got
                source.pinned = True
                results[place] = got
            else:
                _move(source, document, guard)
                moved.append(place)
        pending = moved
    if pending:
        raise _moved_error(_stored(requests[pending[0]]))
    return [block for block in results if block is not None]


def _in_memory(request: BlockRequest, names: Sequence[str]) -> Block | None:
    data = request.source.data
    if data is None:
        return None
    return {
        name: slice_cells(data.arrays[name], request.start, request.stop) if name in data.arrays else None
        for name in names
    }


def _stored(request: BlockRequest) -> StoredSource:
    assert isinstance(request.source, StoredSource)
    return request.source


def _stands(source: StoredSource, document: bytes | None) -> bool:
    if document == source.document:
        return bool(source.stamp)
    if document is None:
        return False
    root = parse_root(document)
    return not isinstance(root, str) and bool(source.stamp) and root.get(STAMP) == source.stamp


def _move(source: StoredSource, document: bytes | None, guard: ForeignGuard | None) -> None:
    root = parse_root(document) if document is not None else "gone"
    attributes: Mapping[str, Any] = {} if isinstance(root, str) else root
    stamp, _ = _parts(attributes, source.block_name)
    if guard is not None:
        guard.check(source.key, stamp)
    if source.pinned:
        raise _moved_error(source)
    source.adopt(document or b"", attributes)


def _moved_error(source: StoredSource) -> ColumnMovedError:
    return ColumnMovedError(
        f"{source.key} was rewritten while it was being read; it is read afresh once, and the next run "
        "heals what is left",
        key=source.key,
    )


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 1
