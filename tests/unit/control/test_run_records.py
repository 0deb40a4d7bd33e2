"""Run records as pyarrow writes them, and as pyarrow reads ours."""

from __future__ import annotations

import io
import tracemalloc
from typing import Any

import mortie
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweep.control.run_records import RecordedLeaves, read_run_record, write_run_record
from sweep.errors import ArtifactError
from sweep.model.nodes import Words

NORTH = mortie.decimal_to_word("123", dtype=int)
SOUTH = mortie.decimal_to_word("-211", dtype=int)


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, **options)
    return buffer.getvalue()


def words_in(record: RecordedLeaves) -> list[int]:
    assert record.words.dtype == np.uint64
    found: list[int] = record.words.tolist()
    return found


def keys(*values: Any, type: Any = None) -> Any:
    return pa.array(values, type or pa.uint64())


def test_all_columns() -> None:
    record = read_run_record(
        parquet(
            {
                "other": pa.array([1.5, 2.5, 3.5]),
                "success": pa.array([True, True, True]),
                "window": pa.array(["2019", None, "2020"]),
                "shard_key": keys(NORTH, SOUTH, NORTH),
            }
        )
    )
    assert SOUTH > 2**63
    assert words_in(record) == [NORTH, SOUTH, NORTH]
    assert record.windows == ("2019", None, "2020")
    assert record.inexact == 0


@pytest.mark.parametrize(
    ("success", "kept"),
    [
        (pa.array([True, False, None]), [1]),
        (pa.array([1, 0, None]), [1]),
        (pa.array([1.0, 0.0, None]), [1]),
        (pa.nulls(3), []),
        (None, [1, 2, 3]),
    ],
)
def test_success_decides(success: Any, kept: list[int]) -> None:
    columns = {"shard_key": keys(1 << 60 | 1, 1 << 60 | 2, 1 << 60 | 3)}
    if success is not None:
        columns["success"] = success
    assert [word & 3 for word in words_in(read_run_record(parquet(columns)))] == kept


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (keys(NORTH, None, SOUTH), [NORTH, SOUTH]),
        (keys(NORTH, None, type=pa.int64()), [NORTH]),
        (keys(NORTH, 7, type=pa.int64()), [NORTH, 7]),
        (keys(7, 8, type=pa.uint16()), [7, 8]),
        (keys(7, 8, type=pa.int32()), [7, 8]),
        (keys(NORTH, SOUTH).dictionary_encode(), [NORTH, SOUTH]),
        (keys(NORTH, None).dictionary_encode(), [NORTH]),
        (pa.nulls(2), []),
        (keys(), []),
    ],
)
def test_integer_keys(column: Any, expected: list[int]) -> None:
    record = read_run_record(parquet({"shard_key": column}))
    assert words_in(record) == expected
    assert (record.windows, record.inexact) == (None, 0)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_float_keys_are_taken_while_they_are_exact(kind: Any) -> None:
    column = pa.array([4.0, None, float("nan"), 4.5, -4.0, float(2**53), float("inf"), 8.0], kind)
    record = read_run_record(parquet({"shard_key": column, "window": pa.array(list("abcdefgh"))}))
    assert words_in(record) == [4, 8]
    assert record.windows == ("a", "h")
    assert record.inexact == 4


def test_the_largest_exact_float() -> None:
    record = read_run_record(parquet({"shard_key": pa.array([float(2**53 - 1)])}))
    assert words_in(record) == [2**53 - 1]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["2019", None, "all"]),
        pa.array(["2019", None, "all"], pa.large_string()),
        pa.array(["2019", None, "all"], pa.string_view()),
        pa.array(["2019", None, "all"]).dictionary_encode(),
    ],
)
def test_window_texts(column: Any) -> None:
    record = read_run_record(parquet({"shard_key": keys(1, 2, 3), "window": column}))
    assert record.windows == ("2019", None, "all")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([2019, None]), ("2019", None)),
        (pa.array([2019.0, float("nan")]), ("2019.0", None)),
        (pa.nulls(2), (None, None)),
    ],
)
def test_windows_of_other_types(column: Any, expected: tuple[str | None, ...]) -> None:
    assert read_run_record(parquet({"shard_key": keys(1, 2), "window": column})).windows == expected


def test_windows_belong_to_the_rows_kept() -> None:
    columns = {
        "shard_key": keys(1, None, 3, 4),
        "window": pa.array(["a", "b", "c", "d"]),
        "success": pa.array([True, True, False, True]),
    }
    record = read_run_record(parquet(columns))
    assert words_in(record) == [1, 4]
    assert record.windows == ("a", "d")


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
def test_more_rows_than_a_batch(compression: str) -> None:
    n_rows = 150_000
    values = np.arange(1, n_rows + 1, dtype=np.uint64) | np.uint64(9 << 60)
    columns = {
        "shard_key": pa.array(values),
        "window": pa.array([str(2000 + row % 7) if row % 11 else None for row in range(n_rows)]),
        "success": pa.array([row % 3 != 0 for row in range(n_rows)]),
    }
    record = read_run_record(parquet(columns, row_group_size=40_000, compression=compression))
    kept = [row for row in range(n_rows) if row % 3]
    np.testing.assert_array_equal(record.words, values[kept])
    assert record.windows == tuple(str(2000 + row % 7) if row % 11 else None for row in kept)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not readable as Parquet"),
        (b"PAR1 and no more", "not readable as Parquet"),
        (parquet({"shard_key": pa.array([1])})[:-8], "not readable as Parquet"),
        (parquet({"shard_keys": pa.array([1])}), "no column shard_key"),
        (parquet({"shard_key": pa.array([7, -2111])}), "-2111"),
        (parquet({"shard_key": pa.array([7, None, -2111])}), "-2111"),
        (parquet({"shard_key": pa.array(["123"])}), "'123'"),
        (parquet({"shard_key": pa.array([True])}), "True"),
    ],
)
def test_a_record_that_cannot_be_used(data: bytes, said: str) -> None:
    with pytest.raises(ArtifactError, match=said) as caught:
        read_run_record(data)
    assert caught.value.kind == "run-record"


def test_damage_anywhere_is_an_artifact_error_or_goes_unseen() -> None:
    """A flipped byte may only change what is read or raise what discovery skips: never end the process."""
    whole = parquet({"shard_key": keys(NORTH, SOUTH), "window": pa.array(["2019", None])})
    refused = 0
    for place in range(4, len(whole), 5):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        try:
            read_run_record(bytes(damaged))
        except ArtifactError:
            refused += 1
    assert refused > 20


def test_no_object_is_kept_for_a_leaf() -> None:
    n_leaves = 100_000
    words = np.arange(n_leaves, dtype=np.uint64)
    data = write_run_record(words, [f"year-{2000 + row % 7}" for row in range(n_leaves)])
    read_run_record(data)
    tracemalloc.start()
    try:
        record = read_run_record(data)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert record.codes is not None
    assert record.codes.labels == tuple(f"year-{year}" for year in range(2000, 2007))
    assert held < 13 * n_leaves


@pytest.mark.parametrize("windows", [None, ["2019", "all", None]])
def test_what_is_written_is_read_by_pyarrow_and_by_us(windows: list[str | None] | None) -> None:
    words: Words = np.array([NORTH, SOUTH, 7], dtype=np.uint64)
    data = write_run_record(words, windows)
    table = pq.read_table(io.BytesIO(data))
    assert table.column_names == ["shard_key", "window", "success"]
    assert table.schema.field("shard_key").type == pa.uint64()
    assert table["shard_key"].to_pylist() == [NORTH, SOUTH, 7]
    assert table["window"].to_pylist() == (windows or [None] * 3)
    assert table["success"].to_pylist() == [True] * 3
    record = read_run_record(data)
    assert words_in(record) == [NORTH, SOUTH, 7]
    assert record.windows == tuple(windows or [None] * 3)


def test_a_record_of_no_leaves() -> None:
    record = read_run_record(write_run_record(np.empty(0, dtype=np.uint64)))
    assert words_in(record) == []
    assert record.windows == ()
