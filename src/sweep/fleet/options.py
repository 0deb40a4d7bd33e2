"""What a fleet run is asked to do, and what it says in the end.

Source: semantics 12.5, 12.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.control.lease import MAX_TTL_S, MIN_TTL_S
from sweep.control.records import counted, rows_of
from sweep.errors import DeclarationError
from sweep.model.invocation import Credentials
from sweep.model.runs import TouchPolicy, check_run_id, check_touch_policy, refuse_companions
from sweep.plan.leaves import Ref
from sweep.plan.packing import check_knob

__all__ = ["FleetOptions", "FleetSummary", "check_fleet_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """Everything about a fleet run but the store and the transport.

    Attributes
    ----------
    scope
        ``"all"`` or nodes; an operator must say which.
    leaves : iterable of (word, window) pairs or words, optional
        The work set; discovered where None.
    tuple_width : int
    target_nodes : int or None
        Ladder nodes under one dispatch node to aim at; None or 0 for tuples of one width.
    max_nodes : int or None
        Dispatch nodes of one event; None lets the transport's number of workers decide.
    attempts : int
        Times that one batch may be fired.
    barrier_timeout_s, budget_s : float
        For one barrier, and for all of them together.
    poll_s : float
        The slowest poll; polls start fast and slow down to it.
    lease_ttl_s : int or None
        Seconds without a heartbeat after which others may take over; None for the workers' default.
    run_id, pipeline_run_id : str, optional
    keep_complete : bool
        Do not fire again, under a run id that has records, what they say is done.
    touch_policy : {"auto", "always", "never"}
    credentials : Credentials, optional
        For the workers' access to the store; without them they use their own.
    """

    scope: Any = None
    leaves: Iterable[Ref | int] | None = None
    dirt_only: Iterable[Ref | int] = ()
    families: Sequence[str] = ()
    icechunk: bool = False
    tuple_width: int = 3
    target_nodes: int | None = None
    max_nodes: int | None = None
    attempts: int = 3
    barrier_timeout_s: float = 2700.0
    budget_s: float = 7200.0
    poll_s: float = 5.0
    lease_ttl_s: int | None = None
    run_id: str | None = None
    pipeline_run_id: str | None = None
    keep_complete: bool = False
    touch_policy: TouchPolicy = "auto"
    credentials: Credentials | None = None


def check_fleet_options(options: FleetOptions) -> None:
    """Refuse knobs that mean nothing, before anything is read.

    Raises
    ------
    DeclarationError
        Names the knob and its value.
    """
    if options.scope is None:
        raise DeclarationError(
            "a fleet run needs a scope: 'all' for the whole store, or the decimals of nodes to sweep",
            kind="scope",
        )
    refuse_companions(families=options.families, icechunk=options.icechunk)
    check_touch_policy(options.touch_policy)
    if options.run_id is not None:
        check_run_id(options.run_id)
    check_knob("tuple_width", options.tuple_width, least=1)
    check_knob("target_nodes", options.target_nodes, least=0, none_means="tuples of one width")
    check_knob("max_nodes", options.max_nodes, least=1, none_means="the transport's choice")
    check_knob("attempts", options.attempts, least=1)
    check_knob("lease_ttl_s", options.lease_ttl_s, least=MIN_TTL_S, none_means="the workers' default")
    if options.lease_ttl_s is not None and options.lease_ttl_s > MAX_TTL_S:
        raise DeclarationError(
            f"lease_ttl_s is {options.lease_ttl_s!r}, expected at most {MAX_TTL_S} (a week)", kind="knob"
        )
    for name in ("barrier_timeout_s", "budget_s", "poll_s"):
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise DeclarationError(f"{name} is {value!r}, expected seconds above 0", kind="knob")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSummary:
    """What a fleet run did, as the dispatcher knows it.

    ``document`` has the keys of semantics 12.7; ``unfinished`` names batches that no worker
    finished (nodes, unit, window, attempts, last error).
    """

    run_id: str
    document: dict[str, Any]
    unfinished: tuple[dict[str, Any], ...] = field(default=())

    @property
    def is_complete(self) -> bool:
        """Whether every batch and the finisher landed, and no worker counted a failure."""
        return not self.unfinished and bool(self.document["finisher"]["landed"]) and not self.n_failed

    @property
    def n_failed(self) -> int:
        return self.count("failed")

    @property
    def n_under_covered(self) -> int:
        """Artifacts that were written without all their sources."""
        return self.count("under_covered")

    @property
    def under_covered(self) -> Mapping[str, int]:
        """What lacks sources, written now or before, with how many; as of a sweep in one process."""
        found = self.document["finisher"].get("under_covered")
        return found if isinstance(found, Mapping) else {}

    def count(self, *keys: str) -> int:
        """Counters of the workers' rows, summed; 0 where the finisher did not land."""
        rows = rows_of(self.document["finisher"])
        return sum(counted(row, key) for row in rows for key in keys)

    def to_json(self) -> dict[str, Any]:
        return self.document
