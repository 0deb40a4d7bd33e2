"""Fixtures for every test: reference stores, their comparison, and the short form of long tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests import reference
from tests.reference import CompareStores, CopyMode, Kind, ReferenceStore

REQUIRED = os.environ.get("SWEEP_REQUIRE_SHARED") == "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--short", action="store_true", help="run long tests in their short form")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "shared_root" in getattr(item, "fixturenames", ()):
            item.add_marker("shared")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where the reference stores stand, a test that needs them and was skipped has failed."""
    report = yield
    if REQUIRED and report.skipped and item.get_closest_marker("shared") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"SWEEP_REQUIRE_SHARED is set, but this test was skipped: {reason}"
    return report


@pytest.fixture(scope="session")
def short(request: pytest.FixtureRequest) -> bool:
    """Whether long tests should take their short form."""
    return bool(request.config.getoption("--short"))


@pytest.fixture(scope="session")
def shared_root() -> Path:
    """The folder of reference stores; the test is skipped in a clone that has none."""
    folder = reference.find_shared()
    if folder is None:
        pytest.skip("the reference stores do not stand beside this clone")
    return folder


@pytest.fixture(scope="session")
def _unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    # Workers of pytest-xdist have folders of their own under the session's.
    session = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = session / "reference-stores"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def reference_store(
    shared_root: Path, _unpacked: Path, tmp_path_factory: pytest.TempPathFactory
) -> ReferenceStore:
    """Hands out reference stores by name; each archive is unpacked once for all workers."""
    numbers = itertools.count()

    def hand_out(name: str, kind: Kind, *, mode: CopyMode | None = None) -> Path:
        archive = shared_root / "stores" / f"{name}.{kind}.tar.zst"
        source = reference.unpack(archive, _unpacked / f"{name}.{kind}")
        target = tmp_path_factory.getbasetemp() / f"{name}.{kind}-{next(numbers)}"
        return reference.copy_tree(source, target, mode or ("copy" if kind == "pre" else "shared"))

    return hand_out


@pytest.fixture(scope="session")
def compare_stores(shared_root: Path) -> CompareStores:
    """Compares two stores object by object with the tool that stands beside the stores."""
    tool = shared_root / "tools" / "compare_stores.py"

    def run(expected: Path, actual: Path, *args: str) -> str:
        return reference.compare(tool, expected, actual, *args)

    return run
