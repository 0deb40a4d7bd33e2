"""Small swept stores for tests of reading."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.support.sweeping import read_tree, sweep_folder
from tests.support.synthetic import make_store


@pytest.fixture(scope="session")
def unswept(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """The objects of a store of six leaves before any sweep."""
    return read_tree(make_store(tmp_path_factory.mktemp("unswept") / "store", seed=11, n_shards=6))


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """The objects of the same store, swept."""
    root = make_store(tmp_path_factory.mktemp("swept") / "store", seed=11, n_shards=6)
    sweep_folder(root)
    return read_tree(root)


@pytest.fixture(scope="session")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """The objects of a swept store with two windows and an all-time fold."""
    root = make_store(
        tmp_path_factory.mktemp("windowed") / "store", seed=12, n_shards=4, windows=("2019", "2020")
    )
    sweep_folder(root)
    return read_tree(root)


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """The objects of a swept store of two dozen small leaves."""
    root = make_store(tmp_path_factory.mktemp("many") / "store", seed=13, n_shards=24, fields=("exact",))
    sweep_folder(root)
    return read_tree(root)
