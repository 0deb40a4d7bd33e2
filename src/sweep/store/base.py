"""The store seam: what the package asks of the place that holds its objects.

A key is a relative path with ``/`` between its segments: ``2/1/2/all.zarr/zarr.json``.
Every outcome that a caller can meet in ordinary work (missing, exists, mismatch) is a
value; what is left is raised as :class:`~sweep.errors.AccessError` (repair the access)
or :class:`~sweep.errors.StoreUnavailableError` (try again).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol, runtime_checkable

from sweep.errors import DeclarationError

__all__ = [
    "DELETED",
    "Capabilities",
    "Deleted",
    "Listing",
    "ObjectInfo",
    "ObjectStore",
    "Refused",
    "Versioned",
    "Written",
    "check_key",
    "check_prefix",
]


@dataclass(frozen=True, slots=True)
class Versioned:
    """An object's bytes and the tag that names this version of them."""

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing says of one object.

    Attributes
    ----------
    key : str
        Full key, relative to the store's root.
    size : int
        Bytes.
    etag : str or None
        None where a listing does not know it.
    modified : datetime or None
        Last modification, aware, in UTC.
    """

    key: str
    size: int
    etag: str | None
    modified: datetime | None


@dataclass(frozen=True, slots=True)
class Listing:
    """One directory level: the objects in it and the prefixes below it.

    Both hold full keys relative to the store's root, in key order; prefixes carry no
    trailing slash.
    """

    objects: tuple[ObjectInfo, ...]
    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """A conditional write that took place; ``etag`` names the version written."""

    etag: str


class Refused(Enum):
    """Why a conditional call left the object as it was."""

    EXISTS = "exists"
    MISMATCH = "mismatch"
    MISSING = "missing"


class Deleted(Enum):
    """The outcome of a conditional delete that took place."""

    DELETED = "deleted"


DELETED = Deleted.DELETED


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do beyond the common calls.

    Attributes
    ----------
    conditional_delete : bool
        ``delete_if_match`` may be called.
    shared : bool
        Other processes see the same objects.
    """

    conditional_delete: bool
    shared: bool


@runtime_checkable
class ObjectStore(Protocol):
    """A flat map from keys to bytes, with conditional writes.

    Every method may be called from several threads at once. Every write is atomic: a
    reader sees the old bytes or the new ones.

    Notes
    -----
    A prefix is a path of whole segments: ``list("2/1")`` yields ``2/1/x`` and neither
    ``2/1`` itself nor ``2/12``. The empty prefix is the root. A trailing slash is
    ignored. All methods raise :class:`~sweep.errors.AccessError` where the store says
    no, :class:`~sweep.errors.StoreUnavailableError` where it does not answer, and
    :class:`~sweep.errors.DeclarationError` for a malformed key.
    """

    @property
    def root(self) -> str:
        """The store's address as people write it: an absolute path or a URL."""
        ...

    @property
    def concurrency(self) -> int:
        """How many calls in flight are worth having."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do. May ask the server once."""
        ...

    def get(self, key: str) -> bytes | None:
        """The object's bytes, or None where there is none."""
        ...

    def get_versioned(self, key: str) -> Versioned | None:
        """The object's bytes with their etag, or None where there is none."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        """``length`` bytes from ``start``, fewer at the end of the object, or None where there is none."""
        ...

    def get_suffix(self, key: str, length: int) -> bytes | None:
        """The last ``length`` bytes, fewer where the object is shorter, or None where there is none."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write or replace the object."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> Written | Refused:
        """Create the object; ``EXISTS`` where there is one.

        Raises
        ------
        StoreUnavailableError
            With kind ``answer-lost`` where the write may have taken place: read the
            object back before deciding.
        """
        ...

    def put_if_match(self, key: str, data: bytes, etag: str) -> Written | Refused:
        """Replace the version named by ``etag``; ``MISMATCH`` or ``MISSING`` otherwise.

        Raises
        ------
        StoreUnavailableError
            With kind ``answer-lost`` where the write may have taken place.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove the object; that there is none is fine."""
        ...

    def delete_if_match(self, key: str, etag: str) -> Deleted | Refused:
        """Remove the version named by ``etag``; ``MISMATCH`` or ``MISSING`` otherwise.

        Raises
        ------
        DeclarationError
            With kind ``unsupported`` where ``capabilities.conditional_delete`` is false.
        StoreUnavailableError
            With kind ``answer-lost`` where the delete may have taken place.
        """
        ...

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Every object below ``prefix`` in key order, those after the key ``start_after`` only."""
        ...

    def list_dir(self, prefix: str = "") -> Listing:
        """The objects directly below ``prefix``, and the prefixes there that hold objects."""
        ...

    def touch(self, key: str) -> bool:
        """Renew the modification time and leave the bytes; False where there is no object."""
        ...

    def reap(self, prefix: str = "") -> int:
        """Remove what dead writers left below ``prefix`` beside objects, and say how many.

        Such leavings are visible to no other call. 0 where a store has none by nature.
        """
        ...

    def sibling(self, suffix: str) -> ObjectStore:
        """The store whose root is this root with ``suffix`` appended, such as ``.status``.

        Raises
        ------
        DeclarationError
            Where the root is a bare bucket: its sibling would be another bucket.
        """
        ...


def check_key(key: str) -> str:
    """``key`` itself, where it is a relative path of plain segments.

    Raises
    ------
    DeclarationError
        For an empty key, an empty segment, ``.`` or ``..``, or a control character.
    """
    if (
        key
        and key.isprintable()
        and not (key[0] == "/" or key[-1] == "/" or "//" in key)
        and not ("." in key and {".", ".."} & set(key.split("/")))
    ):
        return key
    raise DeclarationError(
        f"the object key {key!r} is not a relative path of plain segments such as '2/1/zarr.json'",
        kind="store-key",
        key=key,
    )


def check_prefix(prefix: str) -> str:
    """``prefix`` without a trailing slash, where it is empty or a well-formed key."""
    stripped = prefix.removesuffix("/")
    return check_key(stripped) if stripped else ""
