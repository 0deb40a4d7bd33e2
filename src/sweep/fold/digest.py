"""Digest fields: k-way merges of t-digests and of their companion words.

Source: semantics 6.2, 6.3, 6.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweep.errors import ArtifactError, DeclarationError
from sweep.fold import kernels, twins
from sweep.fold.ragged import Ragged, offsets_of
from sweep.model.nodes import Words, common_ancestors, reduce_times

__all__ = ["DigestCells", "digest_counts", "merge_digests"]

_WORD_BYTES = 8
_NO_WORDS: Words = np.empty(0, dtype=np.uint64)
_BASE_SHIFT = np.uint64(60)

type _Join = Callable[[Words, NDArray[np.int64]], Words]


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestCells:
    """The digests of a run of cells.

    Parameters
    ----------
    payload : Ragged
        Rows of (mean, weight) in the field's dtype, little endian.
    locations : Ragged or None
        One packed word for each row; ``None`` for a field without locations.
    times : Ragged or None
        One time word for each row; ``None`` for a field without times.
    """

    payload: Ragged
    locations: Ragged | None
    times: Ragged | None


def merge_digests(
    cells: DigestCells, *, fan_in: int, delta: float, dtype: np.dtype[Any], inner: int = 2
) -> DigestCells:
    """Merge each run of ``fan_in`` digests into one.

    Parameters
    ----------
    cells : DigestCells
        ``n_cells * fan_in`` source cells; the sources of output cell ``j`` start at
        ``j * fan_in``.
    fan_in : int
        Source cells for each output cell, 1 or more.
    delta : float
        The budget of the field: about the most centroids that a merge leaves.
    dtype : numpy.dtype
        The element dtype of the payload.
    inner : int, default 2
        Values in a row. Only rows of (mean, weight) can be merged.

    Returns
    -------
    DigestCells
        ``n_cells`` cells. None with rows: empty. One: its bytes, whatever its size. More:
        the merge, rounded to float32 and stored in ``dtype``.

    Raises
    ------
    DeclarationError
        ``inner`` is not 2.
    ArtifactError
        A payload is not whole rows, a companion does not have one word for each row, or
        a merge meets a word that is 0, no cell, or of another base cell.

    Notes
    -----
    Holds the rows of the block about five times over, in float64 and as indices.

    Source: semantics 6.2, 6.3.
    """
    if inner != 2:
        raise DeclarationError(
            f"a digest has rows of 2 values (mean, weight), got inner_shape [{inner}]; correct the field",
            kind="inner-shape",
        )
    merge = _Merge.of(cells, fan_in=fan_in, delta=float(delta), dtype=dtype.newbyteorder("<"))
    return DigestCells(
        payload=merge.assemble(cells.payload, merge.centroids.astype(merge.dtype), merge.row_bytes),
        locations=merge.fold_words(cells.locations, "locations", common_ancestors),
        times=merge.fold_words(cells.times, "times", reduce_times),
    )


def digest_counts(payload: Ragged, dtype: np.dtype[Any]) -> NDArray[np.int64]:
    """How many values stand behind each digest: the sum of its weights, rounded half to even.

    Parameters
    ----------
    payload : Ragged
        ``n_cells`` digests.
    dtype : numpy.dtype
        The element dtype; the weights are summed in it.

    Returns
    -------
    ndarray of int64, shape (n_cells,)
        0 for an empty digest.

    Raises
    ------
    ArtifactError
        A payload is not whole rows, or its weights do not add up to a finite number.

    Notes
    -----
    Source: semantics 6.4.
    """
    stored = dtype.newbyteorder("<")
    offsets = _row_offsets(payload, 2 * stored.itemsize, "payload")
    weights = np.ascontiguousarray(_rows_of(payload, stored)[:, 1])
    sums = np.empty(payload.n_cells, dtype=np.float64)
    summing: dict[int, Any] = {4: kernels.sum_weights_f32, 8: kernels.sum_weights_f64}
    summing.get(stored.itemsize, twins.sum_weights)(weights, offsets, sums)
    is_bad = ~(np.abs(sums) < 2.0**63)
    if is_bad.any():
        cell = int(np.argmax(is_bad))
        raise ArtifactError(
            f"digest of cell {cell}: its weights add up to {sums[cell]}, expected a count; "
            "the payload is damaged, write its artifact again",
            kind="digest-weights",
            cell=cell,
        )
    return np.rint(sums).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merge:
    """The arithmetic of one block, from which payload and companions are put together."""

    dtype: np.dtype[Any]
    fan_in: int
    row_offsets: NDArray[np.int64]
    row_counts: NDArray[np.int64]
    n_rows: NDArray[np.int64]
    """Rows of each output cell."""
    is_merged: NDArray[np.bool_]
    centroids: NDArray[np.float32]
    spans: NDArray[np.int64]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, cells: DigestCells, *, fan_in: int, delta: float, dtype: np.dtype[Any]) -> _Merge:
        payload = cells.payload
        offsets = _row_offsets(payload, 2 * dtype.itemsize, "payload")
        row_counts = np.diff(offsets)
        with np.errstate(invalid="ignore"):  # a signalling NaN is a value like any other here
            rows = _rows_of(payload, dtype).astype(np.float64)
        n_cells = payload.n_cells // fan_in
        centroids = np.empty((len(rows), 2), dtype=np.float32)
        spans = np.empty(len(rows), dtype=np.int64)
        counts = np.empty(n_cells, dtype=np.int64)
        order = np.empty(len(rows), dtype=np.int64)
        locations = _words_of(cells.locations, row_counts, "locations")
        times = _words_of(cells.times, row_counts, "times")
        kernels.fold_digests(rows, offsets, locations, times, fan_in, delta, centroids, spans, counts, order)
        used = int(counts.sum())
        is_merged = counts > 0
        groups = row_counts.reshape(n_cells, fan_in)
        n_ordered = int(groups.sum(axis=1)[is_merged].sum())
        return cls(
            dtype=dtype,
            fan_in=fan_in,
            row_offsets=offsets,
            row_counts=row_counts,
            n_rows=np.where(is_merged, counts, groups.sum(axis=1)),
            is_merged=is_merged,
            centroids=centroids[:used],
            spans=spans[:used],
            order=order[:n_ordered],
        )

    @property
    def row_bytes(self) -> int:
        return 2 * self.dtype.itemsize

    def assemble(self, source: Ragged, merged: NDArray[Any], row_bytes: int) -> Ragged:
        """Cells of ``merged`` rows where there was a merge, else the bytes of ``source``."""
        lengths = self.n_rows * row_bytes
        offsets = offsets_of(lengths)
        data = np.empty(int(offsets[-1]), dtype=np.uint8)
        chosen = self.is_merged
        begins = offsets_of(lengths[chosen])[:-1]
        kernels.copy_ranges(
            merged.view(np.uint8).reshape(-1), begins, offsets[:-1][chosen], lengths[chosen], data
        )
        chosen = ~chosen
        begins = source.offsets[:: self.fan_in][:-1]
        kernels.copy_ranges(source.data, begins[chosen], offsets[:-1][chosen], lengths[chosen], data)
        return Ragged(offsets, data)

    def fold_words(self, source: Ragged | None, name: str, join: _Join) -> Ragged | None:
        """The companion words of the output cells."""
        if source is None:
            return None
        words = _words_of(source, self.row_counts, name)[self.order]
        self._check_words(words, name)
        joined = _NO_WORDS
        if len(words) > 0:
            try:
                joined = join(words, offsets_of(self.spans))
            except ValueError as error:
                raise self._bad_words(self._blame(words, join), name, str(error)) from error
        return self.assemble(source, joined.astype("<u8"), _WORD_BYTES)

    def _check_words(self, words: Words, name: str) -> None:
        """Raise where a merged word is 0, or the locations of one cell leave its base cell."""
        cells = self._cells_of_words()
        if (words == 0).any():
            raise self._bad_words(int(cells[np.argmax(words == 0)]), name, "a word is 0")
        if name == "locations":
            bases = words >> _BASE_SHIFT
            is_first = np.diff(cells, prepend=-1) != 0
            is_foreign = bases != bases[is_first][np.cumsum(is_first) - 1]
            if is_foreign.any():
                raise self._bad_words(int(cells[np.argmax(is_foreign)]), name, "words of several base cells")

    def _cells_of_words(self) -> NDArray[np.int64]:
        """The output cell of each row in ``order``."""
        merged = np.flatnonzero(self.is_merged)
        sizes = self.row_counts.reshape(-1, self.fan_in).sum(axis=1)[merged]
        return np.repeat(merged, sizes)

    def _blame(self, words: Words, join: _Join) -> int:
        """The first output cell whose words cannot be joined."""
        cells = self._cells_of_words()
        for cell in np.unique(cells):
            own = words[cells == cell]
            try:
                join(own, np.array([0, len(own)], dtype=np.int64))
            except ValueError:
                return int(cell)
        return int(cells[0])

    def _bad_words(self, cell: int, name: str, seen: str) -> ArtifactError:
        return ArtifactError(
            f"{name} of output cell {cell} (source cells {cell * self.fan_in} to "
            f"{(cell + 1) * self.fan_in - 1}) cannot be joined: {seen}; expected one valid word for each "
            "digest row. The source artifact is damaged, write it again",
            kind="companion-words",
            cell=cell,
        )


def _row_offsets(cells: Ragged, row_bytes: int, name: str) -> NDArray[np.int64]:
    """The offsets of ``cells`` in rows."""
    remainders = cells.offsets % row_bytes
    if remainders.any():
        cell = int(np.argmax(remainders > 0)) - 1
        raise ArtifactError(
            f"{name} of source cell {cell} has {int(cells.lengths()[cell])} bytes, expected a multiple of "
            f"{row_bytes}; the artifact is damaged, or its dtype is not the declared one",
            kind="digest-rows",
            cell=cell,
        )
    return cells.offsets // row_bytes


def _rows_of(payload: Ragged, dtype: np.dtype[Any]) -> NDArray[Any]:
    return payload.data.view(dtype).reshape(-1, 2)


def _words_of(source: Ragged | None, row_counts: NDArray[np.int64], name: str) -> Words:
    """The companion words of all rows, checked to be one for each row."""
    if source is None:
        return _NO_WORDS
    counts = np.diff(_row_offsets(source, _WORD_BYTES, name))
    if len(counts) != len(row_counts):
        raise ArtifactError(
            f"{name} hold {len(counts)} cells, expected {len(row_counts)} as the payload has",
            kind="companion-rows",
        )
    is_bad = counts != row_counts
    if is_bad.any():
        cell = int(np.argmax(is_bad))
        raise ArtifactError(
            f"{name} of source cell {cell} hold {int(counts[cell])} words, expected {int(row_counts[cell])}: "
            "one for each digest row. The artifact is damaged, write it again",
            kind="companion-rows",
            cell=cell,
        )
    return source.data.view("<u8")
