"""Ragged cells: slicing, putting together, and the three framings."""

from __future__ import annotations

import hashlib
import itertools
import struct

import numpy as np
import pytest
from numcodecs.vlen import VLenBytes

from sweep.errors import ArtifactError
from sweep.fold.ragged import (
    Ragged,
    concat,
    decode_vlen,
    encode_vlen,
    frame32,
    frame64,
    interleave,
    offsets_of,
)


def ragged(*cells: bytes) -> Ragged:
    lengths = np.array([len(cell) for cell in cells], dtype=np.int64)
    return Ragged(offsets_of(lengths), np.frombuffer(b"".join(cells), dtype=np.uint8))


def cells_of(value: Ragged) -> list[bytes]:
    bounds = value.offsets.tolist()
    return [value.data[a:b].tobytes() for a, b in itertools.pairwise(bounds)]


def test_slice_starts_at_zero_and_is_a_view() -> None:
    whole = ragged(b"ab", b"", b"cde", b"f")
    part = whole.slice(1, 3)
    assert part.offsets.tolist() == [0, 0, 3]
    assert cells_of(part) == [b"", b"cde"]
    assert np.shares_memory(part.data, whole.data)
    assert whole.slice(4, 4).n_cells == 0


def test_empty_cells_have_no_bytes() -> None:
    assert cells_of(Ragged.empty(3)) == [b"", b"", b""]
    assert Ragged.empty(0).n_cells == 0


def test_concat_keeps_the_order_of_parts() -> None:
    assert cells_of(concat([ragged(b"a", b""), Ragged.empty(1), ragged(b"bc")])) == [b"a", b"", b"", b"bc"]
    assert concat([]).n_cells == 0


def test_interleave_puts_the_parts_of_one_cell_together() -> None:
    parts = [ragged(b"a0", b"a1"), ragged(b"", b"b1"), ragged(b"c0", b"")]
    assert cells_of(interleave(parts)) == [b"a0", b"", b"c0", b"a1", b"b1", b""]


def test_interleave_of_slices_reads_their_own_bytes() -> None:
    whole = ragged(b"xx", b"a", b"bb", b"ccc")
    assert cells_of(interleave([whole.slice(1, 3), whole.slice(2, 4)])) == [b"a", b"bb", b"bb", b"ccc"]


@pytest.mark.parametrize("parts", [[], [Ragged.empty(1), Ragged.empty(2)]])
def test_interleave_refuses_parts_that_do_not_match(parts: list[Ragged]) -> None:
    with pytest.raises(ValueError, match="interleave needs"):
        interleave(parts)


@pytest.mark.parametrize("cells", [[], [b""], [b"a", b"", b"bcd"], [bytes(range(256)) * 300, b"\xff"]])
def test_vlen_framing_is_that_of_numcodecs(cells: list[bytes]) -> None:
    framed = bytes(VLenBytes().encode(np.array([*cells, None], dtype=object)[:-1]))
    assert encode_vlen(ragged(*cells)) == framed
    assert cells_of(decode_vlen(framed, len(cells))) == cells
    assert cells_of(decode_vlen(memoryview(framed), len(cells))) == cells


GOOD = struct.pack("<II2sI", 2, 2, b"ab", 0)


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        (b"\x02\x00", "2 bytes is torn"),
        (struct.pack("<I", 3) + GOOD[4:], "holds 3 cells, expected 2"),
        (GOOD[:-1], "its 2 cells reach beyond"),
        (GOOD[:4], "its 2 cells reach beyond"),
        (struct.pack("<II2sI", 2, 9, b"ab", 0), "its 2 cells reach beyond"),
        (struct.pack("<II2sI", 2, 2, b"ab", 0xFFFFFFFF), "its 2 cells reach beyond"),
        (GOOD + b"zz", "2 bytes are left after its 2 cells"),
    ],
)
def test_inconsistent_framing_is_an_artifact_error(raw: bytes, seen: str) -> None:
    with pytest.raises(ArtifactError, match=seen) as caught:
        decode_vlen(raw, 2)
    assert caught.value.kind == "vlen-framing"


def test_frame64_hashes_as_the_format_says() -> None:
    # format 7.1; the digest is the vector of semantics 14.4.
    digest = hashlib.sha256(frame64(ragged(b"", b"ab", b"", b"c"))).hexdigest()
    assert digest == "66d1177d715551e475024cb0e1418f30543b958ddd5f884b9c7660afce8c14f1"


def test_frame32_hashes_as_the_format_says() -> None:
    # format 7.2; the digest is the vector of semantics 14.4.
    hasher = hashlib.sha256(b"zagg-overview/1:11:1:2")
    hasher.update(b"a" + np.array([0, 47, 0, 0], dtype="<i8").tobytes())
    hasher.update(b"b")
    hasher.update(frame32(ragged(b"", b"ab", b"", b"c")))
    assert hasher.hexdigest() == "ba3938191b96580d451fc3afdc8447f7cc61e16453b496e1af15e221633f08bb"
