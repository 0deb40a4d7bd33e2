"""A Dask cluster that is not there, goes away, or has more than one worker."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.dask_local import dask_cluster

from sweep.errors import AccessError
from sweep.fleet.dask_cluster import DaskTransport
from sweep.fleet.transport import Delivery, Envelope
from sweep.testing.recording import Notes
from sweep.testing.waiting import eventually

RECORDER = "sweep.testing.recording:recorder"


def test_an_address_where_nobody_answers_is_said_to_be_so() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(AccessError, match="cannot be reached") as caught:
        DaskTransport(address, connect_s=0.3)
    assert address in str(caught.value)
    assert caught.value.kind == "dask-unreachable"


@pytest.mark.slow
def test_workers_count_and_run_side_by_side(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    names = ("one", "two")
    with dask_cluster(2) as scheduler, closing(DaskTransport(scheduler, handler=RECORDER)) as transport:
        assert transport.limits.workers == 2
        transport.submit([Envelope(key=name, payload=notes.event(name, "hold")) for name in names])
        eventually(lambda: all(map(notes.pids, names)))
        assert notes.pids("one") != notes.pids("two")
        for name in names:
            notes.release(name)
        eventually(lambda: transport.pending() == 0)


@pytest.mark.slow
def test_events_on_a_cluster_that_goes_away_are_lost(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    with dask_cluster() as scheduler:
        transport = DaskTransport(scheduler, handler=RECORDER)
        (outcome,) = transport.submit([Envelope(key="runs", payload=notes.event("runs", "hold"))])
        assert outcome.delivery is Delivery.ACCEPTED
        eventually(lambda: notes.seen("runs"))
    notes.release("runs")
    (lost,) = eventually(transport.lost, timeout_s=60)
    assert (lost.key, lost.cause) == ("runs", "dropped")
    assert transport.pending() == 0
    with pytest.raises(AccessError, match="cannot be reached"):
        transport.submit([Envelope(key="late", payload=notes.event("late"))])
    transport.close(cancel=True)
