"""What a process holds, by the kernel and by ps."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest

from sweep.fleet import _memory


def test_resident_memory_grows_with_what_is_held() -> None:
    before = _memory.resident_mb(os.getpid())
    held = np.ones(8 * 1024 * 1024)  # 64 MiB
    after = _memory.resident_mb(os.getpid())
    assert before is not None
    assert after is not None
    assert 60 <= after - before <= 80
    assert held.nbytes == 64 * 1024 * 1024
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert after <= peak_mb + 1


def test_a_process_that_has_ended_holds_nothing() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    assert _memory.resident_mb(pid) is None


@pytest.mark.skipif(shutil.which("ps") is None, reason="no ps here")
def test_ps_says_the_same() -> None:
    by_kernel, by_ps = _memory.resident_mb(os.getpid()), _memory._asked_of_ps(os.getpid())
    assert by_kernel is not None
    assert by_ps == pytest.approx(by_kernel, rel=0.05)


def test_a_containers_limit_is_the_machines() -> None:
    total_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**2
    assert 0 < _memory.machine_mb() <= total_mb


def test_a_limit_below_the_machine_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(_memory, "_CGROUP_LIMIT", limit)
    without = _memory.machine_mb()
    limit.write_text("max\n")
    assert _memory.machine_mb() == without
    limit.write_text("104857600\n")
    assert _memory.machine_mb() == 100
