"""What a sweep over a store that was swept before writes: nothing, or the chain above what changed.

Source: semantics 7.
"""

import io
import json
import re
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mortie import decimal_to_word
from tests.reference import ReferenceStore
from tests.support.compare import compare_objects
from tests.support.small_stores import (
    WIDTH,
    Objects,
    ancestors,
    below,
    leaf_columns,
    plain_store,
    rewrite_leaf,
    two_leaves,
    windowed_store,
)
from tests.support.sweeping import START, loaded, objects_in, read_tree, sweep

from sweep.stage.run import SweepSummary
from sweep.store.base import ObjectStore
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import WRITES, CountingStore

_ROOT_OBJECT = re.compile(
    r"morton_hive\.json|coverage\.moc|aggregation\.yaml|sweep\.lease\.json|multiscales/.*|sweep_stats_\w+\.json"
)
LATER = START.replace(year=2031)


def written(store: CountingStore) -> set[str]:
    """Keys of the store's node objects that were written or deleted."""
    keys = {key for method, key in store.log if method in WRITES}
    return {key for key in keys if not _ROOT_OBJECT.fullmatch(key)}


def stamped(store: CountingStore) -> set[str]:
    """The artifacts that were stamped."""
    return {key.removesuffix("/zarr.json") for key in written(store) if key.endswith(".zarr/zarr.json")}


def swept_again(objects: Mapping[str, bytes] | ObjectStore) -> tuple[CountingStore, SweepSummary]:
    store = CountingStore(loaded(objects) if isinstance(objects, Mapping) else objects)
    summary = sweep(store, tuple_width=WIDTH, run_id="stage-later", clock=FakeClock(LATER))
    return store, summary


def swept(objects: Objects) -> Objects:
    store = loaded(objects)
    sweep(store, tuple_width=WIDTH, run_id="stage-first", clock=FakeClock(START))
    return objects_in(store)


def swept_at_once(objects: Objects) -> Objects:
    return objects_in(swept_again(objects)[0].inner)


def chain(leaf: str) -> set[str]:
    """The artifacts above a leaf column of a store without windows, swept at width 2."""
    nodes = ancestors(leaf)
    (dispatch,) = (node for node in nodes if node.count("/") == 2)
    return {f"{node}/all.zarr" for node in nodes} | {f"{dispatch}/all.pyramid.zarr"}


@pytest.mark.parametrize("build", [plain_store, windowed_store])
def test_a_second_sweep_writes_root_objects_alone(build: Callable[[], Objects]) -> None:
    before = swept(build())
    store, summary = swept_again(before)
    assert written(store) == set()
    assert (summary.tally.written, summary.tally.columns_written, summary.tally.failed) == (0, 0, 0)
    assert summary.tally.current > 0
    assert summary.tally.columns_current > 0
    assert compare_objects(before, objects_in(store.inner), same_runs=False) == []


@pytest.mark.parametrize(
    ("name", "current", "columns_current"),
    # the numbers written by the first sweep, as the reference's run record has them
    [
        ("kitchen_sink", 24, 8),
        ("wide", 20, 4),
        pytest.param("scale_tiny", 48, 5, marks=pytest.mark.slow),
        pytest.param("kitchen_sink_windowed", 80, 18, marks=pytest.mark.slow),
    ],
)
def test_the_references_own_store_is_current(
    reference_store: ReferenceStore, name: str, current: int, columns_current: int
) -> None:
    store = CountingStore(loaded(read_tree(reference_store(name, "post"))))
    summary = sweep(store)
    assert written(store) == set()
    assert (summary.tally.current, summary.tally.columns_current) == (current, columns_current)
    # what folded to nothing left no artifact, and is looked at again
    assert (summary.tally.fold_blocks, summary.tally.fold_cells_read) == (summary.tally.empty, 0)
    assert summary.record["finisher"]["manifest_updated"] is True
    assert summary.record["finisher"]["root_moc"] is True


def without_leaf(objects: Objects, leaf: str) -> Objects:
    """The store before a leaf was made: no column, no record of it, no coverage."""
    shard = _word(leaf)
    gone = {*below(objects, leaf), "coverage.moc"}
    kept = {key: data for key, data in objects.items() if key not in gone}
    for key in [key for key in kept if key.startswith("stats_")]:
        table = pq.read_table(io.BytesIO(kept[key]))
        rows = np.asarray(table["shard_key"]) != shard
        kept[key] = _parquet(table.filter(pa.array(rows)))
    return kept


def _word(leaf: str) -> int:
    """The word of the shard that holds a leaf column."""
    return int(decimal_to_word("".join(leaf.split("/")[:-1])))


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def test_a_new_leaf_rewrites_its_ancestors_alone() -> None:
    complete = plain_store()
    leaf = leaf_columns(complete)[1]
    store, _ = swept_again(without_leaf(complete, leaf))
    assert stamped(store)
    part = objects_in(store.inner)
    # the leaf is made, and its run writes a record of its own
    part.update(below(complete, leaf))
    record = pa.table({"shard_key": np.array([_word(leaf)], dtype=np.uint64), "success": [True]})
    part["stats_20300601T000000Z_new.parquet"] = _parquet(record)
    store, summary = swept_again(part)
    assert stamped(store) == chain(leaf)
    assert summary.n_leaves == len(leaf_columns(complete))
    records = {key: data for key, data in part.items() if key.startswith("stats_")}
    expected = swept_at_once({**complete, **records})
    found = objects_in(store.inner)
    for objects in (expected, found):
        objects.pop("coverage.moc")  # the full one has a time range, of the leaves' own making
    assert compare_objects(expected, found, same_runs=False) == []


def test_a_rewritten_leaf_rewrites_its_ancestors_alone() -> None:
    objects = swept(plain_store())
    first, last = two_leaves(objects)
    rewrite_leaf(objects, first, last, "2030-06-01T00:00:00+00:00")
    store, _ = swept_again(objects)
    assert stamped(store) == chain(first)
    changed = plain_store()
    rewrite_leaf(changed, first, last, "2030-06-01T00:00:00+00:00")
    assert compare_objects(swept_at_once(changed), objects_in(store.inner), same_runs=False) == []


def test_a_leaf_of_one_window_leaves_the_other_windows_alone() -> None:
    objects = swept(windowed_store())
    first, last = two_leaves(objects, "2019")
    rewrite_leaf(objects, first, last, "2030-06-01T00:00:00+00:00")
    store, _ = swept_again(objects)
    nodes = ancestors(first)
    (dispatch,) = (node for node in nodes if node.count("/") == 2)
    expected = {f"{node}/{stem}.zarr" for node in nodes for stem in ("2019", "all")}
    assert stamped(store) == expected | {f"{dispatch}/2019.pyramid.zarr"}


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_lost_envelope_rewrites_what_follows_from_it(depth: int) -> None:
    """The artifact's new stamp names another run, which moves the sums above it.

    A merge reads the overview below; a gather reads the stage column, which is rewritten
    where the overview of its own node was not current.
    """
    objects = swept(plain_store())
    leaf = leaf_columns(objects)[0]
    node = "/".join(leaf.split("/")[: depth + 1])
    del objects[f"{node}/overview.rollup.json"]
    store, _ = swept_again(objects)
    upward = {f"{each}/all.zarr" for each in ancestors(leaf) if node.startswith(each)}
    columns = {f"{node}/all.pyramid.zarr"} if depth == 2 else set()
    assert stamped(store) == upward | columns
    assert compare_objects(swept(plain_store()), objects_in(store.inner), same_runs=False) == []


@pytest.mark.parametrize(
    "change",
    [
        {"regime": "stage-gather"},
        {"merges_from_raw": 9},
        {"object": "x.zarr"},
        {"generation": None},
        {"generation": {"n_leaves": 99, "max_leaf_timestamp": None, "run_ids": []}},
    ],
    ids=str,
)
def test_an_entry_that_says_otherwise_is_not_current(change: dict[str, object]) -> None:
    objects = swept(plain_store())
    root = leaf_columns(objects)[0].split("/")[0]
    key = f"{root}/overview.rollup.json"
    envelope = json.loads(objects[key])
    assert envelope["windows"]["all"]["regime"] == "stage-merge"
    envelope["windows"]["all"].update(change)
    objects[key] = json.dumps(envelope, indent=1).encode()
    store, _ = swept_again(objects)
    assert stamped(store) == {f"{root}/all.zarr"}


@pytest.mark.parametrize("envelope", [b"", b"[]", b'{"spec": "another"}'], ids=repr)
def test_an_unusable_envelope_is_written_anew(envelope: bytes) -> None:
    before = swept(plain_store())
    root = leaf_columns(before)[0].split("/")[0]
    key = f"{root}/overview.rollup.json"
    store, _ = swept_again({**before, key: envelope})
    assert stamped(store) == {f"{root}/all.zarr"}
    assert compare_objects(before, objects_in(store.inner), same_runs=False) == []
