"""Random shards and random observations for test stores."""

from typing import Any

import numpy as np
from mortie import decimal_to_word, from_datetime64, time2toc
from tests.support.catalog import Rows
from tests.support.holes import Holes

_MAX_OCCUPIED = 40
_POINT_ORDER = 29
_BASES = [sign + digit for sign in ("", "-") for digit in "123456"]


def draw_shards(rng: np.random.Generator, shard_order: int, n_shards: int) -> list[str]:
    """Draw distinct shards, most of them near another, so that coarse nodes have several children."""
    found: list[str] = []
    while len(found) < n_shards:
        if found and rng.random() < 0.7:
            near = found[int(rng.integers(len(found)))]
            length = int(rng.integers(1, min(shard_order, 2) + 1))
            shard = near[:-length] + _digits(rng, length)
        else:
            shard = _BASES[int(rng.integers(12))] + _digits(rng, shard_order)
        if shard not in found:
            found.append(shard)
    return found


def _digits(rng: np.random.Generator, length: int) -> str:
    return "".join(str(d) for d in rng.integers(1, 5, length))


def draw_rows(
    rng: np.random.Generator, shard: str, cell_order: int, n_cells: int, year: str | None, holes: Holes
) -> Rows:
    """Draw the observations of one leaf: few in most cells, hundreds in some, a few without a height."""
    occupied = _occupied_cells(rng, n_cells, holes)
    per_cell = rng.integers(1, 9, len(occupied))
    crowded = rng.random(len(occupied)) < 0.1
    per_cell[crowded] = rng.integers(60, 200, int(crowded.sum()))
    cell = rng.permutation(np.repeat(occupied, per_cell))
    n = len(cell)
    height = np.round(rng.normal(200.0, 80.0, n), 2)
    # quarter steps give equal means, which a merge has to put in order by the other keys
    height = np.where(rng.random(n) < 0.3, np.round(height / 25) * 25 + 0.25, height)
    height[rng.random(n) < 0.03] = np.nan
    time_ns = _times(rng, n, year)
    return Rows(
        cell=cell,
        height=height,
        flux=rng.uniform(0.1, 40.0, n),
        confidence=rng.integers(0, 5, n),
        surface=rng.random((n, 5)) < np.array([0.6, 0.3, 0.02, 0.2, 0.05]),
        place=_places(rng, shard, cell_order, cell),
        time=np.asarray(time2toc(from_datetime64(time_ns.astype("datetime64[ns]"))), np.uint64).reshape(n),
        time_ns=time_ns,
    )


def _occupied_cells(rng: np.random.Generator, n_cells: int, holes: Holes) -> Any:
    if rng.random() < holes.empty_shard:
        return np.empty(0, np.int64)
    wanted = int(np.clip(round(n_cells * (1 - holes.empty_cells)), 1, _MAX_OCCUPIED))
    if wanted >= n_cells:
        return np.arange(n_cells)
    # half of them in one run, so that some coarse cells are full and others empty
    start = int(rng.integers(n_cells))
    run = (start + np.arange(wanted // 2)) % n_cells
    return np.unique(np.concatenate([run, rng.integers(0, n_cells, wanted - wanted // 2)]))


def _places(rng: np.random.Generator, shard: str, cell_order: int, cell: Any) -> Any:
    """Return point words inside each row's cell."""
    length = cell_order - (len(shard.lstrip("-")) - 1)
    tails = ["".join(str(1 + (int(c) >> 2 * (length - 1 - i) & 3)) for i in range(length)) for c in cell]
    depth = _POINT_ORDER - cell_order
    below = rng.integers(1, 5, (len(cell), depth))
    # rows of one cell often share a deep cell too
    below[:, : depth // 2] = np.where(rng.random((len(cell), 1)) < 0.5, 1, below[:, : depth // 2])
    names = [
        shard + tail + "".join(map(str, digits)) + "p" for tail, digits in zip(tails, below, strict=True)
    ]
    return np.asarray(decimal_to_word(names), np.uint64) if names else np.empty(0, np.uint64)


def _times(rng: np.random.Generator, n: int, year: str | None) -> Any:
    """Return UTC instants in ns, of up to 60 passes of a minute, clear of the year's ends.

    Time words round outward, and a leaf's time record has room for some hundred passes.
    """
    start = np.datetime64(f"{year or 2020}-01-01T01:00:00", "ns").astype(np.int64)
    passes = rng.integers(0, 364 * 86_400 * 10**9, 60)
    return start + passes[rng.integers(0, 60, n)] + rng.integers(0, 60 * 10**9, n)
