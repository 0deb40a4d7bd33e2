"""Reading the manifest from a store, and recording what a run saw in it.

Source: format 2.3-2.4; semantics 10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sweep.errors import DeclarationError
from sweep.model.json_text import root_json
from sweep.model.keys import MANIFEST
from sweep.model.ladder import Ladder
from sweep.model.manifest import Manifest, missing_manifest, parse_manifest
from sweep.model.provenance import Actuals
from sweep.store.base import ObjectStore

__all__ = ["manifest_gone", "read_manifest", "with_actuals"]


def read_manifest(store: ObjectStore) -> Manifest:
    """Read and check ``morton_hive.json``.

    Raises
    ------
    DeclarationError
        There is none, or it is refused (format 2.4).
    AccessError, StoreUnavailableError
        The store does not give it.
    """
    raw = store.get(MANIFEST)
    if raw is None:
        raise missing_manifest(store.root)
    return parse_manifest(raw, store.root)


def with_actuals(
    document: Mapping[str, Any],
    ladder: Ladder,
    actuals: Actuals,
    *,
    run_id: str,
    now: str,
    withheld: Collection[int] = (),
) -> bytes:
    """The manifest with what a run observed set into its ladder entries.

    Entries withheld or unobserved stay as they stood; unknown keys survive.
    """
    updated = dict(document)
    pyramid = dict(document["pyramid"])
    pyramid["overviews"] = [
        _with_entry(entry, ladder, actuals, run_id=run_id, now=now, withheld=withheld)
        for entry in pyramid["overviews"]
    ]
    updated["pyramid"] = pyramid
    return root_json(updated)


def _with_entry(
    entry: Mapping[str, Any],
    ladder: Ladder,
    actuals: Actuals,
    *,
    run_id: str,
    now: str,
    withheld: Collection[int],
) -> Mapping[str, Any]:
    order = entry["node"]
    if order == ladder.shard_order:
        if not actuals.levels:
            return entry
        return {
            **entry,
            "actuals": {
                "regime": "leaf-column",
                "merges_from_raw": ladder.leaf_merges_from_raw(),
                "generated_at": now,
            },
        }
    seen = actuals.levels.get(order)
    if seen is None or order in withheld:
        return entry
    return {
        **entry,
        "actuals": {
            "regime": seen.regime,
            "merges_from_raw": seen.merges_from_raw,
            "source_children": seen.total().to_json(),
            "run_id": run_id,
            "generated_at": now,
        },
    }


def manifest_gone(root: str) -> DeclarationError:
    """The refusal of a finisher that finds no manifest to record actuals in."""
    return DeclarationError(
        f"{MANIFEST} is gone from {root}: the run's actuals cannot be recorded; restore it and sweep again "
        "under the same run id",
        kind="manifest-gone",
        key=MANIFEST,
    )
