"""Time the fold kernels against their numpy twins, on one core.

Prints the ratio of twin to kernel, and microseconds for one four-way merge of saturated
digests. Run as ``python benchmarks/kernels.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweep.fold import kernels, twins
from sweep.fold.digest import DigestCells, merge_digests
from sweep.fold.ragged import Ragged, offsets_of

_FAN_IN = 4


def main() -> None:
    """Print one line for each kernel."""
    rng = np.random.default_rng(20)
    for budget in (128, 512):
        _time_digests(rng, budget)
    _time_exact(rng)
    _time_packed(rng)


def _best(call: Callable[[], object], repeats: int) -> float:
    """The shortest of ``repeats`` runs, seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def saturated(rng: np.random.Generator, budget: int, n_cells: int) -> Ragged:
    """``n_cells`` digests as a merge of 20,000 values leaves them."""
    values = np.sort(rng.normal(300.0, 80.0, (n_cells, 2, 10_000)))
    rows = np.stack([values, np.ones_like(values)], axis=-1).astype("<f4")
    halves = Ragged(offsets_of(np.full(2 * n_cells, 8 * 10_000)), rows.view(np.uint8).ravel())
    return _merge(halves, 2, budget)


def _merge(payload: Ragged, fan_in: int, budget: int) -> Ragged:
    cells = DigestCells(payload=payload, locations=None, times=None)
    return merge_digests(cells, fan_in=fan_in, delta=budget, dtype=np.dtype("<f4")).payload


def _time_digests(rng: np.random.Generator, budget: int) -> None:
    n_groups = 64
    few = saturated(rng, budget, 4 * _FAN_IN)
    offsets = offsets_of(np.tile(few.lengths(), n_groups // 4))
    payload = Ragged(offsets, np.tile(few.data, n_groups // 4))
    rows = payload.data.view("<f4").reshape(-1, 2).astype(np.float64)
    no_words = np.empty(0, dtype=np.uint64)
    outputs = (
        np.empty((len(rows), 2), dtype=np.float32),
        np.empty(len(rows), dtype=np.int64),
        np.empty(n_groups, dtype=np.int64),
        np.empty(len(rows), dtype=np.int64),
    )
    inputs = (rows, offsets // 8, no_words, no_words, _FAN_IN, float(budget))
    fast = _best(lambda: kernels.fold_digests(*inputs, *outputs), 15) / n_groups
    slow = _best(lambda: twins.fold_digests(*inputs, *outputs), 3) / n_groups
    whole = _best(lambda: _merge(payload, _FAN_IN, budget), 15) / n_groups
    print(
        f"digests, budget {budget}: {len(rows) / n_groups:.0f} rows, kernel {fast * 1e6:.1f} us, "
        f"twin {slow * 1e6:.1f} us, ratio {slow / fast:.1f}; merge_digests {whole * 1e6:.1f} us a merge"
    )


def _report(name: str, n_cells: int, fast: float, slow: float) -> None:
    print(f"{name}: kernel {fast / n_cells * 1e9:.1f} ns a cell, ratio {slow / fast:.1f}")


def _time_exact(rng: np.random.Generator) -> None:
    for kernel, dtype in ((kernels.fold_exact_f64, np.float64), (kernels.fold_exact_i64, np.int64)):
        values = rng.integers(0, 9, 2**18).astype(dtype)
        out: NDArray[Any] = np.empty(len(values) // _FAN_IN, dtype=dtype)
        for law, code in kernels.LAWS.items():
            arguments = (values, _FAN_IN, code, dtype(0), out)
            fast = _best(lambda: kernel(*arguments), 10)  # noqa: B023
            slow = _best(lambda: twins.fold_exact(*arguments), 10)  # noqa: B023
            _report(f"exact {law} {np.dtype(dtype)}", len(out), fast, slow)


def _time_packed(rng: np.random.Generator) -> None:
    words = rng.integers(0, 2**63, 2**16).astype(np.uint64)
    counts = rng.integers(0, 900, 2**16)
    out = np.empty(len(words) // _FAN_IN, dtype=np.uint64)
    fast = _best(lambda: kernels.fold_packed(words, counts, _FAN_IN, out), 10)
    slow = _best(lambda: twins.fold_packed(words, counts, _FAN_IN, out), 10)
    _report("packed", len(out), fast, slow)


if __name__ == "__main__":
    main()
