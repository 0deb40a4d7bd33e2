"""Damage to the columns of a test store, of the kinds that real stores show.

Source: format 3.4.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Holes:
    """How likely each kind of hole is, from 0 to 1.

    Attributes
    ----------
    empty_cells
        Share of a leaf's cells without data.
    empty_shard
        A leaf that holds no data at all.
    window_gap
        A shard has no leaf in a window.
    unrecorded
        A leaf that no run record names; the root coverage still does.
    absent_array, absent_group
        A column lacks an array, or a whole resolution.
    lost_companion
        A column lost the words beside a digest, or the digest beside its words.
    unstamped, missing_column, corrupt_root
        A column without its stamp, without any object, or with an unreadable root.
    """

    empty_cells: float = 0.4
    empty_shard: float = 0.0
    window_gap: float = 0.0
    unrecorded: float = 0.0
    absent_array: float = 0.0
    absent_group: float = 0.0
    lost_companion: float = 0.0
    unstamped: float = 0.0
    missing_column: float = 0.0
    corrupt_root: float = 0.0


def damage_columns(root: Path, rng: np.random.Generator, holes: Holes) -> None:
    """Damage the columns under ``root``, each kind as often as ``holes`` says."""
    for column in sorted(root.rglob("*.pyramid.zarr")):
        roll = rng.random(6)
        if roll[0] < holes.missing_column:
            shutil.rmtree(column)
            continue
        if roll[1] < holes.corrupt_root:
            (column / "zarr.json").write_bytes(b"" if rng.random() < 0.5 else b'{"zarr_format": 3,')
        elif roll[2] < holes.unstamped:
            _remove_stamp(column)
        if roll[3] < holes.absent_array:
            _remove_one(rng, [path for path in column.glob("*/*") if path.is_dir()])
        if roll[4] < holes.absent_group:
            _remove_one(rng, [path for path in column.glob("*") if path.is_dir()])
        if roll[5] < holes.lost_companion:
            words = [p for p in column.glob("*/*") if p.name.endswith(("_locations", "_times"))]
            payloads = [p.with_name(p.name.rsplit("_", 1)[0]) for p in words]
            _remove_one(rng, words + payloads)


def _remove_one(rng: np.random.Generator, paths: list[Path]) -> None:
    candidates = sorted({path for path in paths if path.exists()})
    if candidates:
        shutil.rmtree(candidates[int(rng.integers(len(candidates)))])


def _remove_stamp(column: Path) -> None:
    path = column / "zarr.json"
    document = json.loads(path.read_bytes())
    del document["attributes"]["morton_hive_commit"]
    path.write_bytes(json.dumps(document, indent=2).encode())
