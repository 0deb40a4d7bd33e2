"""The dispatcher over workers in this process: what it fires, what it says, and that it never writes.

Source: semantics 12.5-12.7.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.compare import compare_objects
from tests.support.fleets import RUN, EventClock, Json, dispatcher_on, inline_fleet, run_fleet_on
from tests.support.small_stores import Objects, leaf_columns, plain_store, windowed_store
from tests.support.sweeping import START, loaded, make_runtime, objects_in, sweep

from sweep.control.lease import Lease, read_holder
from sweep.errors import DeclarationError, LeaseHeldError
from sweep.events import BarrierProgress, Event, RunFinished, RunStarted
from sweep.fleet.options import FleetSummary
from sweep.fleet.plan_report import plan_report, render_plan
from sweep.fleet.transport import Delivery, Envelope, Limits, Lost, Submission, Transport
from sweep.model.clock import timestamp
from sweep.model.invocation import Credentials, status_prefix
from sweep.model.nodes import word_of
from sweep.store.base import ObjectStore
from sweep.store.open import open_store
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import CountingStore


def listed(text: str) -> list[str]:
    return text.split(", ")


# semantics 12.7
SUMMARY = listed(
    "run_id, pipeline_run_id, run_started, store_root, shard_order, tuple_width, stage_target_nodes, "
    "max_nodes_per_invoke, windowed, all_time, families, families_unswept, scope, coverage_computed, "
    "transport, records_from, n_leaves, n_dirt_only, skipped_leaves, skipped, invokes, barrier_timed_out, "
    "short_orders, stages, all_time_from, finisher, duration_s"
)
ROW = listed(
    "dispatch_order, orders, width, fold_max, nodes, batches, barrier_timed_out, barrier_s, records_seen"
)
MISSING = ["missing_unit_count", "missing_units"]
CLOSES = ["close_batches", "close_records_seen"]
RETRIES = ["retries"]  # ours


class Watched:
    """A transport that hands events on, less those that a test keeps, and remembers all."""

    def __init__(self, inner: Transport, *, loses: Callable[[Json], bool] = lambda stage: False) -> None:
        self.inner = inner
        self.loses = loses
        self.fired: list[Json] = []
        self.name = inner.name
        self.limits: Limits = inner.limits

    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        return [self._submit(envelope) for envelope in envelopes]

    def _submit(self, envelope: Envelope) -> Submission:
        event = json.loads(envelope.payload)
        self.fired.append(event)
        if self.loses(event["stage"]):
            return Submission(key=envelope.key, delivery=Delivery.ACCEPTED)
        return self.inner.submit([envelope])[0]

    def lost(self) -> list[Lost]:
        return self.inner.lost()

    def pending(self) -> int:
        return 0

    def close(self, *, cancel: bool = False) -> None:
        self.inner.close(cancel=cancel)

    def stages(self) -> list[tuple[int, str | None, tuple[str, ...]]]:
        """Dispatch order, window or unit, and nodes of every batch that was fired."""
        found = []
        for event in self.fired:
            stage = event["stage"]
            if stage["role"] == "stage":
                found.append(
                    (stage["dispatch"], stage.get("window") or stage.get("unit"), tuple(stage["nodes"]))
                )
        return found

    @property
    def finishers(self) -> int:
        return sum(event["stage"]["role"] == "finisher" for event in self.fired)


def artifacts(store: ObjectStore) -> dict[str, bytes]:
    """Everything below the base cells."""
    return {key: data for key, data in objects_in(store).items() if key.split("/")[0].lstrip("-").isdigit()}


def swept(objects: Objects, **options: Any) -> dict[str, bytes]:
    """The artifacts of one sweep in this process."""
    store = loaded(objects)
    sweep(store, run_id=RUN, **options)
    return artifacts(store)


def differences(store: ObjectStore, objects: Objects, **options: Any) -> list[str]:
    """What a sweep in this process would have left otherwise, but for clocks."""
    return compare_objects(swept(objects, **options), artifacts(store), same_runs=True)


def actuals(store: ObjectStore) -> dict[int, Json | None]:
    raw = store.get("morton_hive.json")
    assert raw is not None
    return {entry["node"]: entry.get("actuals") for entry in json.loads(raw)["pyramid"]["overviews"]}


def rows(summary: FleetSummary) -> dict[int, Json]:
    return {row["dispatch_order"]: row for row in summary.document["stages"]}


STORES = {"plain": plain_store, "windowed": windowed_store}
both_stores = pytest.mark.parametrize("objects", [plain_store(), windowed_store()], ids=STORES)


# -- the plain case -------------------------------------------------------------------------


@both_stores
@pytest.mark.parametrize("max_nodes", [1, 2, None])
@pytest.mark.parametrize("schedule", [{"tuple_width": 1}, {"tuple_width": 2}, {"tuple_width": 3}])
def test_a_fleet_and_one_process_leave_the_same(
    objects: Objects, schedule: Json, max_nodes: int | None
) -> None:
    store = loaded(objects)
    summary = run_fleet_on(store, max_nodes=max_nodes, **schedule)
    assert summary.is_complete
    assert artifacts(store) == swept(objects, **schedule)
    assert read_holder(store) is None


def test_a_sized_schedule_is_for_one_event() -> None:
    """Of 8 ladder nodes an event, a batch of two nodes leaves 4 for each (semantics 12.5)."""
    for max_nodes, target in ((1, 5), (2, 2), (10, 1)):
        store = loaded(plain_store())
        summary = run_fleet_on(store, max_nodes=max_nodes, target_nodes=5)
        assert artifacts(store) == swept(plain_store(), target_nodes=target)
        assert all(row["fold_max"] is not None for row in rows(summary).values())


def test_the_summary() -> None:
    store = loaded(plain_store())
    summary = run_fleet_on(store, tuple_width=2, pipeline_run_id="pipe-1", scope=["6", "-6"])
    document = summary.document
    assert list(document) == SUMMARY
    prefix = f"{store.root}.status/run-{RUN}"
    expected = {
        "run_id": RUN,
        "pipeline_run_id": "pipe-1",
        "run_started": timestamp(START),
        "store_root": store.root,
        "shard_order": 3,
        "tuple_width": 2,
        "stage_target_nodes": None,
        "max_nodes_per_invoke": 1,
        "windowed": False,
        "all_time": False,
        "families": [],
        "families_unswept": False,
        "scope": sorted([str(word_of("6")), str(word_of("-6"))], key=int),
        "coverage_computed": False,
        "transport": "inline",
        "records_from": prefix,
        "n_leaves": 4,
        "n_dirt_only": 0,
        "skipped_leaves": [],
        "skipped": None,
        "invokes": 5,
        "barrier_timed_out": False,
        "short_orders": [],
        "all_time_from": "store",
    }
    assert {key: document[key] for key in expected} == expected
    assert [list(row) for row in document["stages"]] == [[*ROW, *RETRIES]] * 2
    fine, coarse = document["stages"]
    assert (fine["dispatch_order"], fine["orders"], fine["width"], fine["fold_max"]) == (2, [2], 1, None)
    assert (coarse["dispatch_order"], coarse["orders"], coarse["width"]) == (0, [1, 0], 2)
    assert [(row["nodes"], row["batches"], row["records_seen"]) for row in (fine, coarse)] == [
        (3, 3, 3),
        (2, 2, 2),
    ]
    finisher = document["finisher"]
    assert (finisher["landed"], finisher["fired"], finisher["stage_records"]) == (True, True, 5)
    assert finisher["lease"] == {"released": True}
    assert store.get(finisher["record"]) is not None
    assert summary.unfinished == ()
    assert summary.to_json() is document


def test_a_windowed_run_numbers_windows_then_closes() -> None:
    transport = Watched(inline_fleet(FakeClock(START)))
    summary = run_fleet_on(loaded(windowed_store()), transport, tuple_width=2)
    assert [list(row) for row in summary.document["stages"]] == [[*ROW, *CLOSES, *RETRIES]] * 2
    for order in (2, 0):
        fired = [event["stage"] for event in transport.fired if event["stage"].get("dispatch") == order]
        assert [stage["batch"] for stage in fired] == list(range(len(fired)))
        assert [stage.get("window", "close") for stage in fired] == sorted(
            stage.get("window", "close") for stage in fired
        )
        row = rows(summary)[order]
        closes = sum(stage["unit"] == "close" for stage in fired)
        assert (row["batches"], row["close_batches"]) == (len(fired) - closes, closes)
        assert (row["records_seen"], row["close_records_seen"]) == (row["batches"], row["close_batches"])
    assert summary.document["all_time"] is True
    # the closes of a tuple are fired before the next one's windows
    orders = [
        (stage["dispatch"], stage["unit"]) for event in transport.fired if "unit" in (stage := event["stage"])
    ]
    assert list(dict.fromkeys(orders)) == [(2, "window"), (2, "close"), (0, "window"), (0, "close")]


def test_it_never_writes() -> None:
    store = CountingStore(loaded(plain_store()))
    opened: list[CountingStore] = []

    def open_status(prefix: str) -> ObjectStore:
        opened.append(CountingStore(open_store(prefix)))
        return opened[-1]

    summary = run_fleet_on(store, inline_fleet(FakeClock(START)), status=open_status)
    assert summary.is_complete
    (status,) = opened
    assert (store.written, status.written) == (0, 0)
    assert status.root == status_prefix(store.root, RUN)
    assert {key for method, key in store.log if method == "get" and key.endswith(".json")} == {
        "morton_hive.json"
    }


def test_events_carry_what_was_asked() -> None:
    keys = Credentials(access_key_id="AKIA", secret_access_key="s3cr3t")
    transport = Watched(inline_fleet(FakeClock(START)))
    run_fleet_on(loaded(plain_store()), transport, pipeline_run_id="pipe-1", lease_ttl_s=77, credentials=keys)
    for event in transport.fired:
        assert (event["stage"]["pipeline_run_id"], event["stage"]["lease_ttl_s"]) == ("pipe-1", 77)
        assert event["output_credentials"] == keys.to_json()
        assert "attempt" not in event["stage"]


def test_given_leaves_are_the_work_set() -> None:
    store = loaded(plain_store())
    leaf = leaf_columns(objects_in(store))[0].rsplit("/", 1)[0].replace("/", "")
    transport = Watched(inline_fleet(FakeClock(START)))
    summary = run_fleet_on(store, transport, leaves=[word_of(leaf), word_of("61")], tuple_width=1)
    assert (summary.document["n_leaves"], summary.document["skipped_leaves"]) == (1, ["61"])
    base = leaf[:2] if leaf.startswith("-") else leaf[:1]
    assert {nodes for _, _, nodes in transport.stages()} == {(leaf[: len(base) + k],) for k in (2, 1, 0)}


def test_dirt_only_leaves_are_dispatched_and_fold_nothing() -> None:
    store = loaded(plain_store())
    run_fleet_on(store)
    leaves = [each.rsplit("/", 1)[0].replace("/", "") for each in leaf_columns(objects_in(store))]
    transport = Watched(inline_fleet(FakeClock(START)))
    summary = run_fleet_on(
        store, transport, run_id="stage-dirt", leaves=[], dirt_only=[word_of(leaf) for leaf in leaves]
    )
    assert (summary.document["n_leaves"], summary.document["n_dirt_only"]) == (0, 4)
    assert {tuple(ref) for event in transport.fired for ref in event.get("dirt_only", [])} == {
        (word_of(leaf), None) for leaf in leaves
    }
    assert summary.count("written", "columns_written") == 0


def test_progress_events() -> None:
    seen: list[Event] = []
    run_fleet_on(loaded(plain_store()), observer=seen.append, tuple_width=2)
    ours = [each for each in seen if isinstance(each, RunStarted | BarrierProgress | RunFinished)]
    assert isinstance(ours[0], RunStarted)
    assert (ours[0].run_id, ours[0].n_leaves, ours[0].n_tuples) == (RUN, 4, 2)
    last = {each.dispatch_order: each for each in ours if isinstance(each, BarrierProgress)}
    assert {order: (each.seen, each.expected, each.given_up) for order, each in last.items()} == {
        2: (3, 3, 0),
        0: (2, 2, 0),
    }
    end = ours[-1]
    assert isinstance(end, RunFinished)
    reference = sweep(loaded(plain_store()), tuple_width=2).tally
    assert (end.written, end.failed) == (reference.written + reference.columns_written, 0)


def test_a_small_payload_makes_more_events_and_discovers(caplog: pytest.LogCaptureFixture) -> None:
    wide = Watched(inline_fleet(FakeClock(START)))
    run_fleet_on(loaded(plain_store()), wide, max_nodes=None)
    cap = len(json.dumps(wide.fired[-1])) - 1
    store = loaded(plain_store())
    transport = Watched(inline_fleet(FakeClock(START), payload_bytes=cap))
    summary = run_fleet_on(store, transport, max_nodes=None)
    assert summary.is_complete
    assert all(len(json.dumps(event)) <= cap for event in transport.fired)
    assert transport.fired[-1]["discover"] is True
    assert "discover" in [entry.__dict__.get("event") for entry in caplog.records]
    assert artifacts(store) == swept(plain_store())


# -- nothing to do --------------------------------------------------------------------------


def spoiled(change: Callable[[Json], object]) -> bytes:
    document = json.loads(plain_store()["morton_hive.json"])
    change(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "manifest",
    [
        None,
        b"{",
        b"[]",
        spoiled(lambda document: document.pop("shard_order")),
        spoiled(lambda document: document["pyramid"].update(spec="zagg-pyramid/1")),
        spoiled(lambda document: document.pop("pyramid")),
    ],
)
def test_a_store_without_a_ladder_is_declined(manifest: bytes | None) -> None:
    store = loaded(plain_store())
    store.delete("morton_hive.json")
    if manifest is not None:
        store.put("morton_hive.json", manifest)
    before = objects_in(store)
    transport = Watched(inline_fleet())
    summary = run_fleet_on(store, transport)
    assert list(summary.document) == SUMMARY
    assert summary.document["skipped"].startswith("no sweepable zagg-pyramid/2 ladder: ")
    assert summary.document["finisher"] == {"landed": False, "fired": False}
    assert (summary.document["invokes"], transport.fired) == (0, [])
    assert not summary.is_complete
    assert objects_in(store) == before


@pytest.mark.parametrize("options", [{"scope": "1"}, {"leaves": []}], ids=["scope", "leaves"])
def test_no_dispatch_nodes(options: Json) -> None:
    store = loaded(plain_store())
    before = objects_in(store)
    transport = Watched(inline_fleet())
    summary = run_fleet_on(store, transport, **options)
    assert list(summary.document) == SUMMARY
    assert summary.document["skipped"] == "no dispatch nodes"
    assert summary.document["finisher"] == {"landed": False, "fired": False}
    assert (summary.document["stages"], transport.fired) == ([], [])
    assert objects_in(store) == before


class Unfired(Watched):
    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        raise AssertionError("nothing may be fired")


@both_stores
def test_a_dry_run_fires_nothing_and_knows_what_a_run_fires(objects: Objects) -> None:
    store = loaded(objects)
    before = objects_in(store)
    report = plan_report(dispatcher_on(store, Unfired(inline_fleet()), tuple_width=2), memory_mb=1024)
    assert objects_in(store) == before
    text = render_plan(report)
    transport = Watched(inline_fleet(FakeClock(START)))
    summary = run_fleet_on(store, transport, tuple_width=2)
    fired = [event for event in transport.fired if event["stage"]["role"] == "stage"]
    assert report["invokes"] == summary.document["invokes"] + 1 == len(transport.fired)
    assert report["n_leaves"] == summary.document["n_leaves"]
    planned = {row["dispatch_order"]: row for row in report["tuples"]}
    for order, row in rows(summary).items():
        sizes = [len(json.dumps(event)) for event in fired if event["stage"]["dispatch"] == order]
        assert (planned[order]["nodes"], planned[order]["batches"]) == (row["nodes"], row["batches"])
        assert planned[order]["close_batches"] == row.get("close_batches", 0)
        # measured with a number of seven digits and an attempt
        more = len(sizes) * (len("9999999") - 1 + len(', "attempt": 9'))
        assert planned[order]["payload_bytes"] == sum(sizes) + more
    if objects == plain_store():
        written = sum(
            row["written"] + row["columns_written"] for row in summary.document["finisher"]["stages"]
        )
        assert report["artifacts"] == written
    assert "nothing was fired" in text
    assert f"{report['invokes']} invokes" in text


# -- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scope": None}, "needs a scope: 'all'"),
        ({"scope": []}, "empty"),
        ({"scope": ["x"]}, "'x'"),
        ({"families": ["rollup"]}, "rollup"),
        ({"touch_policy": "perhaps"}, "'perhaps'"),
        ({"tuple_width": 0}, "tuple_width is 0"),
        ({"max_nodes": 0}, "max_nodes is 0"),
        ({"max_nodes": True}, "max_nodes is True"),
        ({"max_nodes": 1.5}, "max_nodes is 1.5"),
        ({"target_nodes": -1}, "target_nodes is -1"),
        ({"target_nodes": "8"}, "target_nodes is '8'"),
        ({"attempts": 0}, "attempts is 0"),
        ({"lease_ttl_s": 2}, "lease_ttl_s is 2, expected a whole number of at least 3"),
        ({"lease_ttl_s": 604_801}, "lease_ttl_s is 604801, expected at most 604800"),
        ({"barrier_timeout_s": 0}, "barrier_timeout_s is 0"),
        ({"budget_s": float("nan")}, "budget_s is nan"),
        ({"poll_s": True}, "poll_s is True"),
        ({"leaves": [-211]}, "-211"),
    ],
)
def test_refusals(options: Json, said: str) -> None:
    store = loaded(plain_store())
    before = objects_in(store)
    with pytest.raises(DeclarationError) as caught:
        run_fleet_on(store, Unfired(inline_fleet()), **options)
    assert said in caught.value.message
    assert objects_in(store) == before


def test_a_held_store_ends_the_run() -> None:
    store = loaded(plain_store())
    clock = FakeClock(START)
    Lease.acquire(store, run_id="stage-other", ttl_s=900, clock=clock, new_id=make_runtime().new_id)
    before = objects_in(store)
    with pytest.raises(LeaseHeldError, match="stage-other"):
        run_fleet_on(store, clock=clock)
    assert objects_in(store) == before


# -- what goes missing ----------------------------------------------------------------------


def loses(dispatch: int, batch: int, times: int = 10**6) -> Callable[[Json], bool]:
    left = [times]

    def does(stage: Json) -> bool:
        is_it = (stage.get("dispatch"), stage.get("batch")) == (dispatch, batch) and left[0] > 0
        left[0] -= is_it
        return is_it

    return does


def lossy(lost: Callable[[Json], bool], clock: FakeClock) -> Watched:
    return Watched(inline_fleet(clock), loses=lost)


def test_a_lost_batch_is_named_and_its_orders_are_withheld(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = loaded(plain_store()), FakeClock(START)
    before = actuals(store)
    transport = lossy(loses(2, 1), clock)
    summary = run_fleet_on(store, transport, clock=clock, tuple_width=2, barrier_timeout_s=100.0)
    document = summary.document
    assert not summary.is_complete
    assert (document["barrier_timed_out"], document["short_orders"]) == (True, [2])
    fine, coarse = rows(summary)[2], rows(summary)[0]
    assert list(fine) == [*ROW, *MISSING, *RETRIES]
    assert (fine["barrier_timed_out"], coarse["barrier_timed_out"]) == (True, False)
    assert (fine["barrier_s"], fine["records_seen"], fine["missing_unit_count"]) == (100.0, 2, 1)
    (unit,) = fine["missing_units"]
    assert list(unit)[:4] == ["batch", "nodes", "unit", "window"]
    assert (unit["batch"], unit["unit"], unit["window"], unit["attempts"]) == (1, None, None, 1)
    assert unit["error"] == "the barrier's time is over"
    assert summary.unfinished == (unit,)
    assert "batch-unfinished" in [entry.__dict__.get("event") for entry in caplog.records]
    # the finisher was told, and said so
    finisher = transport.fired[-1]["stage"]
    assert (finisher["barrier_timed_out"], finisher["short_orders"]) == (True, [2])
    assert document["finisher"]["finisher"]["actuals_withheld"] == [2]
    after = actuals(store)
    assert after[2] == before[2]
    assert after[1] != before[1]
    # one more run heals everything
    again = run_fleet_on(store, clock=clock, run_id="stage-again", tuple_width=2)
    assert again.is_complete
    wanted = swept(plain_store(), tuple_width=2)
    assert {k: d for k, d in artifacts(store).items() if "/c/" in k} == {
        k: d for k, d in wanted.items() if "/c/" in k
    }


def test_a_lost_close_is_short_too() -> None:
    store, clock = loaded(windowed_store()), FakeClock(START)
    plain = run_fleet_on(loaded(windowed_store()), tuple_width=2)
    batch = rows(plain)[2]["batches"]  # the first close
    summary = run_fleet_on(
        store, lossy(loses(2, batch), clock), clock=clock, tuple_width=2, barrier_timeout_s=50.0
    )
    fine, coarse = rows(summary)[2], rows(summary)[0]
    assert list(fine) == [*ROW, *MISSING, *CLOSES, *RETRIES]
    assert (fine["close_records_seen"], fine["close_batches"]) == (2, 3)
    assert fine["records_seen"] == fine["batches"]
    assert (fine["barrier_timed_out"], coarse["barrier_timed_out"]) == (True, False)
    assert [unit["unit"] for unit in summary.unfinished] == ["close"]
    assert summary.document["short_orders"] == [2]


def test_a_lost_batch_is_fired_again_within_its_limits() -> None:
    store, clock = loaded(plain_store()), FakeClock(START)
    transport = lossy(loses(2, 1, times=2), clock)
    transport.limits = Limits(run_s=60.0)
    summary = run_fleet_on(store, transport, clock=clock, tuple_width=2)
    assert summary.is_complete
    assert rows(summary)[2]["retries"] == 2
    assert summary.document["invokes"] == 5 + 2
    stages = [event["stage"] for event in transport.fired]
    tries = [each.get("attempt", 1) for each in stages if (each.get("dispatch"), each.get("batch")) == (2, 1)]
    assert tries == [1, 2, 3]
    assert differences(store, plain_store(), tuple_width=2) == []


def test_a_refused_batch_ends_its_barrier_at_once() -> None:
    """A batch that no worker takes is named; the barrier did not time out."""
    store, clock = loaded(plain_store()), FakeClock(START)

    class Refusing(Watched):
        def _submit(self, envelope: Envelope) -> Submission:
            if envelope.key == "02-0001-1":
                return Submission(key=envelope.key, delivery=Delivery.REFUSED, reason="too big")
            return super()._submit(envelope)

    summary = run_fleet_on(store, Refusing(inline_fleet(clock)), clock=clock, tuple_width=2)
    assert (summary.document["barrier_timed_out"], summary.document["short_orders"]) == (False, [2])
    assert summary.unfinished[0]["error"] == "not accepted: too big"


def test_a_lost_finisher() -> None:
    store, clock = loaded(plain_store()), FakeClock(START)
    transport = lossy(lambda stage: stage["role"] == "finisher", clock)
    summary = run_fleet_on(store, transport, clock=clock, barrier_timeout_s=60.0)
    finisher = summary.document["finisher"]
    assert finisher == {
        "landed": False,
        "fired": True,
        "error": "no word from the finisher within the barrier's time",
    }
    assert not summary.is_complete
    assert summary.unfinished == ()


# -- resume ---------------------------------------------------------------------------------


def resume(store: ObjectStore, clock: FakeClock, **options: Any) -> tuple[FleetSummary, Watched]:
    transport = Watched(inline_fleet(clock))
    return run_fleet_on(store, transport, clock=clock, keep_complete=True, **options), transport


def test_a_resumed_run_fires_what_is_missing_and_all_above_it() -> None:
    store, clock = loaded(plain_store()), FakeClock(START)
    first = lossy(loses(2, 1), clock)
    run_fleet_on(store, first, clock=clock, tuple_width=2, barrier_timeout_s=50.0)
    (missing,) = [stage for stage in first.stages() if stage[0] == 2][1][2]
    summary, second = resume(store, clock, tuple_width=2)
    above = missing[:2] if missing.startswith("-") else missing[:1]
    assert second.stages() == [(2, None, (missing,)), (0, None, (above,))]
    assert summary.is_complete
    assert summary.document["short_orders"] == []
    # under numbers that no record has
    assert [event["stage"]["batch"] for event in second.fired[:-1]] == [3, 2]
    assert second.finishers == 1
    assert all(each is not None for each in actuals(store).values())
    wanted = swept(plain_store(), tuple_width=2)
    assert {k: d for k, d in artifacts(store).items() if "/c/" in k} == {
        k: d for k, d in wanted.items() if "/c/" in k
    }


def test_another_window_of_the_same_node_is_not_above() -> None:
    store, clock = loaded(windowed_store()), FakeClock(START)
    first = lossy(loses(2, 0), clock)
    run_fleet_on(store, first, clock=clock, tuple_width=2, barrier_timeout_s=50.0)
    _, window, (node,) = first.stages()[0]
    base = node[:2] if node.startswith("-") else node[:1]
    summary, second = resume(store, clock, tuple_width=2)
    assert second.stages() == [
        (2, window, (node,)),
        (2, "close", (node,)),
        (0, window, (base,)),
        (0, "close", (base,)),
    ]
    assert summary.is_complete


def test_a_missing_close_has_nothing_above_it() -> None:
    store, clock = loaded(windowed_store()), FakeClock(START)
    batch = rows(run_fleet_on(loaded(windowed_store()), tuple_width=2))[2]["batches"]
    first = lossy(loses(2, batch), clock)
    run_fleet_on(store, first, clock=clock, tuple_width=2, barrier_timeout_s=50.0)
    summary, second = resume(store, clock, tuple_width=2)
    assert [stage[:2] for stage in second.stages()] == [(2, "close")]
    assert second.finishers == 1
    assert summary.is_complete


def test_a_run_that_lacks_only_its_finisher() -> None:
    store, clock = loaded(plain_store()), FakeClock(START)
    run_fleet_on(
        store, lossy(lambda stage: stage["role"] == "finisher", clock), clock=clock, barrier_timeout_s=9.0
    )
    summary, second = resume(store, clock)
    assert (second.stages(), second.finishers) == ([], 1)
    assert summary.is_complete
    assert (summary.document["skipped"], summary.document["stages"]) == (None, [])
    assert all(each is not None for each in actuals(store).values())


@both_stores
def test_a_run_that_is_complete(objects: Objects) -> None:
    store, clock = loaded(objects), FakeClock(START)
    run_fleet_on(store, clock=clock)
    before = objects_in(store)
    summary, second = resume(store, clock)
    assert (second.fired, summary.document["skipped"]) == ([], "the run is complete already")
    assert (summary.document["finisher"]["landed"], summary.document["finisher"]["fired"]) == (True, False)
    assert summary.is_complete
    assert objects_in(store) == before


def test_a_record_with_failures_is_not_kept() -> None:
    store, clock = loaded(plain_store()), FakeClock(START)
    run_fleet_on(store, clock=clock, tuple_width=2)
    status = open_store(status_prefix(store.root, RUN))
    raw = status.get("stage-02-0000.json")
    assert raw is not None
    record = json.loads(raw)
    record["stages"][0]["failed"] = 1
    clock.advance(5.0)
    status.put("stage-02-0000.json", json.dumps(record).encode())
    summary, second = resume(store, clock, tuple_width=2)
    assert [nodes for order, _, nodes in second.stages() if order == 2] == [tuple(record["nodes"])]
    assert summary.is_complete  # the record that was done again does not count any more
    assert summary.document["finisher"]["stage_records"] == 5


def test_records_of_other_tuples_are_not_taken_for_these() -> None:
    """At width 3 one record is to vouch for all orders; at width 1 it vouched for its own."""
    store, clock = loaded(plain_store()), FakeClock(START)
    run_fleet_on(store, clock=clock, tuple_width=1)
    summary, second = resume(store, clock, tuple_width=3)
    assert {stage[0] for stage in second.stages()} == {0}
    assert len(second.stages()) == 2
    assert summary.is_complete


@pytest.mark.parametrize("garbage", [b"{", b"[]", b'{"spec": "zagg-sweep-stage-record/1"}'])
def test_garbage_among_the_records_is_done_again(garbage: bytes) -> None:
    store, clock = loaded(plain_store()), FakeClock(START)
    run_fleet_on(store, clock=clock, tuple_width=2)
    clock.advance(5.0)
    open_store(status_prefix(store.root, RUN)).put("stage-02-0001.json", garbage)
    summary, second = resume(store, clock, tuple_width=2)
    assert [stage[0] for stage in second.stages()] == [2, 0]
    assert summary.is_complete


# -- again under the same run id ------------------------------------------------------------


@both_stores
@pytest.mark.parametrize(("first", "second"), [(1, None), (None, 1), (1, 2), (1, 1)])
def test_a_run_done_again_in_other_batches(objects: Objects, first: int | None, second: int | None) -> None:
    store, clock = loaded(objects), FakeClock(START)
    run_fleet_on(store, clock=clock, max_nodes=first, tuple_width=2)
    before = artifacts(store)
    summary = run_fleet_on(store, clock=clock, max_nodes=second, tuple_width=2)
    assert summary.is_complete
    assert artifacts(store) == before == swept(objects, tuple_width=2)
    # a drive begins in a later second than the one before it ended
    assert summary.document["run_started"] > timestamp(START)
    # only this drive's records count, and all was current to it
    expected = sum(row["batches"] + row.get("close_batches", 0) for row in summary.document["stages"])
    assert summary.document["finisher"]["stage_records"] == expected
    assert summary.count("written", "columns_written", "failed") == 0


class Killed(BaseException):
    """The dispatcher dies here."""


@pytest.mark.parametrize("n_done", range(6))
@pytest.mark.parametrize("keep", [True, False])
def test_a_dispatcher_that_died_after_any_step(n_done: int, keep: bool) -> None:
    store, clock = loaded(plain_store()), FakeClock(START)

    class Mortal(Watched):
        def _submit(self, envelope: Envelope) -> Submission:
            if len(self.fired) == n_done:
                raise Killed
            return super()._submit(envelope)

    with pytest.raises(Killed):
        run_fleet_on(store, Mortal(inline_fleet(clock)), clock=clock, tuple_width=2)
    summary = run_fleet_on(store, clock=clock, tuple_width=2, max_nodes=2, keep_complete=keep)
    assert summary.is_complete
    assert differences(store, plain_store(), tuple_width=2) == []
    assert read_holder(store) is None
    assert all(each is not None for each in actuals(store).values())


@both_stores
@pytest.mark.parametrize("at", [0, 1, 3, 4])
@pytest.mark.parametrize("max_nodes", [1, 2])
def test_two_dispatchers_of_one_run(objects: Objects, at: int, max_nodes: int) -> None:
    """The other begins and ends while this one is at its n-th event: double work, no harm."""
    store, clock = loaded(objects), FakeClock(START)
    others: list[FleetSummary] = []

    class Beside(Watched):
        def _submit(self, envelope: Envelope) -> Submission:
            if len(self.fired) == at and not others:
                others.append(run_fleet_on(store, clock=clock, tuple_width=2, max_nodes=max_nodes))
            return super()._submit(envelope)

    ours = run_fleet_on(
        store, Beside(inline_fleet(clock)), clock=clock, tuple_width=2, barrier_timeout_s=60.0
    )
    assert others[0].is_complete
    assert differences(store, objects, tuple_width=2) == []
    assert ours.document["finisher"]["landed"]
    assert all(each is not None for each in actuals(store).values())


# -- clocks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("ahead_s", "waits_s"), [(0, 1.0), (3600, 2.0)])
def test_a_drive_begins_after_the_one_before(ahead_s: int, waits_s: float) -> None:
    """A second is waited out; a clock that is far ahead is not."""
    store, clock = loaded(plain_store()), EventClock()
    run_fleet_on(store, clock=clock)
    status = open_store(status_prefix(store.root, RUN))
    raw = status.get("finisher.json")
    assert raw is not None
    moment = FakeClock(clock.now())
    moment.advance(float(ahead_s))
    finished_at = timestamp(moment.now())
    status.put("finisher.json", json.dumps(json.loads(raw) | {"finished_at": finished_at}).encode())
    started = clock.monotonic()
    summary = run_fleet_on(store, clock=clock)
    assert summary.document["run_started"] > finished_at
    assert clock.monotonic() - started == pytest.approx(waits_s)
    assert summary.is_complete
