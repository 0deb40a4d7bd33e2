"""A fleet driven by hand: one event for each unit, one tuple after another, without a dispatcher."""

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.sweeping import START

from sweep.artifacts.manifest_io import read_manifest
from sweep.control.discovery import discover_leaves
from sweep.fleet.transport import Delivery, Envelope, Transport
from sweep.model.clock import timestamp
from sweep.model.invocation import (
    FinisherInvocation,
    Invocation,
    StageInvocation,
    serialise,
    status_prefix,
)
from sweep.model.nodes import ancestor_of, decimals_of
from sweep.plan.tuples import OrderTuple, fixed_tuples
from sweep.store.open import open_store
from sweep.testing.waiting import eventually

__all__ = ["drained", "events_of", "run_waves"]

RUN_ID = "stage-by-hand"


def run_waves(
    root: Path, send: Callable[[list[Envelope]], None], *, tuple_width: int = 3, run_id: str = RUN_ID
) -> None:
    """Sweep a store: hand each wave of events to ``send``, which returns when all are done."""
    for wave in events_of(root, tuple_width=tuple_width, run_id=run_id):
        send([Envelope(key=str(number), payload=serialise(each)) for number, each in enumerate(wave)])


def drained(transport: Transport, timeout_s: float = 60.0) -> Callable[[list[Envelope]], None]:
    """What sends a wave over a transport that knows when it is done; nothing may be lost."""

    def send(wave: list[Envelope]) -> None:
        outcomes = transport.submit(wave)
        assert {outcome.delivery for outcome in outcomes} == {Delivery.ACCEPTED}, outcomes
        eventually(lambda: transport.pending() == 0, timeout_s=timeout_s)
        assert transport.lost() == []

    return send


def events_of(root: Path, *, tuple_width: int = 3, run_id: str = RUN_ID) -> Iterator[list[Invocation]]:
    """The waves of a fleet run over a whole store; each needs the one before it."""
    store = open_store(root)
    manifest = read_manifest(store)
    work = discover_leaves(store, manifest).work
    labels = list(work.labels) if manifest.is_windowed else [None]
    words = [int(word) for word in work.words]
    decimals = decimals_of(work.words)
    windows = [None if code < 0 else work.labels[code] for code in work.codes]
    leaves = list(zip(words, decimals, windows, strict=True))

    def share(tuple_: OrderTuple, unit: str | None, label: str | None, first: int) -> list[Invocation]:
        found: dict[str, list[tuple[int, str | None]]] = {}
        for word, decimal, window in leaves:
            if unit != "window" or window == label:
                node = ancestor_of(decimal, tuple_.dispatch_order)
                found.setdefault(node, []).append((word, window))
        return [
            StageInvocation(
                store_path=str(root),
                run_id=run_id,
                run_started=timestamp(START),
                dispatch=tuple_.dispatch_order,
                tuple_width=tuple_width,
                child_order=tuple_.child_order,
                records_from=status_prefix(str(root), run_id),
                nodes=(node,),
                batch=batch,
                leaves=tuple(refs),
                unit=unit,  # type: ignore[arg-type]
                window=label,
            )
            for batch, (node, refs) in enumerate(sorted(found.items()), first)
        ]

    for tuple_ in fixed_tuples(manifest.shard_order, tuple_width):
        unit = "window" if manifest.is_windowed else None
        wave: list[Invocation] = []
        for label in labels:
            wave += share(tuple_, unit, label, len(wave))
        yield wave
        if manifest.is_windowed:
            yield share(tuple_, "close", None, len(wave))
    yield [
        FinisherInvocation(
            store_path=str(root),
            run_id=run_id,
            records_from=status_prefix(str(root), run_id),
            touch_policy="auto",
            barrier_timed_out=False,
            short_orders=(),
            leaves=tuple(zip(words, windows, strict=True)),
        )
    ]
