"""Roots on the worker's side: each is opened once in a process.

Source: semantics 12.8 (credentials of an event).
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import replace

from sweep.errors import DeclarationError
from sweep.model.invocation import Credentials
from sweep.store.base import ObjectStore
from sweep.store.open import StoreOptions, open_store

__all__ = ["Opener", "options_for", "unshared_root"]

# Warm workers live through many credentials: each run brings its own, and they are renewed.
_KEPT = 16
_UNSHARED = re.compile(rb'"(?:store_path|records_from)":\s*"(memory:(?:[^"\\]|\\.)*)"', re.IGNORECASE)


class Opener:
    """Opens roots for a worker, once for each root and credentials.

    Parameters
    ----------
    options : StoreOptions
        How to reach S3 where an event does not say.
    crosses_processes : bool
        The dispatcher is in another process, so that ``memory://`` would be another store.

    Notes
    -----
    The stores used last are kept, at most 16. Safe to call from several threads.
    """

    def __init__(self, options: StoreOptions | None = None, *, crosses_processes: bool = False) -> None:
        self._options = options or StoreOptions()
        self._crosses_processes = crosses_processes
        self._opened: OrderedDict[tuple[str, Credentials | None], ObjectStore] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, root: str, credentials: Credentials | None) -> ObjectStore:
        """The store at ``root``.

        Raises
        ------
        DeclarationError
            For an address of an unknown form, or one that lives in the dispatcher's memory.
        AccessError
            Where a folder cannot be looked at, or a profile gives no credentials.
        """
        if self._crosses_processes and root.lower().startswith("memory:"):
            raise DeclarationError(
                f"{root} lives in the memory of one process, and this worker is another: "
                "use the inline transport, or a folder or s3:// address",
                kind="store-unshared",
                address=root,
            )
        place = root, credentials
        with self._lock:
            store = self._opened.get(place)
            if store is None:
                store = self._opened[place] = open_store(root, options_for(credentials, self._options))
                if len(self._opened) > _KEPT:
                    self._opened.popitem(last=False)
            self._opened.move_to_end(place)
            return store


def options_for(credentials: Credentials | None, options: StoreOptions) -> StoreOptions:
    """``options`` with what an event's credentials say in place of its own."""
    if credentials is None:
        return options
    return replace(
        options,
        region=credentials.region or options.region,
        endpoint=credentials.endpoint_url or options.endpoint,
        anonymous=False,
        access_key_id=credentials.access_key_id,
        secret_access_key=credentials.secret_access_key,
        session_token=credentials.session_token,
    )


def unshared_root(payload: bytes) -> str | None:
    """The root in an event's text that no other process can open, or None.

    A transport looks here before it sends: a worker that cannot open the status prefix
    cannot say so either.
    """
    found = _UNSHARED.search(payload)
    return None if found is None else found.group(1).decode(errors="replace")
