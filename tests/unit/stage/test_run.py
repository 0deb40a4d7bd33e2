"""One sweep in this process: what is refused, what the record says, how a run ends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.reference import ReferenceStore
from tests.support.made import Json
from tests.support.small_stores import WIDTH, leaf_columns, plain_store, windowed_store
from tests.support.sweeping import START, loaded, make_runtime, memory, objects_in, read_tree, sweep

from sweep.errors import (
    AccessError,
    ArtifactError,
    DeclarationError,
    ForeignWriteError,
    LeaseHeldError,
    StoreUnavailableError,
)
from sweep.events import Admitted, Event, RunFinished, RunStarted
from sweep.model.nodes import decimals_of, words_of
from sweep.model.runs import new_run_id
from sweep.stage.run import SweepOptions, SweepSummary, sweep_store
from sweep.store.base import ObjectStore
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import CountingStore, Fault, FaultyStore

LEASE = "sweep.lease.json"
_FREE = {"run_id", "store_root", "acquired_at", "duration_s", "generated_at"}


def without_clocks(value: Any) -> Any:
    """A record without what differs between two runs; keys stay where they are."""
    if isinstance(value, dict):
        return {key: 0 if key in _FREE else without_clocks(each) for key, each in value.items()}
    return [without_clocks(each) for each in value] if isinstance(value, list) else value


def record_in(store: ObjectStore, key: str | None = None) -> Json:
    names = [info.key for info in store.list_dir("").objects if info.key.startswith("sweep_stats_")]
    (name,) = names if key is None else [key]
    raw = store.get(name)
    assert raw is not None
    found: Json = json.loads(raw)
    assert raw == json.dumps(found, indent=1).encode()
    return found


@pytest.mark.parametrize("name", ["kitchen_sink"])
def test_the_record_of_a_real_run(reference_store: ReferenceStore, name: str) -> None:
    """Every key in its place, every count, and the meters of both tuples."""
    (path,) = reference_store(name, "post").glob("sweep_stats_*.json")
    expected = json.loads(path.read_bytes())
    store = loaded(read_tree(reference_store(name, "pre", mode="link")))
    summary = sweep(store)
    found = record_in(store)
    assert json.dumps(without_clocks(found), indent=1) == json.dumps(without_clocks(expected), indent=1)
    assert [row["fold_cells_read"] for row in found["stages"]] == [1170, 4224]  # semantics 6.7
    assert summary.to_json() == {**found, "record": summary.record_key}
    # again: nothing to fold (semantics 7.5)
    rows = sweep(store).record["stages"]
    assert [row["current"] for row in rows] == [8, 16]
    assert [row["columns_current"] for row in rows] == [8, 0]
    assert sum(row["fold_blocks"] + row["written"] + row["failed"] for row in rows) == 0


def test_options_stand_in_the_record() -> None:
    store = loaded(plain_store())
    leaves = words_of(_shards(store))
    summary = sweep(
        store,
        tuple_width=WIDTH,
        scope=["1", "-6"],
        lease_ttl_s=77,
        run_id="stage-mine",
        pipeline_run_id="pipeline-7",
        leaves=[*leaves.tolist(), words_of(["11"]).tolist()[0]],
    )
    record = summary.record
    assert (record["run_id"], record["pipeline_run_id"]) == ("stage-mine", "pipeline-7")
    assert record["tuple_width"] == WIDTH
    assert record["lease"]["ttl_s"] == 77
    # semantics: packed words as text
    assert record["scope"] == [str(word) for word in sorted(words_of(["1", "-6"]).tolist())]
    assert record["skipped_leaves"] == ["11"]
    assert record["n_leaves"] == summary.n_leaves == 4
    assert record["partitions"] is None


def _shards(store: ObjectStore) -> list[str]:
    return ["".join(key.split("/")[:-1]) for key in leaf_columns(objects_in(store))]


def test_a_fresh_run_id() -> None:
    runtime = replace(make_runtime(), new_id=lambda: "abcdef0123456789")
    assert new_run_id(runtime.clock, runtime.new_id) == "stage-20300101T000000Z-abcdef"


# -- refusals come before the lease -------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"families": ["stats", "moc"]}, "stats, moc"),
        ({"touch_policy": "sometimes"}, "'sometimes'"),
        ({"lease_ttl_s": 0}, "0"),
        ({"lease_ttl_s": 2}, "2: expected whole seconds, 3 to 604800"),
        ({"lease_ttl_s": 604_801}, "604801: expected whole seconds, 3 to 604800"),
        ({"lease_ttl_s": True}, "True"),
        ({"lease_ttl_s": 60.0}, "60.0"),
        ({"lease_ttl_s": "900"}, "'900'"),
        ({"partitions": 3}, "3"),
        ({"partitions": 8}, "8"),
        ({"scope": []}, "scope"),
        ({"scope": "1x"}, "1x"),
        ({"scope": [-2111]}, "-2111"),
        ({"tuple_width": 0}, "0"),
        ({"target_nodes": -1}, "-1"),
        ({"leaves": [(1, 2, 3)]}, "(1, 2, 3)"),
        ({"leaves": [-2111]}, "-2111"),
        ({"dirt_only": ["111"]}, "111"),
    ],
    ids=str,
)
def test_refused_before_anything_is_written(options: dict[str, Any], named: str) -> None:
    counting = CountingStore(loaded(plain_store()))
    with pytest.raises(DeclarationError) as caught:
        sweep(counting, **options)
    assert named in caught.value.message
    assert counting.written == 0


@pytest.mark.parametrize(
    "options", [{"scope": "1x"}, {"partitions": 8}, {"lease_ttl_s": 2}, {"families": ["moc"]}], ids=str
)
def test_a_malformed_request_does_not_touch_the_store(options: dict[str, Any]) -> None:
    counting = CountingStore(loaded(plain_store()))
    with pytest.raises(DeclarationError):
        sweep(counting, **options)
    assert counting.log == []


def test_a_malformed_ladder_is_refused_before_anything_is_written() -> None:
    objects = plain_store()
    document = json.loads(objects["morton_hive.json"])
    document["pyramid"]["overviews"] = [{"node": 1, "cells": [2]}]
    objects["morton_hive.json"] = json.dumps(document).encode()
    counting = CountingStore(loaded(objects))
    with pytest.raises(DeclarationError, match="malformed declaration"):
        sweep(counting)
    assert counting.written == 0


def test_no_discovered_leaf_takes_no_lease() -> None:
    objects = {key: data for key, data in plain_store().items() if not key.startswith("stats_")}
    counting = CountingStore(loaded(objects))
    events: list[Event] = []
    runtime = make_runtime(observer=events.append)
    summary = sweep_store(counting, SweepOptions(), runtime)
    assert (summary.record, summary.record_key, summary.n_leaves) == ({}, None, 0)
    assert counting.written == 0
    assert events == []


def test_skipped_records_are_said() -> None:
    objects = plain_store() | {"stats_bad.parquet": b"bad"}
    summary = sweep(loaded(objects))
    (line,) = summary.skipped_records
    assert line.startswith("stats_bad.parquet: ")
    assert summary.n_leaves == 4


# -- work sets ----------------------------------------------------------------------------


def test_a_work_set_that_is_given_is_not_discovered() -> None:
    objects = plain_store()
    store = loaded(objects)
    first = _shards(store)[0]
    plain = {key: data for key, data in objects.items() if not key.startswith("stats_")}
    del plain["coverage.moc"]
    store = loaded(plain)
    summary = sweep(store, tuple_width=WIDTH, leaves=words_of([first]).tolist())
    assert summary.n_leaves == 1
    assert summary.record["root_moc_stale"] is True
    depth = len(first) - 1  # the shard's order, in the north
    assert summary.tally.written == depth if first[0] != "-" else depth - 1
    nodes = {"".join(key.split("/")[:-2]) for key in objects_in(store) if key.endswith("/all.zarr/zarr.json")}
    assert all(first.startswith(node) for node in nodes)


def test_an_empty_work_set_that_is_given_visits_and_leaves_the_root_alone() -> None:
    store = loaded(plain_store())
    before = store.get("coverage.moc")
    summary = sweep(store, tuple_width=WIDTH, leaves=[])
    record = record_in(store)
    assert (record["n_leaves"], record["finisher"]["root_moc"]) == (0, False)
    assert "multiscales_group" not in record["finisher"]
    assert store.get("coverage.moc") == before
    assert summary.tally.failed == 0


def test_dirt_only_leaves_are_counted_and_nothing_is_folded_for_them() -> None:
    store = loaded(plain_store())
    shards = words_of(_shards(store)).tolist()
    summary = sweep(store, tuple_width=WIDTH, leaves=[], dirt_only=shards)
    assert (summary.record["n_leaves"], summary.record["n_dirt_only"]) == (0, 4)
    assert summary.tally.written == summary.tally.current == 0
    assert not [key for key in objects_in(store) if key.endswith("/all.zarr/zarr.json")]
    # a dirty leaf under the same nodes is folded as ever
    both = sweep(store, tuple_width=WIDTH, leaves=shards[:1], dirt_only=shards)
    assert (both.record["n_leaves"], both.record["n_dirt_only"]) == (1, 3)
    assert both.tally.written > 0


def test_dirt_only_beside_discovery() -> None:
    store = loaded(windowed_store())
    discovered = sweep(loaded(windowed_store()), tuple_width=WIDTH)
    extra = words_of([_other_shard(store)]).tolist()
    summary = sweep(store, tuple_width=WIDTH, dirt_only=extra)
    assert summary.record["n_leaves"] == discovered.record["n_leaves"]
    assert summary.record["n_dirt_only"] == 1


def _other_shard(store: ObjectStore) -> str:
    taken = set(_shards(store))
    return next(each for each in ("1111", "2222", "-3333") if each not in taken)


def test_partitions_run_one_after_another_and_say_which() -> None:
    store = loaded(plain_store())
    rows = sweep(store, tuple_width=WIDTH, partitions=4).record["stages"]
    indexes = [row["partition"]["index"] for row in rows]
    assert indexes == sorted(indexes)
    assert set(indexes) == {0, 1, 2, 3}
    assert {row["partition"]["of"] for row in rows} == {4}
    # and the store is what one pass makes of it
    one = loaded(plain_store())
    assert all("partition" not in row for row in sweep(one, tuple_width=WIDTH).record["stages"])
    assert _chunks(store) == _chunks(one)
    levels = record_in(store)["levels"]
    assert levels == record_in(one)["levels"]


def _chunks(store: ObjectStore) -> dict[str, bytes]:
    return {key: data for key, data in objects_in(store).items() if "/all.zarr/" in key and "/c/" in key}


def test_partitions_outside_the_scope_are_left_out() -> None:
    store = loaded(plain_store())
    shard = _shards(store)[0]
    node = shard[: len(shard) - 1]
    record = sweep(store, tuple_width=WIDTH, partitions=4, scope=[node]).record
    found = {row["partition"]["index"] for row in record["stages"]}
    digits = node.lstrip("-")[1:]
    assert found == {int(digits[0]) - 1}
    assert decimals_of(words_of([node])) == [node]


# -- how a run ends -----------------------------------------------------------------------


def test_a_record_that_cannot_be_written_is_passed_over() -> None:
    def plan(_number: int, _method: str, key: str) -> Fault | None:
        return Fault(before=StoreUnavailableError("no answer")) if key.startswith("sweep_stats_") else None

    store = loaded(plain_store())
    summary = sweep(FaultyStore(store, plan), tuple_width=WIDTH)
    assert summary.record_key is None
    assert summary.record["lease"]["released"] is True
    assert summary.tally.written > 0
    assert store.get(LEASE) is None


def test_no_record_is_written_where_none_is_wanted() -> None:
    store = loaded(plain_store())
    summary = sweep(store, record=False)
    assert (summary.record_key, summary.record["mode"]) == (None, "stages")
    assert not [key for key in objects_in(store) if key.startswith("sweep_stats_")]


def test_two_runs_of_one_second_keep_their_records() -> None:
    store = loaded(plain_store())
    first, second = sweep(store), sweep(store)
    assert first.record_key == "sweep_stats_20300101T000000Z_stages.json"
    assert second.record_key not in (None, first.record_key)
    assert record_in(store, second.record_key)["run_id"] == second.run_id
    assert record_in(store, first.record_key)["run_id"] == first.run_id


def _torn() -> tuple[dict[str, bytes], str, bytes]:
    objects = plain_store()
    key = next(key for key in objects if key.startswith(leaf_columns(objects)[0]) and "/count/c/" in key)
    good, objects[key] = objects[key], b"torn"
    return objects, key, good


def test_a_failed_run_records_its_error_keeps_the_lease_and_heals_under_its_id() -> None:
    objects, key, good = _torn()
    store = loaded(objects)
    with pytest.raises(ArtifactError):
        sweep(store, tuple_width=WIDTH, run_id="stage-mine")
    record = record_in(store)
    assert record["error"].startswith("ArtifactError: ")
    assert record["lease"]["released"] is False
    assert list(record)[-2:] == ["error", "duration_s"]
    assert "finisher" not in record
    with pytest.raises(LeaseHeldError):
        sweep(store, run_id="stage-other", clock=FakeClock(START))
    store.put(key, good)
    summary = sweep(store, tuple_width=WIDTH, run_id="stage-mine")
    assert summary.record["lease"]["released"] is True
    assert store.get(LEASE) is None
    assert _chunks(store) == _chunks(_swept())


def _swept() -> ObjectStore:
    store = loaded(plain_store())
    sweep(store, tuple_width=WIDTH)
    return store


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (AccessError("disk full"), "AccessError: disk full"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (ZeroDivisionError("ours"), "ZeroDivisionError: ours"),
        (ForeignWriteError("theirs"), "ForeignWriteError: theirs"),
    ],
)
def test_whatever_ends_a_run_is_recorded(error: BaseException, text: str) -> None:
    store = loaded(windowed_store())
    faulty = FaultyStore(
        store, lambda number, *_: Fault(before=error) if number == 20 else None, methods=("put",)
    )
    with pytest.raises(type(error)):
        sweep(faulty, tuple_width=WIDTH)
    assert record_in(store)["error"] == text
    assert store.get(LEASE) is not None


def test_events_of_a_run() -> None:
    events: list[Event] = []
    store = loaded(windowed_store())
    summary = sweep_store(store, SweepOptions(tuple_width=WIDTH), make_runtime(observer=events.append))
    admitted, started, finished = events[0], events[1], events[-1]
    assert admitted == Admitted(run_id=summary.run_id, claimed_from=None)
    assert isinstance(started, RunStarted)
    assert isinstance(finished, RunFinished)
    assert started.n_leaves == summary.n_leaves
    assert started.n_tuples == 2
    assert started.n_units == sum(
        row["window_units"] + row["close_units"] for row in summary.record["stages"]
    )
    assert (finished.written, finished.failed) == (
        summary.tally.written + summary.tally.columns_written,
        0,
    )
    assert finished.run_id == started.run_id == summary.run_id


def test_problems_are_lines_for_people() -> None:
    objects = plain_store()
    broken = leaf_columns(objects)[1]
    objects[f"{broken}/zarr.json"] = b"{"
    summary = sweep(loaded(objects), tuple_width=WIDTH)
    assert summary.tally.failed == 1
    (line,) = summary.problems
    assert line.startswith(f"{broken}: root document is not JSON")


def test_a_store_without_fields_is_recorded_without_stages() -> None:
    objects = plain_store()
    document = json.loads(objects["morton_hive.json"])
    document["pyramid"]["overview"]["fields"] = {"h": {"class": "none"}}
    objects["morton_hive.json"] = json.dumps(document).encode()
    store = loaded(objects)
    summary: SweepSummary = sweep(store)
    assert summary.record["stages"] == []
    assert summary.record["levels"] == {}
    finisher = summary.record["finisher"]
    assert (finisher["root_moc"], finisher["manifest_updated"]) == (True, False)


def test_an_empty_memory_store_is_no_hive() -> None:
    with pytest.raises(DeclarationError, match="not a hive store root"):
        sweep(memory())


def test_more_partitions_than_shards_are_refused_before_the_lease() -> None:
    store = loaded(plain_store())
    with pytest.raises(DeclarationError, match="256 partitions are more than the 64 shards"):
        sweep_store(store, SweepOptions(scope="all", partitions=256), make_runtime())
    assert store.get("sweep.lease.json") is None
