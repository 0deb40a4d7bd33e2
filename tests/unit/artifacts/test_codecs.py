"""Chunk bytes: what is written, what is left out, what damage is called."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import google_crc32c
import numpy as np
import pytest
from numcodecs import VLenBytes
from numcodecs.zstd import Zstd
from tests.support.made import digest, listed, ragged

from sweep.artifacts.codecs import (
    decode_chunk,
    decode_shard_index,
    empty_cells,
    encode_chunk,
    shard_index_bytes,
)
from sweep.artifacts.layout import ArrayLayout, CodecChain
from sweep.errors import ArtifactError
from sweep.fold.ragged import Ragged


def layout_of(
    dtype: Any, *, zstd: bool = False, crc32c: bool = False, big_endian: bool = False
) -> ArrayLayout:
    found = None if dtype is None else np.dtype(dtype)
    return ArrayLayout(
        n_cells=4,
        dtype=found,
        fill=None if found is None else found.type(0),
        chunk_cells=4,
        shard_cells=None,
        index_at_end=True,
        codecs=CodecChain(zstd=zstd, crc32c=crc32c, big_endian=big_endian),
        attributes={},
    )


RAGGED = layout_of(None, zstd=True)


@pytest.mark.parametrize(
    ("values", "dtype", "fill", "is_written"),
    [
        ([0, 0, 0, 0], "int64", 0, False),
        ([0, 0, 1, 0], "int64", 0, True),
        ([-9999, -9999], "int32", -9999, False),
        ([0, 0], "int32", -9999, True),
        ([np.nan, np.nan], "float32", np.nan, False),
        ([np.nan, 1.0], "float32", np.nan, True),
        ([0.0, 0.0], "float64", 0.0, False),
        ([0.0, -0.0], "float64", 0.0, True),
        ([-0.0, -0.0], "float64", -0.0, False),
        ([0.0], "float64", -0.0, True),
        ([np.nan], "float32", 0.0, True),
        ([np.inf, np.inf], "float32", np.inf, False),
    ],
)
def test_a_dense_chunk_of_fill_is_not_written(
    values: Sequence[float], dtype: str, fill: float, is_written: bool
) -> None:
    cells = np.array(values, dtype=dtype)
    chunk = encode_chunk(cells, cells.dtype.type(fill))
    code = {"int64": "q", "int32": "i", "float32": "f", "float64": "d"}[dtype]
    assert chunk == (struct.pack(f"<{len(values)}{code}", *values) if is_written else None)


def test_a_nan_of_any_payload_is_a_nan_fill() -> None:
    odd = np.array([0x7FC00001, 0xFFC12345, 0x7F800001], dtype="<u4").view("<f4")
    assert encode_chunk(odd, np.float32(np.nan)) is None


def test_payload_bits_of_a_written_nan_survive() -> None:
    odd = np.array([0x7FC00001, 0x3F800000], dtype="<u4").view("<f4")
    assert encode_chunk(odd, np.float32(np.nan)) == bytes.fromhex("0100c07f0000803f")


def test_cells_of_other_byte_order_are_written_little_endian() -> None:
    assert encode_chunk(np.array([1, 2], dtype=">i4"), np.int32(0)) == struct.pack("<2i", 1, 2)


def test_a_ragged_chunk_equals_that_of_numcodecs() -> None:
    cells = [b"", digest((1, 1), (2, 3)), b"", digest((4, 1))]
    plain = VLenBytes().encode(np.array(cells, dtype=object))
    assert plain == struct.pack("<5I", 4, 0, 16, 0, 0)[:8] + plain[8:]  # u32 count, u32 length, ...
    assert encode_chunk(ragged(cells), None) == Zstd(level=3, checksum=False).encode(plain)


@pytest.mark.parametrize("n_cells", [1, 4, 1024])
def test_a_ragged_chunk_of_empty_cells_is_not_written(n_cells: int) -> None:
    assert encode_chunk(Ragged.empty(n_cells), None) is None


def test_a_part_of_a_larger_vector_is_encoded_alone() -> None:
    cells = ragged([b"12345678", b"", b"abcdefgh", b"x"])
    part = encode_chunk(cells.slice(1, 3), None)
    assert part is not None
    assert listed(decode_chunk(part, RAGGED, 2)) == [b"", b"abcdefgh"]
    assert encode_chunk(cells.slice(1, 2), None) is None


def test_ragged_cells_of_numcodecs_are_read() -> None:
    cells = [b"", b"ab", b"c" * 1000, b""]
    raw = Zstd(level=1, checksum=True).encode(VLenBytes().encode(np.array(cells, dtype=object)))
    assert listed(decode_chunk(raw, RAGGED, 4)) == cells
    assert listed(decode_chunk(memoryview(raw), RAGGED, 4)) == cells


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "uint64", "float32", "float64"])
@pytest.mark.parametrize("big_endian", [False, True])
def test_dense_cells_are_read(dtype: str, big_endian: bool) -> None:
    values = np.array([0, 1, 1, 0], dtype=dtype)
    raw = values.astype(values.dtype.newbyteorder(">" if big_endian else "<")).tobytes()
    found = decode_chunk(raw, layout_of(dtype, big_endian=big_endian), 4)
    assert isinstance(found, np.ndarray)
    assert found.dtype == values.dtype
    assert found.tolist() == values.tolist()


def test_dense_cells_in_a_frame_with_a_checksum_are_read() -> None:
    frame = Zstd(level=3).encode(struct.pack("<4i", 1, 2, 3, 4))
    raw = frame + google_crc32c.value(frame).to_bytes(4, "little")
    layout = layout_of("int32", zstd=True, crc32c=True)
    assert listed(decode_chunk(raw, layout, 4)) == [1, 2, 3, 4]
    with pytest.raises(ArtifactError, match="crc32c of the chunk"):
        decode_chunk(raw[:-1] + bytes([raw[-1] ^ 1]), layout, 4)
    with pytest.raises(ArtifactError, match="crc32c of the chunk"):
        decode_chunk(b"ab", layout, 4)


@pytest.mark.parametrize(
    ("raw", "layout", "said"),
    [
        (b"\0" * 15, layout_of("int32"), "15 bytes, expected 16"),
        (b"", layout_of("int32"), "0 bytes, expected 16"),
        (b"\0" * 17, layout_of("int32"), "17 bytes, expected 16"),
        (b"", RAGGED, "zstd"),
        (b"\x28\xb5\x2f\xfd" + b"\x13" * 8, RAGGED, "zstd"),
        (Zstd(level=3).encode(struct.pack("<I", 3) + b"\0" * 12), RAGGED, "3 cells, expected 4"),
        (Zstd(level=3).encode(struct.pack("<5I", 4, 9, 0, 0, 0)), RAGGED, "torn"),
    ],
)
def test_torn_chunks(raw: bytes, layout: ArrayLayout, said: str) -> None:
    with pytest.raises(ArtifactError, match=said):
        decode_chunk(raw, layout, 4)


def test_half_a_frame() -> None:
    whole = Zstd(level=3).encode(VLenBytes().encode(np.array([b"a" * 100, b"b", b"", b""], dtype=object)))
    for cut in (1, len(whole) // 2, len(whole) - 1):
        with pytest.raises(ArtifactError):
            decode_chunk(whole[:cut], RAGGED, 4)


def _index(*spans: tuple[int, int]) -> bytes:
    body = b"".join(struct.pack("<2Q", *span) for span in spans)
    checksum: int = google_crc32c.value(body)
    return body + checksum.to_bytes(4, "little")


def test_a_shard_index() -> None:
    absent = (2**64 - 1, 2**64 - 1)
    layout = replace(RAGGED, n_cells=12, chunk_cells=4, shard_cells=12)
    raw = _index((0, 10), absent, (10, 7))
    assert shard_index_bytes(layout) == len(raw) == 3 * 16 + 4
    index = decode_shard_index(raw, layout)
    assert [index.span(chunk) for chunk in range(3)] == [(0, 10), None, (10, 7)]


def test_a_damaged_shard_index() -> None:
    layout = replace(RAGGED, n_cells=8, chunk_cells=4, shard_cells=8)
    raw = _index((0, 10), (10, 7))
    with pytest.raises(ArtifactError, match="crc32c of the shard index"):
        decode_shard_index(bytes([raw[0] ^ 1]) + raw[1:], layout)
    with pytest.raises(ArtifactError, match="35 bytes, expected 36"):
        decode_shard_index(raw[1:], layout)


def test_empty_cells() -> None:
    assert listed(empty_cells(3, None, None)) == [b"", b"", b""]
    dense = empty_cells(2, np.dtype("int32"), np.int32(-9999))
    assert isinstance(dense, np.ndarray)
    assert dense.tolist() == [-9999, -9999]
    assert dense.dtype == np.dtype("int32")


@pytest.mark.parametrize("dtype", [None, np.int64])
@pytest.mark.parametrize("claimed", [2**31, 2**40, 2**63, 2**64 - 1])
def test_a_frame_that_claims_all_memory_is_not_decoded(dtype: Any, claimed: int) -> None:
    frame = bytes(Zstd(3).encode(bytes(32)))
    assert frame[4] == 0x20, "one segment, and a size of one byte"
    # the same frame with its size spelled in eight bytes
    hostile = frame[:4] + b"\xe0" + claimed.to_bytes(8, "little") + frame[6:]
    for n_cells in (4, 10**12):
        with pytest.raises(ArtifactError, match=f"{claimed} bytes, expected at most"):
            decode_chunk(hostile, layout_of(dtype, zstd=True), n_cells)


def test_a_vlen_header_that_claims_too_many_cells_reserves_nothing() -> None:
    with pytest.raises(ArtifactError, match="reach beyond"):
        decode_chunk((2**32 - 1).to_bytes(4, "little"), layout_of(None), 2**32 - 1)
