"""Exact fields: sum, min and max of the values that are there.

Source: semantics 6.1; format 5.4 (chunk omission).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweep.errors import DeclarationError
from sweep.fold import kernels, twins
from sweep.model.fields import Law

__all__ = ["fold_exact", "is_fill", "is_missing"]

_KERNELS: dict[str, tuple[np.dtype[Any], Any]] = {
    "i": (np.dtype(np.int64), kernels.fold_exact_i64),
    "u": (np.dtype(np.uint64), kernels.fold_exact_u64),
    "f4": (np.dtype(np.float32), kernels.fold_exact_f32),
    "f8": (np.dtype(np.float64), kernels.fold_exact_f64),
}


def fold_exact(values: NDArray[Any], *, fan_in: int, law: Law, fill: Any) -> NDArray[Any]:
    """Fold each run of ``fan_in`` cells into one by ``law``, skipping missing values.

    Parameters
    ----------
    values : ndarray of an integer or float dtype, shape (n_cells * fan_in,)
        Source cells; the sources of output cell ``j`` start at ``j * fan_in``.
    fan_in : int
        Source cells for each output cell, 1 or more.
    law : {"sum", "min", "max"}
    fill : scalar
        The field's fill value. See :func:`is_missing`.

    Returns
    -------
    ndarray of the dtype of ``values``, shape (n_cells,)
        ``fill`` where every source is missing.

    Raises
    ------
    DeclarationError
        The law is unknown, or ``fill`` does not fit the dtype.

    Notes
    -----
    Integers are summed in 64 bits and wrap on the way back. Floats are summed in their own
    dtype in numpy's pairwise order; a sum of ``-0.0`` alone is ``0.0``. Of equal extremes
    (``0.0`` and ``-0.0``) the last one stays.

    Source: semantics 6.1, 6.6.
    """
    if law not in kernels.LAWS:
        known = ", ".join(kernels.LAWS)
        raise DeclarationError(
            f"exact law {law!r} is unknown: the known laws are {known}; correct the field's method",
            kind="unknown-law",
        )
    code = kernels.LAWS[law]
    fill_value = _cast_fill(fill, values.dtype)
    native = values.dtype.newbyteorder("=")
    wide, kernel = _KERNELS.get(
        native.kind if native.kind in "iu" else native.str[1:], (native, twins.fold_exact)
    )
    out = np.empty(len(values) // fan_in, dtype=wide)
    kernel(np.ascontiguousarray(values, dtype=wide), fan_in, code, wide.type(fill_value), out)
    return out.astype(values.dtype, copy=False)


def is_missing(values: NDArray[Any], fill: Any) -> NDArray[np.bool_]:
    """Which cells hold no value: NaN or equal to ``fill``; for integers equal to ``fill``.

    Source: semantics 6.1.
    """
    is_equal = np.asarray(values == _cast_fill(fill, values.dtype))
    return np.asarray(is_equal | (values != values)) if values.dtype.kind == "f" else is_equal


def is_fill(values: NDArray[Any], fill: Any) -> NDArray[np.bool_]:
    """Which cells are the fill itself: a chunk of nothing else is not written.

    NaN matches NaN with any payload; ``-0.0`` differs from ``0.0``. Unlike
    :func:`is_missing`, a NaN is not the fill of a field whose fill is a number.

    Source: format 5.4.
    """
    expected = _cast_fill(fill, values.dtype)
    if values.dtype.kind != "f":
        return np.asarray(values == expected)
    if np.isnan(expected):
        return np.isnan(values)
    return np.asarray((values == expected) & (np.signbit(values) == np.signbit(expected)))


def _cast_fill(fill: Any, dtype: np.dtype[Any]) -> Any:
    try:
        return dtype.type(fill)
    except (OverflowError, ValueError, TypeError) as error:
        raise DeclarationError(
            f"fill value {fill!r} does not fit {dtype}; correct the field's fill_value", kind="fill-value"
        ) from error
