"""Real processes that are killed, interrupted, stopped and set against each other on one store.

Source: semantics 1.1, 9.
"""

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.support.compare import compare_objects
from tests.support.processes import Ended, end, resume_command, run, start, wait_for
from tests.support.small_stores import Objects
from tests.support.stamps import broken_stamps
from tests.support.sweeping import loaded, objects_in, read_tree, sweep
from tests.support.synthetic import make_store

ALL = ("--scope", "all")


@pytest.fixture(scope="module")
def unswept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of dozens of artifacts, which takes a process long enough to be disturbed."""
    root = tmp_path_factory.mktemp("processes") / "store"
    return make_store(
        root,
        seed=9,
        n_shards=20,
        shard_order=4,
        cell_order=7,
        leaf_cells=(6,),
        fields=("both", "packed"),
    )


@pytest.fixture(scope="module")
def expected(unswept: Path) -> Objects:
    store = loaded(read_tree(unswept))
    sweep(store)
    return objects_in(store)


@pytest.fixture
def store(unswept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(unswept, tmp_path / "store", copy_function=shutil.copyfile)


def landmark(objects: Objects, kind: str) -> str:
    """One object of a kind, in the middle of those that a sweep writes."""
    keys = sorted(key for key in objects if key.endswith(kind))
    return keys[len(keys) // 2]


def assert_like(expected: Objects, root: Path) -> None:
    found = read_tree(root)
    assert broken_stamps(found) == []
    assert compare_objects(expected, found, same_runs=False) == []


KINDS = ("all.zarr/zarr.json", "all.stats.json", "composition/c/0", "multiscales/zarr.json")


@pytest.mark.parametrize(
    "kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])]
)
def test_sigkill_and_resume(expected: Objects, unswept: Path, store: Path, kind: str) -> None:
    before = read_tree(unswept)
    swept_only = {key: data for key, data in expected.items() if key not in before}
    mark = landmark(swept_only, kind)
    process = start("local", str(store), *ALL, "--run-id", "stage-killed")
    assert wait_for(process, store / mark)
    process.send_signal(signal.SIGKILL)
    assert end(process).code == -signal.SIGKILL
    assert broken_stamps(read_tree(store)) == []
    lease = store / "sweep.lease.json"
    # a run that is killed at its very end has given the store free
    assert not lease.exists() or json.loads(lease.read_bytes())["run_id"] == "stage-killed"
    # the same run again, in another process
    done = run("local", str(store), *ALL, "--run-id", "stage-killed")
    assert done.code == 0, done.err
    assert_like(expected, store)


def test_interrupted_says_how_to_resume(expected: Objects, unswept: Path, store: Path) -> None:
    mark = sorted(key for key in expected if key.endswith("/all.zarr/zarr.json"))[0]
    process = start("local", str(store), *ALL, "--tuple-width", "3")
    assert wait_for(process, store / mark)
    process.send_signal(signal.SIGINT)
    ended = end(process)
    assert ended.code == 130
    assert "interrupted" in ended.err
    assert "Traceback" not in ended.err
    command = resume_command(ended.err)
    held = json.loads((store / "sweep.lease.json").read_bytes())
    assert held["run_id"] == command[command.index("--run-id") + 1]
    (record,) = store.glob("sweep_stats_*_stages.json")
    assert json.loads(record.read_bytes())["error"].startswith("KeyboardInterrupt")
    done = run(*command)
    assert done.code == 0, done.err
    assert_like(expected, store)


@pytest.mark.slow
def test_sigterm_is_an_interrupt(store: Path, expected: Objects) -> None:
    process = start("local", str(store), *ALL)
    assert wait_for(process, store / "sweep.lease.json")
    process.send_signal(signal.SIGTERM)
    ended = end(process)
    assert ended.code == 130
    assert resume_command(ended.err)[:2] == ["local", str(store)]


@pytest.mark.slow
def test_the_second_of_two_is_told_who_holds_the_store(expected: Objects, store: Path) -> None:
    first = start("local", str(store), *ALL, "--run-id", "stage-first")
    assert wait_for(first, store / "sweep.lease.json")
    first.send_signal(signal.SIGSTOP)
    try:
        before = read_tree(store)
        second = run("local", str(store), *ALL, "--run-id", "stage-second")
        assert read_tree(store) == before
        info = run("info", str(store))
    finally:
        first.send_signal(signal.SIGCONT)
    held = json.loads(before["sweep.lease.json"])
    assert second.code == 3
    for named in ("stage-first", held["acquired_at"], held["heartbeat_at"], "900", "sweep unlock"):
        assert named in second.err
    assert info.code == 0
    assert "stage-first" in info.out
    assert end(first).code == 0
    assert_like(expected, store)


@pytest.mark.slow
def test_of_many_at_once_each_sweeps_or_is_refused(expected: Objects, store: Path) -> None:
    racing = [start("local", str(store), *ALL, "--run-id", f"stage-{number}") for number in range(3)]
    ended: list[Ended] = [end(process) for process in racing]
    codes = [each.code for each in ended]
    assert set(codes) <= {0, 3}
    assert 0 in codes
    for each in ended:
        if each.code == 3:
            assert "is held by run 'stage-" in each.err
    assert not (store / "sweep.lease.json").exists()
    assert_like(expected, store)


@pytest.mark.slow
def test_a_run_that_slept_past_its_lease_stops(store: Path) -> None:
    process = start("local", str(store), *ALL, "--run-id", "stage-asleep", "--lease-ttl", "3")
    assert wait_for(process, store / "sweep.lease.json")
    process.send_signal(signal.SIGSTOP)
    # another run takes over; it is long dead, as far as it can see
    lease = store / "sweep.lease.json"
    time.sleep(4)
    claimed = {**json.loads(lease.read_bytes()), "run_id": "stage-other", "claimed_from": "stage-asleep"}
    claimed["heartbeat_at"] = "2099-01-01T00:00:00+00:00"
    lease.write_text(json.dumps(claimed, indent=1))
    before = read_tree(store)
    process.send_signal(signal.SIGCONT)
    ended = end(process)
    assert ended.code == 5
    assert "stage-asleep" in ended.err
    assert "no longer holds" in ended.err
    after = read_tree(store)
    assert after["sweep.lease.json"] == before["sweep.lease.json"]
    # at most the one call that was in flight
    changed = {key for key in after.keys() | before.keys() if after.get(key) != before.get(key)}
    assert len({key for key in changed if not key.rpartition("/")[2].startswith(".sweep-")}) <= 1
