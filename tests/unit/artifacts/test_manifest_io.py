"""The manifest on a store: its refusals, and the actuals that a run records in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.reference import ReferenceStore
from tests.support.made import Json, manifest_json, manifest_of, memory_store

from sweep.artifacts.manifest_io import manifest_gone, read_manifest, with_actuals
from sweep.errors import AccessError, DeclarationError
from sweep.model.ladder import Level
from sweep.model.manifest import parse_manifest
from sweep.model.provenance import Actuals, SourceCounts
from sweep.testing.stores import READS, Fault, FaultyStore


def actuals_of(document: Json, shard_order: int) -> Actuals:
    """What a manifest records of a run, as one artifact for each level."""
    actuals = Actuals()
    for entry in document["pyramid"]["overviews"]:
        seen = entry.get("actuals")
        if seen is not None and entry["node"] < shard_order:
            actuals.observe(
                Level(node_order=entry["node"], cell_order=entry["cells"][0]),
                artifact="6|all",
                regime=seen["regime"],
                merges_from_raw=seen["merges_from_raw"],
                counts=SourceCounts.parse(seen["source_children"]),
            )
    return actuals


@pytest.mark.parametrize("name", ["kitchen_sink", "kitchen_sink_windowed", "wide", "scale_tiny"])
def test_actuals_of_a_real_sweep(reference_store: ReferenceStore, name: str) -> None:
    before = (reference_store(name, "pre", mode="link") / "morton_hive.json").read_bytes()
    after = (reference_store(name, "post") / "morton_hive.json").read_bytes()
    manifest = parse_manifest(before, name)
    swept = json.loads(after)
    ladder_entry = swept["pyramid"]["overviews"][-1]["actuals"]
    written = with_actuals(
        manifest.document,
        manifest.ladder,
        actuals_of(swept, manifest.shard_order),
        run_id=ladder_entry["run_id"],
        now=ladder_entry["generated_at"],
    )
    assert written == after
    assert written != before


def one_level(order: int = 1) -> Actuals:
    actuals = Actuals()
    level = Level(node_order=order, cell_order=order + 2)
    for node, folded in (("21", 2), ("22", 3)):
        actuals.observe(
            level,
            artifact=f"{node}|all",
            regime="stage-gather",
            merges_from_raw=folded,
            counts=SourceCounts(folded=folded, missing=1),
        )
    return actuals


def entries_after(document: Json, actuals: Actuals, **options: Any) -> list[Json]:
    ladder = manifest_of().ladder
    written = with_actuals(document, ladder, actuals, run_id="r", now="now", **options)
    entries: list[Json] = json.loads(written)["pyramid"]["overviews"]
    return entries


def test_rows_are_summed_and_the_depth_is_the_largest() -> None:
    leaf, finer, coarser = entries_after(manifest_json(), one_level())
    assert leaf["actuals"] == {"regime": "leaf-column", "merges_from_raw": 1, "generated_at": "now"}
    assert finer["actuals"] == {
        "regime": "stage-gather",
        "merges_from_raw": 3,
        "source_children": {"folded": 5, "missing": 2, "unreadable": 0},
        "run_id": "r",
        "generated_at": "now",
    }
    assert "actuals" not in coarser


def test_without_observations_nothing_is_set() -> None:
    document = manifest_json()
    assert entries_after(document, Actuals()) == document["pyramid"]["overviews"]


def test_withheld_entries_stay_as_they_stood() -> None:
    document = manifest_json()
    document["pyramid"]["overviews"][1]["actuals"] = {"run_id": "older"}
    leaf, finer, _ = entries_after(document, one_level(), withheld=[1])
    assert finer["actuals"] == {"run_id": "older"}
    assert leaf["actuals"]["generated_at"] == "now"


def test_actuals_are_replaced_in_place_and_unknown_keys_survive() -> None:
    document = manifest_json() | {"zz_unknown": {"kept": [1, 2]}}
    entry = document["pyramid"]["overviews"][1]
    document["pyramid"]["overviews"][1] = {"actuals": {"run_id": "older"}, **entry, "note": 1}
    written = with_actuals(document, manifest_of().ladder, one_level(), run_id="r", now="now")
    found = json.loads(written)
    assert found["zz_unknown"] == {"kept": [1, 2]}
    assert list(found) == list(document)
    changed = found["pyramid"]["overviews"][1]
    assert list(changed) == ["actuals", "node", "cells", "note"]
    assert changed["actuals"]["run_id"] == "r"
    assert document["pyramid"]["overviews"][1]["actuals"] == {"run_id": "older"}


def test_a_root_without_manifest() -> None:
    store = memory_store()
    with pytest.raises(DeclarationError) as caught:
        read_manifest(store)
    for named in ("morton_hive.json", store.root, "not a hive store root"):
        assert named in caught.value.message


def _changed(**pyramid: Any) -> Json:
    document = manifest_json()
    document["pyramid"] |= pyramid
    return document


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (_changed(spec="zagg-pyramid/1"), ["zagg-pyramid/2", "'zagg-pyramid/1'"]),
        (manifest_json() | {"pyramid": None}, ["zagg-pyramid/2", "None"]),
        (_changed(overviews=[]), ["pyramid.overviews"]),
        (_changed(overviews=None), ["pyramid.overviews"]),
        (_changed(overviews=[{"node": 1, "cells": [3, 4]}]), ["node 1", "2 members"]),
        (_changed(overviews=[{"node": 1, "cells": [1]}]), ["node 1", "[1]", "malformed declaration"]),
    ],
)
def test_refusals_name_what_is_wrong_and_where(document: Json, named: list[str]) -> None:
    store = memory_store()
    store.put("morton_hive.json", json.dumps(document).encode())
    with pytest.raises(DeclarationError) as caught:
        read_manifest(store)
    for text in (*named, store.root):
        assert text in caught.value.message


def test_a_truncated_manifest() -> None:
    store = memory_store()
    store.put("morton_hive.json", json.dumps(manifest_json()).encode()[:-20])
    with pytest.raises(DeclarationError, match="truncated or damaged"):
        read_manifest(store)


def test_a_manifest_that_may_not_be_read() -> None:
    fault = Fault(before=AccessError("no permission"))
    with pytest.raises(AccessError):
        read_manifest(FaultyStore(memory_store(), lambda *_: fault, methods=READS))


def test_a_manifest_that_went_away_under_the_finisher() -> None:
    error = manifest_gone("s3://bucket/store")
    for named in ("morton_hive.json", "s3://bucket/store", "actuals cannot be recorded"):
        assert named in error.message
