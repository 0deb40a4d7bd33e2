"""Every store adapter against the shipped contract; S3 is a real HTTP server on this machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import servers

from sweep.store.base import ObjectStore
from sweep.store.open import open_store
from sweep.testing.stores_contract import StoreContract, StoreRaceContract

_names = itertools.count()


class TestMemory(StoreContract, StoreRaceContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return open_store(f"memory://contract-{next(_names)}")


class TestMemoryBelowAPrefix(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        neighbour = open_store(f"memory://contract-{next(_names)}")
        neighbour.put("some/storefront", b"not of this store")
        return open_store(f"{neighbour.root}/some/store")


class TestLocal(StoreContract, StoreRaceContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return open_store(tmp_path / "store")


@pytest.fixture
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in servers.ACCESS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def moto_server() -> Iterator[servers.S3Server]:
    with servers.moto() as server:
        yield server


@pytest.fixture(scope="module")
def ministack_server() -> Iterator[servers.S3Server]:
    with servers.ministack() as server:
        yield server


@pytest.mark.s3
class TestS3OnMoto(StoreContract):
    @pytest.fixture
    def store(self, moto_server: servers.S3Server, _credentials: None) -> ObjectStore:
        return moto_server.open()


@pytest.mark.s3
class TestS3OnMinistack(StoreContract, StoreRaceContract):
    @pytest.fixture
    def store(self, ministack_server: servers.S3Server, _credentials: None) -> ObjectStore:
        return ministack_server.open()
