"""Plain numpy folds of a morton-hive store, written apart from the package.

Tests use them to build stores and to judge the package, so nothing here imports `sweep`. They are
slow on purpose: one cell at a time, in the order the format describes.

Source: format 5.4, leaves 4.4 and 5.3-5.6, semantics 6.1-6.4.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from mortie import common_ancestor, toc_reduce

LANES = ("land", "ocean", "sea_ice", "land_ice", "inland_water", "low", "med", "high")

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """One cell's digest: rows of (mean, weight), and the words that travel with the rows."""

    rows: npt.NDArray[Any]
    locations: Words | None = None
    times: Words | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the cell holds no row."""
        return len(self.rows) == 0


def empty_digest(*, located: bool, timed: bool, dtype: str = "float32") -> Digest:
    """Return the digest of a cell without data."""
    none = np.empty(0, np.uint64)
    return Digest(
        rows=np.empty((0, 2), dtype),
        locations=none if located else None,
        times=none if timed else None,
    )


def segment_starts(weights: Floats, delta: int) -> npt.NDArray[np.int64]:
    """Return where each centroid starts in rows sorted by mean (the arcsine scale, greedy)."""
    total = np.cumsum(weights)
    quantile = np.clip(total / total[-1], 0.0, 1.0)
    scale = delta * (np.arcsin(2 * quantile - 1) / np.pi + 0.5)
    starts = []
    start = 0
    while start < len(weights):
        starts.append(start)
        left = scale[start - 1] if start else 0.0
        end = int(np.searchsorted(scale, left + 1.0, side="right"))
        start = max(end, start + 1)
    return np.array(starts, np.int64)


def _compress(rows: Floats, digest: Digest, delta: int, dtype: str) -> Digest:
    """Compress rows that are already in order; ``digest`` holds their words in the same order."""
    starts = segment_starts(rows[:, 1], delta)
    weights = np.add.reduceat(rows[:, 1], starts)
    means = np.add.reduceat(rows[:, 0] * rows[:, 1], starts) / weights
    packed = np.stack([means, weights], axis=1).astype(np.float32).astype(dtype)
    bounds = [*starts.tolist(), len(rows)]
    spans = list(itertools.pairwise(bounds))
    places, times = digest.locations, digest.times
    return Digest(
        rows=packed,
        locations=None if places is None else _join_places(places, spans),
        times=None if times is None else np.array([toc_reduce(times[a:b]) for a, b in spans], np.uint64),
    )


def _join_places(places: Words, spans: Sequence[tuple[int, int]]) -> Words:
    """Join each span of location words; a lone word keeps its kind."""
    return np.array([places[a] if b - a == 1 else common_ancestor(places[a:b]) for a, b in spans], np.uint64)


def _take(words: Words | None, index: npt.NDArray[Any]) -> Words | None:
    return None if words is None else words[index]


def _concatenate(parts: Sequence[Words | None]) -> Words | None:
    words = [part for part in parts if part is not None]
    return np.concatenate(words) if words else None


def build_digest(
    values: Floats,
    weights: Floats,
    *,
    delta: int,
    locations: Words | None = None,
    times: Words | None = None,
    dtype: str = "float32",
) -> Digest:
    """Build a leaf cell's digest from its rows, dropping values that are not finite."""
    keep = np.flatnonzero(np.isfinite(values))
    order = keep[np.argsort(values[keep], kind="stable")]
    words = Digest(rows=np.empty((0, 2)), locations=_take(locations, order), times=_take(times, order))
    if not len(order):
        return empty_digest(located=locations is not None, timed=times is not None, dtype=dtype)
    return _compress(np.stack([values[order], weights[order]], axis=1), words, delta, dtype)


def merge_digests(parts: Sequence[Digest], *, delta: int) -> Digest:
    """Merge the digests of the cells that fall into one; a lone digest passes unchanged."""
    full = [part for part in parts if not part.is_empty]
    if len(full) < 2:
        return full[0] if full else parts[0]
    rows = np.concatenate([part.rows for part in full]).astype(np.float64)
    places = _concatenate([part.locations for part in full])
    times = _concatenate([part.times for part in full])
    sort_keys = [key for key in (times, places) if key is not None] + [rows[:, 1], rows[:, 0]]
    order = np.lexsort(sort_keys)
    words = Digest(rows=rows[:0], locations=_take(places, order), times=_take(times, order))
    return _compress(rows[order], words, delta, full[0].rows.dtype.name)


def is_missing(values: npt.NDArray[Any], fill: float) -> npt.NDArray[np.bool_]:
    """Tell which cells of a dense field hold nothing: NaN, or the declared fill."""
    missing: npt.NDArray[np.bool_] = values == fill
    return missing | np.isnan(values) if values.dtype.kind == "f" else missing


def fold_exact(values: npt.NDArray[Any], *, factor: int, method: str, fill: float) -> npt.NDArray[Any]:
    """Fold consecutive groups of ``factor`` cells by sum, min or max, leaving out missing cells."""
    dtype = values.dtype
    limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    infinite = dtype.kind == "f"
    identity = {
        "sum": 0,
        "min": np.inf if infinite else limits.max,
        "max": -np.inf if infinite else limits.min,
    }[method]
    missing = is_missing(values, fill).reshape(-1, factor)
    known = np.where(missing, np.array(identity, dtype), values.reshape(-1, factor))
    ufunc = {"sum": np.add, "min": np.minimum, "max": np.maximum}[method]
    out: npt.NDArray[Any] = ufunc.reduce(known, axis=1).astype(dtype)
    out[missing.all(axis=1)] = fill
    return out


def pack_lanes(lanes: Sequence[int]) -> int:
    """Pack eight bytes into one word, the first lane in the lowest byte."""
    return sum(int(lane) << (8 * place) for place, lane in enumerate(lanes))


def quantize(share: float, *, present: bool) -> int:
    """Round to a byte, half to even; what is present never rounds down to nothing."""
    return min(max(int(np.rint(share)), 1 if present else 0), 255)


def merge_packed(parts: Sequence[tuple[int, int]]) -> int:
    """Merge (word, number of rows) pairs into one word, weighted by the rows."""
    kept = [(word, n) for word, n in parts if n > 0]
    total = sum(n for _, n in kept)
    if not total:
        return 0
    lanes = []
    for place in range(len(LANES)):
        levels = [((word >> (8 * place)) & 0xFF, n) for word, n in kept]
        mean = float(sum(float(n) * level for level, n in levels)) / total
        lanes.append(quantize(mean, present=any(level for level, _ in levels)))
    return pack_lanes(lanes)


def row_count(digest: Digest) -> int:
    """Return how many rows a counts digest stands for."""
    return 0 if digest.is_empty else round(float(digest.rows[:, 1].sum()))
