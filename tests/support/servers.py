"""Real S3 servers on this machine, each started on a free port and ended by its own process id."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

from sweep.store.open import StoreOptions, open_store
from sweep.store.remote import RemoteStore

__all__ = ["ACCESS", "S3Server", "ministack", "moto"]

ACCESS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}
_START_TIMEOUT_S = 60.0
_counter = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A running server.

    Attributes
    ----------
    endpoint : str
        Its ``http://`` address.
    atomic : bool
        Its conditional writes let one of several racing writers win.
    """

    name: str
    endpoint: str
    atomic: bool

    @property
    def options(self) -> StoreOptions:
        return StoreOptions(endpoint=self.endpoint, region="us-east-1", retries=2, timeout_s=20)

    def make_bucket(self) -> str:
        """A bucket that no other test has."""
        bucket = f"bucket-{os.getpid()}-{next(_counter)}"
        status = self._request("PUT", f"/{bucket}")
        assert status == 200, f"{self.name} answered {status} to the creation of a bucket"
        return bucket

    def open(self, prefix: str = "some/store", bucket: str | None = None) -> RemoteStore:
        """A store in a fresh bucket; credentials come from the environment (``ACCESS``)."""
        store = open_store(f"s3://{bucket or self.make_bucket()}/{prefix}", self.options)
        assert isinstance(store, RemoteStore)
        return store

    def _request(self, method: str, path: str) -> int:
        connection = HTTPConnection(self.endpoint.removeprefix("http://"), timeout=10)
        try:
            # These servers take an unsigned request for a new bucket.
            connection.request(method, path, headers={"Content-Length": "0"})
            return connection.getresponse().status
        finally:
            connection.close()


@contextlib.contextmanager
def moto(**env: str) -> Iterator[S3Server]:
    """moto's server: its conditional writes are checked, though not atomically."""
    port = _free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running("moto", command, port, env) as endpoint:
        yield S3Server(name="moto", endpoint=endpoint, atomic=False)


@contextlib.contextmanager
def ministack() -> Iterator[S3Server]:
    """ministack: conditional writes have one winner."""
    port = _free_port()
    env = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port)}
    with _running("ministack", [sys.executable, "-m", "ministack"], port, env) as endpoint:
        yield S3Server(name="ministack", endpoint=endpoint, atomic=True)


@contextlib.contextmanager
def _running(name: str, command: Sequence[str], port: int, env: Mapping[str, str]) -> Iterator[str]:
    process = subprocess.Popen(
        command,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_until_up(name, process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_up(name: str, process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with {process.returncode} before it answered")
        connection = HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/")
            if connection.getresponse().status < 500:
                return
        except (OSError, HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.05)
    raise RuntimeError(f"{name} did not answer within {_START_TIMEOUT_S:g} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
