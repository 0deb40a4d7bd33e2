"""The finisher of a fleet run: which records count, what is withheld, and what it writes.

Source: semantics 12.3; format 11, 12.2.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.small_stores import plain_store
from tests.support.sweeping import START, loaded, make_runtime, memory, objects_in

from sweep.artifacts.manifest_io import read_manifest
from sweep.control.discovery import discover_leaves
from sweep.control.lease import Lease, read_holder
from sweep.errors import AccessError, DeclarationError, LeaseHeldError
from sweep.model.clock import timestamp
from sweep.model.invocation import FinisherInvocation
from sweep.plan.packing import refs_of
from sweep.stage.fleet_finisher import already_finished, finish_fleet, standing_finish
from sweep.store.base import ObjectInfo, ObjectStore
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import CountingStore, Fault, FaultyStore

Json = dict[str, Any]
RUN = "stage-x"
T1, T2 = "2029-12-31T23:00:00+00:00", "2029-12-31T23:30:00+00:00"


def listed(text: str) -> list[str]:
    return text.split(", ")


# format 11
RUN_RECORD = listed(
    "spec, mode, run_id, pipeline_run_id, store_root, shard_order, transport, n_leaves, skipped_leaves, "
    "stage_records, stages, levels, barrier_timed_out, short_orders, finisher, lease, duration_s"
)


def counts(folded: int, missing: int = 0) -> Json:
    return {"folded": folded, "missing": missing, "unreadable": 0}


def record(
    batch: int, children: dict[int, dict[str, Json]], nodes: Sequence[str] | None, **changes: Any
) -> Json:
    """A stage record that saw ``children`` by node order."""
    plain: Json = {
        "spec": "zagg-sweep-stage-record/1",
        "role": "stage",
        "run_id": RUN,
        "run_started": T1,
        "dispatch": 0,
        "batch": batch,
        "unit": None,
        "window": None,
        "stages": [{"dispatch_order": 0, "batch": batch}],
        "level_actuals": {
            str(order): {"cells": order + 2, "regime": "stage-gather", "merges_from_raw": 2, "children": rows}
            for order, rows in children.items()
        },
    }
    if nodes is not None:
        plain["nodes"] = list(nodes)
    return plain | changes


class Place:
    """A swept store's root, a status prefix, and the finisher."""

    def __init__(self, *records: Json) -> None:
        self.store: ObjectStore = loaded({key: data for key, data in plain_store().items() if "/" not in key})
        self.status: ObjectStore = memory()
        self.clock = FakeClock(START)
        for number, each in enumerate(records):
            self.put(f"stage-00-{number:04d}.json", each)

    def put(self, name: str, document: Json) -> None:
        self.status.put(name, json.dumps(document).encode())

    def finish(self, **changes: Any) -> Json:
        fields: Json = {
            "store_path": self.store.root,
            "run_id": RUN,
            "records_from": self.status.root,
            "touch_policy": "auto",
            "barrier_timed_out": False,
            "short_orders": (),
            "leaves": refs_of(discover_leaves(self.store, read_manifest(self.store)).work),
        }
        invocation = FinisherInvocation(**(fields | changes))
        return finish_fleet(invocation, self.store, self.status, make_runtime(self.clock))

    def read(self, name: str, *, of_status: bool = False) -> Json:
        raw = (self.status if of_status else self.store).get(name)
        assert raw is not None
        found: Json = json.loads(raw)
        assert raw == json.dumps(found, indent=1).encode()
        return found

    def actuals(self) -> dict[int, Json | None]:
        overviews = self.read("morton_hive.json")["pyramid"]["overviews"]
        return {entry["node"]: entry.get("actuals") for entry in overviews}

    def run_records(self) -> list[str]:
        return [key for key in objects_in(self.store) if key.startswith("sweep_stats_")]


FOLDED = {2: {"211|all": counts(2)}, 1: {"21|all": counts(1)}, 0: {"2|all": counts(1)}}


# -- the records ----------------------------------------------------------------------------


def test_a_run_without_records_is_refused_and_names_run_and_prefix() -> None:
    place = Place()
    before = objects_in(place.store)
    with pytest.raises(DeclarationError) as caught:
        place.finish()
    assert RUN in caught.value.message
    assert place.status.root in caught.value.message
    assert caught.value.kind == "no-records"
    after = objects_in(place.store)
    # the lease is the finisher's first act (semantics 12.3), and stays
    assert set(after) - set(before) == {"sweep.lease.json"}
    assert {key: after[key] for key in before} == before
    assert objects_in(place.status) == {}


def test_other_records_are_passed_over_and_named(caplog: pytest.LogCaptureFixture) -> None:
    place = Place(record(0, FOLDED, ["2"]))
    place.put("stage-00-0001.json", record(1, {2: {"222|all": counts(9)}}, ["2"], run_id="stage-y"))
    place.put("stage-00-0002.json", record(2, {2: {"223|all": counts(9)}}, ["2"], spec="zagg-sweep/1"))
    place.status.put("stage-00-0003.json", b"{")
    place.put("stage-00-0004.json.bak", record(4, {2: {"224|all": counts(9)}}, ["2"]))
    place.put("below/stage-00-0005.json", record(5, {2: {"224|all": counts(9)}}, ["2"]))
    place.put("error-00-0006-1.json", record(6, {2: {"224|all": counts(9)}}, ["2"]))
    found = place.finish()
    assert found["stage_records"] == 1
    assert found["levels"]["2"]["source_children"] == counts(2)
    skipped = [
        entry.__dict__["key"] for entry in caplog.records if entry.__dict__.get("event") == "record-skipped"
    ]
    assert skipped == ["stage-00-0001.json", "stage-00-0002.json", "stage-00-0003.json"]


def test_only_other_records_are_none() -> None:
    with pytest.raises(DeclarationError, match="no stage record of this run"):
        Place(record(0, FOLDED, ["2"], run_id="stage-y")).finish()


def test_actuals_are_assigned_by_artifact_and_never_added() -> None:
    """The same artifact in two records counts once; depth is the maximum, the first regime stays."""
    deep = record(1, {1: {"21|all": counts(3, 1), "22|all": counts(4)}}, ["2"])
    deep["level_actuals"]["1"] |= {"merges_from_raw": 5, "regime": "stage-merge"}
    place = Place(record(0, FOLDED, ["2"]), deep)
    found = place.finish()
    assert found["levels"] == {
        "2": {"cells": 4, "regime": "stage-gather", "merges_from_raw": 2, "source_children": counts(2)},
        "1": {"cells": 3, "regime": "stage-gather", "merges_from_raw": 5, "source_children": counts(7, 1)},
        "0": {"cells": 2, "regime": "stage-gather", "merges_from_raw": 2, "source_children": counts(1)},
    }
    assert [row["batch"] for row in found["stages"]] == [0, 1]
    written = place.actuals()[1]
    assert written is not None
    assert (written["source_children"], written["merges_from_raw"]) == (counts(7, 1), 5)


def test_rows_are_in_the_order_of_names() -> None:
    place = Place()
    for name in ("stage-03-0000.json", "stage-00-10000.json", "stage-00-9999.json"):
        place.put(name, record(0, FOLDED, ["2"], stages=[{"dispatch_order": name}]))
    rows = [row["dispatch_order"] for row in place.finish()["stages"]]
    assert rows == ["stage-00-10000.json", "stage-00-9999.json", "stage-03-0000.json"]


def test_a_part_counts_with_the_rest() -> None:
    place = Place()
    place.put("stage-00-0000-part1.json", record(0, {0: {"2|all": counts(1)}}, ["2"], n_nodes=2))
    place.put("stage-00-0001.json", record(1, {0: {"3|all": counts(4)}}, ["3"]))
    found = place.finish()
    assert (found["stage_records"], found["levels"]["0"]["source_children"]) == (2, counts(5))


def test_damaged_contents_are_passed_over() -> None:
    place = Place(
        record(0, FOLDED, ["2"]),
        record(1, {}, None, stages=7, level_actuals=[1]),
        record(2, {}, ["x", "y"], stages=[None, {"dispatch_order": 0}], level_actuals={"a": 1, "2": {}}),
    )
    found = place.finish()
    assert (found["stage_records"], len(found["stages"])) == (3, 2)


# -- drives ---------------------------------------------------------------------------------


def test_records_that_a_later_drive_did_again_are_dropped() -> None:
    """One batch of three nodes in place of three of one: what is left of the old ones is not counted."""
    first = [record(n, {0: {f"{n + 1}|all": counts(1)}}, [str(n + 1)]) for n in range(3)]
    again = record(0, {0: {f"{n}|all": counts(2) for n in (1, 2, 3)}}, ["1", "2", "3"], run_started=T2)
    found = Place(again, *first[1:]).finish()
    assert (found["stage_records"], found["levels"]["0"]["source_children"]) == (1, counts(6))


def test_records_of_which_a_node_was_not_done_again_stay() -> None:
    both = record(0, {0: {"1|all": counts(1), "2|all": counts(1)}}, ["1", "2"])
    one = record(1, {0: {"2|all": counts(5)}}, ["2"], run_started=T2)
    for records in ([both, one], [one, both]):
        found = Place(*records).finish()
        assert (found["stage_records"], found["levels"]["0"]["source_children"]) == (2, counts(6))


@pytest.mark.parametrize("change", [{"unit": "close"}, {"window": "2019"}, {"dispatch": 1}])
def test_another_unit_of_the_same_node_is_not_the_same_work(change: Json) -> None:
    place = Place(record(0, FOLDED, ["2"]), record(1, {}, ["2"], run_started=T2, **change))
    assert place.finish()["stage_records"] == 2


def test_records_that_name_no_nodes_stay() -> None:
    """Those of the reference's worker."""
    place = Place(record(0, FOLDED, None), record(1, FOLDED, ["2"], run_started=T2))
    assert place.finish()["stage_records"] == 2


# -- what is written --------------------------------------------------------------------------


def test_the_run_record_and_the_last_object() -> None:
    place = Place(record(0, FOLDED, ["2"]))
    answer = place.finish(pipeline_run_id="pipe-1", barrier_timed_out=True, short_orders=(0, 2))
    (key,) = place.run_records()
    written = place.read(key)
    assert list(written) == RUN_RECORD
    assert (written["spec"], written["mode"], written["transport"]) == ("zagg-sweep/1", "stages", "lambda")
    assert (written["run_id"], written["pipeline_run_id"]) == (RUN, "pipe-1")
    assert (written["barrier_timed_out"], written["short_orders"]) == (True, [2, 0])
    assert (written["n_leaves"], written["skipped_leaves"]) == (4, [])
    assert written["lease"] == {"released": True}
    last = place.read("finisher.json", of_status=True)
    assert last == answer
    assert list(last) == ["spec", "role", *RUN_RECORD[1:], "record", "under_covered", "finished_at"]
    assert (last["spec"], last["role"], last["record"]) == ("zagg-sweep-stage-record/1", "finisher", key)
    assert {name: last[name] for name in RUN_RECORD[1:]} == {name: written[name] for name in RUN_RECORD[1:]}
    assert last["finished_at"] == timestamp(START)
    assert read_holder(place.store) is None


def test_a_stale_coverage_is_passed_on() -> None:
    found = Place(record(0, FOLDED, ["2"], root_moc_stale=True), record(1, FOLDED, ["2"])).finish()
    assert found["root_moc_stale"] is True
    assert list(found).index("root_moc_stale") == list(found).index("levels") + 1


def test_withheld_orders_are_left_as_they_stood() -> None:
    place = Place(record(0, FOLDED, ["2"]))
    before = place.actuals()
    found = place.finish(short_orders=(2, 0))
    after = place.actuals()
    assert (after[2], after[0]) == (before[2], before[0])
    assert after[1] is not None
    assert after[3] is not None  # the leaf entry is written whenever any level was observed
    assert found["finisher"]["actuals_withheld"] == [2, 0]
    assert after[1]["generated_at"] == after[3]["generated_at"]


def test_it_is_released_last_and_recorded_after() -> None:
    place = Place(record(0, FOLDED, ["2"]))
    store = CountingStore(place.store)
    status = CountingStore(place.status)
    place.store, place.status = store, status
    place.finish()
    writes = [key for method, key in store.log if method.startswith(("put", "delete"))]
    assert writes[0] == "sweep.lease.json"
    assert writes[-1].startswith("sweep_stats_")
    released = max(place_ for place_, key in enumerate(writes) if key == "sweep.lease.json")
    assert released == len(writes) - 2
    assert status.log[-1] == ("put", "finisher.json")


def test_it_discovers_what_did_not_fit_the_event() -> None:
    assert Place(record(0, FOLDED, ["2"])).finish(leaves=None)["n_leaves"] == 4


# -- once, twice, late ------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [0, 5])
def test_twice_is_once(hours: int) -> None:
    place = Place(record(0, FOLDED, ["2"]))
    first = place.finish()
    after, said = objects_in(place.store), objects_in(place.status)
    place.clock.advance(3600.0 * hours)
    assert place.finish() == first
    assert place.finish(short_orders=(2, 1, 0), barrier_timed_out=True) == first
    assert (objects_in(place.store), objects_in(place.status)) == (after, said)


def test_a_newer_record_is_a_reason_to_finish_again() -> None:
    place = Place(record(0, FOLDED, ["2"]))
    place.finish()
    place.put("stage-00-0001.json", record(1, {0: {"3|all": counts(4)}}, ["3"]))
    again = place.finish()
    assert (again["stage_records"], again["levels"]["0"]["source_children"]) == (2, counts(5))
    assert len(place.run_records()) == 2


def test_so_are_orders_that_are_no_longer_short() -> None:
    place = Place(record(0, FOLDED, ["2"]))
    place.finish(short_orders=(1, 0), barrier_timed_out=True)
    assert place.actuals()[1] is None
    again = place.finish(short_orders=(0,))
    assert again["short_orders"] == [0]
    assert place.actuals()[1] is not None


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b"{}"])
def test_garbage_in_its_place_is_written_over(garbage: bytes) -> None:
    place = Place(record(0, FOLDED, ["2"]))
    place.status.put("finisher.json", garbage)
    place.finish()
    assert place.read("finisher.json", of_status=True)["role"] == "finisher"


class Coarse(CountingStore):
    """A store that knows times by the second only, all of them the same."""

    def list_dir(self, prefix: str = "") -> Any:
        found = super().list_dir(prefix)
        alike = tuple(
            ObjectInfo(key=info.key, size=info.size, etag=info.etag, modified=START) for info in found.objects
        )
        return type(found)(objects=alike, prefixes=found.prefixes)


def test_in_the_same_second_the_drive_decides() -> None:
    place = Place(record(0, FOLDED, ["2"]))
    place.finish()
    coarse = Coarse(place.status)
    assert standing_finish(coarse, ()) is not None
    place.put("stage-00-0001.json", record(1, FOLDED, ["2"], run_started="2030-01-01T00:00:01+00:00"))
    assert standing_finish(coarse, ()) is None


@pytest.mark.parametrize(
    ("document", "started", "is_over"),
    [
        ({"finished_at": T2}, T1, True),
        ({"finished_at": T1}, T2, False),
        ({"finished_at": T1}, T1, False),
        ({}, T1, False),
        ({"finished_at": 7}, T1, False),
    ],
)
def test_which_drives_are_over(document: Json, started: str, is_over: bool) -> None:
    assert already_finished(json.dumps(document).encode(), started) is is_over


def test_without_a_last_object_nothing_is_over() -> None:
    assert not already_finished(None, T1)


# -- what goes wrong --------------------------------------------------------------------------


def test_a_held_store_is_left_alone() -> None:
    place = Place(record(0, FOLDED, ["2"]))
    Lease.acquire(place.store, run_id="stage-y", ttl_s=900, clock=place.clock, new_id=make_runtime().new_id)
    before = objects_in(place.store)
    with pytest.raises(LeaseHeldError, match="stage-y"):
        place.finish()
    assert objects_in(place.store) == before


def test_a_root_object_that_cannot_be_written_leaves_the_lease() -> None:
    place = Place(record(0, FOLDED, ["2"]))

    def plan(_number: int, _method: str, key: str) -> Fault | None:
        return Fault(before=AccessError("read only")) if key == "morton_hive.json" else None

    inner, place.store = place.store, FaultyStore(place.store, plan)
    with pytest.raises(AccessError):
        place.finish()
    holder = read_holder(inner)
    assert holder is not None
    assert holder.run_id == RUN
    assert place.status.get("finisher.json") is None
    # and another try heals
    place.store = inner
    assert place.finish()["lease"] == {"released": True}


def test_a_run_record_that_cannot_be_written_stops_nothing() -> None:
    place = Place(record(0, FOLDED, ["2"]))

    def plan(_number: int, _method: str, key: str) -> Fault | None:
        return Fault(before=AccessError("no")) if key.startswith("sweep_stats_") else None

    place.store = FaultyStore(place.store, plan)
    assert place.finish()["record"] is None
    assert place.read("finisher.json", of_status=True)["record"] is None


def test_a_last_object_that_cannot_be_written_is_an_error() -> None:
    place = Place(record(0, FOLDED, ["2"]))
    place.status = FaultyStore(place.status, lambda *_: Fault(before=AccessError("no")))
    with pytest.raises(AccessError):
        place.finish()
