"""Partitions: a run in several passes, each over cells of the same tail in every base cell.

Source: semantics 2.4.
"""

from __future__ import annotations

import numpy as np

from sweep.errors import DeclarationError
from sweep.model.nodes import BASES, MAX_SHARD_ORDER, Words

__all__ = ["check_partitions", "partition_cells"]

MAX_PARTITIONS = 4**MAX_SHARD_ORDER


def check_partitions(value: object) -> int:
    """``value`` as a number of partitions: a power of four.

    Raises
    ------
    DeclarationError
        Kind ``partitions``; names the value and the valid numbers beside it.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise _refusal(f"partitions is {value!r}, expected a whole number that is a power of four")
    number = int(value)
    if number < 1:
        raise _refusal(f"partitions is {number}, expected a power of four, at least 1")
    if number > MAX_PARTITIONS:
        raise _refusal(f"partitions is {number}, expected at most {MAX_PARTITIONS}")
    if number & (number - 1):
        below = 1 << ((number.bit_length() - 1) & ~1)
        raise _refusal(
            f"partitions is {number}, not a power of two: it must be a power of four, such as {below} or "
            f"{4 * below}"
        )
    if number.bit_length() % 2 == 0:
        raise _refusal(
            f"partitions is {number}, an odd power of two: it must be a power of four, so use "
            f"{number // 2} or {number * 2}"
        )
    return number


def partition_cells(index: object, of: object) -> Words:
    """The cells of one partition: the twelve whose digit tail has base-4 rank ``index``.

    Returns
    -------
    ndarray of uint64, shape (12,)
        At order log4(of), ascending.

    Raises
    ------
    DeclarationError
        Kind ``partitions``: ``of`` is no power of four, or ``index`` is not in [0, of).
    """
    number = check_partitions(of)
    if isinstance(index, bool) or not isinstance(index, int | np.integer) or not 0 <= index < number:
        raise _refusal(f"partition index is {index!r} of {number}, expected a whole number 0-{number - 1}")
    order = (number.bit_length() - 1) // 2
    bases = np.arange(1, len(BASES) + 1, dtype=np.uint64) << np.uint64(60)
    return bases | np.uint64((int(index) << (60 - 2 * order)) | order)


def _refusal(message: str) -> DeclarationError:
    return DeclarationError(message, kind="partitions")
