"""The stores on which both programs are held against each other."""

from collections.abc import Mapping

import numpy as np
from tests.support.catalog import CATALOG, CHECKED
from tests.support.holes import Holes
from tests.support.synthetic import StoreSpec

YEARS = ("2019", "2020", "2021")
DAMAGED = Holes(
    empty_cells=0.6,
    empty_shard=0.1,
    window_gap=0.3,
    unrecorded=0.15,
    absent_array=0.4,
    absent_group=0.15,
    lost_companion=0.3,
    unstamped=0.1,
    missing_column=0.1,
    corrupt_root=0.1,
)

SHAPES: Mapping[str, StoreSpec] = {
    "every field": StoreSpec(
        seed=101, shard_order=4, cell_order=7, leaf_cells=(6,), n_shards=8, fields=tuple(CATALOG)
    ),
    "windows": StoreSpec(seed=102, fields=tuple(CATALOG), windows=YEARS, holes=Holes(window_gap=0.3)),
    "holes": StoreSpec(seed=103, shard_order=4, cell_order=7, leaf_cells=(6, 5), n_shards=12, holes=DAMAGED),
    "windows with holes": StoreSpec(seed=104, windows=YEARS, holes=DAMAGED),
    # leaf groups in shards of chunks, stage groups in chunks of 1,024 cells, wide overviews
    "wide": StoreSpec(
        seed=105,
        shard_order=5,
        cell_order=12,
        leaf_cells=(11,),
        n_shards=5,
        fields=("exact", "located", "packed"),
    ),
    "one order": StoreSpec(seed=106, shard_order=1, cell_order=3, leaf_cells=(2,), n_shards=4),
}

# everything that the peer's checkers look at
CHECKABLE: Mapping[str, StoreSpec] = {
    "plain": StoreSpec(
        seed=201, shard_order=4, cell_order=7, leaf_cells=(6,), n_shards=7, fields=CHECKED, with_leaves=True
    ),
    "windows": StoreSpec(seed=202, n_shards=4, windows=YEARS[:2], with_leaves=True),
    "wide": StoreSpec(
        seed=203,
        shard_order=4,
        cell_order=10,
        leaf_cells=(9,),
        n_shards=4,
        fields=("exotic", "digest64", "located", "packed"),
        with_leaves=True,
    ),
}

# children that hold different windows, which the peer's checker calls stale after its own sweep
GAPS = StoreSpec(
    seed=204,
    n_shards=5,
    windows=YEARS,
    fields=("exact", "both"),
    holes=Holes(window_gap=0.4),
    with_leaves=True,
)


def random_shape(seed: int) -> StoreSpec:
    """Draw the orders, fields, windows and damage of a store."""
    rng = np.random.default_rng(seed)
    shard_order = int(rng.integers(2, 6))
    depth = int(rng.integers(1, 4))
    finest = shard_order + depth + int(rng.integers(0, 2))
    leaf_cells = tuple(range(min(finest, 2 * shard_order + 1), shard_order + depth - 1, -1))
    names = list(CATALOG)
    chosen = rng.choice(len(names), size=int(rng.integers(2, 7)), replace=False)
    windowed = rng.random() < 0.6
    return StoreSpec(
        seed=seed,
        shard_order=shard_order,
        cell_order=leaf_cells[0] + int(rng.integers(1, 3)),
        leaf_cells=leaf_cells,
        n_shards=int(rng.integers(3, 8)),
        fields=tuple(names[i] for i in sorted(chosen)),
        holes=DAMAGED if rng.random() < 0.5 else Holes(empty_cells=float(rng.uniform(0, 0.95))),
        windows=YEARS[: int(rng.integers(1, 4))] if windowed else None,
    )
