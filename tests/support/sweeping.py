"""Sweeps in this process on stores of tests, and what they leave behind."""

import itertools
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweep.events import Observer, ignore
from sweep.model.clock import Clock
from sweep.stage.run import SweepOptions, SweepSummary, sweep_store
from sweep.stage.runtime import Runtime
from sweep.store.base import ObjectStore
from sweep.store.io import put_all
from sweep.store.open import open_store
from sweep.testing.clocks import FakeClock

_names = itertools.count()

# later than every stamp in the archives
START = datetime(2030, 1, 1, tzinfo=UTC)


def make_runtime(clock: Clock | None = None, observer: Observer = ignore) -> Runtime:
    """Return a runtime whose clock moves by hand and stands later than every reference store."""
    return Runtime(
        clock=clock or FakeClock(START),
        new_id=lambda: uuid.uuid4().hex,
        observer=observer,
        program="sweep-tests",
    )


def sweep(store: ObjectStore, *, clock: Clock | None = None, **options: Any) -> SweepSummary:
    """Sweep ``store`` with the named options."""
    return sweep_store(store, SweepOptions(**options), make_runtime(clock))


def sweep_folder(root: Path, **options: Any) -> SweepSummary:
    """Sweep the store in a folder."""
    return sweep(open_store(root), **options)


def memory() -> ObjectStore:
    """Return an empty store in memory that nobody else has."""
    return open_store(f"memory://sweeping-{next(_names)}")


def read_tree(root: Path) -> dict[str, bytes]:
    """Return the objects of the store in a folder."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def loaded(objects: Mapping[str, bytes]) -> ObjectStore:
    """Return a new store in memory that holds ``objects``."""
    store = memory()
    put_all(store, objects.items())
    return store


def objects_in(store: ObjectStore) -> dict[str, bytes]:
    """Return every object of ``store``."""
    found = {info.key: store.get(info.key) for info in store.list()}
    return {key: data for key, data in found.items() if data is not None}
