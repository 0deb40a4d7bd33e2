"""Leaves that are rewritten while a sweep reads them.

Source: semantics 8.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import pytest
from tests.support.compare import compare_objects
from tests.support.small_stores import Objects, below, plain_store, rewrite_leaf, two_leaves, windowed_store
from tests.support.stamps import broken_stamps, swept_artifacts
from tests.support.sweeping import START, loaded, objects_in, sweep

from sweep.errors import ForeignWriteError, SweepError
from sweep.stage.run import SweepSummary
from sweep.store.base import ObjectStore
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import READS, Fault, FaultyStore

# All levels in one tuple: leaf columns serve the gathers of orders 2 and 1, one after the other.
WIDTH = 3
TIMES = [f"2030-06-0{day}T00:00:00+00:00" for day in range(1, 8)]


def changed(objects: Objects, written_at: str = TIMES[0], stem: str = "all") -> Objects:
    """The store after a leaf was given other cells."""
    after = dict(objects)
    rewrite_leaf(after, *two_leaves(after, stem), written_at)
    return after


def swept(objects: Objects) -> Objects:
    store = loaded(objects)
    sweep(store, tuple_width=WIDTH, run_id="stage-undisturbed", clock=FakeClock(START))
    return objects_in(store)


def replace_leaf(store: ObjectStore, leaf: str, objects: Objects) -> None:
    """Put the leaf column of ``objects`` into ``store``, at once."""
    for info in list(store.list(leaf)):
        store.delete(info.key)
    for key, data in below(objects, leaf).items():
        store.put(key, data)


class Moving:
    """A store in which a leaf becomes another version before reads of a key, one version each time."""

    def __init__(
        self, objects: Objects, leaf: str, before_reads_of: str, versions: Sequence[Objects]
    ) -> None:
        self.plain = loaded(objects)
        self.left = list(versions)
        self._leaf = leaf
        self._key = before_reads_of
        self._store = FaultyStore(self.plain, self._plan, methods=READS)

    def _plan(self, _number: int, _method: str, key: str) -> Fault | None:
        return Fault(hook=self._move) if key == self._key else None

    def _move(self) -> None:
        if self.left:
            replace_leaf(self.plain, self._leaf, self.left.pop(0))

    def sweep(self) -> SweepSummary:
        return sweep(self._store, tuple_width=WIDTH, run_id="stage-first", clock=FakeClock(START))


def node_chunks(objects: Objects, artifact: str) -> Objects:
    return {key: data for key, data in below(objects, artifact).items() if "/c/" in key}


def heals(store: ObjectStore, final: Objects) -> None:
    """The next run ends where a sweep of the final leaves ends."""
    sweep(store, tuple_width=WIDTH, run_id="stage-next", clock=FakeClock(START.replace(year=2031)))
    assert compare_objects(swept(final), objects_in(store), same_runs=False) == []


def test_rewritten_before_it_served() -> None:
    before = plain_store()
    leaf, _ = two_leaves(before)
    after = changed(before)
    moving = Moving(before, leaf, f"{leaf}/4/count/c/0", [after])
    summary = moving.sweep()
    assert summary.tally.revalidated == 1
    assert summary.tally.failed == 0
    # the root was opened under the old stamp, and everything was read under the new one
    assert compare_objects(swept(after), objects_in(moving.plain), same_runs=False) == []


def test_rewritten_after_it_served() -> None:
    before = plain_store()
    leaf, _ = two_leaves(before)
    after = changed(before)
    moving = Moving(before, leaf, f"{leaf}/3/count/c/0", [after])
    summary = moving.sweep()
    assert (summary.tally.failed, summary.tally.revalidated) == (0, 0)
    found, old, new = objects_in(moving.plain), swept(before), swept(after)
    base, one, two, _, _ = leaf.split("/")
    fine, coarse = f"{base}/{one}/{two}/all.zarr", f"{base}/{one}/all.zarr"
    assert node_chunks(old, fine) != node_chunks(new, fine)
    assert node_chunks(old, coarse) != node_chunks(new, coarse)
    # order 2 was folded before the leaf moved; order 1 was folded a second time
    assert node_chunks(found, fine) == node_chunks(old, fine)
    assert node_chunks(found, coarse) == node_chunks(new, coarse)
    assert broken_stamps(found) == []
    heals(moving.plain, after)


def test_rewritten_again_while_it_is_folded_again() -> None:
    before = plain_store()
    leaf, _ = two_leaves(before)
    # once after it served, and then at each of the three attempts of its fresh reader
    versions = [changed(before, at) for at in TIMES[:4]]
    moving = Moving(before, leaf, f"{leaf}/3/count/c/0", versions)
    summary = moving.sweep()
    assert summary.tally.failed == 1
    assert f"{leaf} was rewritten" in summary.problems[0]
    base, one, *_ = leaf.split("/")
    found = objects_in(moving.plain)
    assert f"{base}/{one}/all.zarr/zarr.json" not in found
    assert broken_stamps(found) == []
    assert moving.left == []
    (row,) = summary.record["stages"]
    assert row["failed"] == 1
    heals(moving.plain, versions[-1])


def test_rewritten_by_another_run_while_it_is_read_aborts() -> None:
    before = plain_store()
    leaf, _ = two_leaves(before)
    after = changed(before)
    document = json.loads(after[f"{leaf}/zarr.json"])
    document["attributes"]["morton_hive_commit"]["run_id"] = "stage-other"
    after[f"{leaf}/zarr.json"] = json.dumps(document, indent=2).encode()
    moving = Moving(before, leaf, f"{leaf}/4/count/c/0", [after])
    with pytest.raises(ForeignWriteError, match="stage-other"):
        moving.sweep()


def _steps(
    store: ObjectStore, leaf: str, after: Objects, rng: random.Random
) -> Iterator[Callable[[], object]]:
    """How a writer replaces a leaf: the stamp goes first and comes last, the rest in any order."""
    root = f"{leaf}/zarr.json"
    new = below(after, leaf)
    old = [info.key for info in store.list(leaf)]
    changes: list[Callable[[], object]] = [
        lambda key=key: store.delete(key)  # type: ignore[misc]
        for key in old
        if key not in new
    ]
    changes += [
        lambda key=key, data=data: store.put(key, data)  # type: ignore[misc]
        for key, data in new.items()
        if key != root
    ]
    rng.shuffle(changes)
    yield lambda: store.delete(root)
    yield from changes
    yield lambda: store.put(root, new[root])


def check_torn_reads(build: Callable[[], Objects], stem: str, start: int, seed: int) -> None:
    """From the ``start``-th read on, a writer takes some steps before each read."""
    before = build()
    after = changed(before, stem=stem)
    leaf, _ = two_leaves(before, stem)
    rng = random.Random(seed)
    plain = loaded(before)
    steps = _steps(plain, leaf, after, rng)

    def plan(number: int, _method: str, _key: str) -> Fault | None:
        taken = list(islice(steps, rng.choice([0, 1, 1, 2, 5]))) if number >= start else []
        return Fault(hook=lambda: [step() for step in taken])

    store = FaultyStore(plain, plan, methods=READS)
    try:
        sweep(store, tuple_width=WIDTH, run_id="stage-first", clock=FakeClock(START))
    except SweepError as error:  # the leaf was damaged for too long, and a message says which
        said = error.message
        assert leaf in said, said
    for step in steps:
        step()
    found = objects_in(plain)
    assert broken_stamps(found) == []
    worlds = [swept(world) for world in (before, after, _without(before, leaf))]
    for artifact in swept_artifacts(found):
        chunks = node_chunks(found, artifact)
        assert any(chunks == node_chunks(world, artifact) for world in worlds), artifact
    if "stage-first" in (plain.get("sweep.lease.json") or b"").decode():
        sweep(plain, tuple_width=WIDTH, run_id="stage-first", clock=FakeClock(START))
    heals(plain, after)


def _without(objects: Objects, leaf: str) -> Objects:
    return {key: data for key, data in objects.items() if not key.startswith(f"{leaf}/")}


@pytest.mark.parametrize("start", [5, 12, 20, 28, 40, 60])
def test_torn_reads_never_end_in_an_artifact(start: int) -> None:
    check_torn_reads(plain_store, "all", start, seed=start)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("build", "stem"), [(plain_store, "all"), (windowed_store, "2019")])
def test_torn_reads_at_any_moment(build: Callable[[], Objects], stem: str, short: bool) -> None:
    rng = random.Random(3)
    for turn in range(15 if short else 100):
        check_torn_reads(build, stem, rng.randrange(1, 160), seed=turn)
