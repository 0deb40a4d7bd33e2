"""The companion group that lists every overview of a store for discovery.

Source: format 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep.model.json_text import root_json
from sweep.model.keys import MULTISCALES, multiscales_level_key
from sweep.model.ladder import Ladder, Level
from sweep.model.manifest import Manifest
from sweep.model.nodes import Words, ancestors, decimals_of, path_of
from sweep.model.windows import ALL
from sweep.plan.runs import sorted_distinct

__all__ = ["multiscales_documents"]

SPEC = "zagg-multiscales/1"


def multiscales_documents(
    manifest: Manifest, shards: Words, *, now: str, members_source: str, members_generated_at: Any
) -> list[tuple[str, bytes]]:
    """The objects of the companion group, children first, the root last.

    Parameters
    ----------
    manifest : Manifest
    shards : ndarray of uint64
        The shards whose ancestors are listed.
    now : str
        Clock of the root's block.
    members_source : str
        ``coverage.moc`` or ``run-records``.
    members_generated_at
        The clock of the coverage object; None where the shards come from run records.
    """
    children = {
        str(level.node_order): _group({"zagg_multiscales_level": _level_block(level, shards)})
        for level in manifest.ladder.levels
    }
    block: dict[str, Any] = {
        "spec": SPEC,
        "window": ALL,
        "members_source": members_source,
        "generated_at": now,
    }
    if members_generated_at is not None:
        block["members_generated_at"] = members_generated_at
    root = _group({"multiscales": [_mirror(manifest)], "zagg_multiscales": block})
    root["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": children}
    documents = [(multiscales_level_key(int(order)), root_json(child)) for order, child in children.items()]
    return [*documents, (MULTISCALES, root_json(root))]


def _group(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}


def _level_block(level: Level, shards: Words) -> dict[str, Any]:
    nodes = sorted(decimals_of(sorted_distinct(ancestors(shards, level.node_order))))
    return {
        "spec": SPEC,
        "order": level.node_order,
        "cells": [level.cell_order],
        "artifact": "overview",
        "window": ALL,
        "members": {node: f"{path_of(node)}/{ALL}.zarr/{level.cell_order}" for node in nodes},
    }


def _mirror(manifest: Manifest) -> dict[str, Any]:
    ladder: Ladder = manifest.ladder
    pyramid = manifest.document["pyramid"]
    overview = pyramid.get("overview", {})
    entries = pyramid["overviews"]
    fold = {key: overview[key] for key in ("fold_source", "exact_levels") if key in overview}
    return {
        "spec": SPEC,
        "name": manifest.name,
        "base": {"order": ladder.shard_order, "cells": [ladder.cell_order]},
        "datasets": [
            {
                "order": entry["node"],
                "cells": entry["cells"],
                "artifact": "column" if entry["node"] >= ladder.shard_order else "overview",
            }
            for entry in entries
        ],
        "order2res": {str(entry["node"]): entry["cells"] for entry in entries},
        "fields": {
            name: entry.get("class")
            for name, entry in overview.get("fields", {}).items()
            if isinstance(entry, Mapping)
        },
        "fold": fold,
    }
