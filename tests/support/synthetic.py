"""Small morton-hive stores for tests, written by numpy, mortie and zarr-python alone.

A store made here holds what a pipeline leaves behind before a sweep: the manifest, run record,
coverage, one column for each leaf, and the leaves themselves if asked for. It shares no code with
the package, so it can judge it. The same arguments always give the same bytes.

Source: leaves.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from mortie import decimal_to_word, generate_morton_children
from tests.support.catalog import CHECKED, Approximate, Exact, Field, Packed, Rows, Unfolded, choose_fields
from tests.support.columns import Column, fold_column, leaf_cells_of, write_column
from tests.support.holes import Holes, damage_columns
from tests.support.leaf_zarr import write_leaf
from tests.support.rows import draw_rows, draw_shards
from tests.support.zarr_writer import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """What a store holds.

    Attributes
    ----------
    seed
        Decides everything that is random.
    shard_order, cell_order
        Orders of the leaves and of their cells.
    leaf_cells
        Declared resolutions of the leaf columns, finest first, one apart.
    n_shards
        How many leaves there are.
    fields
        Keys of the field catalogue; `count` is always there.
    holes
        How likely each kind of damage is.
    windows
        Years, or None for a store without windows.
    with_leaves
        Whether to write the leaves too, and all else that the checkers of the format ask for.
    """

    seed: int
    shard_order: int = 3
    cell_order: int = 6
    leaf_cells: tuple[int, ...] = (5,)
    n_shards: int = 6
    fields: tuple[str, ...] = CHECKED
    holes: Holes = field(default_factory=Holes)
    windows: tuple[str, ...] | None = None
    with_leaves: bool = False

    def __post_init__(self) -> None:
        """Refuse a ladder that leaves a resolution between the leaves and the shard undeclared."""
        orders = self.column_orders
        if orders != list(range(orders[0], self.shard_order - 1, -1)) or orders[0] >= self.cell_order:
            raise ValueError(
                f"columns of {orders} are not every order from below {self.cell_order} to the shard's"
            )

    @property
    def overviews(self) -> list[Json]:
        """The expanded ladder, the leaf entry first."""
        depth = self.leaf_cells[-1] - self.shard_order
        rungs = [{"node": k, "cells": [k + depth]} for k in range(self.shard_order - 1, -1, -1)]
        return [{"node": self.shard_order, "cells": list(self.leaf_cells)}, *rungs]

    @property
    def column_orders(self) -> list[int]:
        """Resolutions a leaf column holds, finest first."""
        declared = {cell for entry in self.overviews for cell in entry["cells"]}
        return sorted({c for c in declared if c >= self.shard_order} | {self.shard_order}, reverse=True)


def make_store(
    root: Path,
    *,
    seed: int = 0,
    shard_order: int = 3,
    cell_order: int = 6,
    leaf_cells: Sequence[int] = (5,),
    n_shards: int = 6,
    fields: Sequence[str] = CHECKED,
    holes: Holes | None = None,
    windows: Sequence[str] | None = None,
    with_leaves: bool = False,
) -> Path:
    """Write an unswept store under ``root`` (see `StoreSpec`) and return ``root``."""
    spec = StoreSpec(
        seed=seed,
        shard_order=shard_order,
        cell_order=cell_order,
        leaf_cells=tuple(leaf_cells),
        n_shards=n_shards,
        fields=tuple(fields),
        holes=holes or Holes(),
        windows=None if windows is None else tuple(windows),
        with_leaves=with_leaves,
    )
    return write_store(root, spec)


def write_store(root: Path, spec: StoreSpec) -> Path:
    """Write the store that ``spec`` describes under ``root`` and return ``root``."""
    rng = np.random.default_rng(spec.seed)
    root.mkdir(parents=True, exist_ok=True)
    fields = choose_fields(spec.fields, rng)
    delta = int(rng.choice([16, 24, 48]))
    budgets = {"delta": delta, "overview_delta": int(rng.choice([8, 12, delta]))}
    shards = draw_shards(rng, spec.shard_order, spec.n_shards)
    units = [unit for number, shard in enumerate(shards) for unit in _units(rng, spec, shard, number)]
    for unit in units:
        _write_unit(root, spec, fields, budgets, unit)
    _write_json(root / "morton_hive.json", _manifest(spec, fields, budgets))
    _write_json(root / "coverage.moc", _coverage(spec, shards, units))
    recorded = [unit for unit in units if unit.window != "all" and rng.random() >= spec.holes.unrecorded]
    _write_run_record(root, spec, recorded)
    damage_columns(root, rng, spec.holes)
    return root


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """The rows of one shard, or of one shard and window."""

    shard: str
    window: str | None
    rows: Rows
    clock: str
    granules: int


def _units(rng: np.random.Generator, spec: StoreSpec, shard: str, number: int) -> list[_Unit]:
    """Draw the rows of a shard; a windowed store that is checked needs the fold of all time too."""
    labels: Sequence[str | None] = spec.windows or (None,)
    gaps = rng.random(len(labels)) < spec.holes.window_gap
    if gaps.all():
        gaps[0] = False
    units = []
    for slot, label in enumerate(labels):
        n_cells = 4 ** (spec.cell_order - spec.shard_order)
        rows = draw_rows(rng, shard, spec.cell_order, n_cells, label, spec.holes)
        clock = f"2024-05-{number % 28 + 1:02d}T0{slot % 10}:{number % 60:02d}:30+00:00"
        granules = int(rng.integers(1, 4))
        if not gaps[slot]:
            units.append(_Unit(shard=shard, window=label, rows=rows, clock=clock, granules=granules))
    if spec.windows and spec.with_leaves:
        rows = Rows(**{n: np.concatenate([getattr(u.rows, n) for u in units]) for n in Rows.__slots__})
        units.append(_Unit(shard=shard, window="all", rows=rows, clock=units[-1].clock, granules=1))
    return units


def _write_unit(root: Path, spec: StoreSpec, fields: Sequence[Field], budgets: Json, unit: _Unit) -> None:
    node = root / _node_path(unit.shard)
    cells = leaf_cells_of(unit.rows, fields, 4 ** (spec.cell_order - spec.shard_order), budgets["delta"])
    groups = fold_column(
        cells,
        fields,
        shard_order=spec.shard_order,
        cell_order=spec.cell_order,
        orders=spec.column_orders,
        delta=budgets["overview_delta"],
    )
    stamp: Json = {"clock": unit.clock, "granule_count": unit.granules}
    if unit.window not in (None, "all"):
        stamp |= {"window": unit.window} | _time_range([unit])
    column = Column(
        shard=unit.shard,
        shard_order=spec.shard_order,
        cell_order=spec.cell_order,
        window=unit.window or "all",
        budgets=budgets,
        stamp=stamp,
    )
    write_column(node / f"{column.window}.pyramid.zarr", column, fields, groups)
    if spec.with_leaves and unit.window != "all":
        name = unit.shard if unit.window is None else f"{unit.shard}_{unit.window}"
        words = generate_morton_children(decimal_to_word(unit.shard, dtype=int), spec.cell_order)
        write_leaf(node / f"{name}.zarr", column, fields, cells, words, unit.rows)


def _node_path(decimal: str) -> str:
    base = decimal[:2] if decimal.startswith("-") else decimal[:1]
    return "/".join([base, *decimal[len(base) :]])


def _write_json(path: Path, value: Json) -> None:
    path.write_bytes(json.dumps(value, indent=1).encode())


def _manifest(spec: StoreSpec, fields: Sequence[Field], budgets: Json) -> Json:
    entries = {f.name: f.entry(**budgets) if isinstance(f, Approximate) else f.entry() for f in fields}
    windowed = spec.windows is not None
    fold = {"fold_source": "cascade", "exact_levels": 1}
    short_name = f"SYNTHETIC_{spec.seed}"
    overviews = spec.overviews
    kinds = {Exact: "exact", Approximate: "approximate", Packed: "packed", Unfolded: "none"}
    mirror = {
        "spec": "zagg-multiscales/1",
        "name": short_name,
        "base": {"order": spec.shard_order, "cells": [spec.cell_order]},
        "datasets": [
            {
                "order": entry["node"],
                "cells": entry["cells"],
                "artifact": "column" if entry["node"] == spec.shard_order else "overview",
            }
            for entry in overviews
        ],
        "order2res": {str(entry["node"]): entry["cells"] for entry in overviews},
        "fields": {f.name: kinds[type(f)] for f in fields},
        "fold": fold,
    }
    manifest: Json = {
        "spec": "morton-hive/2" if windowed else "morton-hive/1",
        "dataset": {"short_name": short_name, "version": "001"},
        "semantic_hash": f"{spec.seed:064x}",
        "cell_order": spec.cell_order,
        "shard_order": spec.shard_order,
        "split_schedule": [1] * spec.shard_order,
        "path_grouping": 1,
        "pyramid": {
            "spec": "zagg-pyramid/2",
            "overviews": overviews,
            "overview": {"all_time": windowed, **fold, "fields": entries},
        },
        "generated_at": "2024-05-01T00:00:00+00:00",
        "multiscales": [mirror],
    }
    if windowed:
        manifest["temporal"] = {
            "schedule": "yearly",
            "time_field": "t",
            "epoch": "2018-01-01T00:00:00+00:00",
            "scale": "gps",
            "units": "seconds",
            "calendar": "proleptic_gregorian",
            "append_policy": "new-window",
        }
    return manifest


def _time_range(units: Sequence[_Unit]) -> Json:
    """Return the first and last instant as the key that a stamp has, if there is any row."""
    times = np.concatenate([unit.rows.time_ns for unit in units])
    if not len(times):
        return {}
    ends = np.array([times.min(), times.max()]).astype("datetime64[ns]").astype("datetime64[s]")
    return {"time_range": [f"{end}+00:00" for end in ends]}


def _coverage(spec: StoreSpec, shards: Sequence[str], units: Sequence[_Unit]) -> Json:
    """Return the root coverage: runs of shards that follow each other within a base cell."""
    runs: list[list[str]] = []
    for shard in sorted(shards, key=lambda s: int(decimal_to_word(s))):
        if runs and _rank(shard) == _rank(runs[-1][1]) + 1 and _base(shard) == _base(runs[-1][1]):
            runs[-1][1] = shard
        else:
            runs.append([shard, shard])
    found: Json = {
        "spec": "morton-moc/1",
        "encoding": "ranges",
        "order": spec.shard_order,
        "source": "dispatcher",
        "generated_at": "2024-06-01T00:00:00+00:00",
        "ranges": runs,
    }
    return found | _time_range(units) if spec.windows else found


def _base(decimal: str) -> str:
    return _node_path(decimal).split("/", 1)[0]


def _rank(decimal: str) -> int:
    return int("0" + "".join(str(int(d) - 1) for d in decimal[len(_base(decimal)) :]), 4)


def _write_run_record(root: Path, spec: StoreSpec, units: Sequence[_Unit]) -> None:
    columns: dict[str, Any] = {
        "schema_version": pa.array([1] * len(units), pa.int64()),
        "shard_key": pa.array([int(decimal_to_word(u.shard)) for u in units], pa.uint64()),
        "window": pa.array([u.window for u in units], pa.string()),
        "run_id": pa.array([f"synthetic{spec.seed:08d}"] * len(units), pa.string()),
        "success": pa.array([True] * len(units), pa.bool_()),
    }
    name = f"stats_20240601T000000Z_synthetic{spec.seed:08d}.parquet"
    pq.write_table(pa.table(columns), root / name, compression="snappy")
