"""What a drive will fire: tuples, their batches, and the events that these become.

Source: semantics 12.1, 12.4, 12.5 (5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sweep.fleet.options import FleetOptions
from sweep.fleet.stock import Stock
from sweep.fleet.transport import Limits
from sweep.model.invocation import StageInvocation, serialise
from sweep.model.manifest import Manifest
from sweep.model.nodes import Words
from sweep.plan.leaves import WorkSet
from sweep.plan.packing import Batch, FanOut, close_fan_out, fan_outs, pack
from sweep.plan.runs import sorted_distinct
from sweep.plan.tuples import OrderTuple, fixed_tuples, sized_tuples

__all__ = ["FleetPlan", "Packer", "TuplePacking", "schedule"]

_MEASURED_NUMBER = 9_999_999
_MEASURED_ATTEMPT = 9
_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TuplePacking:
    """The batches of one tuple: those before its barrier, and its closes."""

    order_tuple: OrderTuple
    batches: tuple[Batch, ...]
    closes: tuple[Batch, ...]

    @property
    def is_empty(self) -> bool:
        return not self.batches and not self.closes

    @property
    def n_nodes(self) -> int:
        nodes = [batch.node_words() for batch in (*self.batches, *self.closes)]
        return len(sorted_distinct(np.concatenate(nodes))) if nodes else 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetPlan:
    """Everything known before anything is fired."""

    store_path: str
    manifest: Manifest
    work: WorkSet
    scope: Words | None
    tuples: tuple[OrderTuple, ...]
    run_id: str
    run_started: str
    records_from: str


def schedule(shard_order: int, options: FleetOptions) -> tuple[OrderTuple, ...]:
    """The tuples of a run: of one width, or sized so that one *event* has the work aimed at.

    Raises
    ------
    DeclarationError
        As :func:`~sweep.plan.tuples.sized_tuples`.
    """
    if not options.target_nodes:
        return fixed_tuples(shard_order, options.tuple_width)
    target = max(1, options.target_nodes // (options.max_nodes or 1))
    return sized_tuples(shard_order, target=target, max_width=options.tuple_width)


class Packer:
    """Packs one tuple after another, from fine to coarse.

    Parameters
    ----------
    plan : FleetPlan
    options : FleetOptions
    limits : Limits
        Of the transport: the payload's bytes, and how many events run at once.
    stock : Stock, optional
        What need not be done again.
    """

    def __init__(
        self, plan: FleetPlan, options: FleetOptions, limits: Limits, stock: Stock | None = None
    ) -> None:
        self._plan = plan
        self._options = options
        self._limits = limits
        self._stock = stock or Stock()

    def packed(self, order_tuple: OrderTuple) -> TuplePacking:
        """The batches of one tuple, less what the stock vouches for."""
        plan = self._plan
        outs = fan_outs(order_tuple, work=plan.work, scope=plan.scope, is_windowed=plan.manifest.is_windowed)
        batches = [batch for out in outs for batch in self._pack(out)]
        closes: list[Batch] = []
        if plan.manifest.closes:
            close = close_fan_out(order_tuple, work=plan.work, scope=plan.scope)
            closes = self._pack(close) if close is not None else []
        return TuplePacking(order_tuple=order_tuple, batches=tuple(batches), closes=tuple(closes))

    def _pack(self, fan_out: FanOut) -> list[Batch]:
        left = self._stock.left(fan_out)
        return pack(
            left,
            cap_bytes=self._limits.payload_bytes,
            max_nodes=self._options.max_nodes or self._even_share(left.n_nodes),
            measure=self.measure,
        )

    def _even_share(self, n_nodes: int) -> int:
        """Nodes of one event where nobody says: one on an elastic fleet, else a few rounds."""
        workers = self._limits.workers
        return 1 if workers is None else max(1, n_nodes // (_ROUNDS * workers))

    def first_number(self, dispatch_order: int) -> int:
        """The number of a tuple's first batch; records that are kept keep theirs."""
        return self._stock.next_numbers.get(dispatch_order, 0)

    def measure(self, batch: Batch) -> int:
        """The bytes of a batch's event, with the longest number and attempt that it may carry."""
        return len(serialise(self.invocation(batch, _MEASURED_NUMBER, attempt=_MEASURED_ATTEMPT)))

    def invocation(self, batch: Batch, number: int, attempt: int) -> StageInvocation:
        """The event of one attempt at a batch."""
        plan, options, fan_out = self._plan, self._options, batch.fan_out
        return StageInvocation(
            store_path=plan.store_path,
            run_id=plan.run_id,
            run_started=plan.run_started,
            dispatch=fan_out.order_tuple.dispatch_order,
            tuple_width=options.tuple_width,
            child_order=fan_out.order_tuple.child_order,
            records_from=plan.records_from,
            nodes=batch.nodes(),
            batch=number,
            leaves=batch.leaves(),
            unit=fan_out.unit,
            window=fan_out.window,
            pipeline_run_id=options.pipeline_run_id,
            lease_ttl_s=options.lease_ttl_s,
            dirt_only=batch.dirt_only(),
            attempt=attempt,
            credentials=options.credentials,
        )
