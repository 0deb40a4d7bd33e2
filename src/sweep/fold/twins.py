"""What the kernels compute, said in plain numpy: the oracle of the tests.

Names and signatures are those of :mod:`sweep.fold.kernels`. A twin may allocate and
loop over cells in Python; it is written for reading, and serves where no kernel is
compiled for a dtype (float16).

Source: semantics 6.1-6.4, 6.6; format 5.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweep.fold._asin import COEFFICIENTS, HALF_PI, HALF_PI_LOW, SPLIT

__all__ = [
    "asin_values",
    "copy_ranges",
    "fold_digests",
    "fold_exact",
    "fold_exact_f32",
    "fold_exact_f64",
    "fold_exact_i64",
    "fold_exact_u64",
    "fold_packed",
    "frame",
    "sum_weights",
    "sum_weights_f32",
    "sum_weights_f64",
    "unframe",
]

type Bytes = NDArray[np.uint8]
type Indices = NDArray[np.int64]
type Words = NDArray[np.uint64]
type Floats = NDArray[np.float64]


def copy_ranges(source: Bytes, starts: Indices, places: Indices, lengths: Indices, out: Bytes) -> None:
    """Copy ``lengths[i]`` bytes from ``source[starts[i]]`` to ``out[places[i]]``, for every i."""
    for start, place, length in zip(starts, places, lengths, strict=True):
        out[place : place + length] = source[start : start + length]


def frame(offsets: Indices, data: Bytes, width: int, out: Bytes) -> None:
    """Write each cell as its little-endian length of ``width`` bytes and its bytes."""
    framed = bytearray()
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        framed += (stop - start).to_bytes(width, "little") + data[start:stop].tobytes()
    out[: len(framed)] = np.frombuffer(framed, dtype=np.uint8)


def unframe(raw: Bytes, start: int, offsets: Indices, data: Bytes) -> int:
    """Read cells framed by ``u32le`` lengths from ``raw[start:]``; return how many fitted."""
    place, end = start, 0
    for cell in range(len(offsets) - 1):
        head = raw[place : place + 4].tobytes()
        length = int.from_bytes(head, "little")
        place += 4
        if len(head) < 4 or place + length > len(raw) or end + length > len(data):
            return cell
        data[end : end + length] = raw[place : place + length]
        place += length
        end += length
        offsets[cell + 1] = end
    return len(offsets) - 1


def sum_weights(weights: NDArray[Any], offsets: Indices, out: Floats) -> None:
    """Numpy's sum of ``weights[offsets[i]:offsets[i + 1]]`` in the dtype of the weights."""
    for cell in range(len(out)):
        out[cell] = np.add.reduce(weights[offsets[cell] : offsets[cell + 1]])


sum_weights_f32 = sum_weights
sum_weights_f64 = sum_weights


def fold_exact(values: NDArray[Any], fan_in: int, law: int, fill: Any, out: NDArray[Any]) -> None:
    """Fold groups of ``fan_in`` values; a value is missing where it is NaN or equals ``fill``.

    A group of missing values becomes ``fill``. Of equal extremes (``0.0``, ``-0.0``) the last stays.
    """
    groups = values.reshape(-1, fan_in)
    fill = np.asarray(fill, dtype=values.dtype)
    is_missing = (groups != groups) | (groups == fill)
    if law == 0:
        with np.errstate(over="ignore", invalid="ignore"):
            folded = np.add.reduce(
                np.where(is_missing, values.dtype.type(0), groups), axis=1, dtype=values.dtype
            )
    else:
        folded = np.full(len(groups), fill, dtype=values.dtype)
        is_seen = np.zeros(len(groups), dtype=bool)
        for column, is_gone in zip(groups.T, is_missing.T, strict=True):
            is_beyond = column <= folded if law == 1 else column >= folded
            folded = np.where(~is_gone & (~is_seen | is_beyond), column, folded)
            is_seen |= ~is_gone
    out[:] = np.where(is_missing.all(axis=1), fill, folded)


fold_exact_i64 = fold_exact
fold_exact_u64 = fold_exact
fold_exact_f32 = fold_exact
fold_exact_f64 = fold_exact


def fold_packed(words: Words, counts: Indices, fan_in: int, out: Words) -> None:
    """Average the eight byte lanes of each group of words, weighted by counts above 0."""
    lanes = words.astype("<u8").view(np.uint8).reshape(-1, fan_in, 8)
    weights = np.maximum(counts, 0).reshape(-1, fan_in)
    totals = weights.sum(axis=1)
    weighted = np.cumsum(weights[:, :, None].astype(np.float64) * lanes, axis=1)[:, -1, :]
    levels = np.rint(weighted / np.maximum(totals, 1)[:, None]).astype(np.int64)
    is_present = ((weights > 0)[:, :, None] & (lanes > 0)).any(axis=1)
    levels = np.clip(np.where(is_present & (levels == 0), 1, levels), 0, 255).astype(np.uint8)
    packed = np.ascontiguousarray(levels).view("<u8").ravel()
    out[:] = np.where(totals > 0, packed, np.uint64(0))


def asin_values(x: Floats, out: Floats) -> None:
    """Arcsine of every value of ``x``, each in [-1, 1] or NaN."""
    size = np.abs(x)
    is_outer = size > 0.5
    z = np.where(is_outer, (1.0 - size) * 0.5, size * size)
    y = np.where(is_outer, np.sqrt(z), size)
    z2 = z * z
    z4 = z2 * z2
    c = COEFFICIENTS
    low = ((c[1] + c[2] * z) + (c[3] + c[4] * z) * z2) + ((c[5] + c[6] * z) + (c[7] + c[8] * z) * z2) * z4
    high = (c[9] + c[10] * z) + (c[11] + c[12] * z) * z2
    tail = y * (z * (c[0] + z * (low + high * (z4 * z4))))
    head = SPLIT * y - (SPLIT * y - y)
    # The rest of the root, which one float64 cannot hold; 1 stands in where the root is 0.
    rest = np.where(z > 0.0, (z - head * head) / np.where(z > 0.0, y + head, 1.0), 0.0)
    first = HALF_PI - 2.0 * head
    lost = (HALF_PI - first) - 2.0 * head
    outer = first + (lost + (HALF_PI_LOW - 2.0 * (rest + tail)))
    out[:] = np.copysign(np.where(is_outer, outer, size + tail), x)


def fold_digests(
    rows: Floats,
    row_offsets: Indices,
    locations: Words,
    times: Words,
    fan_in: int,
    delta: float,
    centroids: NDArray[np.float32],
    spans: Indices,
    counts: Indices,
    order: Indices,
) -> None:
    """Compress each group of ``fan_in`` digests, where two or more have rows."""
    n_centroids = n_ordered = 0
    for group in range(len(counts)):
        edges = row_offsets[group * fan_in : (group + 1) * fan_in + 1]
        counts[group] = 0
        if np.count_nonzero(np.diff(edges)) < 2:
            continue
        window = slice(int(edges[0]), int(edges[-1]))
        words = [column[window] for column in (times, locations) if len(column)]
        ordered = np.lexsort((*words, rows[window, 1], rows[window, 0])) + edges[0]
        folded, starts = _compress(rows[ordered, 0], rows[ordered, 1], delta)
        n_new = len(starts)
        centroids[n_centroids : n_centroids + n_new] = folded
        spans[n_centroids : n_centroids + n_new] = np.diff([*starts, len(ordered)])
        order[n_ordered : n_ordered + len(ordered)] = ordered
        counts[group] = n_new
        n_centroids += n_new
        n_ordered += len(ordered)


def _compress(means: Floats, weights: Floats, delta: float) -> tuple[NDArray[np.float32], list[int]]:
    """The centroids of sorted rows, and the first row of each."""
    with np.errstate(all="ignore"):
        cumulative = np.cumsum(weights)
        q = np.clip(cumulative / cumulative[-1], 0.0, 1.0)
        arcsines = np.empty_like(q)
        asin_values(2.0 * q - 1.0, arcsines)
        scale = delta * (arcsines / np.pi + 0.5)
        starts = [0]
        while True:
            edge = scale[starts[-1] - 1] if starts[-1] > 0 else 0.0
            stop = max(int(np.searchsorted(scale, edge + 1.0, side="right")), starts[-1] + 1)
            if stop >= len(scale):
                break
            starts.append(stop)
        folded_weights = np.add.reduceat(weights, starts)
        folded_means = np.add.reduceat(means * weights, starts) / folded_weights
        return np.stack([folded_means, folded_weights], axis=1).astype(np.float32), starts
