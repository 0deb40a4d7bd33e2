"""Small unswept stores as plain mappings, and changes to their leaves."""

import functools
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.holes import Holes
from tests.support.sweeping import read_tree
from tests.support.synthetic import make_store

Objects = dict[str, bytes]

# Four shards, two tuples at width 2, so that there are stage columns, gathers and a merge.
WIDTH = 2


@functools.cache
def _built(windows: tuple[str, ...] | None) -> Objects:
    with tempfile.TemporaryDirectory() as folder:
        root = make_store(
            Path(folder) / "store",
            seed=5,
            n_shards=4,
            shard_order=3,
            cell_order=6,
            leaf_cells=(5,),
            fields=("located", "packed"),
            holes=Holes(empty_cells=0.4, window_gap=0.3),
            windows=windows,
        )
        return read_tree(root)


def plain_store() -> Objects:
    """Return the objects of a store without windows."""
    return dict(_built(None))


def windowed_store() -> Objects:
    """Return the objects of a store with two windows and an all-time fold."""
    return dict(_built(("2019", "2020")))


def leaf_columns(objects: Mapping[str, bytes]) -> list[str]:
    """Return the keys of the leaf columns, in key order."""
    shard_order = json.loads(objects["morton_hive.json"])["shard_order"]
    roots = (key.removesuffix("/zarr.json") for key in objects if key.endswith(".pyramid.zarr/zarr.json"))
    return sorted(root for root in roots if root.count("/") == shard_order + 1)


def two_leaves(objects: Mapping[str, bytes], stem: str = "all") -> tuple[str, str]:
    """Return two leaf columns of one base cell: words of locations join in one base cell only."""
    leaves = [leaf for leaf in leaf_columns(objects) if leaf.endswith(f"/{stem}.pyramid.zarr")]
    first, last = leaves[1], leaves[-1]
    assert first.split("/")[0] == last.split("/")[0]
    return first, last


def below(objects: Mapping[str, bytes], prefix: str) -> Objects:
    """Return the objects below a prefix."""
    return {key: data for key, data in objects.items() if key.startswith(f"{prefix}/")}


def edit_root(objects: Objects, artifact: str, **changes: Any) -> None:
    """Change keys of an artifact's stamp; None takes a key out."""
    key = f"{artifact}/zarr.json"
    document = json.loads(objects[key])
    stamp = document["attributes"]["morton_hive_commit"]
    stamp.update(changes)
    for name in [name for name, value in changes.items() if value is None]:
        del stamp[name]
    objects[key] = json.dumps(document, indent=2).encode()


def rewrite_leaf(objects: Objects, target: str, source: str, written_at: str) -> None:
    """Give the leaf column ``target`` the cells of ``source`` and a stamp of ``written_at``."""
    stamp = json.loads(objects[f"{target}/zarr.json"])
    for key in below(objects, target):
        del objects[key]
    for key, data in below(objects, source).items():
        objects[target + key.removeprefix(source)] = data
    objects[f"{target}/zarr.json"] = json.dumps(stamp, indent=2).encode()
    edit_root(objects, target, written_at=written_at)


def ancestors(artifact: str) -> set[str]:
    """Return the directories of the nodes above the one that holds ``artifact``."""
    parts = artifact.split("/")[:-1]
    return {"/".join(parts[:length]) for length in range(1, len(parts))}
