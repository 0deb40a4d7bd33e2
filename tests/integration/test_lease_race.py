"""Many contenders for one lease at the same moment, in threads and in real processes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support import servers

from sweep.control.lease import LEASE_KEY, Lease, read_holder
from sweep.errors import LeaseHeldError
from sweep.store.base import ObjectStore
from sweep.store.open import open_store

N_CONTENDERS = 8
N_ROUNDS = 6
_names = itertools.count()

# One contender: says "ready", waits for a line, tries, says how it went, and ends when told.
_CONTENDER = """
import sys, time, uuid
from datetime import UTC, datetime
from sweep.control.lease import Lease
from sweep.errors import LeaseHeldError
from sweep.store.open import open_store

class RealClock:
    def now(self): return datetime.now(UTC)
    def monotonic(self): return time.monotonic()
    def sleep(self, seconds): time.sleep(seconds)

store = open_store(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    try:
        lease = Lease.acquire(
            store, run_id=sys.argv[2], ttl_s=60, clock=RealClock(), new_id=lambda: uuid.uuid4().hex
        )
    except LeaseHeldError as error:
        print("held by", error.context["holder"].run_id, flush=True)
    else:
        lease.check()
        print("won", flush=True)
        sys.stdin.readline()
        print(lease.release(), flush=True)
"""


class RealClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture(scope="module")
def ministack_server() -> Iterator[servers.S3Server]:
    with servers.ministack() as server:
        yield server


@pytest.fixture(params=["memory", "local", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    if request.param == "memory":
        return open_store(f"memory://race-{next(_names)}")
    if request.param == "local":
        return open_store(tmp_path / "store")
    for name, value in servers.ACCESS.items():
        monkeypatch.setenv(name, value)
    server: servers.S3Server = request.getfixturevalue("ministack_server")
    return server.open()


def _acquire(store: ObjectStore, run_id: str) -> Lease:
    return Lease.acquire(store, run_id=run_id, ttl_s=60, clock=RealClock(), new_id=lambda: uuid.uuid4().hex)


@pytest.mark.parametrize("found", ["nothing", "expired", "debris"])
def test_one_of_many_threads_wins(store: ObjectStore, found: str) -> None:
    expired = (
        b'{"spec": "zagg-sweep-lease/1", "run_id": "dead", "scope": null, "ttl_s": 900, '
        b'"acquired_at": "2020-01-01T00:00:00+00:00", "heartbeat_at": "2020-01-01T00:00:00+00:00"}'
    )
    for _ in range(N_ROUNDS):
        if found != "nothing":
            store.put(LEASE_KEY, expired if found == "expired" else b"{")
        barrier = threading.Barrier(N_CONTENDERS)

        def contend(number: int, barrier: threading.Barrier = barrier) -> Lease | str:
            barrier.wait()
            try:
                return _acquire(store, f"run-{number}")
            except LeaseHeldError as error:
                return str(error.context["holder"].run_id)

        with ThreadPoolExecutor(N_CONTENDERS) as pool:
            outcomes = list(pool.map(contend, range(N_CONTENDERS)))
        winners = [outcome for outcome in outcomes if isinstance(outcome, Lease)]
        assert len(winners) == 1
        (winner,) = winners
        winner.check()
        assert winner.claimed_from == ("dead" if found == "expired" else None)
        assert {outcome for outcome in outcomes if isinstance(outcome, str)} == {winner.run_id}
        assert winner.release() is True
        assert read_holder(store) is None


def test_workers_of_one_run_share_it(store: ObjectStore) -> None:
    first = _acquire(store, "run")
    barrier = threading.Barrier(N_CONTENDERS)

    def join(_: int) -> Lease:
        barrier.wait()
        return _acquire(store, "run")

    with ThreadPoolExecutor(N_CONTENDERS) as pool:
        leases = list(pool.map(join, range(N_CONTENDERS)))
    for lease in leases:
        lease.check()
        assert lease.readmitted
        assert lease.acquired_at == first.acquired_at
    assert first.release() is True


@pytest.mark.parametrize("place", ["local", pytest.param("s3", marks=pytest.mark.s3)])
def test_one_of_many_processes_wins(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    address = str(tmp_path / "store")
    if place == "s3":
        server: servers.S3Server = request.getfixturevalue("ministack_server")
        for name, value in {**servers.ACCESS, "AWS_ENDPOINT_URL": server.endpoint}.items():
            monkeypatch.setenv(name, value)
        address = f"s3://{server.make_bucket()}/some/store"
    contenders = [
        subprocess.Popen(
            [sys.executable, "-c", _CONTENDER, address, f"run-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    try:
        assert [_said(contender) for contender in contenders] == ["ready"] * 4
        for _ in range(N_ROUNDS):
            for contender in contenders:
                _tell(contender)
            outcomes = [_said(contender) for contender in contenders]
            assert outcomes.count("won") == 1
            winner = outcomes.index("won")
            assert set(outcomes) == {"won", f"held by run-{winner}"}
            _tell(contenders[winner])
            assert _said(contenders[winner]) == "True"
    finally:
        for contender in contenders:
            contender.kill()
            contender.communicate()


def _tell(contender: subprocess.Popen[str]) -> None:
    assert contender.stdin is not None
    contender.stdin.write("go\n")
    contender.stdin.flush()


def _said(contender: subprocess.Popen[str]) -> str:
    assert contender.stdout is not None
    return contender.stdout.readline().strip()
