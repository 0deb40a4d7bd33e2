"""Stores for tests: one that counts, one that fails on cue."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sweep.errors import StoreUnavailableError
from sweep.store.base import (
    Capabilities,
    Deleted,
    Listing,
    ObjectInfo,
    ObjectStore,
    Refused,
    Versioned,
    Written,
)

__all__ = ["READS", "WRITES", "CountingStore", "Fault", "FaultyStore", "answer_lost"]

READS = ("get", "get_versioned", "get_range", "get_suffix", "list", "list_dir")
WRITES = ("put", "put_if_absent", "put_if_match", "delete", "delete_if_match", "touch")


class CountingStore:
    """``inner``, where every call is counted.

    Attributes
    ----------
    calls : Counter of str
        Calls by method.
    log : list of (str, str)
        Method and key (or prefix) in order.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()
        self.log: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    @property
    def root(self) -> str:
        return self.inner.root

    @property
    def concurrency(self) -> int:
        return self.inner.concurrency

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    @property
    def written(self) -> int:
        """Calls so far that change an object."""
        return sum(self.calls[name] for name in WRITES)

    def call[R](self, name: str, key: str, act: Callable[[], R]) -> R:
        """Count one call, then perform it."""
        with self._lock:
            self.calls[name] += 1
            self.log.append((name, key))
        return act()

    def get(self, key: str) -> bytes | None:
        return self.call("get", key, lambda: self.inner.get(key))

    def get_versioned(self, key: str) -> Versioned | None:
        return self.call("get_versioned", key, lambda: self.inner.get_versioned(key))

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        return self.call("get_range", key, lambda: self.inner.get_range(key, start, length))

    def get_suffix(self, key: str, length: int) -> bytes | None:
        return self.call("get_suffix", key, lambda: self.inner.get_suffix(key, length))

    def put(self, key: str, data: bytes) -> None:
        self.call("put", key, lambda: self.inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> Written | Refused:
        return self.call("put_if_absent", key, lambda: self.inner.put_if_absent(key, data))

    def put_if_match(self, key: str, data: bytes, etag: str) -> Written | Refused:
        return self.call("put_if_match", key, lambda: self.inner.put_if_match(key, data, etag))

    def delete(self, key: str) -> None:
        self.call("delete", key, lambda: self.inner.delete(key))

    def delete_if_match(self, key: str, etag: str) -> Deleted | Refused:
        return self.call("delete_if_match", key, lambda: self.inner.delete_if_match(key, etag))

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self.call("list", prefix, lambda: self.inner.list(prefix, start_after=start_after))

    def list_dir(self, prefix: str = "") -> Listing:
        return self.call("list_dir", prefix, lambda: self.inner.list_dir(prefix))

    def touch(self, key: str) -> bool:
        return self.call("touch", key, lambda: self.inner.touch(key))

    def reap(self, prefix: str = "") -> int:
        return self.inner.reap(prefix)

    def sibling(self, suffix: str) -> ObjectStore:
        return self.inner.sibling(suffix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens at one call.

    Attributes
    ----------
    before : exception or None
        Raised instead of the call.
    hook : callable or None
        Run before the call is performed.
    after : exception or None
        Raised after the call was performed: its answer is lost.
    """

    before: BaseException | None = None
    hook: Callable[[], object] | None = None
    after: BaseException | None = None


class FaultyStore(CountingStore):
    """A :class:`CountingStore` that fails on cue.

    Parameters
    ----------
    inner : ObjectStore
    plan : callable
        Called with the number of the call (from 1), its method and its key; says what
        happens there, or None. Only methods in ``methods`` are numbered and planned.
    methods : tuple of str
        Defaults to those that change an object.
    """

    def __init__(
        self,
        inner: ObjectStore,
        plan: Callable[[int, str, str], Fault | None],
        *,
        methods: tuple[str, ...] = WRITES,
    ) -> None:
        super().__init__(inner)
        self.plan = plan
        self.methods = methods
        self.numbered = 0

    def call[R](self, name: str, key: str, act: Callable[[], R]) -> R:
        if name not in self.methods:
            return super().call(name, key, act)
        with self._lock:
            self.numbered += 1
            number = self.numbered
        fault = self.plan(number, name, key) or Fault()
        if fault.before is not None:
            raise fault.before
        if fault.hook is not None:
            fault.hook()
        answer = super().call(name, key, act)
        if fault.after is not None:
            raise fault.after
        return answer


def answer_lost(key: str = "") -> StoreUnavailableError:
    """The error of a conditional call whose answer did not arrive."""
    return StoreUnavailableError("the answer was lost on purpose", kind="answer-lost", key=key)
