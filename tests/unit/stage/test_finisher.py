"""The finisher: root objects beside concurrent writers, touch policies, what is fail-open."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.reference import ReferenceStore
from tests.support.made import Json, manifest_json, memory_store
from tests.support.sweeping import make_runtime

from sweep.artifacts.coverage import read_coverage
from sweep.artifacts.manifest_io import read_manifest
from sweep.control.lease import Lease
from sweep.errors import (
    AccessError,
    DeclarationError,
    ForeignWriteError,
    LeaseLostError,
    StoreUnavailableError,
    SweepError,
)
from sweep.model.ladder import Level
from sweep.model.nodes import Words, decimals_of, words_of
from sweep.model.provenance import Actuals, SourceCounts
from sweep.model.runs import TOUCH_POLICIES
from sweep.stage.context import pass_context
from sweep.stage.finisher import Finish, finish
from sweep.store.base import ObjectStore
from sweep.testing.stores import CountingStore, Fault, FaultyStore, answer_lost

RUN = "stage-ours"
SHARDS = words_of(["112", "111"])
MOC, MANIFEST, LEASE = "coverage.moc", "morton_hive.json", "sweep.lease.json"


@pytest.fixture
def store() -> ObjectStore:
    opened = memory_store()
    opened.put(MANIFEST, json.dumps(manifest_json(), indent=1).encode())
    return opened


def observed() -> Actuals:
    actuals = Actuals()
    actuals.observe(
        Level(node_order=1, cell_order=3),
        artifact="11|all",
        regime="stage-gather",
        merges_from_raw=1,
        counts=SourceCounts(folded=2),
    )
    return actuals


def run(
    store: ObjectStore, *, shards: Words = SHARDS, actuals: Actuals | None = None, **options: Any
) -> Finish:
    """Take the lease on a plain view of ``store``, then finish on ``store`` itself."""
    runtime = make_runtime()
    plain = store.inner if isinstance(store, CountingStore) else store
    lease = Lease.acquire(plain, run_id=RUN, clock=runtime.clock, new_id=runtime.new_id)
    context = pass_context(store, read_manifest(plain), run_id=RUN, runtime=runtime)
    return finish(context, lease, shards=shards, actuals=actuals or observed(), **options)


def document(store: ObjectStore, key: str) -> Json:
    raw = store.get(key)
    assert raw is not None
    found: Json = json.loads(raw)
    return found


def shards_in(store: ObjectStore) -> list[str]:
    coverage = read_coverage(store.get(MOC), 2)
    assert coverage is not None
    return decimals_of(coverage.words)


def test_everything_is_written_and_the_lease_goes_last(store: ObjectStore) -> None:
    store.put("aggregation.yaml", b"a: 1\n")
    counting = CountingStore(store)
    done = run(counting)
    assert done == Finish(
        root_moc=True,
        manifest_updated=True,
        objects_touched=1,
        touch_failures=0,
        touch_skipped_paths=0,
        lease_released=True,
        actuals_withheld=(),
        multiscales_group=True,
    )
    changes = [call for call in counting.log if call[0] not in ("get", "get_versioned", "list")]
    assert changes == [
        ("put_if_absent", MOC),
        ("put_if_match", MANIFEST),
        ("put", "multiscales/1/zarr.json"),
        ("put", "multiscales/0/zarr.json"),
        ("put", "multiscales/zarr.json"),
        ("touch", "aggregation.yaml"),
    ]
    assert store.get(LEASE) is None
    assert shards_in(store) == ["111", "112"]
    assert document(store, MANIFEST)["pyramid"]["overviews"][1]["actuals"]["run_id"] == RUN
    assert store.get("aggregation.yaml") == b"a: 1\n"


def test_the_block_of_a_real_run_record(reference_store: ReferenceStore, store: ObjectStore) -> None:
    (path,) = reference_store("kitchen_sink", "post").glob("sweep_stats_*.json")
    expected = json.loads(path.read_bytes())["finisher"]
    store.put("aggregation.yaml", b"")
    assert json.dumps(run(store).to_json()) == json.dumps(expected)


def at_swap(store: ObjectStore, key: str, act: Callable[[], object], *, times: int = 1) -> FaultyStore:
    """``store``, where ``act`` happens between reading ``key`` and each of the first swaps of it."""
    left = times

    def plan(_number: int, _method: str, found: str) -> Fault | None:
        nonlocal left
        if found != key or left == 0:
            return None
        left -= 1
        return Fault(hook=act)

    return FaultyStore(store, plan, methods=("put_if_absent", "put_if_match"))


def cover(store: ObjectStore, *decimals: str) -> None:
    ranges = [[each, each] for each in decimals]
    whole = {"spec": "morton-moc/1", "encoding": "ranges", "order": 2, "ranges": ranges}
    store.put(MOC, json.dumps(whole).encode())


@pytest.mark.parametrize("exists", [False, True])
def test_a_writer_of_the_coverage_beside_us_loses_nothing(store: ObjectStore, exists: bool) -> None:
    if exists:
        cover(store, "444")
    run(at_swap(store, MOC, lambda: cover(store, "444", "-211")))
    assert shards_in(store) == ["111", "112", "444", "-211"]


def test_a_writer_of_the_manifest_beside_us_loses_nothing(store: ObjectStore) -> None:
    def add_a_key() -> None:
        store.put(MANIFEST, json.dumps(document(store, MANIFEST) | {"theirs": 1}).encode())

    run(at_swap(store, MANIFEST, add_a_key))
    found = document(store, MANIFEST)
    assert found["theirs"] == 1
    assert found["pyramid"]["overviews"][1]["actuals"]["run_id"] == RUN


def test_a_coverage_that_goes_away_meanwhile_is_made_anew(store: ObjectStore) -> None:
    cover(store, "444")
    run(at_swap(store, MOC, lambda: store.delete(MOC)))
    assert shards_in(store) == ["111", "112"]


def test_a_writer_that_never_rests_is_named(store: ObjectStore) -> None:
    # another version at each swap
    lengths = itertools.count(1)
    busy = at_swap(store, MOC, lambda: cover(store, *["444"] * next(lengths)), times=99)
    with pytest.raises(StoreUnavailableError) as caught:
        run(busy)
    assert MOC in caught.value.message
    assert store.root in caught.value.message
    assert store.get(LEASE) is not None


@pytest.mark.parametrize(
    ("raw", "said"), [(None, "is gone from"), (b"{", "truncated or damaged"), (b"{}", "zagg-pyramid/2")]
)
def test_a_manifest_that_went_bad_meanwhile(store: ObjectStore, raw: bytes | None, said: str) -> None:
    def spoil() -> None:
        store.delete(MANIFEST)
        if raw is not None:
            store.put(MANIFEST, raw)

    faulty = FaultyStore(
        store, lambda _n, _m, key: Fault(hook=spoil) if key == MOC else None, methods=("put_if_absent",)
    )
    with pytest.raises(DeclarationError, match=said) as caught:
        run(faulty)
    assert MANIFEST in caught.value.message
    # the coverage came first, and the lease stays
    assert shards_in(store) == ["111", "112"]
    assert store.get(LEASE) is not None
    assert store.get(MANIFEST) == raw


def test_an_empty_work_set_leaves_coverage_and_companion_group(store: ObjectStore) -> None:
    counting = CountingStore(store)
    done = run(counting, shards=SHARDS[:0])
    assert (done.root_moc, done.multiscales_group, done.manifest_updated) == (False, None, True)
    assert "multiscales_group" not in done.to_json()
    assert {key for method, key in counting.log if method.startswith("put")} == {MANIFEST}


def test_without_observations_the_manifest_is_not_written(store: ObjectStore) -> None:
    before = store.get(MANIFEST)
    assert run(store, actuals=Actuals()).manifest_updated is False
    assert store.get(MANIFEST) == before


def test_withheld_orders(store: ObjectStore) -> None:
    actuals = observed()
    actuals.observe(
        Level(node_order=0, cell_order=2),
        artifact="1|all",
        regime="x",
        merges_from_raw=1,
        counts=SourceCounts(),
    )
    done = run(store, actuals=actuals, withheld=(0, 1))
    assert done.to_json()["actuals_withheld"] == [1, 0]
    leaf, finer, coarser = document(store, MANIFEST)["pyramid"]["overviews"]
    assert "actuals" in leaf
    assert not {"actuals"} & (set(finer) | set(coarser))


@pytest.mark.parametrize(("all_time", "written"), [(True, True), (False, False)])
def test_a_windowed_store_has_the_group_for_its_all_time_fold(all_time: bool, written: bool) -> None:
    store = memory_store()
    store.put(MANIFEST, json.dumps(manifest_json(windowed=True, all_time=all_time)).encode())
    assert run(store).to_json()["multiscales_group"] is written
    assert (store.get("multiscales/zarr.json") is not None) == written


def failing(store: ObjectStore, method: str, error: SweepError) -> FaultyStore:
    return FaultyStore(store, lambda *_: Fault(before=error), methods=(method,))


@pytest.mark.parametrize("error", [AccessError("no permission"), StoreUnavailableError("no answer")])
def test_companion_group_and_touch_are_fail_open(store: ObjectStore, error: SweepError) -> None:
    done = run(failing(store, "put", error))
    assert (done.multiscales_group, done.lease_released) == (False, True)
    done = run(failing(store, "touch", error))
    assert (done.objects_touched, done.touch_failures, done.lease_released) == (0, 1, True)


@pytest.mark.parametrize("error", [LeaseLostError("lost"), ForeignWriteError("theirs")])
@pytest.mark.parametrize("method", ["put", "touch"])
def test_a_lost_lease_is_never_passed_over(store: ObjectStore, error: SweepError, method: str) -> None:
    with pytest.raises(type(error)):
        run(failing(store, method, error))
    assert store.get(LEASE) is not None


@pytest.mark.parametrize("method", ["put_if_absent", "put_if_match"])
def test_coverage_and_manifest_are_not_fail_open(store: ObjectStore, method: str) -> None:
    with pytest.raises(AccessError):
        run(failing(store, method, AccessError("no permission")))
    assert store.get(LEASE) is not None


@pytest.mark.parametrize("key", [MOC, MANIFEST])
def test_a_swap_whose_answer_was_lost_is_read_back(store: ObjectStore, key: str) -> None:
    def plan(_number: int, _method: str, found: str) -> Fault | None:
        return Fault(after=answer_lost(key)) if found == key else None

    done = run(FaultyStore(store, plan, methods=("put_if_absent", "put_if_match")))
    assert (done.root_moc, done.manifest_updated, done.lease_released) == (True, True, True)
    assert shards_in(store) == ["111", "112"]
    assert document(store, MANIFEST)["pyramid"]["overviews"][1]["actuals"]["run_id"] == RUN


@pytest.mark.parametrize("method", ["put_if_absent", "put_if_match"])
def test_a_swap_that_did_not_arrive_is_lost(store: ObjectStore, method: str) -> None:
    with pytest.raises(StoreUnavailableError, match="lost on purpose"):
        run(failing(store, method, answer_lost()))
    assert store.get(LEASE) is not None


class _At(CountingStore):
    """A store that says it stands elsewhere."""

    def __init__(self, inner: ObjectStore, root: str) -> None:
        super().__init__(inner)
        self._root = root

    @property
    def root(self) -> str:
        return self._root


@pytest.mark.parametrize(
    ("policy", "root", "expected"),
    [
        ("auto", "/data/store", (1, 0, 0)),
        ("auto", "s3://bucket/opendata", (1, 0, 0)),
        ("auto", "s3://some-opendata-bucket/store", (0, 0, 1)),
        ("always", "s3://some-opendata-bucket/store", (1, 0, 0)),
        ("never", "/data/store", (0, 0, 0)),
        ("never", "s3://some-opendata-bucket/store", (0, 0, 0)),
    ],
)
def test_touch_policies(store: ObjectStore, policy: Any, root: str, expected: tuple[int, int, int]) -> None:
    assert policy in TOUCH_POLICIES
    store.put("aggregation.yaml", b"")
    elsewhere = _At(store, root)
    done = run(elsewhere, touch_policy=policy)
    assert (done.objects_touched, done.touch_failures, done.touch_skipped_paths) == expected
    assert elsewhere.calls["touch"] == expected[0]
    assert ("touch_skipped_paths" in done.to_json()) == bool(expected[2])


def test_an_absent_object_is_no_touch_and_no_failure(store: ObjectStore) -> None:
    done = run(store)
    assert (done.objects_touched, done.touch_failures) == (0, 0)
