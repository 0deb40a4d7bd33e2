"""What every transport must do. Subclass :class:`TransportContract` and give it a ``transport`` fixture.

The transport hands its events to :func:`sweep.testing.recording.record`. A transport says
in the class's attributes what it cannot do, and the suite holds it to that word.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sweep.fleet.transport import Delivery, Envelope, Lost, Submission, Transport
from sweep.testing.recording import Notes
from sweep.testing.waiting import eventually

__all__ = ["TransportContract"]

ACCEPTED, REFUSED = Delivery.ACCEPTED, Delivery.REFUSED


class TransportContract:
    """The contract of :class:`sweep.fleet.transport.Transport`.

    Attributes
    ----------
    name : str
        What the transport calls itself.
    is_asynchronous : bool
        ``submit`` returns before the work is done; otherwise after it.
    knows_pending : bool
        ``pending`` counts what is queued or running; otherwise it is always 0.
    kills : tuple of str
        What an event may say to lose its worker; empty where the transport cannot know of it.
    lost_to : str
        The cause that is then reported.
    drops : bool
        ``close(cancel=True)`` drops what has not started; otherwise it is out of reach.
    crosses_processes : bool
        Events leave this process, so that a store in its memory is refused.
    patience_s : float
        How long what should happen may take; more where workers are slow to start.
    """

    name: ClassVar[str]
    is_asynchronous: ClassVar[bool] = True
    knows_pending: ClassVar[bool] = True
    kills: ClassVar[tuple[str, ...]] = ("die", "raise")
    lost_to: ClassVar[str] = "killed"
    drops: ClassVar[bool] = True
    crosses_processes: ClassVar[bool] = True
    patience_s: ClassVar[float] = 20.0

    @pytest.fixture
    def transport(self) -> Transport:
        """A transport that no other test uses, with one worker where it has a number of them."""
        raise NotImplementedError

    @pytest.fixture
    def notes(self, tmp_path: Path) -> Notes:
        return Notes(tmp_path)

    def eventually[T](self, look: Callable[[], T]) -> T:
        return eventually(look, timeout_s=self.patience_s)

    @pytest.mark.parametrize(
        "more",
        [
            {"z": 1, "a": [2, None, True, 1.5e300], "": {"nested": []}},
            {"words": [9223372036854775812, 18446744073709551615, -1]},
            {"text": 'Übergröße \u2028 "quoted" \\ \U0001f30d\t'},
            {"filler": "x" * 200_000},
        ],
        ids=["order of keys", "64-bit words", "odd text", "200 kB"],
    )
    def test_an_event_arrives_as_it_was_sent(
        self, transport: Transport, notes: Notes, more: dict[str, Any]
    ) -> None:
        payload = notes.event("one", **more)
        assert transport.submit([Envelope(key="k", payload=payload)]) == [
            Submission(key="k", delivery=ACCEPTED)
        ]
        assert self.eventually(lambda: notes.seen("one")) == [payload]

    def test_spelling_of_an_event_is_kept(self, transport: Transport, notes: Notes) -> None:
        payload = json.dumps(json.loads(notes.event("one")), indent=3).encode() + b"\n"
        transport.submit([Envelope(key="k", payload=payload)])
        assert self.eventually(lambda: notes.seen("one")) == [payload]

    def test_many_events_arrive_once_each(self, transport: Transport, notes: Notes) -> None:
        names = [f"event-{number}" for number in range(50)]
        outcomes = transport.submit([Envelope(key=name, payload=notes.event(name)) for name in names])
        assert [outcome.key for outcome in outcomes] == names
        assert {outcome.delivery for outcome in outcomes} == {ACCEPTED}
        self.eventually(lambda: all(map(notes.is_done, names)))
        assert [len(notes.seen(name)) for name in names] == [1] * len(names)
        assert self.eventually(lambda: transport.pending() == 0)
        assert transport.lost() == []

    def test_outcomes_stand_in_the_order_of_the_events(self, transport: Transport, notes: Notes) -> None:
        too_large = notes.event("big", filler="x" * transport.limits.payload_bytes)
        outcomes = transport.submit(
            [
                Envelope(key="c", payload=notes.event("c")),
                Envelope(key="big", payload=too_large),
                Envelope(key="a", payload=notes.event("a")),
            ]
        )
        assert [(each.key, each.delivery) for each in outcomes] == [
            ("c", ACCEPTED),
            ("big", REFUSED),
            ("a", ACCEPTED),
        ]
        assert f"{len(too_large):,}" in outcomes[1].reason
        assert f"{transport.limits.payload_bytes:,}" in outcomes[1].reason
        self.eventually(lambda: notes.is_done("a") and notes.is_done("c"))
        assert notes.seen("big") == []

    def test_an_event_of_just_the_limit_is_taken(self, transport: Transport, notes: Notes) -> None:
        room = transport.limits.payload_bytes - len(notes.event("full", filler=""))
        payload = notes.event("full", filler="x" * room)
        assert len(payload) == transport.limits.payload_bytes
        longer = notes.event("over", filler="x" * (room + 1))
        taken, refused = transport.submit(
            [Envelope(key="full", payload=payload), Envelope(key="over", payload=longer)]
        )
        assert (taken.delivery, refused.delivery) == (ACCEPTED, REFUSED)
        assert self.eventually(lambda: notes.seen("full")) == [payload]

    def test_a_store_in_memory_does_not_leave_its_process(self, transport: Transport, notes: Notes) -> None:
        payload = notes.event("memory", store_path="memory://here/store")
        (outcome,) = transport.submit([Envelope(key="k", payload=payload)])
        if self.crosses_processes:
            assert outcome.delivery is REFUSED
            assert "memory://here/store" in outcome.reason
        else:
            assert outcome.delivery is ACCEPTED

    def test_no_events_are_no_outcomes(self, transport: Transport) -> None:
        assert transport.submit([]) == []
        assert transport.pending() == 0
        assert transport.lost() == []

    def test_submit_does_not_wait_for_the_work(self, transport: Transport, notes: Notes) -> None:
        if not self.is_asynchronous:
            transport.submit([Envelope(key="k", payload=notes.event("one"))])
            assert notes.is_done("one")
            return
        transport.submit([Envelope(key=name, payload=notes.event(name, "hold")) for name in ("one", "two")])
        assert transport.pending() == (2 if self.knows_pending else 0)
        self.eventually(lambda: notes.seen("one"))
        assert not notes.is_done("one")
        for name in ("one", "two"):
            notes.release(name)
        self.eventually(lambda: notes.is_done("one") and notes.is_done("two"))
        self.eventually(lambda: transport.pending() == 0)

    def test_a_lost_event_is_named_once_and_the_next_is_served(
        self, transport: Transport, notes: Notes
    ) -> None:
        if not self.kills:
            transport.submit([Envelope(key="k", payload=notes.event("one", "raise"))])
            self.eventually(lambda: notes.seen("one"))
            assert transport.lost() == []
            return
        for way in self.kills:
            transport.submit([Envelope(key=f"gone-{way}", payload=notes.event(f"lost-{way}", way))])
            (lost,) = self.eventually(transport.lost)
            assert isinstance(lost, Lost)
            assert (lost.key, lost.cause) == (f"gone-{way}", self.lost_to)
            assert lost.detail
            assert transport.lost() == []
            assert transport.pending() == 0
            transport.submit([Envelope(key="next", payload=notes.event(f"after-{way}"))])
            self.eventually(partial(notes.is_done, f"after-{way}"))
            self.eventually(lambda: transport.pending() == 0)
            assert transport.lost() == []

    def test_closing_lets_what_was_accepted_end(self, transport: Transport, notes: Notes) -> None:
        names = ("one", "two", "three")
        transport.submit([Envelope(key=name, payload=notes.event(name)) for name in names])
        transport.close()
        if self.knows_pending:
            assert all(map(notes.is_done, names))
            assert transport.pending() == 0
        else:
            self.eventually(lambda: all(map(notes.is_done, names)))

    def test_closing_twice_is_closing_once(self, transport: Transport, notes: Notes) -> None:
        transport.close()
        transport.close(cancel=True)
        transport.close()
        (outcome,) = transport.submit([Envelope(key="k", payload=notes.event("late"))])
        assert outcome.delivery is REFUSED
        assert "closed" in outcome.reason
        assert transport.pending() == 0
        assert notes.seen("late") == []

    def test_cancelling_drops_what_has_not_started(self, transport: Transport, notes: Notes) -> None:
        if not self.is_asynchronous:
            transport.close(cancel=True)
            assert transport.lost() == []
            return
        transport.submit([Envelope(key="runs", payload=notes.event("runs", "hold"))])
        self.eventually(lambda: notes.seen("runs"))
        transport.submit([Envelope(key="waits", payload=notes.event("waits"))])
        notes.release("runs") if not self.drops else None
        transport.close(cancel=True)
        assert transport.pending() == 0
        if self.drops:
            lost = {each.key: each.cause for each in transport.lost()}
            assert lost["waits"] == "dropped"
            assert notes.seen("waits") == []
            notes.release("runs")
        else:
            self.eventually(lambda: notes.is_done("waits"))

    def test_it_says_what_it_is(self, transport: Transport) -> None:
        assert transport.name == self.name
        assert transport.limits.payload_bytes > 0
        assert transport.limits.in_flight > 0
