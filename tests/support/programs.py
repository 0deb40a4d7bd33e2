"""Starts the two programs that sweep a store: this one, and the peer it must agree with."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.reference import ROOT

# what the peer's checkers call out on stderr is no concern here: the JSON says it too
_QUIET = ["-W", "ignore"]


def peer_python() -> Path:
    """Return where the peer's interpreter stands, or would stand."""
    return Path(os.environ.get("SWEEP_PEER_PYTHON") or ROOT / ".venv-interop" / "bin" / "python")


def sweep_ours(root: Path, *, tuple_width: int = 3, damaged: bool = False) -> None:
    """Sweep the whole store with this program; over a damaged one it may leave with 1, not 0."""
    command = [sys.executable, "-m", "sweep", "local", str(root), "--scope", "all"]
    _run([*command, "--tuple-width", str(tuple_width)], allowed=(0, 1) if damaged else (0,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The peer program, started as a process."""

    python: Path

    def sweep(self, root: Path, *, tuple_width: int = 3) -> dict[str, Any]:
        """Sweep the whole store and return the peer's summary."""
        command = [str(self.python), *_QUIET, "-m", "zagg.sweep", str(root), "--stages", "--scope", "all"]
        done = _run([*command, "--tuple-width", str(tuple_width)])
        summary: dict[str, Any] = json.loads(done.stdout)
        return summary

    def check(self, root: Path, *, roster: str = "auto") -> dict[str, Any]:
        """Return the findings of the peer's checker, whatever its verdict."""
        report = root.with_name(f"{root.name}.check.json")
        report.unlink(missing_ok=True)
        command = [str(self.python), *_QUIET, "-m", "zagg.pyramid_check", str(root), "--full"]
        done = subprocess.run(
            [*command, "--roster", roster, "--json", str(report)], capture_output=True, text=True, check=False
        )
        assert report.exists(), f"the checker wrote no report:\n{done.stdout}{done.stderr}"
        findings: dict[str, Any] = json.loads(report.read_bytes())
        return {**findings, "exit": done.returncode, "printed": done.stdout}

    def evaluate(self, code: str, *arguments: str) -> Any:
        """Run Python code in the peer's environment and return the JSON it prints last."""
        done = _run([str(self.python), *_QUIET, "-c", code, *arguments])
        return json.loads(done.stdout.splitlines()[-1])


def _run(command: list[str], *, allowed: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in allowed, f"{command} left with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done


def failed_checks(findings: dict[str, Any]) -> dict[str, str]:
    """Return the checks that failed, with what they said."""
    checks = findings["checks"].items()
    return {name: check["detail"] for name, check in checks if check["status"] == "fail"}
