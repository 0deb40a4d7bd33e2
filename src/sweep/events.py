"""Progress as frozen values, and the seam that takes them.

The package tells what happens by calling an :class:`Observer`; it never prints and
never configures logging. Observers must be quick and must not raise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = [
    "Admitted",
    "BarrierProgress",
    "Event",
    "Observer",
    "RunFinished",
    "RunStarted",
    "TupleFinished",
    "TupleStarted",
    "UnitFinished",
    "ignore",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A run holds the store's lease; nothing is planned yet.

    ``claimed_from`` names the dead run that it was taken over from.
    """

    run_id: str
    claimed_from: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run holds the lease and knows its work."""

    run_id: str
    store_root: str
    n_leaves: int
    n_tuples: int
    n_units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleStarted:
    """The dispatch nodes of one tuple are about to be folded."""

    dispatch_order: int
    orders: tuple[int, ...]
    n_nodes: int
    n_units: int
    n_ladder_nodes: int
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFinished:
    """One unit (a node whole, one window of it, or its close) is done."""

    dispatch_order: int
    node: str
    unit: str
    written: int
    current: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleFinished:
    """A tuple is done; the next coarser one may start."""

    dispatch_order: int
    written: int
    current: int
    failed: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The finisher has written the root objects and released the lease."""

    run_id: str
    written: int
    current: int
    failed: int
    under_covered: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierProgress:
    """What a dispatcher has seen of the records that it waits for."""

    dispatch_order: int
    orders: tuple[int, ...]
    seen: int
    expected: int
    retries: int
    given_up: int
    elapsed_s: float


type Event = (
    Admitted | BarrierProgress | RunStarted | TupleStarted | UnitFinished | TupleFinished | RunFinished
)


class Observer(Protocol):
    """Takes events as they happen."""

    def __call__(self, event: Event, /) -> None: ...


def ignore(event: Event, /) -> None:
    """The observer that does nothing."""
