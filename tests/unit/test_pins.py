"""The pinned versions are whole: every package of the environment is there, at its version."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from tests.reference import ROOT


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, set[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]
    found: dict[str, set[str]] = {}
    for pin in settings["constraint-dependencies"]:
        name, version = pin.partition(" ;")[0].split("==")
        found.setdefault(canonical(name), set()).add(version)
    return found


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="not the environment that make test builds")
def test_every_installed_package_is_pinned() -> None:
    pinned = pins()
    installed = {canonical(each.name): each.version for each in distributions() if each.name != "sweep"}
    assert "numpy" in installed
    assert {name: version for name, version in installed.items() if version not in pinned.get(name, ())} == {}


def test_the_peer_is_pinned_to_the_release_whose_bytes_are_promised() -> None:
    assert pins()["zagg"] == {"0.61.0"}
