"""What a frame would decode to, beside what other encoders put into it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from numcodecs.zstd import Zstd

from sweep.artifacts._zstd_frame import most_bytes

SIZES = [0, 1, 255, 256, 257, 65_535, 65_536, 65_792, 200_000]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("checksum", [False, True])
def test_a_declared_size_is_told(size: int, checksum: bool) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert most_bytes(bytes(Zstd(3, checksum).encode(data))) == size


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("is_random", [False, True])
def test_a_stream_without_a_size_is_bounded_by_its_blocks(size: int, is_random: bool) -> None:
    data = np.random.default_rng(size).bytes(size) if is_random else bytes(size)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    frame = sink.getvalue().to_pybytes()
    assert frame[4] & 0xE0 == 0, "the encoder declares no size"
    assert size <= most_bytes(frame) <= size + 2 * 128 * 1024


@pytest.mark.parametrize("cut", [0, 3, 5, 6])
def test_what_is_no_frame_is_refused(cut: int) -> None:
    with pytest.raises(ValueError, match="frame"):
        most_bytes(bytes(Zstd(3).encode(bytes(70_000)))[:cut])
    with pytest.raises(ValueError, match="frame"):
        most_bytes(b"\x00" * 20)
