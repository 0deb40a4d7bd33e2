"""The package's sweep of small stores gives what the peer's sweep of the same stores gave.

The stores were made by ``make_golden.py``; a clone needs nothing else to run this.
"""

import functools
import shutil
import tarfile
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.golden.make_golden import FOLDER, GOLDEN
from tests.support.compare import compare_stores, node_objects

from sweep.events import ignore
from sweep.stage.run import SweepOptions, sweep_store
from sweep.stage.runtime import Runtime
from sweep.store.local import LocalStore
from sweep.testing.clocks import FakeClock

type Unpack = Callable[[str], Path]


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Unpack:
    """Unpacks a golden store when it is first asked for: NAME.pre and NAME.post, only to be read."""

    @functools.cache
    def unpack(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        with tarfile.open(FOLDER / f"{name}.tar.xz", "r:xz") as tar:
            for entry in tar:
                body = tar.extractfile(entry)
                assert body is not None
                path = folder / entry.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(body.read())
        return folder / name

    return unpack


def swept(golden: Unpack, name: str, root: Path, **options: int) -> Path:
    """Sweep a copy of a golden store."""
    shutil.copytree(golden(name).with_suffix(".pre"), root)
    sweep_again(root, **options)
    return root


def sweep_again(root: Path, **options: int) -> None:
    # later than every stamp in the archives
    clock = FakeClock(datetime(2030, 1, 1, tzinfo=UTC))
    runtime = Runtime(clock=clock, new_id=lambda: uuid.uuid4().hex, observer=ignore, program="sweep-tests")
    sweep_store(LocalStore(str(root)), SweepOptions(**options), runtime)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", GOLDEN)
def test_every_object_is_the_peers(golden: Unpack, tmp_path: Path, name: str) -> None:
    root = swept(golden, name, tmp_path / name)
    assert compare_stores(golden(name).with_suffix(".post"), root) == []


@pytest.mark.parametrize("options", [{"tuple_width": 1}, {"tuple_width": 2}, {"target_nodes": 5}], ids=str)
@pytest.mark.parametrize("name", GOLDEN)
def test_overview_bytes_do_not_depend_on_the_tuples(
    golden: Unpack, tmp_path: Path, name: str, options: dict[str, int]
) -> None:
    root = swept(golden, name, tmp_path / name, **options)
    assert compare_stores(golden(name).with_suffix(".post"), root, overview_chunks=True) == []


@pytest.mark.parametrize("name", ["fields", "windows", "wide"])
def test_a_second_sweep_writes_no_node_object(golden: Unpack, tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    shutil.copytree(golden(name).with_suffix(".post"), root)
    before = node_objects(root)
    sweep_again(root)
    assert node_objects(root) == before


def test_the_comparison_sees_one_changed_byte(golden: Unpack, tmp_path: Path) -> None:
    root = tmp_path / "fields"
    shutil.copytree(golden("fields").with_suffix(".post"), root)
    chunk = next(path for path in sorted(root.rglob("0")) if "all.zarr" in path.parts)
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"\x99")
    found = compare_stores(golden("fields").with_suffix(".post"), root)
    assert len(found) == 1
    assert chunk.relative_to(root).as_posix() in found[0]
