"""Whole stores swept over each transport, against the store that the reference left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from tests.reference import ReferenceStore
from tests.support.compare import compare_objects, node_objects
from tests.support.dask_local import dask_cluster
from tests.support.invoke_server import invoke_server
from tests.support.servers import ACCESS
from tests.support.sweeping import make_runtime
from tests.support.waves import drained, run_waves

from sweep.fleet._handling import handler_of
from sweep.fleet.aws_lambda import LambdaTransport, lambda_client
from sweep.fleet.dask_cluster import DaskTransport
from sweep.fleet.inline import InlineTransport
from sweep.fleet.opening import Opener
from sweep.fleet.processes import ProcessesTransport
from sweep.fleet.transport import Delivery, Envelope
from sweep.stage.batch import Worker
from sweep.testing.waiting import eventually

type Send = Callable[[list[Envelope]], None]


def worker() -> Worker:
    return Worker(runtime=make_runtime(), open_store=Opener())


@contextmanager
def inline() -> Iterator[Send]:
    with closing(InlineTransport(worker())) as transport:
        yield drained(transport)


@contextmanager
def processes() -> Iterator[Send]:
    with closing(ProcessesTransport(2)) as transport:
        yield drained(transport)


@contextmanager
def dask() -> Iterator[Send]:
    with dask_cluster(2) as scheduler, closing(DaskTransport(scheduler)) as transport:
        yield drained(transport)


@contextmanager
def invoked() -> Iterator[Send]:
    """A function on loopback that runs the worker after it has answered."""
    handle = handler_of(worker())
    n_done = 0

    def work(payload: bytes) -> None:
        nonlocal n_done
        handle(payload)
        n_done += 1

    def send(wave: list[Envelope]) -> None:
        nonlocal n_done
        n_done = 0
        assert {each.delivery for each in transport.submit(wave)} == {Delivery.ACCEPTED}
        eventually(lambda: n_done == len(wave), timeout_s=60)

    with pytest.MonkeyPatch.context() as patch, invoke_server() as server:
        server.work = work
        for name, value in ACCESS.items():
            patch.setenv(name, value)
        with (
            closing(lambda_client(endpoint_url=server.endpoint)) as client,
            closing(LambdaTransport("sweep-worker", client=client)) as transport,
        ):
            yield send


@pytest.mark.parametrize(
    "sender",
    [
        inline,
        processes,
        pytest.param(dask, marks=pytest.mark.slow),
        pytest.param(invoked, marks=pytest.mark.slow),
    ],
)
def test_a_store_swept_over_a_transport_equals_the_references(
    reference_store: ReferenceStore, sender: Callable[[], AbstractContextManager[Send]]
) -> None:
    root = reference_store("kitchen_sink", "pre")
    with sender() as send:
        run_waves(root, send)
    expected = node_objects(reference_store("kitchen_sink", "post"))
    assert len(expected) > 100
    assert compare_objects(expected, node_objects(root), same_runs=True) == []


def test_the_comparison_sees_a_wave_that_was_not_run(reference_store: ReferenceStore, tmp_path: Path) -> None:
    root = reference_store("kitchen_sink", "pre")
    waves: list[list[Envelope]] = []
    with inline() as send:
        run_waves(root, lambda wave: send(wave) if waves else waves.append(wave))
    expected = node_objects(reference_store("kitchen_sink", "post"))
    assert compare_objects(expected, node_objects(root), same_runs=True) != []
