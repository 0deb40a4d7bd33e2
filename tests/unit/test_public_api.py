"""What ``import sweep`` offers, and what it must not drag in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sweep

PUBLIC = {
    "AccessError",
    "AdmissionError",
    "ArtifactError",
    "CapacityError",
    "ColumnMovedError",
    "DeclarationError",
    "FleetOptions",
    "FleetSummary",
    "FleetUnreachableError",
    "ForeignWriteError",
    "LeaseHeldError",
    "LeaseLostError",
    "StoreOptions",
    "StoreUnavailableError",
    "SweepError",
    "SweepOptions",
    "SweepSummary",
    "TransientError",
    "TransportThrottledError",
    "__version__",
    "open_ladder",
    "open_level",
    "open_store",
    "run_fleet",
    "run_local",
    "store_info",
}
HEAVY = {
    "arro3",
    "boto3",
    "matplotlib",
    "mortie",
    "numba",
    "numpy",
    "obstore",
    "pandas",
    "pydantic",
    "xarray",
    "zarr",
}


def imported_by(statement: str) -> set[str]:
    """Top-level modules in a fresh interpreter after ``statement``."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps([name.split('.')[0] for name in sys.modules]))"
    source = str(Path(sweep.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r})\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout))


def test_public_names_are_pinned() -> None:
    assert set(sweep.__all__) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(sweep, name) is not None
    assert name in dir(sweep)


def test_every_error_is_public() -> None:
    assert set(sweep.errors.__all__) <= PUBLIC


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = sweep.no_such_name


def test_import_is_light() -> None:
    assert imported_by("import sweep") & HEAVY == set()


def test_the_lightness_check_sees_a_heavy_import() -> None:
    assert "numpy" in imported_by("import sweep, numpy")
