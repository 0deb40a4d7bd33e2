"""Damaged stores: what is counted, what is written and what is refused on the reference's own store.

The numbers were measured by sweeping the same damaged copies with the reference, tuple width 3.
Source: format 3.4, semantics 2.5, 4, 6.4, 8.2.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.reference import ReferenceStore
from tests.support.small_stores import Objects, below, edit_root, leaf_columns
from tests.support.sweeping import START, loaded, objects_in, read_tree, sweep

from sweep.errors import ArtifactError, ForeignWriteError
from sweep.stage.run import SweepSummary
from sweep.store.base import ObjectStore
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import WRITES, CountingStore

LONELY = "6/1/2/3/4/all.pyramid.zarr"  # the only leaf below its node of order 3
SIBLING = "1/1/1/1/1/all.pyramid.zarr"  # one of four below theirs

type KitchenSink = Callable[[], Objects]


@pytest.fixture(scope="module")
def kitchen_sink(reference_store: ReferenceStore) -> KitchenSink:
    objects = read_tree(reference_store("kitchen_sink", "pre"))
    return lambda: dict(objects)


@pytest.fixture(scope="module")
def usual_rows(reference_store: ReferenceStore) -> dict[int, dict[str, Any]]:
    """The rows of the reference's sweep of the whole store."""
    (record,) = reference_store("kitchen_sink", "post").glob("sweep_stats_*_stages.json")
    return rows_of(json.loads(record.read_bytes()))


def rows_of(record: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The rows by dispatch order, without their durations."""
    rows = [{k: v for k, v in row.items() if k != "duration_s"} for row in record["stages"]]
    return {row["dispatch_order"]: row for row in rows}


def swept(objects: Objects) -> tuple[ObjectStore, SweepSummary, dict[int, dict[str, Any]]]:
    store = loaded(objects)
    summary = sweep(store)
    return store, summary, rows_of(summary.record)


def overview_block(store: ObjectStore, directory: str) -> dict[str, Any]:
    data = store.get(f"{directory}/all.zarr/zarr.json")
    assert data is not None
    block: dict[str, Any] = json.loads(data)["attributes"]["zagg_overview"]
    return block


def without(objects: Objects, *prefixes: str) -> Objects:
    for prefix in prefixes:
        gone = below(objects, prefix)
        assert gone
        for key in gone:
            del objects[key]
    return objects


def differs(row: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value != usual.get(key)}


@pytest.mark.parametrize("coverage", [None, b"{", b'{"order": 4}', "other order"], ids=repr)
def test_unusable_coverage_is_flagged_and_written_anew(
    kitchen_sink: KitchenSink, usual_rows: dict[int, dict[str, Any]], coverage: bytes | str | None
) -> None:
    objects = kitchen_sink()
    ranges = json.loads(objects["coverage.moc"])["ranges"]
    if coverage is None:
        del objects["coverage.moc"]
    elif isinstance(coverage, str):
        objects["coverage.moc"] = json.dumps({**json.loads(objects["coverage.moc"]), "order": 5}).encode()
    else:
        objects["coverage.moc"] = coverage
    store, summary, rows = swept(objects)
    assert summary.record["root_moc_stale"] is True
    assert rows == usual_rows
    written = json.loads(store.get("coverage.moc") or b"")
    assert written["order"] == 4
    assert written["source"] == "sweep"
    assert written["ranges"] == ranges
    # the reference's sweep knows of no time
    assert "time_range" not in written


def test_usable_coverage_is_not_flagged(kitchen_sink: KitchenSink) -> None:
    _, summary, _ = swept(kitchen_sink())
    assert "root_moc_stale" not in summary.record


def test_a_digest_without_its_locations(
    kitchen_sink: KitchenSink, usual_rows: dict[int, dict[str, Any]]
) -> None:
    objects = without(kitchen_sink(), f"{LONELY}/5/h_tdigest_signal_locations")
    store, summary, rows = swept(objects)
    row = rows[3]
    assert (row["written"], row["empty"], row["failed"], row["columns_written"]) == (7, 1, 0, 8)
    assert (row["fold_cells_read"], row["fold_blocks"]) == (1166, 16)
    assert summary.record["levels"]["3"]["source_children"]["folded"] == 12
    assert store.get("6/1/2/3/all.zarr/zarr.json") is None


def test_a_digest_without_its_locations_beside_siblings(kitchen_sink: KitchenSink) -> None:
    """Semantics 4.1: a corrupt root and a lost companion among four children."""
    objects = without(kitchen_sink(), f"{SIBLING}/5/h_tdigest_signal_locations")
    first, *rest = [leaf for leaf in leaf_columns(objects) if leaf.startswith("1/1/1/1/") and leaf != SIBLING]
    objects[f"{first}/zarr.json"] = b"{"
    assert len(rest) == 2
    store, summary, rows = swept(objects)
    block = overview_block(store, "1/1/1/1")
    assert block["source_children"] == {"folded": 2, "missing": 0, "unreadable": 2}
    assert block["generation"]["n_leaves"] == 3
    assert rows[3]["failed"] == 1
    assert summary.problems == (f"{first}: {summary.problems[0].partition(': ')[2]}",)


def test_a_gather_records_no_demotion(kitchen_sink: KitchenSink) -> None:
    digest = f"{SIBLING}/4/h_tdigest_signal"
    objects = without(
        kitchen_sink(), f"{LONELY}/5/composition", digest, f"{digest}_locations", f"{digest}_times"
    )
    store, _, rows = swept(objects)
    assert (rows[3]["written"], rows[3]["fold_cells_read"]) == (8, 1163)
    found = [key for key, data in objects_in(store).items() if b'"demotions"' in data]
    assert found == []


def _no_json(objects: Objects, leaf: str) -> None:
    objects[f"{leaf}/zarr.json"] = b'{"zarr_format": 3, "node_type"'


def _no_bytes(objects: Objects, leaf: str) -> None:
    objects[f"{leaf}/zarr.json"] = b""


def _an_array(objects: Objects, leaf: str) -> None:
    objects[f"{leaf}/zarr.json"] = objects[f"{leaf}/4/zarr.json"].replace(b'"group"', b'"array"')


@pytest.mark.parametrize("damage", [_no_json, _no_bytes, _an_array])
def test_an_unreadable_root_is_counted_failed(
    kitchen_sink: KitchenSink, usual_rows: dict[int, dict[str, Any]], damage: Callable[[Objects, str], None]
) -> None:
    objects = kitchen_sink()
    damage(objects, SIBLING)
    store, summary, rows = swept(objects)
    assert rows[3]["failed"] == 1
    assert rows[3]["written"] == usual_rows[3]["written"]
    assert rows[3]["under_covered"] == 0
    counts = overview_block(store, "1/1/1/1")["source_children"]
    assert counts == {"folded": 3, "missing": 0, "unreadable": 1}
    assert summary.record["levels"]["3"]["source_children"]["unreadable"] == 1
    assert SIBLING in summary.problems[0]


@pytest.mark.parametrize("how", ["unstamped", "no root", "gone"])
def test_an_unstamped_column_is_missing(kitchen_sink: KitchenSink, how: str) -> None:
    objects = kitchen_sink()
    if how == "unstamped":
        document = json.loads(objects[f"{SIBLING}/zarr.json"])
        del document["attributes"]["morton_hive_commit"]
        objects[f"{SIBLING}/zarr.json"] = json.dumps(document).encode()
    elif how == "no root":
        del objects[f"{SIBLING}/zarr.json"]
    else:
        without(objects, SIBLING)
    store, summary, rows = swept(objects)
    counts = overview_block(store, "1/1/1/1")["source_children"]
    assert counts == {"folded": 3, "missing": 1, "unreadable": 0}
    assert rows[3]["failed"] == 0
    # the overview and the stage column that lack it
    assert rows[3]["under_covered"] == 2
    assert summary.tally.failed == 0


def test_a_lost_field_is_fill_and_its_child_still_folds(kitchen_sink: KitchenSink) -> None:
    objects = without(kitchen_sink(), f"{SIBLING}/5/h_max")
    store, _, rows = swept(objects)
    assert overview_block(store, "1/1/1/1")["source_children"] == {"folded": 4, "missing": 0, "unreadable": 0}
    assert rows[3]["failed"] == 0
    assert rows[3]["fold_cells_read"] == 1166


@pytest.mark.parametrize("where", ["column", "overview", "stage column"])
def test_a_fresh_stamp_of_another_run_aborts(
    kitchen_sink: KitchenSink, reference_store: ReferenceStore, where: str
) -> None:
    key = {"column": SIBLING, "overview": "1/1/1/all.zarr", "stage column": "1/1/1/1/all.pyramid.zarr"}[where]
    objects = kitchen_sink() if where == "column" else read_tree(reference_store("kitchen_sink", "post"))
    edit_root(objects, key, run_id="stage-other", written_at="2030-01-01T00:00:07+00:00")
    store = CountingStore(loaded(objects))
    with pytest.raises(ForeignWriteError) as caught:
        sweep(store, run_id="stage-ours", clock=FakeClock(START))
    for named in (key, "stage-other", "2030-01-01T00:00:07+00:00"):
        assert named in caught.value.message
    lease = json.loads(store.get("sweep.lease.json") or b"")
    assert lease["run_id"] == "stage-ours"
    (record,) = [
        json.loads(data) for name, data in objects_in(store.inner).items() if _is_ours(name, objects)
    ]
    assert record["error"] == f"ForeignWriteError: {caught.value.message}"
    assert record["lease"]["released"] is False
    assert "finisher" not in record
    after = store.log.index(("get", f"{key}/zarr.json"))
    # after it was seen, the run wrote its record and nothing else
    late = [name for method, name in store.log[after + 1 :] if method in WRITES]
    assert [name.split("_")[0] for name in late] == ["sweep"]


def _is_ours(name: str, before: Objects) -> bool:
    return name.startswith("sweep_stats_") and name not in before


@pytest.mark.parametrize("written_at", ["2030-01-01T00:00:00+00:00", "2029-12-31T00:00:00+00:00"])
def test_a_stamp_of_another_run_that_is_not_newer_is_ordinary(
    kitchen_sink: KitchenSink, usual_rows: dict[int, dict[str, Any]], written_at: str
) -> None:
    objects = kitchen_sink()
    edit_root(objects, SIBLING, run_id="stage-other", written_at=written_at)
    _, _, rows = swept(objects)
    assert rows == usual_rows


@pytest.mark.parametrize(
    ("node", "numbers"),
    [
        ("6", [(0, 0), (1, 0)]),
        ("1/1", [(0, 0), (2, 0)]),
        ("1/1/1", [(0, 0), (3, 0)]),
        ("1/1/1/1", [(1, 1), (3, 0)]),
    ],
)
def test_a_lost_envelope(reference_store: ReferenceStore, node: str, numbers: list[tuple[int, int]]) -> None:
    objects = read_tree(reference_store("kitchen_sink", "post"))
    del objects[f"{node}/overview.rollup.json"]
    _, summary, _ = swept(objects)
    assert [(row["written"], row["columns_written"]) for row in summary.record["stages"]] == numbers


def test_a_torn_chunk_under_a_standing_stamp_is_named(kitchen_sink: KitchenSink) -> None:
    """A source that cannot be decoded stops a store without windows; nothing is filled in silence."""
    objects = kitchen_sink()
    key = f"{SIBLING}/5/h_tdigest_signal/c/0"
    objects[key] = objects[key][:-9]
    store = loaded(objects)
    with pytest.raises(ArtifactError) as caught:
        sweep(store)
    assert f"{SIBLING}/5/h_tdigest_signal" in caught.value.message
    assert store.get("1/1/1/1/all.zarr/zarr.json") is None


def test_a_torn_chunk_is_one_failed_unit_on_a_windowed_store(reference_store: ReferenceStore) -> None:
    objects = read_tree(reference_store("kitchen_sink_windowed", "pre"))
    leaf = next(leaf for leaf in leaf_columns(objects) if leaf.startswith("1/1/1/1/"))
    key = next(name for name in sorted(below(objects, leaf)) if name.endswith("/5/h_tdigest_signal/c/0"))
    objects[key] = objects[key][:-9]
    store, summary, rows = swept(objects)
    stem = leaf.split("/")[-1].partition(".")[0]
    (error,) = rows[3]["unit_errors"]
    assert (error["node"], error["unit"]) == ("1111", stem)
    assert leaf in error["error"]
    assert error["error"].startswith("ArtifactError: ")
    assert rows[3]["failed"] >= 1
    assert store.get(f"1/1/1/1/{stem}.zarr/zarr.json") is None
    assert summary.record["finisher"]["lease_released"] is True
