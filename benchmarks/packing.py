"""How long packing takes, from 16,384 leaves to 1,048,576 under the same 1,024 dispatch nodes.

Each row packs one fan-out as a dispatcher does: nodes found, leaves bucketed, every batch
measured as the event that it will be. Seconds are of the processor, the best of a few runs,
so that other work on the machine hardly counts; ``growth`` is against a quarter of the leaves. Run as
``python benchmarks/packing.py``.
"""

from __future__ import annotations

import gc
import time

import numpy as np

from sweep.fleet.transport import KIB
from sweep.model.invocation import StageInvocation, serialise
from sweep.model.nodes import Words, child_words
from sweep.plan.leaves import WorkSet, work_set_of_arrays
from sweep.plan.packing import Batch, fan_outs, pack
from sweep.plan.tuples import OrderTuple

N_NODES = 1024
DISPATCH = 5
REPEATS = 3
ROOT = "s3://a-bucket-of-ours/altimetry/v007/store"
RUN = "stage-20261129T163105Z-28d59a"


def leaves_under(n_leaves: int) -> tuple[Words, int]:
    """Full subtrees under the first nodes of all base cells, and their shard order."""
    depth = (n_leaves // N_NODES).bit_length() // 2
    nodes = np.concatenate([child_words(base << 60, DISPATCH)[:86] for base in range(1, 13)])[:N_NODES]
    words = np.concatenate([child_words(word, DISPATCH + depth) for word in nodes.tolist()])
    return words, DISPATCH + depth


def measure(batch: Batch) -> int:
    event = StageInvocation(
        store_path=ROOT,
        run_id=RUN,
        run_started="2026-11-29T16:31:05+00:00",
        dispatch=DISPATCH,
        tuple_width=3,
        child_order=batch.fan_out.order_tuple.child_order,
        records_from=f"{ROOT}.status/run-{RUN}",
        nodes=batch.nodes(),
        batch=9_999_999,
        leaves=batch.leaves(),
        attempt=9,
    )
    return len(serialise(event))


def pack_once(work: WorkSet, order_tuple: OrderTuple, cap_bytes: int, max_nodes: int | None) -> list[Batch]:
    (out,) = fan_outs(order_tuple, work=work, scope=None, is_windowed=False)
    return pack(out, cap_bytes=cap_bytes, max_nodes=max_nodes, measure=measure)


def show(name: str, cap_bytes: int, max_nodes: int | None) -> None:
    print(f"\n{name}\n    leaves  seconds  us/leaf  growth   events  largest KB")
    before = None
    for n_leaves in (16 * N_NODES, 64 * N_NODES, 256 * N_NODES, 1024 * N_NODES):
        words, shard_order = leaves_under(n_leaves)
        work = work_set_of_arrays(words, None, shard_order)
        order_tuple = OrderTuple(dispatch_order=DISPATCH, child_order=min(DISPATCH + 3, shard_order))
        times = []
        for _ in range(REPEATS):
            gc.collect()
            start = time.process_time()
            batches = pack_once(work, order_tuple, cap_bytes, max_nodes)
            times.append(time.process_time() - start)
        seconds = min(times)
        growth = "" if before is None else f"{seconds / before:.1f}x"
        before = seconds
        largest = max(map(measure, batches)) / KIB
        print(
            f"{n_leaves:>10,} {seconds:>8.3f} {1e6 * seconds / n_leaves:>8.2f} {growth:>7} "
            f"{len(batches):>8,} {largest:>11.1f}"
        )


if __name__ == "__main__":
    show("250 KB events, as many nodes as fit", 250 * KIB, None)
    show("250 KB events, one node each", 250 * KIB, 1)
    show("1 MB events, as many nodes as fit", 1024 * KIB, None)
