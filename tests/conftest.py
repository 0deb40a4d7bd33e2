"""Fixtures for every test: reference stores, their comparison, and the short form of long tests."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from tests import reference
from tests.reference import CompareStores, CopyMode, Kind, ReferenceStore

# Where this session's unpacked stores lie; set by the process that the workers start from.
FOLDER = "SWEEP_TEST_STORES"
REQUIRED = os.environ.get("SWEEP_REQUIRE_SHARED") == "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--short", action="store_true", help="run long tests in their short form")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="sweep-stores-", dir=reference.roomy_folder())


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(FOLDER), ignore_errors=True)


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
def reference_store(shared_root: Path) -> ReferenceStore:
    """Hands out reference stores by name; each archive is unpacked once for all workers."""
    folder = Path(os.environ[FOLDER])
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    numbers = itertools.count()

    def hand_out(name: str, kind: Kind, *, mode: CopyMode | None = None) -> Path:
        archive = shared_root / "stores" / f"{name}.{kind}.tar.zst"
        source = reference.unpack(archive, folder / f"{name}.{kind}")
        target = folder / f"{name}.{kind}-{worker}-{next(numbers)}"
        return reference.copy_tree(source, target, mode or ("copy" if kind == "pre" else "shared"))

    return hand_out


@pytest.fixture(scope="session")
def compare_stores(shared_root: Path) -> CompareStores:
    """Compares two stores object by object with the tool that stands beside the stores."""
    tool = shared_root / "tools" / "compare_stores.py"

    def run(expected: Path, actual: Path, *args: str) -> str:
        return reference.compare(tool, expected, actual, *args)

    return run
