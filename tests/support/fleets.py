"""A fleet that is played: a clock on which things happen, workers that follow a script, and runs."""

import heapq
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mortie import generate_morton_children
from tests.support.sweeping import START, make_runtime

from sweep.control.records import Failure, Reaction
from sweep.events import Observer, ignore
from sweep.fleet.barrier import Barrier, Budget
from sweep.fleet.board import Board, Task
from sweep.fleet.dispatcher import Dispatcher
from sweep.fleet.inline import InlineTransport
from sweep.fleet.opening import Opener
from sweep.fleet.options import FleetOptions, FleetSummary
from sweep.fleet.poller import Poller
from sweep.fleet.transport import Delivery, Envelope, Limits, Lost, Submission, Transport
from sweep.model.clock import Clock
from sweep.model.invocation import failure_name, finisher_failure_name, partial_name, record_name
from sweep.plan.leaves import work_set_of_arrays
from sweep.plan.packing import Batch, close_fan_out, fan_outs, pack
from sweep.plan.tuples import OrderTuple
from sweep.stage.batch import Worker
from sweep.store.base import ObjectStore
from sweep.store.open import open_store
from sweep.testing.clocks import FakeClock

Json = dict[str, Any]
RUN = "stage-played"


class EventClock(FakeClock):
    """A fake clock on which things happen while somebody sleeps."""

    def __init__(self) -> None:
        super().__init__(START)
        self._coming: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self.naps: list[float] = []

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """Let something happen in ``seconds``."""
        heapq.heappush(self._coming, (self.monotonic() + seconds, next(self._numbers), act))

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        until = self.monotonic() + seconds
        while self._coming and self._coming[0][0] <= until:
            moment, _, act = heapq.heappop(self._coming)
            super().sleep(moment - self.monotonic())
            act()
        super().sleep(until - self.monotonic())


Script = Callable[[Json, "PlayedFleet"], "Submission | Delivery | None"]


class PlayedFleet:
    """A transport whose workers do what a script says, and write what workers write.

    The script is called with the stage block of an event (its envelope's name under
    ``key``) and this fleet. It returns a submission or delivery; None is accepted.
    """

    name = "played"

    def __init__(
        self, status: ObjectStore, clock: Clock, script: Script, limits: Limits | None = None
    ) -> None:
        self.status = status
        self.clock = clock
        self.script = script
        self.limits = limits or Limits()
        self.fired: list[Json] = []
        self._lost: list[Lost] = []

    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        return [self._submit(envelope) for envelope in envelopes]

    def _submit(self, envelope: Envelope) -> Submission:
        event = {**json.loads(envelope.payload)["stage"], "key": envelope.key}
        self.fired.append(event)
        outcome = self.script(event, self) or Delivery.ACCEPTED
        if isinstance(outcome, Delivery):
            return Submission(key=envelope.key, delivery=outcome, reason="as played")
        return outcome

    def lost(self) -> list[Lost]:
        found, self._lost = self._lost, []
        return found

    def pending(self) -> int:
        return 0

    def close(self, *, cancel: bool = False) -> None:
        pass

    def land(self, event: Json, **more: Any) -> None:
        """Put the record of an event: all of its nodes are done."""
        self.status.put(record_name(event["dispatch"], event["batch"]), json.dumps(event | more).encode())

    def land_part(self, event: Json) -> None:
        """Put the record of a part."""
        name = partial_name(event["dispatch"], event["batch"], event.get("attempt", 1))
        self.status.put(name, json.dumps(event).encode())

    def fail(self, event: Json, reaction: Reaction, *, remaining: Sequence[str] = (), **more: Any) -> None:
        """Put a failure record."""
        attempt = event.get("attempt", 1)
        is_finisher = event["role"] == "finisher"
        fields: Json = {
            "run_id": RUN,
            "run_started": "",
            "dispatch": event.get("dispatch", 0),
            "batch": event.get("batch", 0),
            "attempt": attempt,
            "unit": "finisher" if is_finisher else event.get("unit"),
            "window": event.get("window"),
            "nodes": tuple(event.get("nodes", ())),
            "remaining": tuple(remaining),
            "reaction": reaction,
            "error_class": "PlayedError",
            "kind": "played",
            "error": f"asked to {reaction}",
            "request_id": None,
            "at": "",
        }
        failure = Failure(**(fields | more))
        name = failure_name(failure.dispatch, failure.batch, attempt)
        name = finisher_failure_name(attempt) if is_finisher else name
        self.status.put(name, json.dumps(failure.to_json()).encode())

    def lose(self, event: Json, cause: str = "killed") -> None:
        """Know a worker to be dead."""
        self._lost.append(Lost(key=event["key"], cause=cause, detail="as played"))

    def tries(self) -> list[tuple[int, int]]:
        """Batch and attempt of everything that was fired, in order."""
        return [(event["batch"], event.get("attempt", 1)) for event in self.fired]


def lands(event: Json, fleet: PlayedFleet) -> None:
    """The worker that does its work at once."""
    fleet.land(event)


def by_try(script: Mapping[tuple[int, int], Script], otherwise: Script = lands) -> Script:
    """A script for each (batch, attempt)."""

    def play(event: Json, fleet: PlayedFleet) -> Submission | Delivery | None:
        chosen = script.get((event["batch"], event.get("attempt", 1)), otherwise)
        return chosen(event, fleet)

    return play


TUPLE = OrderTuple(dispatch_order=2, child_order=3)


def batches_of(n_batches: int, *, size: int = 1, unit: str | None = None, order: int = 2) -> list[Batch]:
    """``n_batches`` batches of ``size`` nodes of one fan-out; one leaf under each node."""
    if n_batches == 0:
        return []
    n_nodes = n_batches * size
    words = generate_morton_children(1 << 60, order)
    for base in range(2, 13):
        if len(words) < n_nodes:
            words = np.concatenate([words, generate_morton_children(base << 60, order)])
    leaves = np.array([int(generate_morton_children(int(w), order + 1)[0]) for w in words[:n_nodes]], "u8")
    order_tuple = OrderTuple(dispatch_order=order, child_order=order + 1)
    work = work_set_of_arrays(leaves, None, order + 1)
    if unit == "close":
        out = close_fan_out(order_tuple, work=work, scope=None)
        assert out is not None
    else:
        (out,) = fan_outs(order_tuple, work=work, scope=None, is_windowed=False)
    found = pack(out, cap_bytes=10**6, max_nodes=size, measure=lambda batch: 0)
    assert len(found) == n_batches
    return found


def board_of(n_batches: int, *, first: int = 0, attempts: int = 3, **more: Any) -> Board:
    """A board of batches as :func:`batches_of` makes them."""
    return Board(batches_of(n_batches, **more), first_number=first, attempts=attempts)


def payload_of(task: Task) -> bytes:
    """The part of an event that the player looks at."""
    fan_out = task.batch.fan_out
    stage = {"role": "stage", "dispatch": task.dispatch, "batch": task.number, "nodes": task.batch.nodes()}
    stage |= {"unit": fan_out.unit, "window": fan_out.window, "attempt": task.attempt}
    return json.dumps({"stage": stage}).encode()


def played_barrier(
    fleet: PlayedFleet,
    status: ObjectStore | None = None,
    *,
    timeout_s: float = 1000.0,
    poll_s: float = 5.0,
    budget_s: float = 10_000.0,
    progress: Callable[[Sequence[Board], float], None] = lambda boards, waited_s: None,
) -> Barrier:
    """A barrier before a played fleet, which looks through ``status`` where that is another view."""
    return Barrier(
        transport=fleet,
        poller=Poller(status or fleet.status),
        clock=fleet.clock,
        payload=payload_of,
        timeout_s=timeout_s,
        poll_s=poll_s,
        budget=Budget(left_s=budget_s),
        progress=progress,
    )


def inline_fleet(clock: Clock | None = None, **more: Any) -> InlineTransport:
    """Workers in this process, on stores in its memory."""
    return InlineTransport(Worker(runtime=make_runtime(clock), open_store=Opener()), **more)


def run_fleet_on(
    store: ObjectStore,
    transport: Transport | None = None,
    *,
    clock: Clock | None = None,
    observer: Observer = ignore,
    status: Callable[[str], ObjectStore] = open_store,
    **options: Any,
) -> FleetSummary:
    """Run a fleet over a store with the named options."""
    return dispatcher_on(store, transport, clock=clock, observer=observer, status=status, **options).run()


def dispatcher_on(
    store: ObjectStore,
    transport: Transport | None = None,
    *,
    clock: Clock | None = None,
    observer: Observer = ignore,
    status: Callable[[str], ObjectStore] = open_store,
    **options: Any,
) -> Dispatcher:
    """The dispatcher of such a run."""
    clock = clock or FakeClock(START)
    asked: Json = {"scope": "all", "run_id": RUN, "max_nodes": 1} | options
    return Dispatcher(
        store, status, transport or inline_fleet(clock), FleetOptions(**asked), make_runtime(clock, observer)
    )
