"""Node envelopes, against those of a real store."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.reference import ReferenceStore
from tests.support.made import Json

from sweep.artifacts.envelope import envelope_entry, parse_envelope, updated_envelope
from sweep.artifacts.writer import Committed

BLOCK: Json = {
    "spec": "zagg-overview/2",
    "regime": "stage-merge",
    "merges_from_raw": 4,
    "source_children": {"folded": 1, "missing": 0, "unreadable": 0},
    "generation": {"n_leaves": 1, "max_leaf_timestamp": None, "run_ids": []},
    "content_hash": "eda3",
    "run_id": "stage-x",
    "generated_at": "2026-11-29T16:26:30+00:00",
}
WRITTEN = Committed(key="6/all.zarr", block=BLOCK, stamp={})


def envelope(**changes: Any) -> bytes:
    whole = {
        "spec": "zagg-sweep/1",
        "family": "overview",
        "node": "6",
        "order": 0,
        "windows": {"all": {"a": 1}},
    }
    return json.dumps(whole | changes).encode()


def test_every_envelope_of_a_real_store(reference_store: ReferenceStore) -> None:
    root = reference_store("kitchen_sink", "post")
    paths = sorted(root.rglob("overview.rollup.json"))
    assert len(paths) == 24
    for path in paths:
        raw = path.read_bytes()
        attributes = json.loads((path.parent / "all.zarr" / "zarr.json").read_bytes())["attributes"]
        block = attributes["zagg_overview"]
        key = (path.parent / "all.zarr").relative_to(root).as_posix()
        written = Committed(key=key, block=block, stamp=attributes["morton_hive_commit"])
        made = updated_envelope({}, written, node=block["node"], node_order=block["order"], stem="all")
        assert made == raw
        windows = parse_envelope(raw)
        assert windows == {"all": envelope_entry(written)}
        assert (
            updated_envelope(windows, written, node=block["node"], node_order=block["order"], stem="all")
            is None
        )


def test_other_windows_of_a_usable_envelope_are_kept() -> None:
    windows = parse_envelope(
        envelope(windows={"2019": {"object": "2019.zarr"}, "all": {"object": "old.zarr"}})
    )
    made = updated_envelope(windows, WRITTEN, node="6", node_order=0, stem="all")
    assert made is not None
    found = json.loads(made)
    assert list(found) == ["spec", "family", "node", "order", "windows"]
    assert list(found["windows"]) == ["2019", "all"]
    assert found["windows"]["2019"] == {"object": "2019.zarr"}
    assert found["windows"]["all"]["object"] == "all.zarr"


@pytest.mark.parametrize(
    "raw",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"null",
        envelope(spec="zagg-sweep/2"),
        envelope(family="stats"),
        envelope(windows=[]),
        envelope(windows=None),
    ],
)
def test_an_unusable_envelope_has_no_windows(raw: bytes | None) -> None:
    assert parse_envelope(raw) == {}


def test_a_usable_envelope_is_read() -> None:
    assert parse_envelope(envelope()) == {"all": {"a": 1}}


def test_a_deep_envelope_has_no_windows() -> None:
    assert parse_envelope(b"[" * 100_000) == {}
