"""A store that writes only while the lease holds."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.control.lease import Lease
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

__all__ = ["FencedStore"]


class FencedStore:
    """``store``, where every call that changes an object asks ``lease`` first.

    Reads pass. A sibling is handed out without the fence: records are kept there, and a run
    that lost its lease still says so.

    Raises
    ------
    LeaseLostError
        From put, put_if_absent, put_if_match, delete, delete_if_match and touch.
    """

    def __init__(self, store: ObjectStore, lease: Lease) -> None:
        self._store = store
        self._lease = lease

    def __repr__(self) -> str:
        return f"FencedStore({self._store!r})"

    @property
    def root(self) -> str:
        return self._store.root

    @property
    def concurrency(self) -> int:
        return self._store.concurrency

    @property
    def capabilities(self) -> Capabilities:
        return self._store.capabilities

    def get(self, key: str) -> bytes | None:
        return self._store.get(key)

    def get_versioned(self, key: str) -> Versioned | None:
        return self._store.get_versioned(key)

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        return self._store.get_range(key, start, length)

    def get_suffix(self, key: str, length: int) -> bytes | None:
        return self._store.get_suffix(key, length)

    def put(self, key: str, data: bytes) -> None:
        self._lease.check()
        self._store.put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> Written | Refused:
        self._lease.check()
        return self._store.put_if_absent(key, data)

    def put_if_match(self, key: str, data: bytes, etag: str) -> Written | Refused:
        self._lease.check()
        return self._store.put_if_match(key, data, etag)

    def delete(self, key: str) -> None:
        self._lease.check()
        self._store.delete(key)

    def delete_if_match(self, key: str, etag: str) -> Deleted | Refused:
        self._lease.check()
        return self._store.delete_if_match(key, etag)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._store.list(prefix, start_after=start_after)

    def list_dir(self, prefix: str = "") -> Listing:
        return self._store.list_dir(prefix)

    def touch(self, key: str) -> bool:
        self._lease.check()
        return self._store.touch(key)

    def reap(self, prefix: str = "") -> int:
        self._lease.check()
        return self._store.reap(prefix)

    def sibling(self, suffix: str) -> ObjectStore:
        return self._store.sibling(suffix)
