"""Digests of many cells in one array: quantiles, counts and rows.

Notes
-----
A t-digest of a cell is a list of centroids ``(mean, weight)`` that ascend by mean. Centroid
``i`` stands for the values around its mean; its *midpoint* is the weight before it plus half
its own. The quantile ``q`` of a cell with total weight ``W`` is the piecewise linear curve
through the points (midpoint, mean), read at ``q * W``; before the first midpoint and after the
last one it stays at the first or last mean. With centroids of one value each this is
numpy's method ``hazen``, exactly. The curve never leaves the range of the means and never
falls as ``q`` rises.

Source: Dunning and Ertl, Computing extremely accurate quantiles using t-digests (2019), 2.9;
format 5.3 (cell payload).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sweep.errors import ArtifactError, DeclarationError
from sweep.fold.ragged import Ragged, offsets_of

__all__ = ["DigestArray"]

_CELLS_AT_ONCE = 65536


class DigestArray:
    """One t-digest for each cell, as an array of one dimension that xarray can carry.

    :meth:`rows` gives the centroids of one cell. Indexing with a slice, a mask or an array of
    integers gives another DigestArray; with an integer, as numpy's object arrays of xarray do,
    an array of no dimension that holds the rows. There is no arithmetic.

    Parameters
    ----------
    offsets : ndarray of int64, shape (n_cells + 1,)
        Cell ``i`` owns rows ``offsets[i]`` to ``offsets[i + 1]`` (exclusive).
    rows : ndarray of float, shape (n_rows, 2)

    Notes
    -----
    Holds the rows once and eight bytes a cell; selecting by slice copies no row.
    """

    dtype = np.dtype(object)
    ndim = 1
    # Before any numpy operator, so that arithmetic is refused instead of tried cell by cell.
    __array_ufunc__ = None

    def __init__(self, offsets: NDArray[np.int64], rows: NDArray[np.floating[Any]]) -> None:
        self._offsets = offsets
        self._rows = rows

    @classmethod
    def from_ragged(cls, cells: Ragged, dtype: np.dtype[Any]) -> Self:
        """Read payloads of little-endian (mean, weight) rows.

        Raises
        ------
        ArtifactError
            A payload is no whole number of rows.
        """
        row_bytes = 2 * dtype.itemsize
        if (cells.offsets % row_bytes).any():
            place = int(np.flatnonzero(cells.offsets % row_bytes)[0]) - 1
            raise ArtifactError(
                f"the digest of cell {place} has {int(cells.lengths()[place])} bytes, no whole number of "
                f"rows of {row_bytes}; sweep the store again",
                kind="digest-rows",
            )
        rows = cells.data.view(dtype.newbyteorder("<")).reshape(-1, 2).astype(dtype, copy=False)
        return cls(cells.offsets // row_bytes, rows)

    @classmethod
    def single(cls, rows: NDArray[np.floating[Any]]) -> Self:
        """The digest of one cell."""
        return cls(np.array([0, len(rows)], dtype=np.int64), rows)

    @property
    def shape(self) -> tuple[int]:
        """One dimension: the cells."""
        return (len(self._offsets) - 1,)

    @property
    def size(self) -> int:
        """How many cells there are."""
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self._offsets.nbytes + self._rows.nbytes)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return (
            f"DigestArray({self.size} cells, {int(self.n_centroids().sum())} centroids, {self._rows.dtype})"
        )

    def __getitem__(self, key: Any) -> Any:
        key = _only(key)
        if isinstance(key, slice):
            start, stop, step = key.indices(self.size)
            if step == 1:
                return type(self)(self._offsets[start : max(stop, start) + 1], self._rows)
            return self.take(np.arange(start, stop, step))
        places = np.asarray(key)
        if places.dtype == np.bool_:
            if places.shape != self.shape:
                raise IndexError(f"a mask of shape {places.shape} for {self.size} cells")
            places = np.flatnonzero(places)
        if places.ndim == 0:
            single = np.empty((), dtype=object)
            single[()] = self.rows(int(places))
            return single
        return self.take(places)

    def rows(self, place: int) -> NDArray[np.floating[Any]]:
        """The centroids of the cell at ``place``: columns mean and weight, shape (n_centroids, 2)."""
        place = range(self.size)[place]
        return self._rows[self._offsets[place] : self._offsets[place + 1]]

    def take(self, places: NDArray[np.integer[Any]]) -> Self:
        """The cells at ``places``; the rows are copied."""
        places = np.asarray(places, dtype=np.int64)
        if len(places) and not (-self.size <= places.min() and places.max() < self.size):
            raise IndexError(f"places {places.min()} to {places.max()} in an array of {self.size} cells")
        places = places % max(self.size, 1)
        lengths = self.n_centroids()[places]
        offsets = offsets_of(lengths)
        source = np.repeat(self._offsets[places] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return type(self)(offsets, self._rows[source])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        cells = np.empty(self.size, dtype=object)
        for place in range(self.size):
            cells[place] = self.rows(place)
        return cells if dtype is None else cells.astype(dtype)

    def __array_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any, kwargs: Any
    ) -> Any:
        # What xarray needs to put Datasets together; everything else has no meaning here.
        if func is np.result_type:
            return self.dtype
        if func is np.concatenate and all(isinstance(part, DigestArray) for part in args[0]):
            return _concatenate(args[0])
        return NotImplemented

    def astype(self, dtype: Any, copy: bool = True) -> Self:
        """Itself: xarray asks for the common dtype of what it joins.

        Raises
        ------
        TypeError
            Digests have no other dtype.
        """
        if np.dtype(dtype) != self.dtype:
            raise TypeError(f"a DigestArray cannot become {np.dtype(dtype)}: take a quantile of it")
        return self

    def n_centroids(self) -> NDArray[np.int64]:
        """Centroids of each cell, shape (n_cells,)."""
        return np.diff(self._offsets)

    def counts(self) -> NDArray[np.float64]:
        """Total weight of each cell, shape (n_cells,): the observations, or the flux; 0 where empty."""
        offsets = self._offsets
        weights = self._rows[offsets[0] : offsets[-1], 1].astype(np.float64)
        return _sums(weights, offsets - offsets[0])

    def quantile(self, q: float | Sequence[float] | NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """The value at ``q`` in each cell.

        Parameters
        ----------
        q : float, or sequence of float, shape (n_q,)
            From 0 to 1.

        Returns
        -------
        ndarray of float64, shape (n_cells,) or (n_cells, n_q)
            NaN where a cell is empty.

        Raises
        ------
        DeclarationError
            A ``q`` is not from 0 to 1.
        """
        wanted = np.asarray(q, dtype=np.float64)
        if wanted.ndim > 1 or not ((wanted >= 0) & (wanted <= 1)).all():
            raise DeclarationError(f"quantile {q!r}, expected numbers from 0 to 1", kind="quantile")
        out = np.full((self.size, wanted.size), np.nan)
        for first in range(0, self.size, _CELLS_AT_ONCE):
            out[first : first + _CELLS_AT_ONCE] = self[first : first + _CELLS_AT_ONCE]._quantiles(
                wanted.ravel()
            )
        return out[:, 0] if wanted.ndim == 0 else out

    def _quantiles(self, wanted: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.full((self.size, len(wanted)), np.nan)
        means, weights, offsets = self._ascending()
        held = np.flatnonzero(np.diff(offsets))
        if len(held) == 0:
            return out
        starts, stops = offsets[:-1][held], offsets[1:][held]
        totals = _sums(weights, offsets)[held]
        cell = np.repeat(np.arange(len(held)), stops - starts)
        before = np.cumsum(weights) - weights
        midpoints = before - before[starts][cell] + weights / 2
        for column, q in enumerate(wanted.tolist()):
            target = q * totals
            reached = np.add.reduceat((midpoints <= target[cell]).astype(np.int64), starts)
            upper = np.minimum(starts + reached, stops - 1)
            lower = np.maximum(starts + reached - 1, starts)
            gap = midpoints[upper] - midpoints[lower]
            share = np.divide(target - midpoints[lower], gap, out=np.zeros(len(held)), where=gap > 0)
            low, high = means[lower], means[upper]
            # Clipped, because a sum of two rounded products may leave the range of its ends.
            out[held, column] = np.clip(low + np.clip(share, 0, 1) * (high - low), low, high)
        return out

    def _ascending(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Means, weights and offsets of this array's own rows, ascending by mean in each cell."""
        first, last = self._offsets[0], self._offsets[-1]
        offsets = self._offsets - first
        means = self._rows[first:last, 0].astype(np.float64)
        weights = self._rows[first:last, 1].astype(np.float64)
        falls = means[1:] < means[:-1]
        falls[offsets[1:-1][(offsets[1:-1] > 0) & (offsets[1:-1] < len(means))] - 1] = False
        if falls.any():
            sequence = np.lexsort((means, np.repeat(np.arange(self.size), np.diff(offsets))))
            means, weights = means[sequence], weights[sequence]
        return means, weights, offsets


def _only(key: Any) -> Any:
    """The one index of a key that may be a tuple, with or without an ellipsis."""
    if isinstance(key, tuple):
        key = tuple(each for each in key if each is not Ellipsis)
        if len(key) > 1:
            raise IndexError(f"{len(key)} indices for an array of one dimension")
        return key[0] if key else slice(None)
    return slice(None) if key is Ellipsis else key


def _sums(weights: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum of each cell's weights; ``reduceat`` has no empty segments, so they are left out."""
    totals = np.zeros(len(offsets) - 1)
    held = np.flatnonzero(np.diff(offsets))
    if len(held):
        totals[held] = np.add.reduceat(weights, offsets[:-1][held])
    return totals


def _concatenate(parts: Sequence[DigestArray]) -> DigestArray:
    lengths = np.concatenate([part.n_centroids() for part in parts])
    rows = [part._rows[part._offsets[0] : part._offsets[-1]] for part in parts]
    return DigestArray(offsets_of(lengths), np.concatenate(rows))
