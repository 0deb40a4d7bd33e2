"""Progress for people: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from sweep.cli.common import silence
from sweep.events import (
    BarrierProgress,
    Event,
    Observer,
    RunStarted,
    TupleFinished,
    TupleStarted,
    UnitFinished,
    ignore,
)

__all__ = ["progress"]


@contextmanager
def progress(console: Console, *, quiet: bool) -> Iterator[Observer]:
    """An observer that shows a run on ``console`` until the block ends."""
    if quiet:
        yield ignore
        return
    with _shown(console) as observer:
        yield _Guarded(observer)


class _Guarded:
    """Progress that can no longer be written is left out; the run goes on."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def __call__(self, event: Event, /) -> None:
        try:
            self._observer(event)
        except OSError:
            self._observer = ignore
            silence(sys.stderr)


@contextmanager
def _shown(console: Console) -> Iterator[Observer]:
    if console.is_terminal:
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        ) as bar:
            yield _Live(bar)
    else:
        yield _Lines(console)


def _orders(orders: tuple[int, ...]) -> str:
    return f"order {orders[0]}" if len(orders) == 1 else f"orders {orders[0]}-{orders[-1]}"


class _Lines:
    """One line for each tuple that ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._orders: tuple[int, ...] = ()
        self._nodes = 0

    def __call__(self, event: Event, /) -> None:
        if isinstance(event, RunStarted):
            self._console.print(
                f"run {event.run_id}: {event.n_leaves} leaves, {event.n_tuples} tuples",
                soft_wrap=True,
                markup=False,
            )
        elif isinstance(event, TupleStarted):
            self._orders, self._nodes = event.orders, event.n_nodes
        elif isinstance(event, TupleFinished):
            failed = f", {event.failed} failed" if event.failed else ""
            self._console.print(
                f"{_orders(self._orders)}: {self._nodes} dispatch nodes, {event.written} artifacts written, "
                f"{event.current} current{failed} ({event.duration_s:.1f} s)",
                soft_wrap=True,
                markup=False,
            )
        elif isinstance(event, BarrierProgress) and event.seen + event.given_up == event.expected:
            failed = f", {event.given_up} given up" if event.given_up else ""
            self._console.print(
                f"{_orders(event.orders)}: {event.seen} of {event.expected} records, {event.retries} retries"
                f"{failed} ({event.elapsed_s:.1f} s)",
                soft_wrap=True,
                markup=False,
            )


class _Live:
    """A bar over the units of the whole run, with artifacts per second."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task: TaskID | None = None
        self._done = 0
        self._tuples = 0
        self._tuple = 0

    def __call__(self, event: Event, /) -> None:
        if isinstance(event, RunStarted):
            self._tuples = event.n_tuples
            self._task = self._bar.add_task("starting", total=event.n_units, rate="")
        if self._task is None:
            return
        if isinstance(event, TupleStarted):
            self._tuple += 1
            self._bar.update(
                self._task,
                description=f"tuple {self._tuple}/{self._tuples}, {_orders(event.orders)}, "
                f"{event.n_nodes} dispatch nodes",
            )
        elif isinstance(event, UnitFinished):
            self._done += event.written + event.current
            elapsed = self._bar.tasks[0].elapsed or 0.0
            rate = f"{self._done / elapsed:.0f} artifacts/s" if elapsed > 0 else ""
            self._bar.update(self._task, advance=1, rate=rate)
        elif isinstance(event, BarrierProgress):
            self._barrier(self._task, event)

    def _barrier(self, task: TaskID, event: BarrierProgress) -> None:
        rate = f"{event.seen / event.elapsed_s:.1f} records/s" if event.elapsed_s > 0 else ""
        self._bar.update(
            task,
            description=f"{_orders(event.orders)}, records",
            completed=event.seen,
            total=event.expected,
            rate=f"{event.retries} retries, {rate}" if event.retries else rate,
        )
