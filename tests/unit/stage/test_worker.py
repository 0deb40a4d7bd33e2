"""The worker's one door: what it answers, what it refuses, and what it leaves behind.

Source: semantics 12.2, 12.8, 13; format 12.1.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.small_stores import Objects, leaf_columns, plain_store, windowed_store
from tests.support.sweeping import START, loaded, make_runtime, objects_in, sweep

from sweep.artifacts.manifest_io import read_manifest
from sweep.control.discovery import discover_leaves
from sweep.control.lease import Lease
from sweep.errors import AccessError, SweepError
from sweep.model.clock import timestamp
from sweep.model.invocation import Credentials, FinisherInvocation, StageInvocation, serialise, status_prefix
from sweep.model.nodes import path_of
from sweep.plan.packing import refs_of
from sweep.stage.batch import Worker
from sweep.stage.worker import Answer, handle_event
from sweep.store.base import ObjectStore
from sweep.store.open import open_store
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import CountingStore, Fault, FaultyStore

Json = dict[str, Any]
RUN = "stage-worker"
LEASE = "sweep.lease.json"


def listed(text: str) -> list[str]:
    return text.split(", ")


# semantics 12.8, in its order
BODY = listed(
    "ok, mode, stage, run_id, dispatch, batch, n_nodes, n_leaves, stage_records, lease_released, written, "
    "current, failed, under_covered, duration_s, discover_s, record, stage_record, error, error_class"
)
# format 12.1, then what is ours
RECORD = listed(
    "spec, role, run_id, pipeline_run_id, run_started, dispatch, batch, unit, window, closes, tuple_width, "
    "n_nodes, n_leaves, n_dirt_only, skipped_leaves, partition, stages, level_actuals, duration_s, "
    "nodes, attempt, request_id"
)
NULL_FOR_A_STAGE = {"stage_records", "lease_released", "record", "error", "error_class"}
NULL_FOR_A_FINISHER = {"dispatch", "batch", "n_nodes", "discover_s", "error", "error_class"} | {
    "written",
    "current",
    "failed",
    "under_covered",
}


class Place:
    """A store, its status prefix, and a worker beside them."""

    def __init__(self, objects: Objects, **worker: Any) -> None:
        self.store: ObjectStore = loaded(objects)
        self.prefix = status_prefix(self.store.root, RUN)
        self.status: ObjectStore = open_store(self.prefix)
        self.clock = FakeClock(START)
        self.opened: list[tuple[str, Credentials | None]] = []
        self.worker = Worker(runtime=make_runtime(self.clock), open_store=self._open, **worker)
        self.before = objects_in(self.store)

    def _open(self, root: str, credentials: Credentials | None) -> ObjectStore:
        self.opened.append((root, credentials))
        return self.status if root == self.prefix else self.store

    def stage(self, **changes: Any) -> StageInvocation:
        """The whole of dispatch order 0 at width 3: all orders above the shards."""
        leaves = discover_leaves(self.store, read_manifest(self.store)).work
        fields: Json = {
            "store_path": self.store.root,
            "run_id": RUN,
            "run_started": timestamp(START),
            "dispatch": 0,
            "tuple_width": 3,
            "child_order": 3,
            "records_from": self.prefix,
            "nodes": tuple(sorted({key.split("/")[0] for key in leaf_columns(self.before)})),
            "batch": 0,
            "leaves": refs_of(leaves),
        }
        return StageInvocation(**(fields | changes))

    def finisher(self, **changes: Any) -> FinisherInvocation:
        fields: Json = {
            "store_path": self.store.root,
            "run_id": RUN,
            "records_from": self.prefix,
            "touch_policy": "auto",
            "barrier_timed_out": False,
            "short_orders": (),
            "leaves": refs_of(discover_leaves(self.store, read_manifest(self.store)).work),
        }
        return FinisherInvocation(**(fields | changes))

    def handle(self, event: StageInvocation | FinisherInvocation | Any) -> Answer:
        if isinstance(event, StageInvocation | FinisherInvocation):
            event = json.loads(serialise(event))
        answer = handle_event(event, self.worker)
        assert list(answer.body) == BODY
        assert answer.ok is answer.body["ok"]
        return answer

    def said(self, name: str) -> Json:
        raw = self.status.get(name)
        assert raw is not None, sorted(objects_in(self.status))
        found: Json = json.loads(raw)
        assert raw == json.dumps(found, indent=1).encode()
        return found

    def names(self) -> list[str]:
        return sorted(objects_in(self.status))

    @property
    def is_untouched(self) -> bool:
        return objects_in(self.store) == self.before


def nulls(answer: Answer) -> set[str]:
    return {key for key, value in answer.body.items() if value is None}


# -- what it does ---------------------------------------------------------------------------


def test_a_batch() -> None:
    place = Place(plain_store(), request_id="req-7", rss_mb=lambda: 123.0)
    answer = place.handle(place.stage(pipeline_run_id="pipe-1"))
    assert nulls(answer) == NULL_FOR_A_STAGE | {"discover_s"}
    expected = sweep(loaded(plain_store())).record["stages"][0]
    body = answer.body
    assert (body["mode"], body["stage"], body["run_id"], body["dispatch"]) == ("sweep", "stage", RUN, 0)
    assert {key: body[key] for key in ("written", "current", "failed", "under_covered")} == {
        key: expected[key] for key in ("written", "current", "failed", "under_covered")
    }
    assert (body["batch"], body["n_nodes"], body["n_leaves"]) == (0, 2, 4)
    assert body["stage_record"] == f"{place.prefix}/stage-00-0000.json"
    record = place.said("stage-00-0000.json")
    assert list(record) == [*RECORD, "rss_mb"]
    assert record["spec"] == "zagg-sweep-stage-record/1"
    assert (record["nodes"], record["attempt"]) == (list(place.stage().nodes), 1)
    assert (record["request_id"], record["rss_mb"]) == ("req-7", 123.0)
    assert (record["pipeline_run_id"], record["run_started"]) == ("pipe-1", timestamp(START))
    (row,) = record["stages"]
    assert {**row, "duration_s": 0} == {**expected, "duration_s": 0}
    assert place.names() == ["stage-00-0000.json"]
    # the run's lease is not the worker's to release
    held = place.store.get(LEASE)
    assert held is not None
    assert (json.loads(held)["run_id"], json.loads(held)["scope"]) == (RUN, None)


def test_a_batch_and_the_whole_sweep_leave_the_same_artifacts() -> None:
    place = Place(plain_store())
    place.handle(place.stage())
    other = loaded(plain_store())
    sweep(other, run_id=RUN)
    expected = {
        key: data for key, data in objects_in(other).items() if key.split("/")[0].lstrip("-").isdigit()
    }
    found = {
        key: data for key, data in objects_in(place.store).items() if key.split("/")[0].lstrip("-").isdigit()
    }
    assert found == expected


def test_level_actuals_have_a_row_for_each_artifact() -> None:
    place = Place(windowed_store())
    place.handle(place.stage(unit="window", window="2019", leaves=None))
    record = place.said("stage-00-0000.json")
    assert (record["unit"], record["window"], record["closes"]) == ("window", "2019", True)
    levels = record["level_actuals"]
    assert list(levels) == ["2", "1", "0"]
    for level in levels.values():
        assert list(level) == ["cells", "regime", "merges_from_raw", "children"]
        for artifact, counts in level["children"].items():
            node, stem = artifact.split("|")
            assert (stem, list(counts)) == ("2019", ["folded", "missing", "unreadable"])
            assert f"{path_of(node)}/2019.zarr/zarr.json" in objects_in(place.store)


def test_without_leaves_the_worker_discovers() -> None:
    place = Place(plain_store())
    answer = place.handle(place.stage(leaves=None))
    assert nulls(answer) == NULL_FOR_A_STAGE
    assert (answer.body["n_leaves"], answer.body["discover_s"]) == (4, 0.0)


def test_an_empty_work_set_folds_nothing() -> None:
    place = Place({key: data for key, data in plain_store().items() if key != "coverage.moc"})
    answer = place.handle(place.stage(leaves=()))
    assert (answer.ok, answer.body["n_leaves"], answer.body["written"]) == (True, 0, 0)
    assert place.said("stage-00-0000.json")["root_moc_stale"] is True
    assert set(objects_in(place.store)) - set(place.before) == {LEASE}


def test_a_partition_is_echoed() -> None:
    place = Place(plain_store())
    place.handle(place.stage(partition={"index": 1, "of": 4}))
    record = place.said("stage-00-0000.json")
    assert record["partition"] == record["stages"][0]["partition"] == {"index": 1, "of": 4}


def test_a_finisher() -> None:
    place = Place(plain_store())
    place.handle(place.stage())
    answer = place.handle(place.finisher())
    assert nulls(answer) == NULL_FOR_A_FINISHER
    body = answer.body
    assert (body["stage"], body["run_id"], body["stage_records"], body["lease_released"]) == (
        "finisher",
        RUN,
        1,
        True,
    )
    assert body["stage_record"] == f"{place.prefix}/finisher.json"
    assert place.store.get(body["record"]) is not None
    assert place.names() == ["finisher.json", "stage-00-0000.json"]


# -- what it refuses ------------------------------------------------------------------------


def changed(**changes: Any) -> Callable[[Place], Json]:
    def make(place: Place) -> Json:
        event: Json = json.loads(serialise(place.stage()))
        event["stage"] |= changes
        return event

    return make


def finishing(**changes: Any) -> Callable[[Place], Json]:
    def make(place: Place) -> Json:
        event: Json = json.loads(serialise(place.finisher()))
        event["stage"] |= changes
        return event

    return make


def top(**changes: Any) -> Callable[[Place], Json]:
    return lambda place: changed()(place) | changes


REFUSED: list[tuple[str, Callable[[Place], Json], list[str]]] = [
    ("empty nodes", changed(nodes=[], batch=3), ["batch 3", "nodes is []"]),
    ("off order", changed(nodes=["2", "21"]), [RUN, "dispatch order 0", "batch 0", "21 (order 1)"]),
    ("unknown unit", changed(unit="month"), [RUN, "batch 0", "'month'"]),
    ("window without label", changed(unit="window"), [RUN, "names no window"]),
    ("unit on an unwindowed store", changed(unit="window", window="2019"), [RUN, "batch 0", "'2019'"]),
    ("close on an unwindowed store", changed(unit="close"), [RUN, "batch 0", "'close'"]),
    ("a label that is none", changed(unit="window", window="all"), [RUN, "'all'"]),
    ("families", changed(families=["rollup"]), [RUN, "rollup"]),
    ("bad span", changed(child_order=9), [RUN, "batch 0", "dispatch 0", "child_order 9"]),
    (
        "unknown dispatch order",
        changed(dispatch=1, nodes=["21"], child_order=None),
        [RUN, "dispatch 1 is no dispatch order", "those are 0"],
    ),
    ("width", changed(tuple_width=0), [RUN, "tuple_width 0"]),
    ("odd partition", changed(partition={"index": 0, "of": 8}), [RUN, "partitions is 8", "4 or 16"]),
    ("index of a partition", changed(partition={"index": 4, "of": 4}), [RUN, "4"]),
    ("a legacy id", top(leaves=[[-211, None]]), ["-211"]),
    ("no word", top(leaves=[["x", None]]), [RUN, "'x'"]),
    ("short ttl", changed(lease_ttl_s=1), ["ttl", "1"]),
    ("touch policy", finishing(touch_policy="perhaps"), [RUN, "'perhaps'", "always"]),
    ("short orders", finishing(short_orders="2"), [RUN, "short_orders '2'"]),
]


@pytest.mark.parametrize(("make", "said"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_a_refusal_is_told_and_leaves_the_store_alone(make: Callable[[Place], Json], said: list[str]) -> None:
    place = Place(plain_store())
    counting = CountingStore(place.store)
    place.store = counting
    event = make(place)
    counting.calls.clear()
    counting.log.clear()
    answer = place.handle(event)
    reads = {key for _, key in counting.log}
    assert (answer.ok, answer.body["error_class"]) == (False, "DeclarationError")
    assert [text for text in said if text not in answer.body["error"]] == []
    (name,) = place.names()
    stage = event["stage"]
    is_finisher = stage["role"] == "finisher"
    assert name == (
        "error-finisher-1.json"
        if is_finisher
        else f"error-{stage['dispatch']:02d}-{stage['batch']:04d}-1.json"
    )
    failure = place.said(name)
    assert (failure["reaction"], failure["error"]) == ("refused", answer.body["error"])
    assert failure["unit"] == ("finisher" if is_finisher else stage.get("unit"))
    assert failure["at"] == timestamp(START)
    # nothing written, no lease taken, and nothing but the manifest read
    assert place.is_untouched
    assert counting.written == 0
    assert reads <= {"morton_hive.json"}


@pytest.mark.parametrize(
    "event",
    [
        None,
        7,
        [],
        {},
        {"mode": "sweep"},
        {"mode": "sweep", "stage": 5},
        {"mode": "sweep", "stage": {"role": "stage"}},
    ],
)
def test_an_event_that_does_not_say_where_is_answered_alone(event: Any) -> None:
    place = Place(plain_store())
    answer = place.handle(event)
    assert (answer.ok, answer.body["error_class"]) == (False, "DeclarationError")
    assert place.names() == []
    assert place.is_untouched


@pytest.mark.parametrize("records_from", [None, "", 5])
def test_without_a_status_prefix(records_from: Any) -> None:
    place = Place(plain_store())
    answer = place.handle(changed(records_from=records_from, batch=4)(place))
    assert "no records_from" in answer.body["error"]
    assert (answer.body["run_id"], answer.body["dispatch"], answer.body["batch"]) == (RUN, 0, 4)
    assert place.is_untouched
    assert place.opened == []


def test_a_refusal_is_written_with_the_events_own_keys() -> None:
    place = Place(plain_store())
    keys = Credentials(access_key_id="AKIA", secret_access_key="s3cr3t")
    event = json.loads(serialise(place.stage(credentials=keys)))
    event["stage"]["nodes"] = []
    place.handle(event)
    assert place.opened == [(place.prefix, keys)]
    assert b"s3cr3t" not in b"".join(objects_in(place.status).values())


def test_a_store_without_a_ladder_is_refused() -> None:
    place = Place(plain_store())
    event = place.stage()
    place.store.delete("morton_hive.json")
    answer = place.handle(event)
    assert answer.body["error_class"] == "DeclarationError"
    assert place.said("error-00-0000-1.json")["reaction"] == "refused"
    assert place.store.get(LEASE) is None


# -- late and double events -----------------------------------------------------------------


@pytest.mark.parametrize("hours", [0, 1, 1000])
def test_the_same_event_again_changes_nothing(hours: int) -> None:
    place = Place(plain_store())
    event = place.stage()
    place.handle(event)
    place.handle(place.finisher())
    after, records = objects_in(place.store), objects_in(place.status)
    place.clock.advance(3600.0 * hours)
    for again in (event, replace(event, attempt=2), place.finisher()):
        answer = place.handle(again)
        assert answer.ok
        assert answer.body["stage_record"] is not None
        assert objects_in(place.store) == after
        assert objects_in(place.status) == records


def test_a_double_event_before_the_finisher_takes_no_lease_either() -> None:
    place = Place(plain_store())
    event = place.stage()
    place.handle(event)
    place.store.delete(LEASE)
    after, records = objects_in(place.store), objects_in(place.status)
    answer = place.handle(event)
    assert (answer.ok, answer.body["written"]) == (True, None)
    assert (objects_in(place.store), objects_in(place.status)) == (after, records)


def test_a_later_drive_under_the_same_run_id_is_not_late() -> None:
    place = Place(plain_store())
    place.handle(place.stage())
    place.handle(place.finisher())
    place.clock.advance(60.0)
    later = timestamp(place.clock.now())
    answer = place.handle(place.stage(run_started=later))
    assert (answer.ok, answer.body["written"]) == (True, 0)
    assert answer.body["current"] > 0
    assert place.said("stage-00-0000.json")["run_started"] == later
    # and the finisher has something to finish again
    assert place.handle(place.finisher()).body["duration_s"] is not None
    assert place.said("finisher.json")["finished_at"] >= later


def test_an_older_drive_does_not_replace_a_newer_record() -> None:
    place = Place(plain_store())
    place.handle(place.stage(run_started="2030-01-01T01:00:00+00:00"))
    records = objects_in(place.status)
    assert place.handle(place.stage()).ok
    assert objects_in(place.status) == records


def test_other_nodes_under_the_same_number_are_not_late() -> None:
    place = Place(plain_store())
    both = place.stage().nodes
    place.handle(place.stage(nodes=both[:1]))
    assert place.said("stage-00-0000.json")["nodes"] == [both[0]]
    place.handle(place.stage())
    assert place.said("stage-00-0000.json")["nodes"] == list(both)


# -- what goes wrong ------------------------------------------------------------------------


def test_out_of_time_stops_between_nodes() -> None:
    left_s = iter([100.0, 20.0])
    place = Place(plain_store(), remaining_s=lambda: next(left_s))
    event = place.stage(attempt=2, batch=3)
    answer = place.handle(event)
    assert (answer.ok, answer.body["error_class"]) == (False, "CapacityError")
    done, left = event.nodes
    assert place.names() == ["error-00-0003-2.json", "stage-00-0003-part2.json"]
    failure = place.said("error-00-0003-2.json")
    assert (failure["reaction"], failure["kind"]) == ("split", "out-of-time")
    assert (failure["nodes"], failure["remaining"]) == ([done, left], [left])
    record = place.said("stage-00-0003-part2.json")
    assert list(record) == RECORD
    assert (record["nodes"], record["n_nodes"], record["attempt"]) == ([done], 2, 2)
    assert record["stages"][0]["nodes"] == 1
    assert {
        key.split("|")[0][: len(done)]
        for level in record["level_actuals"].values()
        for key in level["children"]
    } == {done}
    assert f"{done}/all.zarr/zarr.json" in objects_in(place.store)
    assert f"{left}/all.zarr/zarr.json" not in objects_in(place.store)


def test_out_of_time_before_anything_leaves_no_record() -> None:
    place = Place(plain_store(), remaining_s=lambda: 29.9)
    place.handle(place.stage())
    assert place.names() == ["error-00-0000-1.json"]
    assert place.said("error-00-0000-1.json")["remaining"] == list(place.stage().nodes)


def test_time_enough() -> None:
    place = Place(plain_store(), remaining_s=lambda: 30.0)
    assert place.handle(place.stage()).ok


def test_a_held_store() -> None:
    place = Place(plain_store())
    Lease.acquire(
        place.store, run_id="stage-other", ttl_s=900, clock=place.clock, new_id=make_runtime().new_id
    )
    before = objects_in(place.store)
    answer = place.handle(place.stage())
    assert (answer.ok, answer.body["error_class"]) == (False, "LeaseHeldError")
    failure = place.said("error-00-0000-1.json")
    assert failure["reaction"] == "held"
    assert "stage-other" in failure["error"]
    assert objects_in(place.store) == before


def test_a_record_that_cannot_be_put_is_a_failure() -> None:
    place = Place(plain_store())
    inner = place.status

    def plan(_number: int, _method: str, key: str) -> Fault | None:
        return Fault(before=AccessError("read only")) if key.startswith("stage-") else None

    place.status = FaultyStore(inner, plan)
    answer = place.handle(place.stage())
    assert (answer.ok, answer.body["error"]) == (False, "read only")
    assert place.names() == ["error-00-0000-1.json"]
    assert place.said("error-00-0000-1.json")["reaction"] == "stop"


def test_a_part_that_cannot_be_put_is_not_forgotten() -> None:
    """The failure then names all nodes: nobody may think that a part is done."""
    left_s = iter([100.0, 20.0])
    place = Place(plain_store(), remaining_s=lambda: next(left_s))

    def plan(_number: int, _method: str, key: str) -> Fault | None:
        return Fault(before=SweepError("no")) if key.startswith("stage-") else None

    place.status = FaultyStore(place.status, plan)
    place.handle(place.stage())
    failure = place.said("error-00-0000-1.json")
    assert (failure["reaction"], failure["remaining"]) == ("retry", list(place.stage().nodes))


@pytest.mark.parametrize(
    ("error", "name", "reaction"),
    [(ZeroDivisionError("ours"), "ZeroDivisionError", "retry"), (MemoryError(), "MemoryError", "split")],
)
def test_what_nobody_expected(error: Exception, name: str, reaction: str) -> None:
    place = Place(plain_store())
    place.store = FaultyStore(place.store, lambda *_: Fault(before=error), methods=("put_if_absent",))
    answer = place.handle(place.stage())
    assert (answer.ok, answer.body["error_class"]) == (False, name)
    assert answer.body["error"]
    failure = place.said("error-00-0000-1.json")
    assert (failure["reaction"], failure["error_class"]) == (reaction, name)


def test_a_status_prefix_that_takes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    place = Place(plain_store())
    place.status = FaultyStore(place.status, lambda *_: Fault(before=AccessError("read only")))
    answer = place.handle(changed(nodes=[])(place))
    assert answer.body["error_class"] == "DeclarationError"
    assert "failure-record-failed" in [entry.__dict__.get("event") for entry in caplog.records]
