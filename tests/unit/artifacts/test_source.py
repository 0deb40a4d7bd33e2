"""Artifacts as sources: the states of format 3.4, the foreign guard, what sources record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.made import Json, memory_store

from sweep.artifacts.source import (
    ForeignGuard,
    Missing,
    Source,
    StoredSource,
    Unreadable,
    open_sources,
    parse_root,
    root_parts,
)
from sweep.errors import AccessError, ForeignWriteError, StoreUnavailableError
from sweep.model.provenance import Generation
from sweep.store.base import ObjectStore
from sweep.testing.stores import READS, Fault, FaultyStore

KEY = "2/1/all.pyramid.zarr"
STAMP: Json = {"spec": "morton-hive/1", "complete": True, "written_at": "2026-11-29T16:00:00+00:00"}
BLOCK: Json = {"spec": "zagg-column/1", "groups": {"5": {"merges_from_raw": 2}}}


def root(**attributes: Any) -> bytes:
    return json.dumps({"attributes": attributes, "zarr_format": 3, "node_type": "group"}).encode()


COMMITTED = root(role="column", zagg_column=BLOCK, morton_hive_commit=STAMP)


def opened(raw: bytes | None) -> Any:
    store = memory_store()
    if raw is not None:
        store.put(f"{KEY}/zarr.json", raw)
    store.put(f"{KEY}/5/zarr.json", b"{}")
    (found,) = open_sources(store, [KEY], "zagg_column")
    return found


def test_committed() -> None:
    found = opened(COMMITTED)
    assert isinstance(found, StoredSource)
    assert (found.key, found.stamp, found.block) == (KEY, STAMP, BLOCK)
    assert (found.pinned, found.revalidated, found.layouts) == (False, 0, {})


@pytest.mark.parametrize(
    "raw", [root(zagg_column="text", morton_hive_commit=STAMP), root(morton_hive_commit=STAMP)]
)
def test_committed_without_a_usable_block(raw: bytes) -> None:
    # role and spec of a column's block are not checked
    found = opened(raw)
    assert isinstance(found, StoredSource)
    assert found.block == {}


@pytest.mark.parametrize(
    "raw",
    [
        None,
        root(),
        root(role="column", zagg_column=BLOCK),
        root(morton_hive_commit=None),
        root(morton_hive_commit="complete"),
        root(morton_hive_commit={}),
        b'{"zarr_format": 3, "node_type": "group"}',
    ],
)
def test_missing(raw: bytes | None) -> None:
    assert opened(raw) == Missing(KEY)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not JSON (0 bytes"),
        (COMMITTED[:-1], "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[]", "no zarr v3 group"),
        (COMMITTED.replace(b'"group"', b'"array"'), "no zarr v3 group"),
        (COMMITTED.replace(b'"zarr_format": 3', b'"zarr_format": 2'), "no zarr v3 group"),
        (b'{"zarr_format": 3, "node_type": "group", "attributes": []}', "attributes"),
    ],
)
def test_unreadable(raw: bytes, reason: str) -> None:
    found = opened(raw)
    assert isinstance(found, Unreadable)
    assert found.key == KEY
    assert reason in found.reason


def failing(store: ObjectStore, error: Exception) -> FaultyStore:
    """``store``, where the second key is refused."""
    return FaultyStore(
        store, lambda _n, _m, key: Fault(before=error) if key.startswith("b/") else None, methods=READS
    )


def test_an_access_error_is_one_source_that_cannot_be_read() -> None:
    store = memory_store()
    for key in ("a", "b", "c"):
        store.put(f"{key}/zarr.json", COMMITTED)
    found = open_sources(failing(store, AccessError("no permission")), ["a", "b", "c"], "zagg_column")
    assert [type(each) for each in found] == [StoredSource, Unreadable, StoredSource]
    assert found[1] == Unreadable("b", "no permission")


def test_a_store_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(StoreUnavailableError):
        open_sources(failing(memory_store(), StoreUnavailableError("gone")), ["a", "b"], "zagg_column")


STARTED = "2026-11-29T16:30:00+00:00"
GUARD = ForeignGuard(run_id="ours", run_started=STARTED)


@pytest.mark.parametrize(
    "stamp",
    [
        {"written_at": "2030-01-01T00:00:00+00:00"},  # a leaf's stamp carries no run id
        {"run_id": "ours", "written_at": "2030-01-01T00:00:00+00:00"},
        {"run_id": "theirs", "written_at": STARTED},  # equal seconds pass
        {"run_id": "theirs", "written_at": "2026-11-29T16:29:59+00:00"},
        {"run_id": "theirs"},
        {"run_id": "theirs", "written_at": 20300101},
        {"run_id": None, "written_at": "2030-01-01T00:00:00+00:00"},
        {},
    ],
)
def test_stamps_that_pass_the_guard(stamp: Json) -> None:
    GUARD.check(KEY, stamp)


def test_a_foreign_fresh_stamp_names_object_run_and_time() -> None:
    at = "2026-11-29T16:30:01+00:00"
    with pytest.raises(ForeignWriteError) as caught:
        GUARD.check(KEY, {"run_id": "theirs", "written_at": at})
    for named in (KEY, "theirs", at, "ours", STARTED):
        assert named in caught.value.message
    assert caught.value.context == {"key": KEY, "run_id": "theirs"}


def test_opening_checks_every_stamp() -> None:
    store = memory_store()
    fresh = STAMP | {"run_id": "theirs", "written_at": "2026-11-29T16:30:01+00:00"}
    store.put("a/zarr.json", COMMITTED)
    store.put("b/zarr.json", root(morton_hive_commit=fresh))
    assert len(open_sources(store, ["a", "c"], "zagg_column", GUARD)) == 2
    with pytest.raises(ForeignWriteError):
        open_sources(store, ["a", "b"], "zagg_column", GUARD)
    assert len(open_sources(store, ["a", "b"], "zagg_column")) == 2


def source(stamp: Json, block: Json) -> Source:
    return Source(key=KEY, stamp=stamp, block=block)


def test_what_a_source_contributes() -> None:
    leaf = source(STAMP | {"granule_count": 3}, {})
    assert leaf.granules == 3
    assert leaf.generation() == Generation(n_leaves=1, max_leaf_timestamp=STAMP["written_at"])
    block = {
        "generation": {"n_leaves": 4, "max_leaf_timestamp": "2020", "run_ids": ["r1"]},
        "merges_from_raw": 3,
    }
    folded = source(STAMP | {"run_id": "r2"}, block)
    assert folded.generation() == Generation(
        n_leaves=4, max_leaf_timestamp="2020", run_ids=frozenset({"r1", "r2"})
    )
    assert folded.merges_from_raw == 3
    assert folded.granules == 0
    assert source(STAMP | {"granule_count": "3"}, {}).granules == 0


def test_depths_that_are_not_recorded_count_as_one() -> None:
    each = source(STAMP, BLOCK)
    assert [each.member_depth(order) for order in (5, 4)] == [2, 1]
    assert source(STAMP, {"groups": {"5": {"merges_from_raw": "2"}}}).member_depth(5) == 1
    assert source(STAMP, {"groups": []}).member_depth(5) == 1
    assert source(STAMP, {"merges_from_raw": True}).merges_from_raw == 1
    assert source(STAMP, {}).merges_from_raw == 1


def test_root_parts() -> None:
    assert root_parts({"morton_hive_commit": STAMP, "zagg_overview": BLOCK}, "zagg_overview") == (
        STAMP,
        BLOCK,
    )
    assert root_parts({"morton_hive_commit": STAMP, "zagg_overview": BLOCK}, "zagg_column") == (STAMP, {})
    assert root_parts({}, "zagg_column") == ({}, {})


def test_a_deep_root_document_is_unreadable() -> None:
    assert "nested" in str(parse_root(b"[" * 100_000))
