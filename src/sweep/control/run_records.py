"""Run records of leaf work: small Parquet tables that say which leaves exist.

Source: semantics 2.1; leaves 1.6.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from arro3.core import DataType, RecordBatch, Table
from arro3.io import read_parquet, write_parquet
from numpy.typing import NDArray

from sweep.control._parquet_footer import check_footer
from sweep.errors import ArtifactError
from sweep.model.nodes import Words
from sweep.plan.leaves import NO_WINDOW, WindowCodes

__all__ = ["RecordedLeaves", "read_run_record", "write_run_record"]

_MAGIC = b"PAR1"
_BATCH_ROWS = 65536
_EXACT_IN_FLOAT = float(2**53)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedLeaves:
    """The leaves that one record vouches for.

    ``codes`` is None where the record has no column of windows; ``inexact`` counts keys that
    were stored as floats and cannot be trusted.
    """

    words: Words
    codes: WindowCodes | None
    inexact: int = 0

    @property
    def windows(self) -> tuple[str | None, ...] | None:
        """The windows as texts, for small records: an object for each leaf."""
        return None if self.codes is None else self.codes.texts()


def read_run_record(data: bytes) -> RecordedLeaves:
    """Read the leaves of a record.

    Raises
    ------
    ArtifactError
        It is no Parquet file, has no ``shard_key`` column, or one of other than packed words.

    Notes
    -----
    Holds 12 bytes a leaf; Python objects are made for one batch of rows at a time.
    """
    _check_ends(data)
    check_footer(data)
    try:
        reader = read_parquet(data, batch_size=_BATCH_ROWS)
        names = reader.schema.names
        if "shard_key" not in names:
            raise ArtifactError("it has no column shard_key", kind="run-record")
        labels: dict[str, int] = {}
        parts = [_batch(RecordBatch.from_arrow(batch), names, labels) for batch in reader]
    except ArtifactError:
        raise
    except BaseException as error:
        # arro3 raises bare exceptions for damage, and for some of it panics, which is no Exception.
        if not isinstance(error, Exception) and type(error).__module__ != "pyo3_runtime":
            raise
        raise ArtifactError(f"it is not readable as Parquet ({error})", kind="run-record") from error
    has_windows = "window" in names
    codes = np.concatenate([np.empty(0, dtype=np.int32), *(part.codes for part in parts)])
    return RecordedLeaves(
        words=np.concatenate([np.empty(0, dtype=np.uint64), *(part.words for part in parts)]),
        codes=WindowCodes(codes=codes, labels=tuple(labels)) if has_windows else None,
        inexact=sum(part.inexact for part in parts),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """What one batch of rows gives."""

    words: Words
    codes: NDArray[np.int32]
    inexact: int


def _check_ends(data: bytes) -> None:
    """Refuse what is cut short or no Parquet at all, on which the reader panics aloud."""
    footer = int.from_bytes(data[-8:-4], "little")
    if data[:4] != _MAGIC or data[-4:] != _MAGIC or footer + 12 > len(data):
        raise ArtifactError(
            f"it is not readable as Parquet ({len(data)} bytes that do not begin and end as one: cut short, "
            "or of another kind)",
            kind="run-record",
        )


def _batch(batch: RecordBatch, names: Sequence[str], labels: dict[str, int]) -> _Rows:
    """The usable rows of a batch; labels that are new get the next number."""
    keys = batch.column("shard_key")
    n_rows = batch.num_rows
    keep = np.ones(n_rows, dtype=np.bool_)
    if "success" in names:
        success = batch.column("success").to_pylist()
        keep &= np.fromiter((bool(value) for value in success), dtype=np.bool_, count=n_rows)
    words, known, inexact = _words(keys, n_rows)
    keep &= known
    rows = np.flatnonzero(keep)
    codes = np.full(len(rows), NO_WINDOW, dtype=np.int32)
    if "window" in names and batch.column("window").null_count < n_rows:
        column = batch.column("window").to_pylist()
        codes[:] = [_code(column[row], labels) for row in rows.tolist()]
    return _Rows(words=words[keep], codes=codes, inexact=inexact)


def _words(keys: Any, n_rows: int) -> tuple[Words, NDArray[np.bool_], int]:
    """The keys as words, which of them are known, and how many floats were not exact."""
    is_float: bool = DataType.is_floating(keys.type)
    if is_float:
        values = np.array([np.nan if v is None else float(v) for v in keys.to_pylist()], dtype=np.float64)
        known = ~np.isnan(values)
        exact = known & (values == np.floor(values)) & (values >= 0) & (values < _EXACT_IN_FLOAT)
        return np.where(exact, values, 0).astype(np.uint64), exact, int((known & ~exact).sum())
    if keys.null_count == 0 and DataType.is_unsigned_integer(keys.type):
        return np.asarray(keys.to_numpy()).astype(np.uint64), np.ones(n_rows, dtype=np.bool_), 0
    listed = keys.to_pylist()
    strange = [value for value in listed if value is not None and not _is_word(value)]
    if strange:
        raise ArtifactError(
            f"its shard_key {strange[0]!r} is no packed word (an unsigned integer)", kind="run-record"
        )
    known = np.fromiter((value is not None for value in listed), dtype=np.bool_, count=n_rows)
    return np.array([value or 0 for value in listed], dtype=np.uint64), known, 0


def _is_word(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _code(window: Any, labels: dict[str, int]) -> int:
    is_null = window is None or window != window
    return NO_WINDOW if is_null else labels.setdefault(str(window), len(labels))


def write_run_record(words: Words, windows: Sequence[str | None] | None = None) -> bytes:
    """A record of finished leaves, with the columns that discovery reads.

    Parameters
    ----------
    words : ndarray of uint64, shape (n_leaves,)
    windows : sequence of str or None, shape (n_leaves,), optional
        None on an unwindowed store.
    """
    from arro3.core import Array  # beside the reader's imports this one is for writers alone

    n_leaves = len(words)
    labels = list(windows) if windows is not None else [None] * n_leaves
    table = Table.from_pydict(
        {
            "shard_key": Array.from_numpy(np.ascontiguousarray(words, dtype=np.uint64)),
            "window": Array(labels, type=DataType.utf8()),
            "success": Array.from_numpy(np.ones(n_leaves, dtype=np.bool_)),
        }
    )
    buffer = io.BytesIO()
    write_parquet(table, buffer)
    return buffer.getvalue()
