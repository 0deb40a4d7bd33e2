"""Many calls at once: order, bounds and errors."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from sweep.errors import StoreUnavailableError
from sweep.store.base import ObjectStore
from sweep.store.io import clear_prefix, delete_all, fetch, put_all
from sweep.store.open import open_store
from sweep.testing.stores import CountingStore, Fault, FaultyStore

_names = itertools.count()


class Wide(FaultyStore):
    """A store on which several calls in flight are worth having."""

    concurrency = 4


@pytest.fixture(params=[CountingStore, Wide])
def store(request: pytest.FixtureRequest) -> CountingStore:
    inner = open_store(f"memory://io-{next(_names)}")
    return Wide(inner, lambda *_: None) if request.param is Wide else CountingStore(inner)


def test_order_is_that_of_the_keys(store: CountingStore) -> None:
    assert put_all(store, ((str(number), b"%d" % number) for number in range(50))) == 50
    keys = [str(number) for number in (7, 99, 3, 7)]
    assert fetch(store, keys) == [b"7", None, b"3", b"7"]
    assert delete_all(store, [str(number) for number in range(49)]) == 49
    assert [info.key for info in store.list()] == ["49"]
    assert fetch(store, []) == []


def test_clear_takes_the_stamp_first(store: CountingStore) -> None:
    put_all(store, [(f"a/{number}", b"") for number in range(9)])
    store.log.clear()
    assert clear_prefix(store, "a", first="a/5") == 9
    deletes = [key for name, key in store.log if name == "delete"]
    assert deletes[0] == "a/5"
    assert sorted(deletes) == [f"a/{number}" for number in range(9)]


def test_an_error_waits_for_what_is_in_flight() -> None:
    inner = open_store(f"memory://io-{next(_names)}")
    slow, failed = threading.Event(), threading.Event()
    ended: list[str] = []

    def linger() -> None:
        failed.wait(10)
        slow.wait(0.05)
        ended.append("slow")

    def plan(number: int, name: str, key: str) -> Fault | None:
        if key == "bad":
            failed.set()
            return Fault(before=StoreUnavailableError("down"))
        if key == "slow":
            return Fault(hook=linger)
        return None

    store = Wide(inner, plan)
    with pytest.raises(StoreUnavailableError, match="down"):
        put_all(store, [("slow", b"1"), ("bad", b"2")])
    assert ended == ["slow"]
    assert inner.get("slow") == b"1"


def test_items_are_drawn_as_calls_become_free() -> None:
    inner = open_store(f"memory://io-{next(_names)}")
    store = Wide(inner, lambda *_: None)
    drawn: list[int] = []

    def items() -> Iterator[tuple[str, bytes]]:
        for number in range(200):
            drawn.append(number)
            assert number - store.calls["put"] <= 2 * Wide.concurrency + 1
            yield str(number), b""

    assert put_all(store, items()) == 200
    assert len(drawn) == 200


def test_an_error_stops_the_drawing() -> None:
    inner: ObjectStore = open_store(f"memory://io-{next(_names)}")
    store = Wide(
        inner, lambda number, *_: Fault(before=StoreUnavailableError("down")) if number == 3 else None
    )
    with pytest.raises(StoreUnavailableError):
        put_all(store, ((str(number), b"") for number in range(10_000)))
    assert store.calls["put"] < 100
