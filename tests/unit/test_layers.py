"""The layer rule, and that the tool which checks it would see a breach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """import-linter on the project that stands in ``folder``."""
    tool = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [str(tool), "--no-cache", "--no-logo"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_layers_hold() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("model/bad.py", "import sweep.store", "Each layer imports only what is below it"),
        ("plan/bad.py", "import sweep.fold", "Each layer imports only what is below it"),
        ("stage/bad.py", "import sweep.testing", "Each layer imports only what is below it"),
        ("unheard_of.py", "", "Each layer imports only what is below it"),
        ("fold/bad.py", "import time", "plan and fold do no I/O"),
        ("artifacts/bad.py", "import obstore", "obstore: only in"),
        ("fold/bad.py", "import numba", "numba and llvmlite: only in"),
        ("stage/bad.py", "import zarr", "zarr: only in"),
        ("fold/bad.py", "import mortie", "mortie: only in"),
    ],
)
def test_a_breach_is_seen(tmp_path: Path, module: str, statement: str, contract: str) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "src" / "sweep" / module).write_text(statement + "\n")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stderr
    broken = [line for line in done.stdout.splitlines() if " BROKEN" in line]
    assert any(line.startswith(contract) for line in broken), done.stdout + done.stderr
