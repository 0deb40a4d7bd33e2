"""Leaf columns of a test store: leaf cells from rows, coarser groups from them, and the artifact.

Source: leaves 4 and 5, format 3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mortie import decimal_to_word, generate_morton_children
from tests.support.catalog import Approximate, Exact, Field, Packed, Rows, Unfolded
from tests.support.numpy_folds import (
    Digest,
    empty_digest,
    fold_exact,
    is_missing,
    merge_digests,
    merge_packed,
    row_count,
)
from tests.support.zarr_writer import Json, Member, column_chunks, content_hashes, seal, write_artifact

# one value for each cell: an ndarray for a dense field, a list of digests for a ragged one
type Cells = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Where a column stands, and what its stamp says."""

    shard: str
    shard_order: int
    cell_order: int
    window: str
    budgets: Mapping[str, int]
    stamp: Json

    def commit(self, cells_with_data: int, **more: Any) -> Json:
        """Return the commit stamp, with ``more`` after the window."""
        windowed = "window" in self.stamp
        found: Json = {
            "spec": "morton-hive/2" if windowed else "morton-hive/1",
            "complete": True,
            "cells_with_data": cells_with_data,
            "granule_count": self.stamp["granule_count"],
            "written_at": self.stamp["clock"],
        }
        if windowed:
            found |= {key: self.stamp[key] for key in ("window", "time_range") if key in self.stamp}
        return found | more


def leaf_cells_of(rows: Rows, fields: Sequence[Field], n_cells: int, delta: int) -> Cells:
    """Reduce rows to leaf cells."""
    order = np.argsort(rows.cell, kind="stable")
    occupied, starts = np.unique(rows.cell[order], return_index=True)
    groups = {int(c): rows.take(part) for c, part in zip(occupied, np.split(order, starts[1:]), strict=False)}
    found: Cells = {}
    for field in fields:
        match field:
            case Exact():
                dense = np.full(n_cells, field.fill, field.dtype)
                for cell, part in groups.items():
                    dense[cell] = field.leaf_value(part)
                found[field.name] = dense
            case Approximate():
                none = empty_digest(located=field.located, timed=field.timed, dtype=field.dtype)
                ragged = [none] * n_cells
                for cell, part in groups.items():
                    ragged[cell] = field.leaf_value(part, delta)
                found[field.name] = ragged
            case Packed():
                words = np.zeros(n_cells, np.uint64)
                for cell, part in groups.items():
                    words[cell] = field.leaf_value(part)
                found[field.name] = words
            case Unfolded():
                means = np.full(n_cells, np.nan, np.float32)
                for cell, part in groups.items():
                    means[cell] = field.leaf_value(part)
                found[field.name] = means
    return found


def fold_column(
    cells: Cells,
    fields: Sequence[Field],
    *,
    shard_order: int,
    cell_order: int,
    orders: Sequence[int],
    delta: int,
) -> dict[int, Cells]:
    """Fold leaf cells into the groups of a column.

    Exact fields always fold from leaf cells. Digests and packed words do so down to the group two
    orders below the shard, and from that group further up.
    """
    boundary = shard_order + 2
    has_boundary = boundary < cell_order and boundary in orders
    groups: dict[int, Cells] = {}
    for order in orders:
        source = groups[boundary] if has_boundary and order < boundary else cells
        source_order = boundary if has_boundary and order < boundary else cell_order
        groups[order] = {
            field.name: fold_exact(
                cells[field.name], factor=4 ** (cell_order - order), method=field.method, fill=field.fill
            )
            if isinstance(field, Exact)
            else _fold_other(field, source, 4 ** (source_order - order), delta)
            for field in fields
            if not isinstance(field, Unfolded)
        }
    return groups


def _fold_other(field: Approximate | Packed, source: Cells, factor: int, delta: int) -> Any:
    values = source[field.name]
    spans = [slice(at, at + factor) for at in range(0, len(values), factor)]
    if isinstance(field, Approximate):
        return [merge_digests(values[span], delta=delta) for span in spans]
    digests: list[Digest] = source[field.of]
    parts = [list(zip(values[s].tolist(), map(row_count, digests[s]), strict=True)) for s in spans]
    return np.array([merge_packed(part) for part in parts], np.uint64)


def members_of(cells: Cells, fields: Sequence[Field], *, leaf: bool) -> dict[str, Member]:
    """Return the arrays of one resolution, companions after their payload."""
    found: dict[str, Member] = {}
    for field in fields:
        if field.name not in cells:
            continue
        values = cells[field.name]
        match field:
            case Approximate():
                found |= field.members(values, leaf=leaf)
            case Exact():
                found[field.name] = Member(values=values, fill=field.fill, attributes={})
            case Packed():
                found[field.name] = Member(values=values, fill=0, attributes=field.attributes())
            case Unfolded():
                found[field.name] = Member(values=values, fill=float("nan"), attributes={})
    return found


def populated(members: Mapping[str, Member]) -> int:
    """Count the cells in which any array but `morton` holds something."""
    full = [
        ~is_missing(m.values, m.fill)
        if isinstance(m.values, np.ndarray)
        else np.array([bool(c) for c in m.values])
        for name, m in members.items()
        if name != "morton"
    ]
    return int(np.logical_or.reduce(full).sum())


def write_column(path: Path, column: Column, fields: Sequence[Field], groups: Mapping[int, Cells]) -> None:
    """Write a leaf column, its attributes last."""
    shard = decimal_to_word(column.shard, dtype=int)
    members = {
        order: {"morton": Member(values=generate_morton_children(shard, order), attributes={})}
        | members_of(cells, fields, leaf=False)
        for order, cells in groups.items()
    }
    chunks = {order: column_chunks(order, column.shard_order) for order in groups}
    write_artifact(path, members, chunks=chunks)
    finest = max(groups)
    block = {
        "spec": "zagg-column/1",
        "node": column.shard,
        "order": column.shard_order,
        "source_cell_order": column.cell_order,
        "window": column.window,
        "fields": {f.name: _recorded(f, column.budgets) for f in fields if not isinstance(f, Unfolded)},
        "groups": _groups(column, groups),
        "cells_with_data_order": finest,
        "generated_at": column.stamp["clock"],
    }
    commit = column.commit(populated(members[finest]), content_hashes=content_hashes(members))
    seal(path, {"role": "column", "zagg_column": block, "morton_hive_commit": commit})


def _groups(column: Column, groups: Mapping[int, Cells]) -> Json:
    boundary = column.shard_order + 2
    has_boundary = boundary < column.cell_order and boundary in groups
    return {
        str(order): {
            "regime": "leaf-column",
            "merges_from_raw": 2 if has_boundary and order < boundary else 1,
            "n_cells": 4 ** (order - column.shard_order),
        }
        for order in groups
    }


def _recorded(field: Field, budgets: Mapping[str, int]) -> Json:
    """Return a field's entry in the column's attributes."""
    match field:
        case Exact():
            return {"class": "exact", "method": field.method, "nan_policy": "skip"}
        case Approximate():
            head = {"class": "approximate", "method": "tdigest_kway", **budgets}
            return head | {"dtype": field.dtype, "inner_shape": [2]}
        case Packed():
            return {"class": "packed", "method": "composition_kway", "dtype": "uint64", "of": field.of}
        case Unfolded():
            return {"class": "none"}
