"""Many store calls at once: as many in flight as the store is worth."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cache
from itertools import islice

from sweep.store.base import ObjectStore

__all__ = ["clear_prefix", "delete_all", "fetch", "map_calls", "put_all"]


def fetch(store: ObjectStore, keys: Sequence[str]) -> list[bytes | None]:
    """The bytes of every key, in the order of ``keys``; None where there is no object.

    Raises
    ------
    AccessError, StoreUnavailableError
        The first error met, after every call in flight has ended.
    """
    return map_calls(store, store.get, keys)


def put_all(store: ObjectStore, items: Iterable[tuple[str, bytes]]) -> int:
    """Write every ``(key, data)``, in no order, and say how many.

    Raises
    ------
    AccessError, StoreUnavailableError
        The first error met, after every call in flight has ended; some are written then.

    Notes
    -----
    ``items`` is drawn as calls become free: at most twice ``store.concurrency`` are held.
    """
    return len(map_calls(store, lambda item: store.put(*item), items))


def delete_all(store: ObjectStore, keys: Iterable[str]) -> int:
    """Remove every key, in no order, and say how many were named.

    Raises
    ------
    AccessError, StoreUnavailableError
        The first error met, after every call in flight has ended; some are gone then.
    """
    return len(map_calls(store, store.delete, keys))


def clear_prefix(store: ObjectStore, prefix: str, *, first: str | None = None) -> int:
    """Remove everything below ``prefix``, the key ``first`` before anything else.

    An artifact is cleared with its stamp as ``first``, so that no reader takes what is
    left for whole. Temporary files that a killed process left there go as well.

    Returns
    -------
    int
        How many objects were removed.

    Raises
    ------
    AccessError, StoreUnavailableError
        The first error met; what is left can be cleared again.
    """
    keys = [info.key for info in store.list(prefix)]
    if first in keys:
        keys.remove(first)
        store.delete(first)
        count = 1 + delete_all(store, keys)
    else:
        count = delete_all(store, keys)
    store.reap(prefix)
    return count


def map_calls[T, R](store: ObjectStore, call: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """``call(item)`` for every item, as many in flight as the store is worth, results in order.

    Raises what the first failing call raised, after every call in flight has ended.
    """
    if store.concurrency <= 1:
        return [call(item) for item in items]
    pool = _pool(os.getpid(), store.concurrency)
    window = 2 * store.concurrency
    rest = iter(items)
    started: list[Future[R]] = []
    pending: set[Future[R]] = set()
    try:
        while batch := [pool.submit(call, item) for item in islice(rest, window - len(pending))]:
            started += batch
            done, pending = wait(pending.union(batch), return_when=FIRST_COMPLETED)
            if any(future.exception() for future in done):
                break
        return [future.result() for future in started]
    finally:
        # Nothing may still be writing when the caller hears of the error.
        for future in pending:
            future.cancel()
        wait(pending)


@cache
def _pool(pid: int, size: int) -> ThreadPoolExecutor:
    """One pool for each size; ``pid`` is there because a forked child has none of the threads."""
    return ThreadPoolExecutor(size, thread_name_prefix=f"sweep-store-{pid}")
