"""A fleet leaves the bytes that the reference left, and those of one process at the same grouping.

The comparison is made by the tool that stands beside the stores, not by code of this project.
Source: format 13, semantics 1, 3 and 12.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.reference import CompareStores, ReferenceStore
from tests.support.fleets import EventClock, Json, inline_fleet, run_fleet_on
from tests.support.sweeping import sweep_folder

from sweep.control.lease import read_holder
from sweep.fleet.barrier import Barrier, Verdict
from sweep.fleet.board import Board
from sweep.fleet.inline import InlineTransport
from sweep.fleet.options import FleetOptions, FleetSummary
from sweep.fleet.run import run_fleet
from sweep.fleet.transport import Delivery, Envelope, Submission
from sweep.fold.exact import fold_exact
from sweep.model.invocation import STAGE_RECORD_SPEC, record_name
from sweep.store.open import open_store

type Fleet = Callable[..., FleetSummary]

LEAF_RECORDS = "stats_*.parquet"
RUN_RECORDS = "sweep_stats_*"
# Of other tuples: stage columns sit elsewhere, and provenance counts other sources.
OVERVIEW_CHUNKS = ("--chunks", "--ignore", "*.pyramid.zarr/*")

# name, least number of objects without run records
SMALL = (("kitchen_sink", 3400), ("kitchen_sink_windowed", 8700), ("wide", 1200))
SLOW = (("scale_tiny", 5000), ("airports", 70_000))

# a fleet's schedule, and that of one process in the same tuples (semantics 12.5: a sized
# schedule is for one event, and shared by the nodes of its batch)
GROUPINGS: tuple[tuple[Json, Json], ...] = (
    ({"tuple_width": 1, "max_nodes": 1}, {"tuple_width": 1}),
    ({"tuple_width": 1, "max_nodes": 5}, {"tuple_width": 1}),
    ({"tuple_width": 2, "max_nodes": 1}, {"tuple_width": 2}),
    ({"tuple_width": 2, "max_nodes": 5}, {"tuple_width": 2}),
    ({"tuple_width": 3, "max_nodes": 1}, {"tuple_width": 3}),
    ({"tuple_width": 3, "max_nodes": None}, {"tuple_width": 3}),
    ({"target_nodes": 8, "max_nodes": 1}, {"target_nodes": 8}),
    ({"target_nodes": 24, "max_nodes": 3}, {"target_nodes": 8}),
)
QUICK = (GROUPINGS[1], GROUPINGS[2], GROUPINGS[7])


def inline(root: Path, **options: Any) -> FleetSummary:
    """Sweep a folder by workers in this process, on a clock of the test."""
    clock = EventClock()
    return run_fleet_on(open_store(root), inline_fleet(clock), clock=clock, **options)


def processes(root: Path, *, max_nodes: int | None = None, tuple_width: int = 3) -> FleetSummary:
    """Sweep a folder by two worker processes."""
    options = FleetOptions(max_nodes=max_nodes, tuple_width=tuple_width, poll_s=0.2, barrier_timeout_s=300.0)
    return run_fleet(root, scope="all", transport="processes", workers=2, options=options)


def assert_none_differ(said: str, n_at_least: int) -> None:
    """The tool compared what it should have, and found nothing."""
    compared, _, rest = said.splitlines()[-1].partition(" objects compared, ")
    assert rest == "0 differences"
    assert int(compared) >= n_at_least


def assert_finished(summary: FleetSummary, root: Path) -> None:
    """The run says that it did everything, and let the store go."""
    assert summary.is_complete, summary.document
    assert summary.document["barrier_timed_out"] is False
    assert read_holder(open_store(root)) is None


def assert_as_the_reference(
    fleet: Fleet, stores: ReferenceStore, compare: CompareStores, name: str, n_objects: int
) -> None:
    root = stores(name, "pre", mode="link" if n_objects > 50_000 else "copy")
    summary = fleet(root)
    assert_finished(summary, root)
    said = compare(stores(name, "post"), root, "--ignore", LEAF_RECORDS, "--ignore", RUN_RECORDS)
    assert_none_differ(said, n_objects)


@pytest.mark.parametrize(("name", "n_objects"), [pytest.param(*each, id=each[0]) for each in SMALL])
def test_workers_inline_leave_the_references_bytes(
    reference_store: ReferenceStore, compare_stores: CompareStores, name: str, n_objects: int
) -> None:
    assert_as_the_reference(inline, reference_store, compare_stores, name, n_objects)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fleet", [partial(inline, max_nodes=None), processes], ids=["inline", "processes"])
@pytest.mark.parametrize(("name", "n_objects"), [pytest.param(*each, id=each[0]) for each in SLOW])
def test_fleets_leave_the_references_bytes_of_large_stores(
    reference_store: ReferenceStore,
    compare_stores: CompareStores,
    fleet: Fleet,
    name: str,
    n_objects: int,
    short: bool,
) -> None:
    if short and name == "airports":
        name, n_objects = SMALL[2]
    assert_as_the_reference(fleet, reference_store, compare_stores, name, n_objects)


@pytest.mark.parametrize(
    ("name", "n_objects"),
    [
        pytest.param(*SMALL[0], id="kitchen_sink", marks=pytest.mark.slow),
        pytest.param(*SMALL[1], id="kitchen_sink_windowed", marks=pytest.mark.slow),
        pytest.param(*SMALL[2], id="wide"),
    ],
)
def test_worker_processes_leave_the_references_bytes(
    reference_store: ReferenceStore, compare_stores: CompareStores, name: str, n_objects: int
) -> None:
    assert_as_the_reference(processes, reference_store, compare_stores, name, n_objects)


# -- groupings ------------------------------------------------------------------------------


def assert_as_one_process(
    stores: ReferenceStore, compare: CompareStores, name: str, fleet_options: Json, local_options: Json
) -> None:
    """Everything but run records at equal grouping; overview chunks against the reference's."""
    alone, root = stores(name, "pre"), stores(name, "pre")
    sweep_folder(alone, **local_options)
    assert_finished(inline(root, **fleet_options), root)
    said = compare(alone, root, "--ignore", RUN_RECORDS)
    assert_none_differ(said, 1000)
    assert_none_differ(compare(stores(name, "post"), root, *OVERVIEW_CHUNKS), 100)


@pytest.mark.parametrize(("fleet_options", "local_options"), QUICK, ids=str)
def test_a_fleet_equals_one_process_at_the_same_grouping(
    reference_store: ReferenceStore, compare_stores: CompareStores, fleet_options: Json, local_options: Json
) -> None:
    assert_as_one_process(reference_store, compare_stores, "wide", fleet_options, local_options)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("fleet_options", "local_options"), GROUPINGS, ids=str)
@pytest.mark.parametrize("name", ["kitchen_sink", "kitchen_sink_windowed", "scale_tiny", "wide"])
def test_fleets_equal_one_process_at_every_grouping(
    reference_store: ReferenceStore,
    compare_stores: CompareStores,
    name: str,
    fleet_options: Json,
    local_options: Json,
    short: bool,
) -> None:
    if short and (fleet_options, local_options) not in QUICK:
        fleet_options, local_options = QUICK[0]
    assert_as_one_process(reference_store, compare_stores, name, fleet_options, local_options)


# -- the comparison can fail ----------------------------------------------------------------


def differs(stores: ReferenceStore, compare: CompareStores, root: Path, name: str = "wide") -> str:
    """What the tool says of a store that is not the reference's."""
    ignored = ("--ignore", LEAF_RECORDS, "--ignore", RUN_RECORDS)
    with pytest.raises(AssertionError) as caught:
        compare(stores(name, "post"), root, *ignored, "--max", "9999")
    return str(caught.value)


def add_one_to_sums(values: Any, *, fan_in: int, law: Any, fill: Any) -> Any:
    """A fold that is wrong by one in one cell of every block."""
    folded = fold_exact(values, fan_in=fan_in, law=law, fill=fill)
    if law == "sum":
        folded[0] += 1
    return folded


def test_a_wrong_fold_is_seen(
    reference_store: ReferenceStore, compare_stores: CompareStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = reference_store("kitchen_sink", "pre")
    monkeypatch.setattr("sweep.fold.blocks.fold_exact", add_one_to_sums)
    assert_finished(inline(root), root)
    assert "/count/c/0: bytes differ" in differs(reference_store, compare_stores, root, "kitchen_sink")


class Dropping:
    """Workers in this process, behind a transport that accepts one batch and forgets it.

    Where it ``vouches``, the record of the batch stands all the same: a worker that lies.
    """

    def __init__(self, inner: InlineTransport, root: Path, *, vouches: bool) -> None:
        self.inner = inner
        self.root = root
        self.vouches = vouches
        self.dropped: list[Json] = []
        self.name, self.limits = inner.name, inner.limits
        self.lost, self.pending, self.close = inner.lost, inner.pending, inner.close

    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        return [self._submit(envelope) for envelope in envelopes]

    def _submit(self, envelope: Envelope) -> Submission:
        event = json.loads(envelope.payload)
        stage = event["stage"]
        if self.dropped or stage["role"] == "finisher" or stage["dispatch"] == 0:
            return self.inner.submit([envelope])[0]
        self.dropped.append(stage)
        if self.vouches:
            self._vouch(event)
        return Submission(key=envelope.key, delivery=Delivery.ACCEPTED)

    def _vouch(self, event: Mapping[str, Any]) -> None:
        stage = event["stage"]
        named = ("run_id", "run_started", "dispatch", "batch", "nodes")
        record: Json = {
            "spec": STAGE_RECORD_SPEC,
            "unit": None,
            "window": None,
            "stages": [],
            "level_actuals": {},
        }
        record |= {key: stage[key] for key in named}
        status = open_store(stage["records_from"])
        status.put(record_name(stage["dispatch"], stage["batch"]), json.dumps(record).encode())


@pytest.mark.parametrize("vouches", [False, True])
def test_a_dropped_subtree_is_seen(
    reference_store: ReferenceStore, compare_stores: CompareStores, vouches: bool
) -> None:
    root, clock = reference_store("wide", "pre"), EventClock()
    transport = Dropping(inline_fleet(clock), root, vouches=vouches)
    summary = run_fleet_on(
        open_store(root), transport, clock=clock, tuple_width=2, attempts=1, barrier_timeout_s=60.0
    )
    (dropped,) = transport.dropped
    said = [each["nodes"] for each in summary.unfinished]
    assert said == ([] if vouches else [dropped["nodes"]])
    assert summary.is_complete == vouches
    (node,) = dropped["nodes"]
    directory = "/".join([node[: 1 + node.startswith("-")], *node[1 + node.startswith("-") :]])
    assert f"{directory}/all.zarr/zarr.json: missing" in differs(reference_store, compare_stores, root)


class Deferring:
    """Workers in this process that begin long after their event was accepted, coarse nodes first."""

    def __init__(self, inner: InlineTransport, clock: EventClock) -> None:
        self.inner = inner
        self.clock = clock
        self.name, self.limits = inner.name, inner.limits
        self.lost, self.pending, self.close = inner.lost, inner.pending, inner.close

    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        return [self._submit(envelope) for envelope in envelopes]

    def _submit(self, envelope: Envelope) -> Submission:
        stage = json.loads(envelope.payload)["stage"]
        self.clock.after(10.0 * stage.get("dispatch", 30) + 5.0, lambda: self.inner.submit([envelope]))
        return Submission(key=envelope.key, delivery=Delivery.ACCEPTED)


def wait_for_nothing(barrier: Barrier, boards: Sequence[Board]) -> Verdict:
    """A barrier that holds nothing back."""
    barrier.fire(boards)
    for task in [task for board in boards for task in board.tasks]:
        task.status = "done"
    return Verdict(timed_out=False, waited_s=0.0)


@pytest.mark.parametrize("stubbed", [False, True], ids=["barrier", "no barrier"])
def test_a_barrier_that_does_not_wait_is_seen(
    reference_store: ReferenceStore,
    compare_stores: CompareStores,
    monkeypatch: pytest.MonkeyPatch,
    stubbed: bool,
) -> None:
    root, clock = reference_store("wide", "pre"), EventClock()
    if stubbed:
        monkeypatch.setattr(Barrier, "wait", wait_for_nothing)
    summary = run_fleet_on(open_store(root), Deferring(inline_fleet(clock), clock), clock=clock)
    assert summary.document["finisher"]["landed"]
    if stubbed:
        assert "/all.zarr/" in differs(reference_store, compare_stores, root)
        return
    assert_finished(summary, root)
    said = compare_stores(
        reference_store("wide", "post"), root, "--ignore", LEAF_RECORDS, "--ignore", RUN_RECORDS
    )
    assert_none_differ(said, 1200)
