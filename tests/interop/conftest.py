"""Fixtures of the tests that start the peer program."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.programs import Peer, peer_python
from tests.support.synthetic import StoreSpec, write_store

type Build = Callable[[StoreSpec], Path]


@pytest.fixture(scope="session")
def peer() -> Peer:
    """The peer program; where it is not installed, tests are skipped or fail as asked."""
    python = peer_python()
    if python.exists():
        return Peer(python=python)
    absent = f"the peer's interpreter {python} does not exist: run `make interop`, or set SWEEP_PEER_PYTHON"
    if os.environ.get("SWEEP_REQUIRE_INTEROP") == "1":
        pytest.fail(absent)
    pytest.skip(absent)


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Builds the store of a spec once; to be copied, not written."""
    built: dict[StoreSpec, Path] = {}

    def store(spec: StoreSpec) -> Path:
        if spec not in built:
            built[spec] = write_store(tmp_path_factory.mktemp("built") / "store", spec)
        return built[spec]

    return store
