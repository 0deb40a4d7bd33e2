"""The companion group, against that of real stores."""

from __future__ import annotations

import json

import pytest
from tests.reference import ReferenceStore
from tests.support.made import FIELDS, manifest_json

from sweep.artifacts.coverage import read_coverage
from sweep.artifacts.multiscales import multiscales_documents
from sweep.model.manifest import parse_manifest
from sweep.model.nodes import words_of


@pytest.mark.parametrize("name", ["kitchen_sink", "kitchen_sink_windowed", "wide"])
def test_the_group_of_a_real_store(reference_store: ReferenceStore, name: str) -> None:
    root = reference_store(name, "post")
    manifest = parse_manifest((root / "morton_hive.json").read_bytes(), str(root))
    coverage = read_coverage((root / "coverage.moc").read_bytes(), manifest.shard_order)
    assert coverage is not None
    block = json.loads((root / "multiscales/zarr.json").read_bytes())["attributes"]["zagg_multiscales"]
    documents = multiscales_documents(
        manifest,
        coverage.words,
        now=block["generated_at"],
        members_source=block["members_source"],
        members_generated_at=block["members_generated_at"],
    )
    expected = {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.glob("multiscales/**/*.json")
    }
    assert dict(documents) == expected
    assert len(documents) == manifest.shard_order + 1
    assert documents[-1][0] == "multiscales/zarr.json"


def test_members_of_run_records_have_no_clock() -> None:
    document = manifest_json({**FIELDS, "odd": "an entry that is no object", "none": {"class": "none"}})  # type: ignore[dict-item]
    manifest = parse_manifest(json.dumps(document).encode(), "made")
    shards = words_of(["111", "112", "-211"])
    *levels, (_, root) = multiscales_documents(
        manifest, shards, now="now", members_source="run-records", members_generated_at=None
    )
    block = json.loads(root)["attributes"]["zagg_multiscales"]
    assert list(block) == ["spec", "window", "members_source", "generated_at"]
    assert [key for key, _ in levels] == ["multiscales/1/zarr.json", "multiscales/0/zarr.json"]
    members = json.loads(levels[0][1])["attributes"]["zagg_multiscales_level"]["members"]
    assert list(members.items()) == [("-21", "-2/1/all.zarr/3"), ("11", "1/1/all.zarr/3")]
    (mirror,) = json.loads(root)["attributes"]["multiscales"]
    assert mirror["fields"]["none"] == "none"
    assert "odd" not in mirror["fields"]
