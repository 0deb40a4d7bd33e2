"""Manifests and cells made by hand, for tests of single modules.

Source: format 2.1-2.2.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import mortie
import numpy as np

from sweep.fold.level import Cells, LevelData
from sweep.fold.ragged import Ragged
from sweep.model.fields import FieldMap
from sweep.model.manifest import Manifest, parse_manifest
from sweep.store.base import ObjectStore
from sweep.store.open import open_store

type Json = dict[str, Any]

_names = itertools.count()

EXACT = {"class": "exact", "method": "sum", "nan_policy": "skip", "dtype": "int64", "fill_value": 0}
DIGEST = {
    "class": "approximate",
    "method": "tdigest_kway",
    "dtype": "float32",
    "inner_shape": [2],
    "delta": 64,
    "overview_delta": 24,
}
FIELDS: Mapping[str, Json] = {
    "count": EXACT,
    "h_min": EXACT | {"method": "min", "dtype": "float32", "fill_value": "NaN"},
    "i_max": EXACT | {"method": "max", "dtype": "int32", "fill_value": -9999},
    "h": DIGEST | {"location": "leaf_id", "temporal": "per-centroid"},
    "flux": DIGEST | {"weights": "flux", "gain": {"name": "g", "value": 1.5}},
    "comp": {
        "class": "packed",
        "method": "composition_kway",
        "dtype": "uint64",
        "fill_value": 0,
        "of": "h",
        "threshold": 2,
    },
}
"""One field of every class: the arrays are count, h_min, i_max, h, h_locations, h_times, flux, comp."""

PLACES = mortie.generate_morton_children(int(mortie.decimal_to_word("1234", dtype=int)), 8)
"""Cells of one base cell: location words that can be joined."""

TIME = 5102790400000000000
"""A time word; those a little above it are others (semantics 14.2)."""


def memory_store() -> ObjectStore:
    """An empty store that no other test sees; its calls run one after another."""
    return open_store(f"memory://made-{next(_names)}")


def manifest_json(
    fields: Mapping[str, Json] = FIELDS,
    *,
    shard_order: int = 2,
    cell_order: int = 5,
    leaf_cells: Sequence[int] = (4,),
    windowed: bool = False,
    all_time: bool = False,
) -> Json:
    """A manifest as format 2.1 lays it out."""
    depth = leaf_cells[-1] - shard_order
    rungs = [{"node": k, "cells": [k + depth]} for k in range(shard_order - 1, -1, -1)]
    document: Json = {
        "spec": "morton-hive/2" if windowed else "morton-hive/1",
        "dataset": {"short_name": "MADE", "version": "001"},
        "cell_order": cell_order,
        "shard_order": shard_order,
        "path_grouping": 1,
        "pyramid": {
            "spec": "zagg-pyramid/2",
            "overviews": [{"node": shard_order, "cells": list(leaf_cells)}, *rungs],
            "overview": {
                "all_time": all_time,
                "fold_source": "cascade",
                "exact_levels": 1,
                "fields": dict(fields),
            },
        },
        "generated_at": "2024-05-01T00:00:00+00:00",
    }
    if windowed:
        document["temporal"] = {"schedule": "yearly"}
    return document


def manifest_of(fields: Mapping[str, Json] = FIELDS, **options: Any) -> Manifest:
    """The same, read; see :func:`manifest_json`."""
    return parse_manifest(json.dumps(manifest_json(fields, **options)).encode(), "made")


def fields_of(fields: Mapping[str, Json] = FIELDS) -> FieldMap:
    """The fields alone."""
    return manifest_of(fields).fields


def ragged(cells: Sequence[bytes]) -> Ragged:
    """Ragged cells from byte strings."""
    offsets = np.cumsum([0, *map(len, cells)], dtype=np.int64)
    return Ragged(offsets, np.frombuffer(b"".join(cells), dtype=np.uint8))


def listed(cells: Cells | None) -> list[Any]:
    """Cells as a list: of byte strings, or of numbers."""
    assert cells is not None
    if isinstance(cells, Ragged):
        whole = cells.data.tobytes()
        return [whole[a:b] for a, b in itertools.pairwise(cells.offsets.tolist())]
    return list(cells.tolist())


def digest(*rows: tuple[float, float]) -> bytes:
    """The payload of one cell of a float32 digest: rows of mean and weight."""
    return np.array(rows, dtype="<f4").tobytes()


def words(*values: int) -> bytes:
    """The companion words of one cell."""
    return np.array(values, dtype="<u8").tobytes()


def level_data(fields: FieldMap, n_cells: int, seed: int = 0, *, filled: float = 0.5) -> LevelData:
    """Cells of which about a share of ``filled`` hold data in every array, and the rest in none."""
    rng = np.random.default_rng(seed)
    holds = rng.random(n_cells) < filled
    arrays: dict[str, Cells] = {}
    for field in fields:
        n_rows = np.where(holds, rng.integers(1, 5, n_cells), 0).tolist()
        for spec in field.arrays():
            if spec.name.endswith("_locations"):
                arrays[spec.name] = ragged([words(*rng.choice(PLACES, n).tolist()) for n in n_rows])
            elif spec.name.endswith("_times"):
                arrays[spec.name] = ragged([words(*(TIME + rng.integers(0, 9, n)).tolist()) for n in n_rows])
            elif spec.is_ragged:
                rows = [rng.integers(1, 20, (n, 2)).astype(f"<f{spec.dtype.itemsize}") for n in n_rows]
                arrays[spec.name] = ragged([each.tobytes() for each in rows])
            else:
                values = rng.integers(1, 100, n_cells).astype(spec.dtype)
                arrays[spec.name] = np.where(holds, values, spec.fill).astype(spec.dtype)
    return LevelData(n_cells=n_cells, arrays=arrays)
