"""A pass: rows, isolation of units, and being asked to stop."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.small_stores import WIDTH, Objects, leaf_columns, plain_store, windowed_store
from tests.support.sweeping import START, loaded, make_runtime, objects_in

from sweep.artifacts.coverage import load_coverage
from sweep.artifacts.manifest_io import read_manifest
from sweep.control.discovery import discover_leaves
from sweep.errors import (
    AccessError,
    ArtifactError,
    ForeignWriteError,
    LeaseLostError,
    StoreUnavailableError,
    SweepError,
)
from sweep.events import Event, TupleFinished, TupleStarted, UnitFinished
from sweep.model.clock import timestamp
from sweep.plan.planner import candidates
from sweep.plan.tuples import OrderTuple, fixed_tuples
from sweep.stage.context import pass_context
from sweep.stage.passes import PassResult, StageRow, plan_pass, run_pass
from sweep.stage.tally import Tally, UnitError
from sweep.store.base import ObjectStore
from sweep.testing.stores import READS, Fault, FaultyStore

RUN = "stage-ours"


def run(
    store: ObjectStore,
    *,
    partition: tuple[int, int] | None = None,
    events: list[Event] | None = None,
    **options: Any,
) -> PassResult:
    """One pass over the whole store, without a lease."""
    observer = (lambda _event, /: None) if events is None else events.append
    manifest = read_manifest(store)
    work = discover_leaves(store, manifest).work
    coverage = load_coverage(store, manifest.shard_order)
    plan = plan_pass(
        fixed_tuples(manifest.shard_order, WIDTH),
        work=work,
        candidates=candidates(work, None if coverage is None else coverage.words),
        scope=None,
        is_windowed=manifest.is_windowed,
        closes=manifest.closes,
        partition=partition,
    )
    context = pass_context(store, manifest, run_id=RUN, runtime=make_runtime(observer=observer))
    return run_pass(context, plan, **options)


def torn(objects: Objects, *, window: str = "all") -> str:
    """Tear the count chunk of one leaf column; the node of the column's parent."""
    column = next(each for each in leaf_columns(objects) if each.endswith(f"/{window}.pyramid.zarr"))
    for key in [key for key in objects if key.startswith(f"{column}/") and "/count/c/" in key]:
        objects[key] = b"torn"
    return "".join(column.split("/")[:-2])


def test_rows_of_a_pass() -> None:
    store = loaded(windowed_store())
    fine, coarse = run(store).rows
    assert (fine.order_tuple.orders, coarse.order_tuple.orders) == ((2,), (1, 0))
    for row in (fine, coarse):
        # every window unit and every close wrote its artifacts, and nothing failed
        assert row.window_units > row.n_nodes > 0
        assert row.close_units == row.n_nodes
        assert (row.tally.failed, row.tally.current, row.tally.unit_errors) == (0, 0, ())
    overviews = {key for key in objects_in(store) if key.endswith(".zarr/zarr.json")}
    swept = [key for key in overviews if key.count("/") - 2 < 3]
    columns = [key for key in swept if ".pyramid." in key]
    assert fine.tally.written + coarse.tally.written == len(swept) - len(columns)
    assert fine.tally.columns_written + coarse.tally.columns_written == len(columns) > 0


def test_a_unit_that_fails_on_a_windowed_store_is_named_and_the_rest_goes_on() -> None:
    objects = windowed_store()
    node = torn(objects, window="2019")
    result = run(loaded(objects))
    fine, coarse = result.rows
    (error,) = fine.tally.unit_errors
    assert (error.node, error.unit) == (node, "2019")
    assert error.error.startswith("ArtifactError: ")
    assert "/count: dense chunk has 4 bytes" in error.error
    assert fine.tally.failed == 1
    assert any(node in line and "2019" in line for line in fine.tally.problems)
    whole = run(loaded(windowed_store()))
    assert fine.window_units == whole.rows[0].window_units
    assert fine.tally.written < whole.rows[0].tally.written
    # what the failed unit could not write is missing to the next tuple
    assert coarse.tally.under_covered > 0


def test_a_unit_that_fails_on_an_unwindowed_store_ends_the_run() -> None:
    objects = plain_store()
    torn(objects)
    with pytest.raises(ArtifactError, match="/count: dense chunk has 4 bytes"):
        run(loaded(objects))


@pytest.mark.parametrize(
    "error",
    [
        AccessError("no permission"),
        LeaseLostError("lost"),
        ForeignWriteError("theirs"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("make", [plain_store, windowed_store])
def test_errors_that_end_a_run_are_never_isolated(make: Callable[[], Objects], error: SweepError) -> None:
    faulty = FaultyStore(
        loaded(make()), lambda number, _m, _k: Fault(before=error) if number == 3 else None, methods=("put",)
    )
    with pytest.raises(type(error)):
        run(faulty)


def test_a_store_that_does_not_answer_is_isolated_on_a_windowed_store() -> None:
    def plan(_number: int, _method: str, key: str) -> Fault | None:
        is_chunk = "/2019.pyramid.zarr/" in key and "/count/c/" in key
        return Fault(before=StoreUnavailableError("no answer")) if is_chunk else None

    result = run(FaultyStore(loaded(windowed_store()), plan, methods=READS))
    errors = result.rows[0].tally.unit_errors
    assert {error.unit for error in errors} == {"2019"}
    assert {error.error for error in errors} == {"StoreUnavailableError: no answer"}
    assert result.rows[0].tally.failed == len(errors)


def test_a_fault_of_our_own_is_not_isolated() -> None:
    fault = Fault(before=ZeroDivisionError("ours"))
    faulty = FaultyStore(loaded(windowed_store()), lambda n, *_: fault if n == 3 else None, methods=("put",))
    with pytest.raises(ZeroDivisionError):
        run(faulty)


def test_a_foreign_fresh_stamp_ends_a_windowed_run() -> None:
    objects = windowed_store()
    column = leaf_columns(objects)[0]
    document = json.loads(objects[f"{column}/zarr.json"])
    late = timestamp(START.replace(year=2031))
    document["attributes"]["morton_hive_commit"] |= {"run_id": "theirs", "written_at": late}
    objects[f"{column}/zarr.json"] = json.dumps(document).encode()
    with pytest.raises(ForeignWriteError) as caught:
        run(loaded(objects))
    for named in (column, "theirs", late):
        assert named in caught.value.message


def test_events_tell_of_every_unit() -> None:
    events: list[Event] = []
    result = run(loaded(windowed_store()), events=events, partition=(2, 4))
    assert [kind for kind, _ in itertools.groupby(type(each).__name__ for each in events)] == [
        "TupleStarted",
        "UnitFinished",
        "TupleFinished",
    ] * 2
    started = [each for each in events if isinstance(each, TupleStarted)]
    finished = [each for each in events if isinstance(each, TupleFinished)]
    units = [each for each in events if isinstance(each, UnitFinished)]
    assert len(units) == sum(each.n_units for each in started)
    assert {each.partition for each in started} == {2}
    for row, each in zip(result.rows, finished, strict=True):
        assert each.written == row.tally.written + row.tally.columns_written
        assert each.written == sum(u.written for u in units if u.dispatch_order == each.dispatch_order)
    assert {each.unit for each in units} == {"2019", "2020", "close"}


def test_a_pass_that_is_asked_to_stop_says_what_it_left() -> None:
    whole = run(loaded(plain_store()))
    fine_nodes, coarse_nodes = (row.n_nodes for row in whole.rows)
    assert fine_nodes > 1
    assert whole.remaining == ()
    asked = itertools.count(1)
    result = run(loaded(plain_store()), should_stop=lambda: next(asked) > 1)
    fine, coarse = result.rows
    assert (fine.n_nodes, fine.window_units, fine.tally.written > 0) == (1, 1, True)
    assert (coarse.n_nodes, coarse.window_units, coarse.tally) == (0, 0, Tally())
    assert len(result.remaining) == fine_nodes - 1 + coarse_nodes
    assert next(asked) == 3  # not asked again once it said so


def row(**changes: Any) -> StageRow:
    plain: dict[str, Any] = {
        "order_tuple": OrderTuple(dispatch_order=3, child_order=4),
        "n_nodes": 8,
        "window_units": 7,
        "close_units": 6,
        "tally": Tally(written=5, fold_peak_cells=288),
        "duration_s": 1.5,
    }
    return StageRow(**plain | changes)


def test_a_row_in_its_key_order() -> None:
    error = UnitError(node="-211", unit="2019", error="ArtifactError: torn")
    found = row(tally=Tally(failed=1, unit_errors=(error,), problems=("not in the row",)), partition=(2, 16))
    # format 11
    head = ["dispatch_order", "orders", "nodes", "window_units", "close_units"]
    tail = ["duration_s", "unit_errors", "partition"]
    assert list(found.to_json()) == [*head, *Tally().counters(), *tail]
    assert found.to_json()["unit_errors"] == [
        {"node": "-211", "unit": "2019", "error": "ArtifactError: torn"}
    ]
    assert found.to_json()["partition"] == {"index": 2, "of": 16}


def test_a_row_without_errors_or_partition() -> None:
    found = row().to_json()
    assert list(found)[-1] == "duration_s"
    assert (found["dispatch_order"], found["orders"], found["nodes"]) == (3, [3], 8)
    assert (found["window_units"], found["close_units"], found["written"]) == (7, 6, 5)
