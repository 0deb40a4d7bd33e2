"""What every store adapter must do. Subclass :class:`StoreContract` and give it a ``store`` fixture.

An adapter says in ``capabilities`` what it lacks, and the suite holds it to that word.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from sweep.errors import DeclarationError
from sweep.store.base import DELETED, Listing, ObjectStore, Refused, Written
from sweep.store.io import clear_prefix, delete_all, fetch, put_all

__all__ = ["StoreContract", "StoreRaceContract"]

ODD_KEYS = (
    "2/1-2/all.zarr/zarr.json",
    "a b/c  d",
    "percent/%41%2F",
    "marks/!$&'()+,;=@~#?[]{}",
    "dots/.hidden",
    "dots/..two",
    "UPPER/lower",
    "long/" + "x" * 200,
)
BAD_KEYS = ("", "/a", "a/", "a//b", "../a", "a/./b", "a/..", "a\nb")


def _keys(store: ObjectStore, prefix: str = "", start_after: str | None = None) -> list[str]:
    return [info.key for info in store.list(prefix, start_after=start_after)]


class StoreContract:
    """The sequential half of the contract."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        """An empty store that no other test sees. Subclasses override it."""
        raise NotImplementedError

    def test_a_missing_object_is_an_outcome_of_every_call(self, store: ObjectStore) -> None:
        assert store.get("no/such") is None
        assert store.get_versioned("no/such") is None
        assert store.get_range("no/such", 0, 5) is None
        assert store.get_range("no/such", 3, 0) is None
        assert store.get_suffix("no/such", 5) is None
        assert store.put_if_match("no/such", b"x", '"0"') is Refused.MISSING
        assert store.touch("no/such") is False
        assert _keys(store) == []
        store.delete("no/such")
        assert store.list_dir() == Listing((), ())

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)), b"y" * 70_000], ids=len)
    def test_what_is_put_is_got(self, store: ObjectStore, data: bytes) -> None:
        store.put("a/b", data)
        assert store.get("a/b") == data
        seen = store.get_versioned("a/b")
        assert seen is not None
        assert seen.data == data

    def test_a_large_object_survives(self, store: ObjectStore) -> None:
        data = bytes(range(256)) * (17 * 4096)  # 17 MiB: more than one upload carries
        store.put("large", data)
        assert store.get("large") == data
        assert store.get_range("large", len(data) - 3, 10) == data[-3:]

    def test_put_replaces(self, store: ObjectStore) -> None:
        store.put("a", b"first, and longer")
        store.put("a", b"second")
        assert store.get("a") == b"second"
        assert _keys(store) == ["a"]

    def test_a_key_inside_an_object_is_missing(self, store: ObjectStore) -> None:
        store.put("a", b"x")
        assert store.get("a/b") is None
        assert store.get_suffix("a/b", 1) is None
        assert store.put_if_match("a/b", b"y", '"0"') is Refused.MISSING
        store.delete("a/b")
        assert store.get("a") == b"x"

    def test_a_prefix_is_no_object(self, store: ObjectStore) -> None:
        store.put("a/b", b"x")
        assert store.get("a") is None
        assert store.get_versioned("a") is None
        assert store.get_range("a", 0, 1) is None
        assert store.touch("a") is False
        store.delete("a")
        assert store.get("a/b") == b"x"

    @pytest.mark.parametrize(
        ("start", "length", "expected"),
        [(0, 3, b"012"), (4, 3, b"456"), (8, 10, b"89"), (0, 99, b"0123456789"), (10, 1, b""), (50, 1, b"")],
    )
    def test_ranges(self, store: ObjectStore, start: int, length: int, expected: bytes) -> None:
        store.put("digits", b"0123456789")
        assert store.get_range("digits", start, length) == expected

    def test_an_empty_range_of_an_object_is_empty(self, store: ObjectStore) -> None:
        store.put("digits", b"0123456789")
        assert store.get_range("digits", 2, 0) == b""

    @pytest.mark.parametrize(("length", "expected"), [(1, b"9"), (4, b"6789"), (99, b"0123456789"), (0, b"")])
    def test_suffixes(self, store: ObjectStore, length: int, expected: bytes) -> None:
        store.put("digits", b"0123456789")
        assert store.get_suffix("digits", length) == expected

    def test_ranges_of_an_object_of_no_bytes(self, store: ObjectStore) -> None:
        store.put("empty", b"")
        assert store.get_range("empty", 0, 4) == b""
        assert store.get_suffix("empty", 4) == b""
        assert [info.size for info in store.list()] == [0]

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_odd_keys_are_kept_as_they_are(self, store: ObjectStore, key: str) -> None:
        store.put(key, b"odd")
        assert store.get(key) == b"odd"
        assert _keys(store) == [key]
        assert store.put_if_absent(key, b"again") is Refused.EXISTS
        seen = store.get_versioned(key)
        assert seen is not None
        if store.capabilities.conditional_delete:
            assert store.delete_if_match(key, seen.etag) is DELETED
        else:
            store.delete(key)
        assert store.get(key) is None

    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_malformed_keys_are_refused(self, store: ObjectStore, key: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.get(key),
            lambda: store.put(key, b""),
            lambda: store.delete(key),
            lambda: store.put_if_absent(key, b""),
        ]
        for call in calls:
            with pytest.raises(DeclarationError) as caught:
                call()
            assert repr(key) in str(caught.value)
        assert _keys(store) == []

    def test_create_once(self, store: ObjectStore) -> None:
        created = store.put_if_absent("lease", b"one")
        assert isinstance(created, Written)
        seen = store.get_versioned("lease")
        assert seen is not None
        assert (seen.data, seen.etag) == (b"one", created.etag)
        assert store.put_if_absent("lease", b"two") is Refused.EXISTS
        assert store.get("lease") == b"one"
        store.delete("lease")
        assert isinstance(store.put_if_absent("lease", b"three"), Written)

    def test_swap_only_the_version_that_was_seen(self, store: ObjectStore) -> None:
        store.put("lease", b"one")
        first = store.get_versioned("lease")
        assert first is not None
        second = store.put_if_match("lease", b"two", first.etag)
        assert isinstance(second, Written)
        assert second.etag != first.etag
        assert store.put_if_match("lease", b"three", first.etag) is Refused.MISMATCH
        assert store.get("lease") == b"two"
        assert isinstance(store.put_if_match("lease", b"three", second.etag), Written)
        store.delete("lease")
        assert store.put_if_match("lease", b"four", second.etag) is Refused.MISSING
        assert store.get("lease") is None

    def test_delete_only_the_version_that_was_seen(self, store: ObjectStore) -> None:
        store.put("lease", b"one")
        first = store.get_versioned("lease")
        assert first is not None
        if not store.capabilities.conditional_delete:
            with pytest.raises(DeclarationError) as caught:
                store.delete_if_match("lease", first.etag)
            assert caught.value.kind == "unsupported"
            assert store.get("lease") == b"one"
            return
        store.put("lease", b"two")
        assert store.delete_if_match("lease", first.etag) is Refused.MISMATCH
        assert store.get("lease") == b"two"
        second = store.get_versioned("lease")
        assert second is not None
        assert store.delete_if_match("lease", second.etag) is DELETED
        assert store.get("lease") is None
        assert store.delete_if_match("lease", second.etag) is Refused.MISSING

    def test_asking_for_capabilities_leaves_no_object(self, store: ObjectStore) -> None:
        assert store.capabilities == store.capabilities
        assert _keys(store) == []

    def test_list_is_recursive_and_in_key_order(self, store: ObjectStore) -> None:
        keys = ["a-b", "a.zarr/0", "a/1/x", "a/2", "a0", "b/c", "z"]
        for key in reversed(keys):
            store.put(key, key.encode())
        assert _keys(store) == keys == sorted(keys)
        assert _keys(store, "a") == _keys(store, "a/") == ["a/1/x", "a/2"]
        assert _keys(store, "a/1/x") == _keys(store, "nothing") == []

    @pytest.mark.parametrize("after", ["a", "a-b", "a/1", "a/1/x", "a/1/x0", "a/2", "a.zarr/", "b", "zz"])
    def test_list_starts_after_a_key(self, store: ObjectStore, after: str) -> None:
        keys = ["a-b", "a.zarr/0", "a/1/x", "a/2", "a0", "b/c", "z"]
        for key in keys:
            store.put(key, b"")
        assert _keys(store, start_after=after) == [key for key in keys if key > after]
        assert _keys(store, "a", after) == [key for key in ("a/1/x", "a/2") if key > after]

    def test_list_says_size_and_time(self, store: ObjectStore) -> None:
        store.put("a", b"12345")
        (info,) = store.list()
        assert info.size == 5
        assert info.modified is not None
        assert abs(datetime.now(UTC) - info.modified) < timedelta(minutes=2)

    def test_list_goes_beyond_one_page(self, store: ObjectStore) -> None:
        keys = [f"n/{number:04d}/x" for number in range(1203)]
        assert put_all(store, ((key, b"") for key in keys)) == len(keys)
        assert _keys(store) == keys
        assert _keys(store, "n", keys[1001]) == keys[1002:]
        assert len(store.list_dir("n").prefixes) == len(keys)
        assert clear_prefix(store, "n") == len(keys)
        assert _keys(store) == []

    def test_list_dir_is_one_level(self, store: ObjectStore) -> None:
        for key in ("a/1/x", "a/1/y/z", "a/2", "a.zarr/0", "b", "c/d"):
            store.put(key, b"")
        top = store.list_dir()
        assert [info.key for info in top.objects] == ["b"]
        assert top.prefixes == ("a", "a.zarr", "c")
        below = store.list_dir("a/")
        assert [info.key for info in below.objects] == ["a/2"]
        assert below.prefixes == ("a/1",)
        assert store.list_dir("b") == store.list_dir("no")

    def test_a_prefix_without_objects_is_gone(self, store: ObjectStore) -> None:
        store.put("a/b/c", b"")
        store.put("d", b"")
        store.delete("a/b/c")
        assert store.list_dir().prefixes == ()
        assert _keys(store) == ["d"]

    def test_touch_leaves_the_bytes(self, store: ObjectStore) -> None:
        store.put("a", b"12345")
        (before,) = store.list()
        assert store.touch("a") is True
        (after,) = store.list()
        assert store.get("a") == b"12345"
        assert before.modified is not None
        assert after.modified is not None
        assert after.modified >= before.modified

    def test_a_sibling_is_another_store(self, store: ObjectStore) -> None:
        status = store.sibling(".status")
        assert status.root == store.root + ".status"
        store.put("a", b"here")
        status.put("b", b"there")
        try:
            assert _keys(store) == ["a"]
            assert _keys(status) == ["b"]
            assert store.sibling(".status").get("b") == b"there"
        finally:
            status.delete("b")

    def test_many_at_once(self, store: ObjectStore) -> None:
        items = [(f"k/{number}", str(number).encode()) for number in range(100)]
        put_all(store, items)
        assert fetch(store, ["no", *(key for key, _ in items)]) == [None, *(data for _, data in items)]
        assert delete_all(store, [key for key, _ in items[:60]]) == 60
        assert _keys(store) == sorted(key for key, _ in items[60:])

    def test_clear_takes_the_stamp_and_leaves_the_neighbours(self, store: ObjectStore) -> None:
        for key in ("x.zarr/zarr.json", "x.zarr/5/c/0", "x.zarr.stats", "x"):
            if key != "x":
                store.put(key, b"")
        assert clear_prefix(store, "x.zarr", first="x.zarr/zarr.json") == 2
        assert _keys(store) == ["x.zarr.stats"]
        assert clear_prefix(store, "x.zarr", first="x.zarr/zarr.json") == 0


class StoreRaceContract:
    """The concurrent half: for adapters and servers whose conditional writes are atomic."""

    N_THREADS = 8

    @pytest.fixture
    def store(self) -> ObjectStore:
        """An empty store that no other test sees. Subclasses override it."""
        raise NotImplementedError

    def _race[R](self, act: Callable[[int], R]) -> list[R]:
        barrier = threading.Barrier(self.N_THREADS)

        def one(number: int) -> R:
            barrier.wait()
            return act(number)

        with ThreadPoolExecutor(self.N_THREADS) as pool:
            return list(pool.map(one, range(self.N_THREADS)))

    def test_one_of_many_creates(self, store: ObjectStore) -> None:
        for turn in range(10):
            outcomes = self._race(lambda n, turn=turn: store.put_if_absent(f"k{turn}", b"%d" % n))  # type: ignore[misc]
            winners = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Written)]
            assert len(winners) == 1
            assert store.get(f"k{turn}") == b"%d" % winners[0]
            assert outcomes.count(Refused.EXISTS) == self.N_THREADS - 1

    def test_no_increment_is_lost(self, store: ObjectStore) -> None:
        store.put("counter", b"0")

        def increment(_: int) -> None:
            done = 0
            while done < 5:
                seen = store.get_versioned("counter")
                assert seen is not None
                outcome = store.put_if_match("counter", b"%d" % (int(seen.data) + 1), seen.etag)
                assert outcome is not Refused.MISSING
                done += isinstance(outcome, Written)

        self._race(increment)
        assert store.get("counter") == b"%d" % (5 * self.N_THREADS)

    def test_one_of_many_deletes(self, store: ObjectStore) -> None:
        if not store.capabilities.conditional_delete:
            return
        for turn in range(5):
            created = store.put_if_absent(f"k{turn}", b"x")
            assert isinstance(created, Written)
            etag = created.etag
            outcomes = self._race(lambda _, turn=turn, etag=etag: store.delete_if_match(f"k{turn}", etag))  # type: ignore[misc]
            assert outcomes.count(DELETED) == 1
            assert store.get(f"k{turn}") is None

    def test_a_swap_and_a_delete_of_one_version_exclude_each_other(self, store: ObjectStore) -> None:
        if not store.capabilities.conditional_delete:
            return
        for turn in range(10):
            key = f"k{turn}"
            created = store.put_if_absent(key, b"old")
            assert isinstance(created, Written)
            etag = created.etag

            def act(number: int, key: str = key, etag: str = etag) -> object:
                if number % 2:
                    return store.put_if_match(key, b"new-%d" % number, etag)
                return store.delete_if_match(key, etag)

            outcomes = self._race(act)
            done = [outcome for outcome in outcomes if not isinstance(outcome, Refused)]
            assert len(done) == 1
            assert (store.get(key) is None) == (done[0] is DELETED)

    def test_readers_see_one_whole_version(self, store: ObjectStore) -> None:
        size = 200_000
        store.put("page", b"0" * size)

        def act(number: int) -> None:
            for turn in range(10):
                if number % 2:
                    store.put("page", b"%d" % ((number + turn) % 10) * size)
                else:
                    page = store.get("page")
                    assert page is not None
                    assert len(page) == size
                    assert len(set(page)) == 1

        self._race(act)

    def test_folders_may_come_and_go(self, store: ObjectStore) -> None:
        def act(number: int) -> None:
            for turn in range(25):
                key = f"a/b/{number}/{turn % 3}"
                store.put(key, b"x")
                assert store.get(key) == b"x"
                store.delete(key)

        self._race(act)
        assert _keys(store) == []
