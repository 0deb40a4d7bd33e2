"""How long and how much memory planning takes, from 49,152 leaves to a full order-9 sphere.

For each number of leaves: the work set, the candidates, and every tuple at width 3 and
sized, of an unwindowed store; and once more with three windows and a close. Peaks are of
what Python and numpy allocate beyond the input. Run as ``python benchmarks/planning.py``.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from sweep.model.nodes import Words, child_words
from sweep.plan.leaves import WorkSet, work_set_of_arrays
from sweep.plan.moc import compact_ranges, expand_ranges
from sweep.plan.planner import TuplePlan, candidates, plan_tuple
from sweep.plan.tuples import OrderTuple, fixed_tuples, sized_tuples

SHARD_ORDER = 9
SPHERE = 12 * 4**SHARD_ORDER
LABELS = np.array(["2019", "2020", "2021"])
REPEATS = 3


def sphere_part(n_leaves: int) -> Words:
    """The first ``n_leaves / 12`` shards of each base cell."""
    per_base = n_leaves // 12
    return np.concatenate([child_words(base << 60, SHARD_ORDER)[:per_base] for base in range(1, 13)])


def plan_all(work: WorkSet, tuples: tuple[OrderTuple, ...], *, is_windowed: bool) -> list[TuplePlan]:
    shards = candidates(work, None)
    return [
        plan_tuple(
            each, work=work, candidates=shards, scope=None, is_windowed=is_windowed, closes=is_windowed
        )
        for each in tuples
    ]


def plan_fixed(words: Words) -> list[TuplePlan]:
    return plan_all(
        work_set_of_arrays(words, None, SHARD_ORDER), fixed_tuples(SHARD_ORDER), is_windowed=False
    )


def plan_sized(words: Words) -> list[TuplePlan]:
    work = work_set_of_arrays(words, None, SHARD_ORDER)
    return plan_all(work, sized_tuples(SHARD_ORDER, covered=work.shards()), is_windowed=False)


def plan_windowed(words: Words) -> list[TuplePlan]:
    windows = LABELS[np.arange(len(words)) % len(LABELS)]
    work = work_set_of_arrays(words, windows, SHARD_ORDER)
    return plan_all(work, fixed_tuples(SHARD_ORDER), is_windowed=True)


def measure(run: Callable[[Words], list[TuplePlan]], words: Words) -> tuple[float, int, list[TuplePlan]]:
    """The best time of a few runs, and the peak of one more that is traced."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        plans = run(words)
        times.append(time.perf_counter() - start)
    tracemalloc.start()
    run(words)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return min(times), peak, plans


def show_growth(name: str, run: Callable[[Words], list[TuplePlan]], *, is_shuffled: bool = False) -> None:
    print(f"\n{name}")
    print("    leaves  seconds  growth  peak MB bytes/leaf    units      nodes")
    before = None
    for n_leaves in (SPHERE // 64, SPHERE // 16, SPHERE // 4, SPHERE):
        words = sphere_part(n_leaves)
        if is_shuffled:
            words = np.random.default_rng(1).permutation(words)
        seconds, peak, plans = measure(run, words)
        growth = "" if before is None else f"{seconds / before:.1f}x"
        before = seconds
        n_units = sum(each.n_units for each in plans)
        n_nodes = sum(each.n_ladder_nodes for each in plans)
        print(
            f"{n_leaves:>10,} {seconds:>8.3f} {growth:>7} {peak / 1e6:>8.1f} {peak / n_leaves:>10.1f} "
            f"{n_units:>8,} {n_nodes:>10,}"
        )


def show_iteration() -> None:
    words = sphere_part(SPHERE)
    plans = plan_fixed(words)
    start = time.perf_counter()
    n_nodes = sum(len(node.leaves) > 0 for plan in plans for node in plan.iter_nodes())
    seconds = time.perf_counter() - start
    print(f"\niterating {n_nodes:,} dispatch nodes: {seconds:.2f} s, {1e6 * seconds / n_nodes:.1f} us each")


def show_coverage() -> None:
    words = sphere_part(SPHERE)[::2]
    start = time.perf_counter()
    ranges = compact_ranges(words)
    middle = time.perf_counter()
    cells = expand_ranges(ranges, SHARD_ORDER)
    end = time.perf_counter()
    assert np.array_equal(cells, words)
    print(f"\ncoverage of every other shard, {len(ranges):,} ranges (no two shards touch):")
    print(f"  to ranges {middle - start:.2f} s, back {end - middle:.2f} s")


if __name__ == "__main__":
    show_growth("width 3, sorted leaves (growth is for four times the leaves)", plan_fixed)
    show_growth("width 3, shuffled leaves", plan_fixed, is_shuffled=True)
    show_growth("sized by density (target 8)", plan_sized)
    show_growth("width 3, three windows and a close", plan_windowed)
    show_iteration()
    show_coverage()
