"""Watching a status prefix: what is fresh, where a LIST begins, and faults in a row.

Source: semantics 12.6.
"""

from __future__ import annotations

import json

import pytest
from tests.support.fleets import EventClock, PlayedFleet, lands
from tests.support.sweeping import memory

from sweep.errors import AccessError, StoreUnavailableError
from sweep.fleet.poller import Poller
from sweep.store.base import ObjectStore
from sweep.testing.stores import CountingStore, Fault, FaultyStore


def failure(status: ObjectStore, batch: int, attempt: int = 1) -> None:
    fleet = PlayedFleet(status, EventClock(), lands)
    fleet.fail({"role": "stage", "dispatch": 3, "batch": batch, "attempt": attempt}, "retry")


def test_what_stood_before_is_ignored_until_it_is_rewritten() -> None:
    status = memory()
    status.put("stage-03-0000.json", b"old")
    status.put("stage-03-0001.json", b"old")
    status.put("finisher.json", b"old")
    failure(status, 0)
    poller = Poller(status)
    assert [info.key for info in poller.snapshot()] == ["stage-03-0000.json", "stage-03-0001.json"]
    assert (poller.has_stale_records, poller.is_stale("finisher.json")) == (True, True)
    assert (poller.records(None), poller.failures(), poller.finisher()) == ([], [], False)
    status.put("stage-03-0001.json", b"old")  # the same bytes, put again
    status.put("stage-03-0002.json", b"new")
    status.put("finisher.json", b"new")
    failure(status, 0)
    assert poller.records(None) == ["stage-03-0001.json", "stage-03-0002.json"]
    assert [each.batch for each in poller.failures()] == [0]
    assert poller.finisher()


def test_an_empty_prefix() -> None:
    poller = Poller(memory())
    assert poller.snapshot() == []
    assert (poller.has_stale_records, poller.is_stale("finisher.json")) == (False, False)
    assert (poller.records(None), poller.failures(), poller.finisher()) == ([], [], False)


def test_a_list_begins_at_the_first_missing_record() -> None:
    status = CountingStore(memory())
    names = [f"stage-03-{number:04d}.json" for number in (9_998, 9_999, 10_000, 10_001)]
    for name in names:
        status.put(name, b"{}")
    poller = Poller(status)
    assert poller.records(None) == sorted(names)
    assert poller.records("stage-03-10001.json") == [names[3], names[0], names[1]]
    assert poller.records("stage-03-9999.json") == [names[1]]
    assert poller.records("stage-03-9999.jsonx") == []
    assert poller.records("stage-04-0000.json") == []


def test_neighbours_are_no_records() -> None:
    status = memory()
    for name in ("error-03-0000-1.json", "finisher.json", "stage", "stage-03-0000.json", "stagf", "z"):
        status.put(name, b"{}")
    poller = Poller(status)
    assert poller.records(None) == ["stage-03-0000.json"]
    assert poller.failures() == []


def test_a_failure_is_read_once_and_garbage_is_passed_over() -> None:
    inner = memory()
    status = CountingStore(inner)
    failure(inner, 0)
    failure(inner, 1)
    inner.put("error-03-0002-1.json", b"{")
    poller = Poller(status)
    assert [each.batch for each in poller.failures()] == [0, 1]
    assert poller.failures() == []
    failure(inner, 1, attempt=2)
    assert [(each.batch, each.attempt) for each in poller.failures()] == [(1, 2)]
    assert status.calls["get"] == 4


def test_two_lists_a_poll() -> None:
    status = CountingStore(memory())
    poller = Poller(status)
    poller.records(None)
    poller.failures()
    assert dict(status.calls) == {"list": 2}


def unavailable() -> StoreUnavailableError:
    return StoreUnavailableError("no answer on purpose")


def test_faults_in_a_row_are_of_polls() -> None:
    """A poll counts as one that was answered only where its last call was."""
    inner = memory()
    failure(inner, 0)
    broken = {"get"}
    status = FaultyStore(
        inner,
        lambda _number, method, _key: Fault(before=unavailable()) if method in broken else None,
        methods=("get", "list"),
    )
    poller = Poller(status)
    for in_a_row in (1, 2, 3):
        assert poller.records(None) == []
        with pytest.raises(StoreUnavailableError):
            poller.failures()
        assert poller.faults == in_a_row
    broken.clear()
    assert [each.batch for each in poller.failures()] == [0]  # the one that could not be read
    assert poller.faults == 0
    broken.add("list")
    for call in (lambda: poller.records(None), poller.failures, poller.finisher):
        with pytest.raises(StoreUnavailableError):
            call()
    assert poller.faults == 3


def test_no_access_is_not_counted_but_raised() -> None:
    status = FaultyStore(memory(), lambda *_: Fault(before=AccessError("no")), methods=("list",))
    poller = Poller(status)
    with pytest.raises(AccessError):
        poller.records(None)
    assert poller.faults == 0


def test_faults_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    status = FaultyStore(memory(), lambda *_: Fault(before=unavailable()), methods=("list",))
    with pytest.raises(StoreUnavailableError):
        Poller(status).records(None)
    (entry,) = caplog.records
    assert (entry.__dict__["event"], entry.__dict__["in_a_row"]) == ("poll-failed", 1)
    assert json.dumps(entry.__dict__["why"]) == '"no answer on purpose"'
