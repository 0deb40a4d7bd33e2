"""How much memory a process holds, and how much the machine has."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

__all__ = ["HAS_PROC", "cores", "machine_mb", "resident_mb"]

HAS_PROC = Path("/proc/self/statm").exists()
"""A look at a process costs one small read; elsewhere it costs the start of a program."""

_MIB = 1024 * 1024
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def cores() -> int:
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine_mb() -> float:
    """Memory of the machine or of the container around this process, in MiB."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # No control groups, or one without a limit ("max").
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(_CGROUP_LIMIT.read_text()))
    return total / _MIB


def resident_mb(pid: int) -> float | None:
    """Resident memory of a process now, in MiB; None where it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_bytes().split()[1]
    except (FileNotFoundError, ProcessLookupError):
        return None if HAS_PROC else _asked_of_ps(pid)
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / _MIB


def _asked_of_ps(pid: int) -> float | None:
    """The same on systems without /proc."""
    done = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False, timeout=10
    )
    text = done.stdout.strip()
    return int(text) / 1024 if text.isdigit() else None
