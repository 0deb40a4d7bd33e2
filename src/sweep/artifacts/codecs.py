"""Chunk bytes: encoding what we write, decoding what stores hold.

Source: format 3.2 (shards), 5.4 (chunk bytes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
from numcodecs.zstd import compress, decompress
from numpy.typing import NDArray

from sweep.artifacts._zstd_frame import most_bytes
from sweep.artifacts.layout import ArrayLayout
from sweep.errors import ArtifactError
from sweep.fold.exact import is_fill
from sweep.fold.level import Cells
from sweep.fold.ragged import Ragged, decode_vlen, encode_vlen

__all__ = [
    "ShardIndex",
    "decode_chunk",
    "decode_shard_index",
    "empty_cells",
    "encode_chunk",
    "shard_index_bytes",
]


ZSTD_LEVEL = 3
_LEAST_DENSE = 2**26
_LEAST_RAGGED = 2**30
_RAGGED_CELL = 2**16
_ABSENT = np.uint64(0xFFFFFFFFFFFFFFFF)


def encode_chunk(cells: Cells, fill: Any) -> bytes | None:
    """The bytes of one chunk, or None where every cell is fill and no chunk is written."""
    if isinstance(cells, Ragged):
        if cells.data.size == 0:
            return None
        return bytes(compress(encode_vlen(cells), ZSTD_LEVEL))
    if bool(is_fill(cells, fill).all()):
        return None
    return np.ascontiguousarray(cells, dtype=cells.dtype.newbyteorder("<")).tobytes()


def decode_chunk(raw: bytes | memoryview, layout: ArrayLayout, n_cells: int) -> Cells:
    """The cells of one chunk of ``n_cells``.

    Raises
    ------
    ArtifactError
        The bytes do not hold that many cells, or a codec refuses them.
    """
    payload = _unframe(bytes(raw), layout, n_cells)
    if layout.dtype is None:
        return decode_vlen(payload, n_cells)
    wanted = n_cells * layout.dtype.itemsize
    if len(payload) != wanted:
        raise ArtifactError(f"dense chunk has {len(payload)} bytes, expected {wanted}", kind="chunk")
    stored = layout.dtype.newbyteorder(">" if layout.codecs.big_endian else "<")
    return np.frombuffer(payload, stored).astype(layout.dtype, copy=False)


def _unframe(raw: bytes, layout: ArrayLayout, n_cells: int) -> bytes:
    if layout.codecs.crc32c:
        raw = _checked(raw, "chunk")
    if not layout.codecs.zstd:
        return raw
    try:
        size, most = most_bytes(raw), _most_payload(layout, n_cells)
        if size <= most:
            return bytes(decompress(raw))
    except (RuntimeError, ValueError) as error:
        raise ArtifactError(f"zstd cannot decode the chunk ({error})", kind="chunk") from error
    raise ArtifactError(f"zstd chunk would decode to {size} bytes, expected at most {most}", kind="chunk")


def _most_payload(layout: ArrayLayout, n_cells: int) -> int:
    """The most bytes that a chunk of ``n_cells`` is decoded to: nothing sound comes near it."""
    # A chunk can be longer than its array, which the document may say of any number of cells.
    n_held = min(n_cells, layout.n_cells)
    if layout.dtype is None:
        return max(_LEAST_RAGGED, n_held * _RAGGED_CELL)
    return max(_LEAST_DENSE, n_held * layout.dtype.itemsize)


def _checked(raw: bytes, what: str) -> bytes:
    body, stored = raw[:-4], int.from_bytes(raw[-4:], "little")
    if len(raw) < 4 or google_crc32c.value(body) != stored:
        raise ArtifactError(f"crc32c of the {what} does not match its bytes", kind="checksum")
    return body


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """Where the inner chunks of a shard lie: ``(offset, length)`` or None where absent."""

    spans: NDArray[np.uint64]

    def span(self, chunk: int) -> tuple[int, int] | None:
        """The place of an inner chunk in its shard, in bytes."""
        offset, length = self.spans[chunk]
        if offset == _ABSENT and length == _ABSENT:
            return None
        return int(offset), int(length)


def shard_index_bytes(layout: ArrayLayout) -> int:
    """The size of a shard's index, checksum included."""
    assert layout.shard_cells is not None
    return 16 * (layout.shard_cells // layout.chunk_cells) + 4


def decode_shard_index(raw: bytes, layout: ArrayLayout) -> ShardIndex:
    """Read a shard's index.

    Raises
    ------
    ArtifactError
        The index is short or its checksum does not match.
    """
    if len(raw) != shard_index_bytes(layout):
        raise ArtifactError(
            f"shard index has {len(raw)} bytes, expected {shard_index_bytes(layout)}", kind="chunk"
        )
    return ShardIndex(np.frombuffer(_checked(raw, "shard index"), "<u8").reshape(-1, 2))


def empty_cells(n_cells: int, dtype: np.dtype[Any] | None, fill: Any) -> Cells:
    """``n_cells`` of fill; ``dtype`` is None for ragged cells."""
    return Ragged.empty(n_cells) if dtype is None else np.full(n_cells, fill, dtype=dtype)
