"""Reading the cells of arrays on a store: documents, then chunks, then decoding.

Calls are gathered over all sources and arrays of a block, so that a remote store has many
in flight. Nothing here trusts what it read: the caller validates the stamp afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sweep.artifacts.codecs import (
    decode_chunk,
    decode_shard_index,
    empty_cells,
    shard_index_bytes,
)
from sweep.artifacts.layout import ArrayLayout, parse_layout
from sweep.artifacts.source import BlockRequest, StoredSource
from sweep.errors import ArtifactError
from sweep.fold.level import Cells, slice_cells
from sweep.fold.ragged import Ragged, concat
from sweep.store.base import ObjectStore
from sweep.store.io import map_calls

__all__ = ["read_cells"]

# No object and no inner chunk is as long: what an index claims beyond them is no argument of a read.
_FARTHEST = 2**48
_LONGEST = 2**31


@dataclass(frozen=True, slots=True)
class _ArrayRead:
    """One array range of one request."""

    place: int
    source: StoredSource
    name: str
    path: str
    layout: ArrayLayout
    start: int
    stop: int

    def chunks(self) -> range:
        """The chunks that the range touches."""
        size = self.layout.chunk_cells
        return range(self.start // size, -(-self.stop // size))


def read_cells(
    store: ObjectStore, requests: Sequence[BlockRequest], names: Sequence[str]
) -> list[dict[str, Cells | None] | ArtifactError]:
    """What each request finds: cells by array name, or why they cannot be decoded."""
    results: list[dict[str, Cells | None] | ArtifactError] = [dict.fromkeys(names) for _ in requests]
    reads: list[_ArrayRead] = []
    for place, read in _layouts(store, requests, names):
        if isinstance(read, ArtifactError):
            results[place] = read
        else:
            reads.append(read)
    for read, cells in zip(reads, map_calls(store, lambda r: _read_array(store, r), reads), strict=True):
        found = results[read.place]
        if isinstance(found, ArtifactError):
            continue
        if isinstance(cells, ArtifactError):
            results[read.place] = cells
        else:
            found[read.name] = cells
    return results


def _layouts(
    store: ObjectStore, requests: Sequence[BlockRequest], names: Sequence[str]
) -> list[tuple[int, _ArrayRead | ArtifactError]]:
    wanted = []
    for place, request in enumerate(requests):
        source = _stored(request)
        wanted += [
            (place, name, f"{request.cell_order}/{name}")
            for name in names
            if f"{request.cell_order}/{name}" not in source.layouts
        ]
    documents = map_calls(
        store, lambda want: store.get(f"{requests[want[0]].source.key}/{want[2]}/zarr.json"), wanted
    )
    failed: dict[int, ArtifactError] = {}
    for (place, _, path), document in zip(wanted, documents, strict=True):
        if document is not None:
            try:
                _stored(requests[place]).layouts[path] = parse_layout(document)
            except ArtifactError as error:
                failed[place] = _at(error, f"{requests[place].source.key}/{path}/zarr.json")
    found: list[tuple[int, _ArrayRead | ArtifactError]] = list(failed.items())
    for place, request in enumerate(requests):
        if place not in failed:
            found += [(place, read) for read in _array_reads(place, request, names)]
    return found


def _array_reads(place: int, request: BlockRequest, names: Sequence[str]) -> list[_ArrayRead | ArtifactError]:
    source = _stored(request)
    reads: list[_ArrayRead | ArtifactError] = []
    for name in names:
        path = f"{request.cell_order}/{name}"
        layout = source.layouts.get(path)
        if layout is None:
            continue
        key = f"{source.key}/{path}"
        if layout.n_cells != request.n_cells:
            reads.append(
                ArtifactError(
                    f"{key} holds {layout.n_cells} cells, expected {request.n_cells}",
                    kind="array-shape",
                    key=key,
                )
            )
        else:
            reads.append(_ArrayRead(place, source, name, key, layout, request.start, request.stop))
    return reads


def _stored(request: BlockRequest) -> StoredSource:
    assert isinstance(request.source, StoredSource)
    return request.source


def _read_array(store: ObjectStore, read: _ArrayRead) -> Cells | ArtifactError:
    chunks, size = read.chunks(), read.layout.chunk_cells
    number, kept = read.source.straddling.pop(read.path, (-1, None))
    pieces = [kept] if kept is not None and number == chunks.start else []
    try:
        pieces += _chunks(store, read, range(chunks.start + len(pieces), chunks.stop))
    except ArtifactError as error:
        return _at(error, read.path)
    if read.stop < min(chunks.stop * size, read.layout.n_cells):
        read.source.straddling[read.path] = (chunks.stop - 1, pieces[-1])
    first = chunks.start * size
    return slice_cells(_join(pieces), read.start - first, read.stop - first)


def _join(pieces: Sequence[Cells]) -> Cells:
    if len(pieces) == 1:
        return pieces[0]
    ragged = [piece for piece in pieces if isinstance(piece, Ragged)]
    return concat(ragged) if ragged else np.concatenate([p for p in pieces if not isinstance(p, Ragged)])


def _chunks(store: ObjectStore, read: _ArrayRead, chunks: range) -> list[Cells]:
    if read.layout.shard_cells is None:
        return [_plain_chunk(store, read, chunk) for chunk in chunks]
    return _sharded_chunks(store, read, chunks)


def _plain_chunk(store: ObjectStore, read: _ArrayRead, chunk: int) -> Cells:
    layout = read.layout
    raw = store.get(f"{read.path}/c/{chunk}")
    if raw is None:
        return _empty_chunk(layout, chunk)
    return decode_chunk(raw, layout, layout.chunk_cells)


def _empty_chunk(layout: ArrayLayout, chunk: int) -> Cells:
    """A chunk that is not there, as far as the array reaches: a chunk may be of any length."""
    n_left = layout.n_cells - chunk * layout.chunk_cells
    return empty_cells(min(layout.chunk_cells, n_left), layout.dtype, layout.fill)


def _sharded_chunks(store: ObjectStore, read: _ArrayRead, chunks: range) -> list[Cells]:
    layout = read.layout
    assert layout.shard_cells is not None
    per_shard = layout.shard_cells // layout.chunk_cells
    pieces: list[Cells] = []
    for shard in range(chunks.start // per_shard, -(-chunks.stop // per_shard)):
        first = max(chunks.start - shard * per_shard, 0)
        last = min(chunks.stop - shard * per_shard, per_shard)
        pieces += _shard(store, read, shard, range(first, last), per_shard)
    return pieces


def _shard(store: ObjectStore, read: _ArrayRead, shard: int, chunks: range, per_shard: int) -> list[Cells]:
    """Chunks of one shard, numbered within it."""
    layout, key, before = read.layout, f"{read.path}/c/{shard}", shard * per_shard
    size = shard_index_bytes(layout)
    whole = store.get(key) if len(chunks) == per_shard else None
    index = None if whole is not None else read.source.indexes.get(key)
    if index is None:
        if whole is not None:
            tail: bytes | None = whole[-size:] if layout.index_at_end else whole[:size]
        else:
            tail = store.get_suffix(key, size) if layout.index_at_end else store.get_range(key, 0, size)
        if tail is None:
            return [_empty_chunk(layout, before + chunk) for chunk in chunks]
        index = read.source.indexes[key] = decode_shard_index(tail, layout)
    return [
        _empty_chunk(layout, before + chunk)
        if (span := index.span(chunk)) is None
        else _inner_chunk(store, layout, key, chunk, span, whole)
        for chunk in chunks
    ]


def _inner_chunk(
    store: ObjectStore, layout: ArrayLayout, key: str, chunk: int, span: tuple[int, int], whole: bytes | None
) -> Cells:
    offset, length = span
    if offset > _FARTHEST or length > _LONGEST:
        raw = None
    else:
        raw = whole[offset : offset + length] if whole is not None else store.get_range(key, offset, length)
    if raw is None or len(raw) != length:
        raise ArtifactError(
            f"inner chunk {chunk} lies at bytes {offset}-{offset + length}, beyond its shard", kind="chunk"
        )
    return decode_chunk(raw, layout, layout.chunk_cells)


def _at(error: ArtifactError, key: str) -> ArtifactError:
    located = ArtifactError(
        f"{key}: {error.message}",
        kind=error.kind,
        key=key,
    )
    located.__cause__ = error
    return located
