"""The work set: the leaves that a run covers, one entry for each shard and window.

Source: semantics 2.2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sweep.errors import DeclarationError
from sweep.model.nodes import Words, checked_words, decimals_of, orders_of
from sweep.plan.runs import distinct, is_member, sorted_distinct

__all__ = ["NO_WINDOW", "Ref", "WindowCodes", "WorkSet", "with_dirt", "work_set", "work_set_of_arrays"]

log = logging.getLogger(__name__)

type Ref = tuple[int, str | None]
"""A leaf as records and events name it: packed word, window label or None."""

NO_WINDOW = -1
"""The code of an entry without a window."""

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowCodes:
    """The windows of a column of leaves, one number each.

    Attributes
    ----------
    codes : ndarray of int32, shape (n_leaves,)
        Places in ``labels``, or ``NO_WINDOW``.
    labels : tuple of str
        In any sequence; one may stand in several places.
    """

    codes: NDArray[np.int32]
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def texts(self) -> tuple[str | None, ...]:
        """The labels themselves, one for each leaf."""
        return tuple(None if code < 0 else self.labels[code] for code in self.codes.tolist())


type _Windows = WindowCodes | Sequence[str | None] | NDArray[Any] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkSet:
    """The leaves of a run in arrays, sorted by word, no window first, then label.

    Attributes
    ----------
    words : ndarray of uint64, shape (n_leaves,)
        The shard of each entry.
    codes : ndarray of int32, shape (n_leaves,)
        The window of each entry: a place in ``labels``, or ``NO_WINDOW``.
    labels : tuple of str
        Sorted. They are as given: a label that cannot name a window makes no unit later.
    skipped : tuple of str
        Decimals of refs at another order than the shards', as given, dirt-only ones last.
    dirt : ndarray of uint64
        Shards with dirt-only refs and no entry, sorted and distinct.
    n_dirt_only : int
        Dirt-only (shard, window) refs kept, that is those of the shards in ``dirt``.
    """

    words: Words
    codes: NDArray[np.int32]
    labels: tuple[str, ...]
    skipped: tuple[str, ...]
    dirt: Words
    n_dirt_only: int = 0

    @property
    def n_leaves(self) -> int:
        """Number of (shard, window) entries."""
        return len(self.words)

    @property
    def is_empty(self) -> bool:
        """Whether there is no entry; dirt-only shards do not count."""
        return len(self.words) == 0

    def shards(self) -> Words:
        """The shards with an entry, sorted and distinct."""
        return distinct(self.words)


def work_set(
    leaves: Iterable[Ref | int] | NDArray[Any], shard_order: int, *, dirt_only: Iterable[Ref | int] = ()
) -> WorkSet:
    """Normalise leaf refs.

    Parameters
    ----------
    leaves : iterable of (word, window) pairs or bare words, or ndarray of words
        A bare word has no window. Duplicates count once.
    shard_order : int
        The order of the leaves. Refs at another order are skipped and named.
    dirt_only : iterable of the same shape
        Refs whose data is current; those of shards in ``leaves`` are dropped.

    Returns
    -------
    WorkSet

    Raises
    ------
    DeclarationError
        A ref is neither a word nor a pair, its word is not a cell, or its window no text.
    """
    words, windows = _split(leaves)
    dirt_words, dirt_windows = _split(dirt_only)
    return work_set_of_arrays(words, windows, shard_order, dirt_words=dirt_words, dirt_windows=dirt_windows)


def work_set_of_arrays(
    words: ArrayLike,
    windows: _Windows,
    shard_order: int,
    *,
    dirt_words: ArrayLike = (),
    dirt_windows: _Windows = None,
) -> WorkSet:
    """Normalise leaf refs that are columns already; see :func:`work_set`.

    Parameters
    ----------
    words, dirt_words : array_like of integers, shape (n,)
    windows, dirt_windows : WindowCodes, or sequence of str or None, shape (n,), optional
        None altogether where no ref has a window.

    Notes
    -----
    Holds about 30 bytes a leaf while it sorts, 12 in the result, and makes no Python
    object for a leaf.
    """
    shards, codes, labels, skipped = _entries(words, windows, shard_order)
    _warn_of_skipped(skipped, shard_order)
    leaves = WorkSet(words=shards, codes=codes, labels=labels, skipped=skipped, dirt=shards[:0])
    return _with_dirt(leaves, dirt_words, dirt_windows, shard_order)


def with_dirt(work: WorkSet, dirt_only: Iterable[Ref | int], shard_order: int) -> WorkSet:
    """``work`` with dirt-only refs instead of those it has; see :func:`work_set`."""
    words, windows = _split(dirt_only)
    return _with_dirt(work, words, windows, shard_order)


def _with_dirt(work: WorkSet, words: ArrayLike, windows: _Windows, shard_order: int) -> WorkSet:
    dirt, _, _, skipped = _entries(words, windows, shard_order)
    _warn_of_skipped(skipped, shard_order)
    dirt = dirt[~is_member(dirt, work.words)]
    return replace(work, skipped=work.skipped + skipped, dirt=distinct(dirt), n_dirt_only=len(dirt))


def _warn_of_skipped(skipped: tuple[str, ...], shard_order: int) -> None:
    if skipped:
        log.warning(
            "skipping leaves that are not at the shard order",
            extra={
                "event": "leaves-skipped",
                "shard_order": shard_order,
                "n_skipped": len(skipped),
                "first": skipped[:_SHOWN],
            },
        )


def _split(refs: Iterable[Any] | NDArray[Any]) -> tuple[Any, list[str | None] | None]:
    if isinstance(refs, np.ndarray):
        return refs, None
    words: list[int] = []
    windows: list[str | None] = []
    for ref in refs:
        if isinstance(ref, tuple | list):
            if len(ref) != 2:
                raise _bad_ref(ref)
            words.append(ref[0])
            windows.append(ref[1])
        else:
            words.append(ref)
            windows.append(None)
    return words, windows


def _bad_ref(ref: object) -> DeclarationError:
    return DeclarationError(
        f"leaf ref {ref!r} is neither a packed word nor a pair (word, window or null)", kind="leaf-ref"
    )


def _entries(
    words: ArrayLike, windows: _Windows, shard_order: int
) -> tuple[Words, NDArray[np.int32], tuple[str, ...], tuple[str, ...]]:
    array = checked_words(words)
    if array.ndim != 1:
        raise DeclarationError(f"leaf words have shape {array.shape}, expected one axis", kind="leaf-ref")
    codes, labels = _encode(windows, len(array))
    at_order = orders_of(array) == shard_order
    skipped = tuple(decimals_of(array[~at_order]))
    array, codes = array[at_order], codes[at_order]
    if not labels:
        array = sorted_distinct(array)
        return array, np.full(len(array), NO_WINDOW, dtype=np.int32), (), skipped
    sequence = np.lexsort((codes, array))
    array, codes = array[sequence], codes[sequence]
    is_first = np.ones(len(array), dtype=np.bool_)
    is_first[1:] = (array[1:] != array[:-1]) | (codes[1:] != codes[:-1])
    return array[is_first], codes[is_first], labels, skipped


def _encode(windows: _Windows, n_refs: int) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    if windows is None:
        return np.full(n_refs, NO_WINDOW, dtype=np.int32), ()
    if len(windows) != n_refs:
        raise DeclarationError(f"{n_refs} leaf words but {len(windows)} windows", kind="leaf-ref")
    if isinstance(windows, WindowCodes):
        return _sorted_codes(windows)
    if isinstance(windows, np.ndarray) and windows.dtype.kind == "U":
        texts, places = np.unique(windows, return_inverse=True)
        return places.astype(np.int32), tuple(texts.tolist())
    found = set(windows) - {None}
    strange = [label for label in found if not isinstance(label, str)]
    if strange:
        raise DeclarationError(
            f"window {strange[0]!r} of a leaf is of type {type(strange[0]).__name__}, expected text or null",
            kind="leaf-ref",
        )
    labels = tuple(sorted(label for label in found if label is not None))
    code_of: dict[str | None, int] = {label: code for code, label in enumerate(labels)}
    code_of[None] = NO_WINDOW
    codes = np.fromiter((code_of[label] for label in windows), dtype=np.int32, count=n_refs)
    return codes, labels


def _sorted_codes(windows: WindowCodes) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """The same windows by sorted, distinct labels."""
    labels = tuple(sorted(set(windows.labels)))
    code_of = {label: code for code, label in enumerate(labels)}
    codes = np.array([*(code_of[label] for label in windows.labels), NO_WINDOW], dtype=np.int32)
    return codes[windows.codes], labels  # NO_WINDOW is -1, the last place
