"""The peer program is the one whose bytes this package promises, and it stands apart."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop


def output_of(python: Path, code: str) -> str:
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True, cwd="/")
    return done.stdout.strip()


def test_the_peer_is_the_pinned_release(peer_python: Path) -> None:
    assert (
        output_of(peer_python, "from importlib.metadata import version; print(version('zagg'))") == "0.61.0"
    )


def test_the_peer_cannot_see_this_package(peer_python: Path) -> None:
    assert output_of(peer_python, "from importlib.util import find_spec; print(find_spec('sweep'))") == "None"
