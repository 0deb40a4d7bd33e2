"""Footers that a reader can be trusted with, and those on which it would end the process."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.control._parquet_footer import check_footer
from sweep.control.run_records import read_run_record, write_run_record
from sweep.errors import ArtifactError

WORDS = np.arange(50, dtype=np.uint64) << np.uint64(30)


def by_pyarrow(**options: Any) -> bytes:
    buffer = io.BytesIO()
    table = pa.table({"shard_key": pa.array(WORDS), "window": ["x"] * 50, "success": [True] * 50})
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


FILES = [
    write_run_record(WORDS, ["a"] * 50),
    by_pyarrow(),
    by_pyarrow(compression="none", row_group_size=7),
    by_pyarrow(version="1.0", use_dictionary=False),
    by_pyarrow(write_page_index=True, store_schema=False),
]


def with_footer(data: bytes, footer: bytes) -> bytes:
    size = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def footer_of(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


@pytest.mark.parametrize("data", FILES)
def test_sound_footers_pass(data: bytes) -> None:
    check_footer(data)
    assert read_run_record(data).words.tolist() == WORDS.tolist()


def zigzag(value: int) -> bytes:
    """A whole number as the Thrift compact protocol spells it."""
    raw = (value << 1) ^ (value >> 63)
    raw &= 2**64 - 1
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    return bytes([*out, raw])


@pytest.mark.parametrize("offset", [-1, -49, -(2**63), 10**6, 2**63 - 1])
def test_a_column_outside_of_the_file_is_refused(offset: int) -> None:
    data = by_pyarrow(use_dictionary=False, store_schema=False)
    place = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(1).data_page_offset
    # data_page_offset is member 9, two after total_compressed_size, an i64
    spelled = b"\x26" + zigzag(place)
    footer = footer_of(data)
    assert footer.count(spelled) >= 1
    bad = with_footer(data, footer.replace(spelled, b"\x26" + zigzag(offset)))
    with pytest.raises(ArtifactError, match=r"damaged footer.*(offset is|reaches beyond)"):
        read_run_record(bad)


@pytest.mark.parametrize(
    "footer",
    [
        b"",
        b"\x15",
        b"\x15\x02\x19\xfc\xff\xff\xff\xff\x0f",  # a schema of 2**32 elements
        b"\x15\x02\x18\xff\xff\xff\xff\x0f",  # a text of 2**32 bytes
        b"\x15" + b"\xff" * 11,  # a number without an end
        b"\x1c" * 100 + b"\x00" * 101,
        b"\x15\x02\x05\x02\x02\x00",  # the same member twice
        b"\x1f\x00",
        b"\x49\x15\x02\x00",  # row groups that are whole numbers
    ],
)
def test_a_footer_that_cannot_be_walked_is_refused(footer: bytes) -> None:
    with pytest.raises(ArtifactError, match="damaged footer"):
        check_footer(with_footer(FILES[0], footer))


def flipped(data: bytes, flips: list[tuple[int, int]]) -> bytes:
    footer = bytearray(footer_of(data))
    for place, bits in flips:
        footer[place % len(footer)] ^= bits
    return with_footer(data, bytes(footer))


FLIPS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=3)


@given(st.sampled_from(FILES), FLIPS)
@settings(deadline=None, max_examples=300)
def test_a_flipped_footer_passes_or_is_called_damaged(data: bytes, flips: list[tuple[int, int]]) -> None:
    with suppress(ArtifactError):  # and nothing else
        check_footer(flipped(data, flips))


_READ = """
import sys
from pathlib import Path
from sweep.control.run_records import read_run_record
from sweep.errors import ArtifactError
for path in sorted(Path(sys.argv[1]).iterdir()):
    print(path.name, flush=True)
    try:
        read_run_record(path.read_bytes())
    except ArtifactError:
        pass
"""


@pytest.mark.slow
def test_no_flipped_footer_ends_the_process(tmp_path: Path) -> None:
    """One process reads thousands of damaged files; the last name it said is the culprit."""
    places = np.random.default_rng(7)
    for number in range(3000):
        data = FILES[number % len(FILES)]
        flips = [(int(places.integers(10_000)), int(places.integers(1, 256))) for _ in range(1 + number % 2)]
        (tmp_path / f"{number:05}").write_bytes(flipped(data, flips))
    done = subprocess.run(
        [sys.executable, "-c", _READ, tmp_path], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, [*done.stdout.split()[-1:], done.stderr[-500:]]
    assert len(done.stdout.split()) == 3000
