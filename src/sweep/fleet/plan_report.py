"""What a fleet run would fire and cost, without firing anything."""

from __future__ import annotations

from typing import Any

from sweep.fleet.dispatcher import Dispatcher
from sweep.fleet.planning import TuplePacking
from sweep.model.ladder import Ladder
from sweep.plan.budget import PRICES_AS_OF, estimate
from sweep.plan.planner import candidates, plan_tuple

__all__ = ["plan_report", "render_plan"]

NODE_S = 0.05
INVOKE_S = 0.5
CALLS_PER_NODE = 60
"""Rough figures for one ladder node on a worker; the estimate says that it is one."""


def plan_report(dispatcher: Dispatcher, *, memory_mb: int) -> dict[str, Any]:
    """The plan of a run: tuples, batches, payload bytes, estimated GB-seconds and dollars.

    Raises
    ------
    DeclarationError
        As :meth:`Dispatcher.plan`.
    """
    plan = dispatcher.plan()
    packer = dispatcher.packer(plan)
    ladder = plan.manifest.ladder
    shards = candidates(plan.work, None)
    rows: list[dict[str, Any]] = []
    for order_tuple in plan.tuples:
        packing = packer.packed(order_tuple)
        batches = [*packing.batches, *packing.closes]
        if not batches:
            continue
        sizes = [packer.measure(batch) for batch in batches]
        units = plan_tuple(
            order_tuple,
            work=plan.work,
            candidates=shards,
            scope=plan.scope,
            is_windowed=plan.manifest.is_windowed,
            closes=plan.manifest.closes,
        )
        rows.append(
            {
                "dispatch_order": order_tuple.dispatch_order,
                "orders": list(order_tuple.orders),
                "nodes": packing.n_nodes,
                "batches": len(packing.batches),
                "close_batches": len(packing.closes),
                "discover_batches": sum(batch.discover for batch in batches),
                "ladder_nodes": units.n_ladder_nodes,
                "artifacts": _artifacts(ladder, packing, units.n_ladder_nodes),
                "payload_bytes": sum(sizes),
                "largest_payload_bytes": max(sizes),
            }
        )
    n_invokes = sum(row["batches"] + row["close_batches"] for row in rows) + bool(rows)
    n_artifacts = sum(row["artifacts"] for row in rows)
    price = estimate(
        n_invokes=n_invokes,
        n_ladder_nodes=n_artifacts,
        n_calls=n_artifacts * CALLS_PER_NODE,
        memory_mb=memory_mb,
        node_s=NODE_S,
        invoke_s=INVOKE_S,
    )
    return {
        "store_root": dispatcher.root,
        "n_leaves": plan.work.n_leaves,
        "tuples": rows,
        "invokes": n_invokes,
        "artifacts": n_artifacts,
        "memory_mb": memory_mb,
        "estimated_worker_s": round(price.worker_s, 1),
        "estimated_gb_s": round(price.gb_s, 1),
        "estimated_usd": round(price.usd, 4),
        "prices_as_of": PRICES_AS_OF,
    }


def _artifacts(ladder: Ladder, packing: TuplePacking, n_ladder_nodes: int) -> int:
    """Overviews of one window, and a stage column for each dispatch node that carries one."""
    carries = bool(ladder.stage_members(packing.order_tuple.dispatch_order))
    return n_ladder_nodes + (packing.n_nodes if carries else 0)


def render_plan(report: dict[str, Any]) -> str:
    """The plan as a table for people."""
    lines = [
        f"{report['store_root']}: {report['n_leaves']} leaves",
        "",
        "   orders    nodes  batches  closes  artifacts    payload   largest",
    ]
    for row in report["tuples"]:
        orders = row["orders"]
        name = str(orders[0]) if len(orders) == 1 else f"{orders[0]}-{orders[-1]}"
        payload_kb, largest_kb = row["payload_bytes"] / 1024, row["largest_payload_bytes"] / 1024
        lines.append(
            f"{name:>9} {row['nodes']:>8} {row['batches']:>8} {row['close_batches']:>7} "
            f"{row['artifacts']:>10} {payload_kb:>7.0f} KB {largest_kb:>6.1f} KB"
        )
    lines += [
        "",
        f"{report['invokes']} invokes, about {report['estimated_worker_s']:.0f} worker seconds, "
        f"{report['estimated_gb_s']:.0f} GB-s at {report['memory_mb']} MB, about "
        f"${report['estimated_usd']:.4f} on AWS Lambda and S3 "
        f"(rough, list prices of {report['prices_as_of']})",
        "nothing was fired",
    ]
    return "\n".join(lines)
