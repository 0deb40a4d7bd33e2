"""The transport seam: how an event reaches a worker.

Results travel as records below the status prefix, so a transport says only whether it took
an event, and which it knows to be dead. Lambda, local processes and a cluster then behave
alike.

Source: semantics 12.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from sweep.errors import AccessError, FleetUnreachableError

__all__ = ["KIB", "Delivery", "Envelope", "Limits", "Lost", "Submission", "Transport", "no_fleet"]

KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one event may be.

    Attributes
    ----------
    payload_bytes : int
        The largest serialised event.
    in_flight : int
        Submissions worth having at once.
    run_s : float or None
        How long a worker may run before it is killed; None where nothing kills it.
    start_s : float or None
        How long an accepted event may wait before it starts or is dropped.
    workers : int or None
        How many events run at once; None where that is elastic. Decides how many nodes go
        into one event when nobody says.
    """

    payload_bytes: int = 250 * KIB
    in_flight: int = 1
    run_s: float | None = None
    start_s: float | None = None
    workers: int | None = None


class Delivery(Enum):
    """What became of a submission.

    ``MAYBE`` is a broken connection or a server fault: the event may have been taken. It is
    submitted again, since a duplicate is harmless.
    """

    ACCEPTED = "accepted"
    REFUSED = "refused"
    MAYBE = "maybe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One event on its way: what to send, and the name under which it is spoken of.

    ``key`` is ``"{dispatch:02d}-{batch:04d}-{attempt}"``, or ``"finisher-{attempt}"``.
    """

    key: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The outcome of one submission; ``reason`` says why where it was not accepted.

    ``retry_after_s`` is set where the service said that it did nothing and may take the
    event later (a throttle).
    """

    key: str
    delivery: Delivery
    reason: str = ""
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """An accepted event whose worker is known to be dead.

    ``cause`` is a stable word (``killed``, ``memory``, ``time``, ``dropped``), ``detail`` for people.
    """

    key: str
    cause: str
    detail: str


class Transport(Protocol):
    """Takes events to workers.

    Implementations are safe to use from one dispatcher thread; ``submit`` returns as soon
    as every envelope is accepted, refused or in doubt, never when the work is done.
    """

    @property
    def name(self) -> str:
        """What summaries and run records call it: ``inline``, ``processes``, ``dask``, ``lambda``."""
        ...

    @property
    def limits(self) -> Limits: ...

    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        """Hand over events; one outcome each, in their order.

        Raises
        ------
        AccessError
            The fleet cannot be reached at all: no such function, no permission, no credentials.
        """
        ...

    def lost(self) -> list[Lost]:
        """Events found dead since the last call; each is named once."""
        ...

    def pending(self) -> int:
        """Accepted events that this transport knows to be queued or running; 0 where it cannot know."""
        ...

    def close(self, *, cancel: bool = False) -> None:
        """End the transport. With ``cancel``, events not yet started are dropped and workers ended."""
        ...


def no_fleet(error: AccessError) -> FleetUnreachableError:
    """A transport's "no" as the error that says which "no" it is: not the store's, but the fleet's."""
    return FleetUnreachableError(error.message, kind=error.kind, **error.context)
