"""A run that ends at any store call leaves a valid store, and the next run ends where one run would have.

Source: semantics 1.1, 7.5, 9; format 7.5.
"""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.compare import compare_objects
from tests.support.small_stores import (
    WIDTH,
    Objects,
    plain_store,
    rewrite_leaf,
    two_leaves,
    windowed_store,
)
from tests.support.stamps import broken_stamps, swept_artifacts
from tests.support.sweeping import START, loaded, objects_in, sweep

from sweep.errors import AccessError, StoreUnavailableError, SweepError
from sweep.store.base import ObjectStore
from sweep.store.io import put_all
from sweep.store.local import LocalStore
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import READS, WRITES, Fault, FaultyStore

TTL_S = 900
_SPLIT = re.compile(rb'"missing": (\d+),\s*"unreadable": (\d+)')
RUN = "stage-first"


class Killed(BaseException):
    """The process is gone: nothing of the package may catch this."""


def changed_store() -> Objects:
    """A store that was swept, and then a leaf was rewritten."""
    store = loaded(plain_store())
    sweep(store, tuple_width=WIDTH, run_id="stage-earlier", clock=FakeClock(START.replace(year=2029)))
    objects = {key: data for key, data in objects_in(store).items() if not key.startswith("sweep_stats_")}
    rewrite_leaf(objects, *two_leaves(objects), "2029-06-01T00:00:00+00:00")
    return objects


STORES: dict[str, Callable[[], Objects]] = {
    "plain": plain_store,
    "windowed": windowed_store,
    "changed": changed_store,
}


@pytest.fixture(scope="module")
def undisturbed() -> Callable[[str], tuple[Objects, Objects, int]]:
    """Gives a store before and after one sweep, and how many calls of the sweep change an object."""
    known: dict[str, tuple[Objects, Objects, int]] = {}

    def get(name: str) -> tuple[Objects, Objects, int]:
        if name not in known:
            before = STORES[name]()
            store = FaultyStore(loaded(before), lambda *_: None)
            summary = sweep(store, tuple_width=WIDTH, run_id=RUN, clock=FakeClock(START))
            assert summary.tally.written >= 3
            assert summary.tally.columns_written > 0
            known[name] = before, objects_in(store), store.numbered
        return known[name]

    return get


def points(total: int, count: int) -> list[int]:
    """Some calls of the run, and the last ones, where root objects and the lease are written."""
    return sorted({*random.Random(total).sample(range(1, total - 5), count), *range(total - 5, total + 1)})


def assert_valid(objects: Objects) -> None:
    """No stamp lies, and the root objects can be read."""
    assert broken_stamps(objects) == []
    for key in ("morton_hive.json", "coverage.moc"):
        json.loads(objects[key])


def crash(store: ObjectStore, clock: FakeClock, fail: Callable[[int], Fault | None]) -> FaultyStore:
    """Sweep until the fault, which ends the run."""
    faulty = FaultyStore(store, lambda number, *_: fail(number))
    with pytest.raises(Killed):
        sweep(faulty, tuple_width=WIDTH, run_id=RUN, lease_ttl_s=TTL_S, clock=clock)
    return faulty


def resume(store: ObjectStore, clock: FakeClock, how: str) -> None:
    """Run again under the same id, or under another when the ttl has passed."""
    if how == "same id":
        sweep(store, tuple_width=WIDTH, run_id=RUN, clock=clock)
    else:
        clock.advance(TTL_S + 1)
        sweep(store, tuple_width=WIDTH, run_id="stage-second", clock=clock)


def check_killed(store: ObjectStore, number: int, how: str, after: Objects) -> None:
    clock = FakeClock(START)
    crash(store, clock, lambda at: Fault(before=Killed()) if at == number else None)
    assert_valid(objects_in(store))
    clock.advance(2)
    resume(store, clock, how)
    end = objects_in(store)
    assert_valid(end)
    assert compare_objects(after, end, same_runs=False) == []


type Undisturbed = Callable[[str], tuple[Objects, Objects, int]]


@pytest.mark.parametrize("how", ["same id", "past the ttl"])
@pytest.mark.parametrize("name", STORES)
def test_killed_before_a_write(undisturbed: Undisturbed, name: str, how: str) -> None:
    before, after, total = undisturbed(name)
    for number in points(total, count=4):
        check_killed(loaded(before), number, how, after)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", ["same id", "past the ttl"])
@pytest.mark.parametrize("name", STORES)
def test_killed_before_any_write(undisturbed: Undisturbed, short: bool, name: str, how: str) -> None:
    before, after, total = undisturbed(name)
    for number in points(total, count=40) if short else range(1, total + 1):
        check_killed(loaded(before), number, how, after)


@pytest.mark.parametrize("how", ["same id", "past the ttl"])
def test_killed_on_a_local_disk(undisturbed: Undisturbed, tmp_path: Path, how: str) -> None:
    before, after, total = undisturbed("changed")
    for number in (total // 3, total - 2):
        store = LocalStore(str(tmp_path / str(number)))
        put_all(store, before.items())
        check_killed(store, number, how, after)


def test_killed_twice(undisturbed: Undisturbed) -> None:
    """The second attempt dies as well, where it overwrites what the first one wrote."""
    before, after, total = undisturbed("changed")
    for first in random.Random(7).sample(range(3, total - 3), 2):
        for second in (4, total // 3):
            store, clock = loaded(before), FakeClock(START)
            for number in (first, second):
                faulty = FaultyStore(
                    store, lambda at, *_, number=number: Fault(before=Killed()) if at == number else None
                )
                try:
                    sweep(faulty, tuple_width=WIDTH, run_id=RUN, clock=clock)
                except Killed:
                    assert_valid(objects_in(store))
                clock.advance(2)
            resume(store, clock, "same id")
            assert compare_objects(after, objects_in(store), same_runs=False) == []


def _denied() -> SweepError:
    return AccessError("the disk is full, on purpose", kind="store-full")


def _unavailable() -> SweepError:
    return StoreUnavailableError("no answer, on purpose")


@pytest.mark.parametrize("methods", [WRITES, READS], ids=["writes", "reads"])
@pytest.mark.parametrize("refusal", [_denied, _unavailable])
@pytest.mark.parametrize("name", STORES)
def test_one_call_fails(
    undisturbed: Undisturbed, name: str, refusal: Callable[[], SweepError], methods: tuple[str, ...]
) -> None:
    """The run ends in an error or counts a failure, never in silence; the next one heals."""
    before, after, _ = undisturbed(name)
    total = _count(before, methods)
    for number in random.Random(name).sample(range(1, total + 1), 6):
        store, clock = loaded(before), FakeClock(START)
        faulty = FaultyStore(
            store,
            lambda at, *_, number=number: Fault(before=refusal()) if at == number else None,
            methods=methods,
        )
        said = _what_was_said(faulty, clock)
        assert faulty.numbered >= number
        assert said is None or "on purpose" in said
        assert_valid(objects_in(store))
        clock.advance(2)
        resume(store, clock, "same id")
        end = objects_in(store)
        assert compare_objects(_lost(after), _lost(end), same_runs=False) == []


def _lost(objects: Objects) -> Objects:
    """Count missing and unreadable sources as one.

    A column that is not there was counted unreadable where its read was denied. Neither count is
    looked at by the skip gate (semantics 7.2), so the artifact keeps it.
    """
    return {key: _SPLIT.sub(_sum, data) for key, data in objects.items()}


def _sum(found: re.Match[bytes]) -> bytes:
    return b'"lost": %d' % (int(found[1]) + int(found[2]))


def _what_was_said(store: ObjectStore, clock: FakeClock) -> str | None:
    """The message of the error or of the problem that a sweep ended with; None where it had none."""
    try:
        summary = sweep(store, tuple_width=WIDTH, run_id=RUN, clock=clock)
    except SweepError as error:
        return error.message
    return "\n".join(summary.problems) or None


def _count(objects: Objects, methods: tuple[str, ...]) -> int:
    store = FaultyStore(loaded(objects), lambda *_: None, methods=methods)
    sweep(store, tuple_width=WIDTH, run_id=RUN, clock=FakeClock(START))
    return store.numbered


def test_the_check_of_stamps_sees_a_changed_chunk(undisturbed: Undisturbed) -> None:
    """Without this, the property above could hold for no reason."""
    _, after, _ = undisturbed("plain")
    assert len(swept_artifacts(after)) > 8
    chunk = next(key for key in sorted(after) if "/all.zarr/" in key and key.endswith("/count/c/0"))
    torn = {**after, chunk: after[chunk][:-1] + b"\x7f"}
    assert broken_stamps(torn) == [f"{chunk.removesuffix('/c/0')}: its content is not what the stamp says"]
    gone = {key: data for key, data in after.items() if key != chunk}
    assert len(broken_stamps(gone)) == 1
