"""What a sweep does when the disk is full or read-only, the store goes away, or the lease is lost.

Source: semantics 3.6, 9.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.compare import compare_objects
from tests.support.processes import resume_command, run
from tests.support.small_stores import WIDTH, Objects, plain_store, windowed_store
from tests.support.stamps import broken_stamps
from tests.support.sweeping import START, loaded, objects_in, read_tree, sweep

from sweep.errors import AccessError, LeaseLostError, StoreUnavailableError, SweepError
from sweep.store.base import ObjectStore
from sweep.store.io import put_all
from sweep.store.open import open_store
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import READS, WRITES, Fault, FaultyStore

LEASE = "sweep.lease.json"
TTL_S = 900

type Build = Callable[[], Objects]


def swept(objects: Objects) -> Objects:
    store = loaded(objects)
    sweep(store, tuple_width=WIDTH)
    return objects_in(store)


# -- disks ------------------------------------------------------------------------------------


class Mount:
    """A file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.folder)], check=True)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """A file system in memory of 1 MiB; only root can mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "sweep-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here: the same faults are raised by a store below")
    try:
        yield Mount(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def on_disk(folder: Path, objects: Objects) -> ObjectStore:
    store = open_store(folder)
    put_all(store, objects.items())
    return store


@pytest.mark.slow
def test_a_full_disk(mount: Mount) -> None:
    root = mount.folder / "store"
    before = plain_store()
    on_disk(root, before)
    ballast = mount.folder / "ballast"
    free = os.statvfs(mount.folder).f_bavail * os.statvfs(mount.folder).f_frsize
    ballast.write_bytes(b"x" * (free - 48 * 1024))
    ended = run("local", str(root), "--scope", "all", "--tuple-width", str(WIDTH))
    assert ended.code == 6, ended.err
    assert "the disk is full: free some space and run again" in ended.err
    assert str(root) in ended.err
    assert "Traceback" not in ended.err
    torn = read_tree(root)
    assert broken_stamps(torn) == []
    assert {key: torn[key] for key in before} == before
    assert not [key for key in torn if ".sweep-tmp-" in key]
    ballast.unlink()
    mount.remount("size=64m")
    done = run(*resume_command(ended.err))
    assert done.code == 0, done.err
    assert compare_objects(swept(before), read_tree(root), same_runs=False) == []


@pytest.mark.slow
def test_a_disk_that_is_read_only(mount: Mount) -> None:
    mount.remount("size=64m")
    root = mount.folder / "store"
    on_disk(root, plain_store())
    mount.remount("ro")
    before = read_tree(root)
    ended = run("local", str(root), "--scope", "all")
    assert ended.code == 6, ended.err
    assert "mounted read-only: remount it for writing" in ended.err
    assert str(root) in ended.err
    assert read_tree(root) == before
    info = run("info", str(root))
    assert info.code == 0, info.err


# -- faults of a store ------------------------------------------------------------------------


def _full() -> SweepError:
    return AccessError("cannot write x: the disk is full: free some space and run again", kind="store-full")


def _read_only() -> SweepError:
    return AccessError("cannot write x: mounted read-only: remount it", kind="store-read-only")


def _gone() -> SweepError:
    return StoreUnavailableError("cannot read x: the store did not answer; check the network")


@pytest.mark.parametrize("build", [plain_store, windowed_store])
@pytest.mark.parametrize(
    ("make", "methods"), [(_full, WRITES), (_read_only, WRITES), (_gone, (*READS, *WRITES))]
)
@pytest.mark.parametrize("part", [0.3, 0.7])
def test_a_store_that_fails_from_some_call_on(
    build: Build, make: Callable[[], SweepError], methods: tuple[str, ...], part: float
) -> None:
    """The run ends soon, as each call of a store that is gone may take half a minute to fail."""
    before = build()
    calls = FaultyStore(loaded(before), lambda *_: None, methods=methods)
    sweep(calls, tuple_width=WIDTH)
    first = int(calls.numbered * part)
    store = loaded(before)
    faulty = FaultyStore(
        store, lambda number, *_: Fault(before=make()) if number >= first else None, methods=methods
    )
    with pytest.raises(type(make())) as caught:
        sweep(faulty, tuple_width=WIDTH, run_id="stage-first", clock=FakeClock(START))
    assert caught.value.message == make().message
    assert faulty.numbered - first < 8
    assert broken_stamps(objects_in(store)) == []
    assert json.loads(store.get(LEASE) or b"")["run_id"] == "stage-first"
    sweep(store, tuple_width=WIDTH, run_id="stage-first", clock=FakeClock(START))
    assert compare_objects(swept(before), objects_in(store), same_runs=False) == []


# -- the lease --------------------------------------------------------------------------------


def _other(store: ObjectStore) -> bytes:
    found = json.loads(store.get(LEASE) or b"")
    return json.dumps({**found, "run_id": "stage-other", "write_id": "theirs"}, indent=1).encode()


@pytest.mark.parametrize("number", [5, 60, 110])
def test_past_its_deadline_a_run_writes_nothing_more(number: int) -> None:
    store, clock = loaded(plain_store()), FakeClock(START)

    def lose() -> None:
        store.put(LEASE, _other(store))
        clock.advance(TTL_S)

    faulty = FaultyStore(store, lambda at, *_: Fault(hook=lose) if at == number else None)
    with pytest.raises(LeaseLostError) as caught:
        sweep(faulty, tuple_width=WIDTH, run_id="stage-ours", lease_ttl_s=TTL_S, clock=clock)
    assert "'stage-ours' no longer holds" in caught.value.message
    # the call that was in flight is the last one
    assert faulty.numbered == number
    assert json.loads(store.get(LEASE) or b"")["run_id"] == "stage-other"
    assert not [key for key in objects_in(store) if key.startswith("sweep_stats_")]
    assert broken_stamps(objects_in(store)) == []


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_a_lease_that_is_another_runs_ends_the_run_at_its_heartbeat(how: str) -> None:
    """No root object is written and nothing is released."""
    before = plain_store()
    store, clock = loaded(before), FakeClock(START)

    def lose() -> None:
        if how == "replaced":
            store.put(LEASE, _other(store))
        else:
            store.delete(LEASE)
        clock.advance(TTL_S / 2)

    faulty = FaultyStore(store, lambda at, *_: Fault(hook=lose) if at == 60 else None)
    with pytest.raises(LeaseLostError):
        sweep(faulty, tuple_width=WIDTH, run_id="stage-ours", lease_ttl_s=TTL_S, clock=clock)
    after = objects_in(store)
    for key in ("morton_hive.json", "coverage.moc"):
        assert after[key] == before[key]
    assert not [key for key in after if key.startswith(("multiscales/", "sweep_stats_"))]
    if how == "replaced":
        assert json.loads(after[LEASE])["run_id"] == "stage-other"
    else:
        assert LEASE not in after
