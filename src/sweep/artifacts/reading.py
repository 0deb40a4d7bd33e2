"""Reading cells of artifacts while others may be rewriting them.

Every block read is followed by another read of its source's root document: an unchanged
stamp makes the block whole, and pins the source; a moved one makes it worth nothing, and
it is read again under the new stamp, or the fold starts over where the source had already
served.

Departs from semantics 8.1 in form: one validation covers all arrays of a block instead of
one each. What a reader is promised is the same.

Source: semantics 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweep.artifacts._cells import read_cells
from sweep.artifacts.source import STAMP, BlockRequest, ForeignGuard, StoredSource, parse_root, root_parts
from sweep.errors import ArtifactError, ColumnMovedError
from sweep.fold.level import Cells, slice_cells
from sweep.store.base import ObjectStore
from sweep.store.io import map_calls

__all__ = ["ATTEMPTS", "Block", "read_blocks"]

ATTEMPTS = 3
"""Times that a block is read before its source counts as moved."""

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
    stamp, _ = root_parts(attributes, source.block_name)
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
