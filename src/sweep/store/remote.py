"""Stores behind obstore: ``s3://`` and ``memory://``.

obstore's blocking calls let other threads run, so one store serves a pool of them.
Credentials and signed addresses never reach a message or a log.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import MemoryStore, S3Store

from sweep.errors import AccessError, DeclarationError, StoreUnavailableError
from sweep.store._obstore_errors import names_no_bucket, translate
from sweep.store._signed import signed_delete
from sweep.store.base import (
    DELETED,
    Capabilities,
    Deleted,
    Listing,
    ObjectInfo,
    Refused,
    Versioned,
    Written,
    check_key,
    check_prefix,
)

__all__ = ["RemoteStore"]

# What obstore raises: its own tree, and two builtins.
_FOREIGN = (BaseError, OSError, ValueError)
_PHANTOM_TRIES = 4
_TOUCH_TRIES = 5
_ONE_PUT_BYTES = 16 * 1024 * 1024


class RemoteStore:
    """Objects behind an obstore client, below one prefix of it.

    Parameters
    ----------
    client : S3Store or MemoryStore
        The client, opened without a prefix of its own.
    address : str
        What the client stands for, without a trailing slash: ``s3://bucket``.
    prefix : str
        Where this store's root lies in it; empty for all of it.
    concurrency : int
        Calls worth having in flight.
    signed : bool
        The client signs its requests, so that a conditional delete can be sent.
    """

    def __init__(
        self, client: S3Store | MemoryStore, address: str, prefix: str, *, concurrency: int, signed: bool
    ) -> None:
        self._client = client
        self._address = address
        self._base = prefix + "/" if prefix else ""
        self._signed = signed
        self.root = f"{address}/{prefix}" if prefix else address
        self.concurrency = concurrency

    def __repr__(self) -> str:
        return f"RemoteStore({self.root!r})"

    @cached_property
    def capabilities(self) -> Capabilities:
        """What this store can do.

        Notes
        -----
        Whether a server honours ``If-Match`` on a DELETE is asked once, by a conditional
        delete of a name that nobody has: a server that ignores the condition answers that
        it deleted it. Nothing is ever sent that could remove an object.
        """
        shared = isinstance(self._client, S3Store)
        return Capabilities(
            conditional_delete=shared and self._signed and self._honours_match(), shared=shared
        )

    def get(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            return bytes(obstore.get(self._client, path).bytes())
        except _FOREIGN as error:
            self._raise_unless_missing(error, "read", key)
            return None

    def get_versioned(self, key: str) -> Versioned | None:
        path = self._path(key)
        try:
            answer = obstore.get(self._client, path)
            return Versioned(bytes(answer.bytes()), _tag(answer.meta["e_tag"], self.root, key))
        except _FOREIGN as error:
            self._raise_unless_missing(error, "read", key)
            return None

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        path = self._path(key)
        if length > 0:
            try:
                return bytes(obstore.get_range(self._client, path, start=start, length=length))
            except FileNotFoundError as error:
                self._raise_unless_missing(error, "read", key)
                return None
            except _FOREIGN as error:
                size = self._size(key)
                if size is not None and start < size:
                    raise translate(error, "read", self.root, key) from error
        # Past the end a server says 416: an object that is there has no bytes there.
        return None if self._size(key) is None else b""

    def get_suffix(self, key: str, length: int) -> bytes | None:
        path = self._path(key)
        if length > 0:
            try:
                return bytes(obstore.get(self._client, path, options={"range": {"suffix": length}}).bytes())
            except FileNotFoundError as error:
                self._raise_unless_missing(error, "read", key)
                return None
            except _FOREIGN as error:
                if self._size(key):
                    raise translate(error, "read", self.root, key) from error
        return None if self._size(key) is None else b""

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        try:
            obstore.put(self._client, path, data, chunk_size=_ONE_PUT_BYTES)
        except _FOREIGN as error:
            raise translate(error, "write", self.root, key) from error

    def put_if_absent(self, key: str, data: bytes) -> Written | Refused:
        path = self._path(key)
        for _ in range(_PHANTOM_TRIES):
            try:
                answer = obstore.put(self._client, path, data, mode="create")
                return Written(_tag(answer["e_tag"], self.root, key))
            except AlreadyExistsError:
                # S3 says so too while another create or delete of the key is under way.
                if self._size(key) is not None:
                    return Refused.EXISTS
            except _FOREIGN as error:
                raise translate(error, "create", self.root, key, conditional=True) from error
        raise StoreUnavailableError(
            f"cannot create {self.root}/{key}: the store says that it is there, yet shows nothing; run again",
            kind="answer-lost",
            key=key,
            root=self.root,
        )

    def put_if_match(self, key: str, data: bytes, etag: str) -> Written | Refused:
        return self._put_if_match(key, data, etag, {})

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            obstore.delete(self._client, path)
        except FileNotFoundError as error:
            self._raise_unless_missing(error, "delete", key)
        except _FOREIGN as error:
            raise translate(error, "delete", self.root, key) from error

    def delete_if_match(self, key: str, etag: str) -> Deleted | Refused:
        if not self.capabilities.conditional_delete:
            raise DeclarationError(
                f"{self.root} offers no conditional delete: look at capabilities first",
                kind="unsupported",
                root=self.root,
            )
        outcome = self._delete_if_match(key, etag)
        if outcome is DELETED or self._size(key) is not None:
            return outcome
        return Refused.MISSING

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        below = self._folder(prefix)
        offset = self._base + start_after if start_after else None
        return self._listed(below, offset)

    def list_dir(self, prefix: str = "") -> Listing:
        try:
            found = obstore.list_with_delimiter(self._client, self._folder(prefix) or None)
        except _FOREIGN as error:
            raise translate(error, "list", self.root, prefix) from error
        cut = len(self._base)
        objects = sorted((self._info(meta) for meta in found["objects"]), key=lambda info: info.key)
        prefixes = sorted(name[cut:].rstrip("/") for name in found["common_prefixes"])
        return Listing(tuple(objects), tuple(prefixes))

    def touch(self, key: str) -> bool:
        """Renew the modification time: the same bytes are written again under ``If-Match``.

        Kept are the content headers (type, encoding, language, disposition, cache control)
        and the user metadata. Tags, access lists, storage class and encryption become what
        the bucket gives a new object; a versioned bucket gains a version.
        """
        path = self._path(key)
        for _ in range(_TOUCH_TRIES):
            try:
                answer = obstore.get(self._client, path)
                attributes = answer.attributes
                seen = Versioned(bytes(answer.bytes()), _tag(answer.meta["e_tag"], self.root, key))
            except _FOREIGN as error:
                self._raise_unless_missing(error, "touch", key)
                return False
            outcome = self._put_if_match(key, seen.data, seen.etag, {"attributes": attributes})
            if isinstance(outcome, Written):
                return True
            # Somebody wrote or removed it meanwhile: a new write is as good as a touch, if it is there.
        return self._size(key) is not None

    def reap(self, prefix: str = "") -> int:
        """0: a put is whole or nothing here, and a dead writer leaves nothing."""
        return 0

    def sibling(self, suffix: str) -> RemoteStore:
        prefix = self._base.removesuffix("/")
        client, address = self._client, self._address
        if prefix:
            prefix += suffix
        elif isinstance(client, MemoryStore):
            name, _, prefix = suffix.partition("/")
            address += name
            client = memory_client(address)
        else:
            raise DeclarationError(
                f"{self.root} is a whole bucket, so its {suffix!r} sibling would be another bucket: "
                "put the store below a prefix, as in s3://bucket/prefix",
                kind="store-root",
                root=self.root,
            )
        return RemoteStore(client, address, prefix, concurrency=self.concurrency, signed=self._signed)

    def _path(self, key: str) -> str:
        return self._base + check_key(key)

    def _folder(self, prefix: str) -> str:
        return (self._base + check_prefix(prefix)).rstrip("/")

    def _size(self, key: str) -> int | None:
        try:
            return obstore.head(self._client, self._base + key)["size"]
        except _FOREIGN as error:
            self._raise_unless_missing(error, "read", key)
            return None

    def _raise_unless_missing(self, error: BaseException, action: str, key: str) -> None:
        if not isinstance(error, FileNotFoundError) or names_no_bucket(error):
            raise translate(error, action, self.root, key) from error

    def _put_if_match(self, key: str, data: bytes, etag: str, extra: Mapping[str, Any]) -> Written | Refused:
        path = self._path(key)
        try:
            answer = obstore.put(self._client, path, data, mode={"e_tag": etag}, **extra)
            return Written(_tag(answer["e_tag"], self.root, key))
        except (PreconditionError, FileNotFoundError) as error:
            if names_no_bucket(error):
                raise translate(error, "replace", self.root, key) from error
        except _FOREIGN as error:
            raise translate(error, "replace", self.root, key, conditional=True) from error
        return Refused.MISSING if self._size(key) is None else Refused.MISMATCH

    def _delete_if_match(self, key: str, etag: str) -> Deleted | Refused:
        return signed_delete(cast(S3Store, self._client), self._path(key), etag, self.root, key)

    def _honours_match(self) -> bool:
        nobody = f".sweep-probe-{secrets.token_hex(8)}"
        try:
            return self._delete_if_match(nobody, f'"{secrets.token_hex(16)}"') is not DELETED
        except (DeclarationError, AccessError):
            return False

    def _listed(self, below: str, offset: str | None) -> Iterator[ObjectInfo]:
        try:
            stream = obstore.list(self._client, below or None, offset=offset, chunk_size=1000)
            for chunk in stream:
                yield from map(self._info, chunk)
        except _FOREIGN as error:
            raise translate(error, "list", self.root, below[len(self._base) :]) from error

    def _info(self, meta: Mapping[str, Any]) -> ObjectInfo:
        key = meta["path"][len(self._base) :]
        return ObjectInfo(key, meta["size"], meta["e_tag"], meta["last_modified"])


_memories: dict[str, MemoryStore] = {}


def memory_client(address: str) -> MemoryStore:
    """The one client of this process for ``address``."""
    return _memories.setdefault(address, MemoryStore())


def _tag(etag: str | None, root: str, key: str) -> str:
    if etag is None:
        raise StoreUnavailableError(
            f"{root}/{key}: the store names no version (ETag) of the object; it cannot hold a lease",
            key=key,
            root=root,
        )
    return etag
