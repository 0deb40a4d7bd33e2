"""Every transport against the shipped contract: real processes, and real boto3 over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.dask_local import dask_cluster
from tests.support.invoke_server import InvokeServer, invoke_server
from tests.support.servers import ACCESS
from tests.support.sweeping import make_runtime

from sweep.fleet.aws_lambda import LambdaTransport, lambda_client
from sweep.fleet.dask_cluster import DaskTransport
from sweep.fleet.inline import InlineTransport
from sweep.fleet.opening import Opener
from sweep.fleet.processes import ProcessesTransport
from sweep.fleet.transport import Transport
from sweep.stage.batch import Worker
from sweep.testing.recording import record
from sweep.testing.transport_contract import TransportContract


class TestInline(TransportContract):
    name = "inline"
    is_asynchronous = False
    kills = ("raise",)
    crosses_processes = False

    @pytest.fixture
    def transport(self) -> Transport:
        worker = Worker(runtime=make_runtime(), open_store=Opener())
        return InlineTransport(worker, handler=record)


class TestProcesses(TransportContract):
    name = "processes"

    @pytest.fixture
    def transport(self) -> Iterator[Transport]:
        transport = ProcessesTransport(1, handler="sweep.testing.recording:recorder")
        transport.stop_grace_s = 0.1
        yield transport
        transport.close(cancel=True)


@pytest.fixture(scope="module")
def invoked() -> Iterator[tuple[InvokeServer, Any]]:
    with pytest.MonkeyPatch.context() as patch, invoke_server() as server:
        for name, value in ACCESS.items():
            patch.setenv(name, value)
        client = lambda_client(endpoint_url=server.endpoint)
        yield server, client
        client.close()


class TestLambda(TransportContract):
    name = "lambda"
    knows_pending = False
    kills = ()
    drops = False

    @pytest.fixture
    def transport(self, invoked: tuple[InvokeServer, Any]) -> Iterator[Transport]:
        server, client = invoked
        server.forget()
        server.work = record
        transport = LambdaTransport("sweep-worker", client=client)
        yield transport
        transport.close(cancel=True)


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    with dask_cluster() as address:
        yield address


class TestDask(TransportContract):
    name = "dask"
    patience_s = 60.0

    @pytest.fixture
    def transport(self, scheduler: str) -> Iterator[Transport]:
        transport = DaskTransport(scheduler, handler="sweep.testing.recording:recorder")
        yield transport
        transport.close(cancel=True)
