"""The command line as a process of its own, watched and disturbed from outside."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_TIMEOUT_S = 100.0


def start(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start ``sweep`` with ``arguments``."""
    return subprocess.Popen(
        [sys.executable, "-m", "sweep", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )


class Ended(tuple[int, str, str]):
    """Exit code, standard output and standard error of a process that ended."""

    @property
    def code(self) -> int:
        return self[0]

    @property
    def out(self) -> str:
        return self[1]

    @property
    def err(self) -> str:
        return self[2]


def end(process: subprocess.Popen[str], *, timeout_s: float = _TIMEOUT_S) -> Ended:
    """Wait until the process ends by itself."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Ended((process.returncode, out, err))


def run(*arguments: str, env: Mapping[str, str] | None = None) -> Ended:
    """Run ``sweep`` with ``arguments`` to its end."""
    return end(start(*arguments, env=env))


def resume_command(err: str) -> Sequence[str]:
    """The arguments of the command that a message tells to type."""
    (line,) = (line for line in err.splitlines() if "sweep local" in line and "--run-id" in line)
    return shlex.split(line[line.index("sweep local") :])[1:]


def wait_for(process: subprocess.Popen[str], path: Path) -> bool:
    """Wait until a file is there; False where the process ended before."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        if path.exists():
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.002)
    raise TimeoutError(f"{path} did not appear")
