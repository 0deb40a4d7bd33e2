"""What a fleet run will cost: worker seconds, memory, dollars.

Pure figures for a plan; nothing is measured here.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PRICES_AS_OF", "Estimate", "Prices", "estimate"]

PRICES_AS_OF = "2026-11-01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """List prices in US dollars, of AWS us-east-1 as of :data:`PRICES_AS_OF` (x86-64).

    Source: the public price lists of AWS Lambda and Amazon S3; override for other regions.
    """

    gb_second_usd: float = 0.0000166667
    invoke_usd: float = 0.20e-6
    put_usd: float = 0.005e-3
    get_usd: float = 0.0004e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Work of a plan in the units that it is paid in."""

    n_invokes: int
    n_ladder_nodes: int
    worker_s: float
    gb_s: float
    usd: float


def estimate(
    *,
    n_invokes: int,
    n_ladder_nodes: int,
    n_calls: int,
    memory_mb: int,
    node_s: float,
    invoke_s: float,
    prices: Prices | None = None,
) -> Estimate:
    """Price a plan.

    Parameters
    ----------
    n_invokes : int
        Events fired, without second chances.
    n_ladder_nodes : int
        Overviews and stage columns to be written.
    n_calls : int
        Store calls; half are taken as reads and half as writes.
    memory_mb : int
        Memory of one worker, in MiB.
    node_s, invoke_s : float
        Seconds that a ladder node, and the start of an invoke, take on a worker.
    """
    paid = prices or Prices()
    worker_s = n_ladder_nodes * node_s + n_invokes * invoke_s
    gb_s = worker_s * memory_mb / 1024
    usd = (
        gb_s * paid.gb_second_usd + n_invokes * paid.invoke_usd + n_calls / 2 * (paid.put_usd + paid.get_usd)
    )
    return Estimate(n_invokes=n_invokes, n_ladder_nodes=n_ladder_nodes, worker_s=worker_s, gb_s=gb_s, usd=usd)
