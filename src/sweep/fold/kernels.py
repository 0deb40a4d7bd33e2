"""The inner loops of the folds, compiled.

Every kernel has a twin of the same name and signature in :mod:`sweep.fold.twins`, which
says in plain numpy what it computes; tests hold the two together bit for bit. Kernels
write into preallocated outputs, hold no Python object, run serially and release the GIL.
Only IEEE basic operations are used, without contraction, so the results do not depend
on the processor.

All of them live in this one module: numba's cache on disk is renewed when the module of a
kernel changes, not when that of a function it calls does. The cache is tied to the processor
too; a build for other machines sets ``NUMBA_CPU_NAME=generic`` and calls :func:`warm`.

Source: semantics 6 (merge), 6.6 (last-bit rules); format 5.4 (framing).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types

from sweep.fold._asin import COEFFICIENTS, HALF_PI, HALF_PI_LOW, SPLIT

__all__ = [
    "LAWS",
    "asin_values",
    "copy_ranges",
    "fold_digests",
    "fold_exact_f32",
    "fold_exact_f64",
    "fold_exact_i64",
    "fold_exact_u64",
    "fold_packed",
    "frame",
    "sum_weights_f32",
    "sum_weights_f64",
    "unframe",
    "warm",
]

LAWS = {"sum": 0, "min": 1, "max": 2}
"""The laws of exact fields, as the kernels number them."""

_SUM, _MIN = LAWS["sum"], LAWS["min"]
_C0, _C1, _C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11, _C12 = COEFFICIENTS
_BYTE = np.uint64(0xFF)
_NAN_KEY = np.uint32(0xFFFFFFFF)
_SIGN = np.uint32(0x80000000)
_LOW32 = np.uint64(0xFFFFFFFF)
_SMALL_GROUP = 16
_BLOCK = 128
_SHORT = 8
_DEPTH = 64
_PI = math.pi


def _read(dtype: Any, ndim: int = 1) -> types.Array:
    """A contiguous input array that may be read-only and unaligned."""
    return types.Array(dtype, ndim, "C", readonly=True, aligned=False)


_u8, _u64, _i64, _f32, _f64 = types.uint8, types.uint64, types.int64, types.float32, types.float64
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}


# -- bytes ------------------------------------------------------------------------------


@njit(types.void(_read(_u8), _read(_i64), _read(_i64), _read(_i64), _u8[::1]), **_OPTIONS)
def copy_ranges(source: Any, starts: Any, places: Any, lengths: Any, out: Any) -> None:
    """Copy ``lengths[i]`` bytes from ``source[starts[i]]`` to ``out[places[i]]``, for every i."""
    for i in range(lengths.size):
        start = starts[i]
        place = places[i]
        for offset in range(lengths[i]):
            out[place + offset] = source[start + offset]


@njit(types.void(_read(_i64), _read(_u8), _i64, _u8[::1]), **_OPTIONS)
def frame(offsets: Any, data: Any, width: Any, out: Any) -> None:
    """Write each cell as its little-endian length of ``width`` bytes and its bytes."""
    place = 0
    for cell in range(offsets.size - 1):
        start = offsets[cell]
        length = offsets[cell + 1] - start
        rest = length
        for _ in range(width):
            out[place] = rest & 0xFF
            rest >>= 8
            place += 1
        for offset in range(length):
            out[place + offset] = data[start + offset]
        place += length


@njit(_i64(_read(_u8), _i64, _i64[::1], _u8[::1]), **_OPTIONS)
def unframe(raw: Any, start: Any, offsets: Any, data: Any) -> Any:
    """Read cells framed by ``u32le`` lengths from ``raw[start:]``.

    Fills ``offsets[1:]`` and ``data``; returns the number of cells read, less than
    ``len(offsets) - 1`` where a cell does not fit into ``raw`` or ``data``.
    """
    place = start
    end = 0
    for cell in range(offsets.size - 1):
        if place + 4 > raw.size:
            return cell
        length: Any = 0
        for byte in range(4):
            length |= np.int64(raw[place + byte]) << (8 * byte)
        place += 4
        if place + length > raw.size or end + length > data.size:
            return cell
        for offset in range(length):
            data[end + offset] = raw[place + offset]
        place += length
        end += length
        offsets[cell + 1] = end
    return offsets.size - 1


# -- sums -----------------------------------------------------------------------------------


@njit(**_OPTIONS)
def _pairwise_short(values: Any, start: Any, n: Any) -> Any:
    """Numpy's sum of up to 128 values: eight accumulators from eight values on."""
    if n < 8:
        total = values.dtype.type(-0.0)
        for i in range(start, start + n):
            total += values[i]
        return total
    r0, r1, r2, r3 = values[start], values[start + 1], values[start + 2], values[start + 3]
    r4, r5, r6, r7 = values[start + 4], values[start + 5], values[start + 6], values[start + 7]
    whole = start + n - n % 8
    for i in range(start + 8, whole, 8):
        r0 += values[i]
        r1 += values[i + 1]
        r2 += values[i + 2]
        r3 += values[i + 3]
        r4 += values[i + 4]
        r5 += values[i + 5]
        r6 += values[i + 6]
        r7 += values[i + 7]
    total = ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7))
    for i in range(whole, start + n):
        total += values[i]
    return total


@njit(**_OPTIONS)
def _pairwise_long(values: Any, start: Any, n: Any) -> Any:
    """Numpy's sum of more than 128 values: halves, the first a multiple of eight long.

    An explicit stack: a recursive function does not survive numba's cache.
    """
    sizes = np.empty(_DEPTH, np.int64)
    lefts = np.empty(_DEPTH, values.dtype)
    is_left_done = np.zeros(_DEPTH, np.bool_)
    sizes[0] = n
    depth = 0
    while True:
        if sizes[depth] > _BLOCK:
            half = sizes[depth] // 2
            sizes[depth + 1] = half - half % 8
            depth += 1
            is_left_done[depth] = False
            continue
        total = _pairwise_short(values, start, sizes[depth])
        start += sizes[depth]
        depth -= 1
        while depth >= 0 and is_left_done[depth]:
            total = lefts[depth] + total
            depth -= 1
        if depth < 0:
            return total
        lefts[depth] = total
        is_left_done[depth] = True
        half = sizes[depth] // 2
        sizes[depth + 1] = sizes[depth] - (half - half % 8)
        depth += 1
        is_left_done[depth] = False


@njit(**_OPTIONS)
def _pairwise(values: Any, start: Any, n: Any) -> Any:
    """Numpy's pairwise sum of ``values[start:start + n]``; ``-0.0`` for none (semantics 6.6)."""
    if n <= _BLOCK:
        return _pairwise_short(values, start, n)
    return _pairwise_long(values, start, n)


def _sum_weights(weights: Any, offsets: Any, out: Any) -> None:
    """Numpy's sum of ``weights[offsets[i]:offsets[i + 1]]`` in the dtype of the weights."""
    zero = weights.dtype.type(0.0)
    for cell in range(out.size):
        start = offsets[cell]
        out[cell] = zero + _pairwise(weights, start, offsets[cell + 1] - start)


sum_weights_f32 = njit(types.void(_read(_f32), _read(_i64), _f64[::1]), **_OPTIONS)(_sum_weights)
sum_weights_f64 = njit(types.void(_read(_f64), _read(_i64), _f64[::1]), **_OPTIONS)(_sum_weights)


# -- exact and packed fields ----------------------------------------------------------------


def _fold_exact(values: Any, fan_in: Any, law: Any, fill: Any, out: Any) -> None:
    """Fold groups of ``fan_in`` values; a value is missing where it is NaN or equals ``fill``.

    A group of missing values becomes ``fill``. Of equal extremes (``0.0``, ``-0.0``) the last stays.
    """
    zero = values.dtype.type(0)
    kept = np.empty(fan_in, values.dtype)
    for cell in range(out.size):
        n_kept = 0
        total = zero
        extreme = fill
        for i in range(fan_in):
            value = values[cell * fan_in + i]
            is_missing = value != value or value == fill
            kept[i] = zero if is_missing else value
            total += kept[i]
            if not is_missing:
                if n_kept == 0 or (value <= extreme if law == _MIN else value >= extreme):
                    extreme = value
                n_kept += 1
        if n_kept == 0:
            out[cell] = fill
        elif law != _SUM:
            out[cell] = extreme
        elif fan_in < _SHORT:
            out[cell] = total
        else:
            out[cell] = zero + _pairwise(kept, 0, fan_in)


def _exact_kernel(dtype: Any) -> Any:
    signature = types.void(_read(dtype), _i64, _i64, dtype, dtype[::1])
    return njit(signature, **_OPTIONS)(_fold_exact)


fold_exact_i64 = _exact_kernel(_i64)
fold_exact_u64 = _exact_kernel(_u64)
fold_exact_f32 = _exact_kernel(_f32)
fold_exact_f64 = _exact_kernel(_f64)


@njit(types.void(_read(_u64), _read(_i64), _i64, _u64[::1]), **_OPTIONS)
def fold_packed(words: Any, counts: Any, fan_in: Any, out: Any) -> None:
    """Average the eight byte lanes of each group of words, weighted by counts above 0."""
    for cell in range(out.size):
        base = cell * fan_in
        total = 0
        for i in range(base, base + fan_in):
            total += max(counts[i], 0)
        packed = np.uint64(0)
        for lane in range(8 if total > 0 else 0):
            shift = np.uint64(8 * lane)
            weighted = 0.0
            highest: Any = 0
            for i in range(base, base + fan_in):
                if counts[i] > 0:
                    level = np.int64((words[i] >> shift) & _BYTE)
                    weighted += float(counts[i]) * float(level)
                    highest = max(highest, level)
            mean: Any = np.int64(np.rint(weighted / float(total)))
            packed |= np.uint64(min(max(mean, min(highest, 1)), 255)) << shift
        out[cell] = packed


# -- arcsine ----------------------------------------------------------------------------------


@njit(**_OPTIONS)
def _asin(x: Any) -> Any:
    """Arcsine of ``x`` in [-1, 1], without a branch so that loops over it vectorise."""
    size = abs(x)
    is_outer = size > 0.5
    z = (1.0 - size) * 0.5 if is_outer else size * size
    root = math.sqrt(z)
    y = root if is_outer else size
    z2 = z * z
    z4 = z2 * z2
    z8 = z4 * z4
    low = ((_C1 + _C2 * z) + (_C3 + _C4 * z) * z2) + ((_C5 + _C6 * z) + (_C7 + _C8 * z) * z2) * z4
    high = (_C9 + _C10 * z) + (_C11 + _C12 * z) * z2
    tail = y * (z * (_C0 + z * (low + high * z8)))
    inner = size + tail
    scaled = SPLIT * y
    head = scaled - (scaled - y)
    rest = (z - head * head) / (y + head) if z > 0.0 else 0.0
    first = HALF_PI - 2.0 * head
    lost = (HALF_PI - first) - 2.0 * head
    outer = first + (lost + (HALF_PI_LOW - 2.0 * (rest + tail)))
    return math.copysign(outer if is_outer else inner, x)


@njit(types.void(_read(_f64), _f64[::1]), **_OPTIONS)
def asin_values(x: Any, out: Any) -> None:
    """Arcsine of every value of ``x``, each in [-1, 1] or NaN."""
    for i in range(x.size):
        out[i] = _asin(x[i])


# -- digests ------------------------------------------------------------------------------------


@njit(**_OPTIONS)
def _is_less(rows: Any, locations: Any, times: Any, a: Any, b: Any) -> Any:
    """Whether row ``a`` sorts before row ``b``: mean, weight, location, time; NaN last."""
    for column in range(2):
        left, right = rows[a, column], rows[b, column]
        if left < right or (right != right and left == left):
            return True
        if right < left or (left != left and right == right):
            return False
    if locations.size > 0 and locations[a] != locations[b]:
        return locations[a] < locations[b]
    if times.size > 0 and times[a] != times[b]:
        return times[a] < times[b]
    return False


@njit(**_OPTIONS)
def _merge_keys(keys: Any, out: Any, start: Any, middle: Any, stop: Any) -> None:
    """Merge the ascending runs ``[start, middle)`` and ``[middle, stop)`` of distinct keys.

    Both ends at once and without branches while neither run can end; what is left between
    is merged step by step. Indices are unsigned, which spares numba's test for negative ones.
    """
    one = np.uint64(1)
    i, j, k = np.uint64(start), np.uint64(middle), np.uint64(start)
    p, q, top = np.uint64(middle - 1), np.uint64(stop - 1), np.uint64(stop - 1)
    for _ in range(min(middle - start, stop - middle)):
        left, right = keys[i], keys[j]
        out[k] = min(left, right)
        step = np.uint64(left < right)
        i += step
        j += one - step
        k += one
        left, right = keys[p], keys[q]
        out[top] = max(left, right)
        step = np.uint64(left > right)
        p -= step
        q -= one - step
        top -= one
    end, last = p + one, q + one
    while i < end and j < last:
        left, right = keys[i], keys[j]
        out[k] = min(left, right)
        step = np.uint64(left < right)
        i += step
        j += one - step
        k += one
    for rest in range(end - i):
        out[k + rest] = keys[i + rest]
    for rest in range(last - j):
        out[k + rest] = keys[j + rest]


@njit(**_OPTIONS)
def _sort_keys(keys: Any, spare: Any, runs: Any, n: Any) -> None:
    """Sort ``keys[:n]`` by merging its natural runs."""
    n_runs = 0
    for i in range(n):
        if i == 0 or keys[i] < keys[i - 1]:
            runs[n_runs] = i
            n_runs += 1
    runs[n_runs] = n
    source, target = keys, spare
    is_swapped = False
    while n_runs > 1:
        n_merged = 0
        for run in range(0, n_runs, 2):
            start = runs[run]
            middle = runs[run + 1]
            stop = runs[min(run + 2, n_runs)]
            _merge_keys(source, target, start, middle, stop)
            runs[n_merged] = start
            n_merged += 1
        runs[n_merged] = n
        n_runs = n_merged
        source, target = target, source
        is_swapped = not is_swapped
    if is_swapped:
        for i in range(n):
            keys[i] = spare[i]


@njit(**_OPTIONS)
def _sort_group(rows: Any, locations: Any, times: Any, group: Any, spare: Any) -> None:
    """Stable sort of the row indices ``group`` by :func:`_is_less`."""
    n = group.size
    width = min(n, _SMALL_GROUP)
    for start in range(0, n, width):
        for i in range(start + 1, min(start + width, n)):
            row = group[i]
            j = i
            while j > start and _is_less(rows, locations, times, row, group[j - 1]):
                group[j] = group[j - 1]
                j -= 1
            group[j] = row
    while width < n:
        for start in range(0, n, 2 * width):
            i, middle = start, min(start + width, n)
            j, stop = middle, min(start + 2 * width, n)
            for k in range(start, stop):
                if j >= stop or (i < middle and not _is_less(rows, locations, times, group[j], group[i])):
                    spare[k] = group[i]
                    i += 1
                else:
                    spare[k] = group[j]
                    j += 1
        for k in range(n):
            group[k] = spare[k]
        width *= 2


@njit(**_OPTIONS)
def _order_rows(
    rows: Any,
    locations: Any,
    times: Any,
    first: Any,
    order: Any,
    single: Any,
    keys: Any,
    spare: Any,
    runs: Any,
) -> None:
    """Put the sorted indices of rows ``first + i`` into ``order``.

    Keys are the mean in float32 as an ascending integer, then the place: one integer
    comparison sorts almost everything. Rows of one key are then sorted by the whole rule.
    """
    n = order.size
    bits = single.view(np.uint32)
    for i in range(n):
        single[i] = np.float32(rows[first + i, 0]) + np.float32(0.0)
    for i in range(n):
        bit = bits[i]
        key = ~bit if bit & _SIGN else bit | _SIGN
        if single[i] != single[i]:
            key = _NAN_KEY
        keys[i] = (np.uint64(key) << np.uint64(32)) | np.uint64(i)
    _sort_keys(keys, spare, runs, n)
    for i in range(n):
        order[i] = first + np.int64(keys[i] & _LOW32)
    start = 0
    for i in range(1, n + 1):
        if i == n or (keys[i] ^ keys[start]) >> np.uint64(32) != 0:
            if i - start > 1:
                _sort_group(rows, locations, times, order[start:i], runs)
            start = i


@njit(**_OPTIONS)
def _first_beyond(scale: Any, n: Any, start: Any, edge: Any, is_rising: Any) -> Any:
    """The first index whose scale value exceeds ``edge``; numpy's search where they do not rise."""
    if is_rising:
        i = start
        while i < n and scale[i] <= edge:
            i += 1
        return i
    low, high = 0, n
    while low < high:
        middle = low + ((high - low) >> 1)
        value = scale[middle]
        if edge < value or (value != value and edge == edge):
            high = middle
        else:
            low = middle + 1
    return low


@njit(**_OPTIONS)
def _scale_rows(weights: Any, scale: Any, n: Any, delta: Any) -> Any:
    """Fill ``scale`` with ``K`` after each row; say whether the values must rise."""
    total = 0.0
    is_rising = True
    for i in range(n):
        total += weights[i]
        is_rising &= weights[i] >= 0.0
        scale[i] = total
    for i in range(n):
        q = scale[i] / total
        q = 0.0 if q < 0.0 else q
        q = 1.0 if q > 1.0 else q
        scale[i] = delta * (_asin(2.0 * q - 1.0) / _PI + 0.5)
    return is_rising and 0.0 < total < np.inf


@njit(**_OPTIONS)
def _sum_segment(weights: Any, moments: Any, start: Any, stop: Any) -> Any:
    """``np.add.reduceat`` of one segment: the first value plus the pairwise sum of the rest."""
    weight, moment = weights[start], moments[start]
    if stop - start > _SHORT:
        rest = stop - start - 1
        weight += _pairwise(weights, start + 1, rest)
        moment += _pairwise(moments, start + 1, rest)
    elif stop - start > 1:
        other_weight, other_moment = weights[start + 1], moments[start + 1]
        for i in range(start + 2, stop):
            other_weight += weights[i]
            other_moment += moments[i]
        weight += other_weight
        moment += other_moment
    return weight, moment


@njit(
    types.void(
        _read(_f64, 2),
        _read(_i64),
        _read(_u64),
        _read(_u64),
        _i64,
        _f64,
        types.Array(_f32, 2, "C"),
        _i64[::1],
        _i64[::1],
        _i64[::1],
    ),
    **_OPTIONS,
)
def fold_digests(
    rows: Any,
    row_offsets: Any,
    locations: Any,
    times: Any,
    fan_in: Any,
    delta: Any,
    centroids: Any,
    spans: Any,
    counts: Any,
    order: Any,
) -> None:
    """Compress each group of ``fan_in`` digests, where two or more have rows.

    Parameters
    ----------
    rows : ndarray of float64, shape (n_rows, 2)
        Mean and weight; digest ``i`` is ``rows[row_offsets[i]:row_offsets[i + 1]]``.
    locations, times : ndarray of uint64, shape (n_rows,) or (0,)
        The companion words of the rows; empty where the field has none.
    centroids : ndarray of float32, shape (n_rows, 2)
        Out: the centroids of all compressed groups, one group after another.
    spans : ndarray of int64, shape (n_rows,)
        Out: how many rows each centroid holds.
    counts : ndarray of int64, shape (n_groups,)
        Out: the centroids of each group, 0 for groups that are not compressed.
    order : ndarray of int64, shape (n_rows,)
        Out: the indices of the rows of compressed groups in sorted order; their segments
        are ``spans``.
    """
    n_groups = counts.size
    widest = 0
    for group in range(n_groups):
        widest = max(widest, row_offsets[(group + 1) * fan_in] - row_offsets[group * fan_in])
    single = np.empty(widest, np.float32)
    keys = np.empty(widest, np.uint64)
    spare = np.empty(widest, np.uint64)
    runs = np.empty(widest + 1, np.int64)
    weights = np.empty(widest, np.float64)
    moments = np.empty(widest, np.float64)
    scale = np.empty(widest, np.float64)
    n_centroids = 0
    n_ordered = 0
    for group in range(n_groups):
        first = row_offsets[group * fan_in]
        n = row_offsets[(group + 1) * fan_in] - first
        contributors = 0
        for i in range(group * fan_in, (group + 1) * fan_in):
            contributors += row_offsets[i + 1] > row_offsets[i]
        counts[group] = 0
        if contributors < 2:
            continue
        ordered = order[n_ordered : n_ordered + n]
        n_ordered += n
        _order_rows(rows, locations, times, first, ordered, single, keys, spare, runs)
        for i in range(n):
            row = ordered[i]
            weights[i] = rows[row, 1]
            moments[i] = rows[row, 0] * rows[row, 1]
        is_rising = _scale_rows(weights, scale, n, delta)
        start = 0
        while start < n:
            edge = scale[start - 1] if start > 0 else 0.0
            stop = max(_first_beyond(scale, n, start, edge + 1.0, is_rising), start + 1)
            weight, moment = _sum_segment(weights, moments, start, stop)
            centroids[n_centroids, 0] = moment / weight
            centroids[n_centroids, 1] = weight
            spans[n_centroids] = stop - start
            n_centroids += 1
            counts[group] += 1
            start = stop


def warm() -> None:
    """Compile every kernel, or load it from the cache on disk, by calling it once."""
    none = np.empty(0, dtype=np.uint64)
    byte = np.zeros(8, dtype=np.uint8)
    index = np.arange(3, dtype=np.int64)
    out = np.empty(3, dtype=np.int64)
    frame(index, byte, 4, np.empty(10, dtype=np.uint8))
    unframe(np.zeros(8, dtype=np.uint8), 0, np.zeros(3, dtype=np.int64), byte)
    copy_ranges(byte, index, index, index, byte.copy())
    for kernel, dtype in (
        (fold_exact_i64, np.int64),
        (fold_exact_u64, np.uint64),
        (fold_exact_f32, np.float32),
        (fold_exact_f64, np.float64),
    ):
        kernel(np.ones(4, dtype=dtype), 4, _SUM, dtype(0), np.empty(1, dtype=dtype))
    sum_weights_f32(np.ones(2, dtype=np.float32), index, np.empty(2))
    sum_weights_f64(np.ones(2), index, np.empty(2))
    fold_packed(np.ones(4, dtype=np.uint64), np.ones(4, dtype=np.int64), 4, np.empty(1, dtype=np.uint64))
    asin_values(np.zeros(1), np.empty(1))
    centroids = np.empty((2, 2), dtype=np.float32)
    fold_digests(np.ones((2, 2)), index, none, none, 2, 8.0, centroids, out[:2].copy(), out[:1], out[1:])
