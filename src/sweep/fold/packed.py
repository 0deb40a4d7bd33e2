"""Packed composition words: eight byte lanes averaged by the counts of a digest.

Source: semantics 6.4; leaves 5.6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sweep.fold import kernels

__all__ = ["fold_packed"]


def fold_packed(words: NDArray[np.uint64], counts: NDArray[np.int64], *, fan_in: int) -> NDArray[np.uint64]:
    """Average each run of ``fan_in`` words, lane by lane, weighted by ``counts``.

    Parameters
    ----------
    words : ndarray of uint64, shape (n_cells * fan_in,)
        Eight lanes of one byte, the first in the low byte.
    counts : ndarray of int64, shape (n_cells * fan_in,)
        The rows behind each word; words with a count of 0 or less are left out.
    fan_in : int
        Source cells for each output cell, 1 or more.

    Returns
    -------
    ndarray of uint64, shape (n_cells,)
        0 where no word is left.

    Notes
    -----
    Lanes are rounded half to even; a lane that is above 0 in any word kept does not fall
    below 1. For the half pairs of semantics 6.4 the caller zeroes the counts of a source
    without a divisor, and blanks the output cells that a source without words covers.

    Source: semantics 6.4.
    """
    out = np.empty(len(words) // fan_in, dtype=np.uint64)
    kernels.fold_packed(
        np.ascontiguousarray(words, dtype=np.uint64),
        np.ascontiguousarray(counts, dtype=np.int64),
        fan_in,
        out,
    )
    return out
