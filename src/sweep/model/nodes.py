"""HEALPix nodes: decimals, packed words, paths, ranks and covers.

A node has two spellings. The *decimal* names it in paths and JSON: an optional ``-``,
a base digit 1-6, then one digit 1-4 per order. The *word* is a ``uint64`` for arrays:
four bits of base cell (1-6 north, 7-12 south), two bits per order from bit 58 down, and
the order in the low six bits (the two orders above 27 share those bits). Words of one order
ascend in path order inside a base cell, so all descendants of a node are one run of a
sorted array.

Plain bit arithmetic serves orders up to 27, vectorised and without loading mortie, whose
import costs more than a small sweep. mortie does what is more than arithmetic: companion
words and orders above 27. Tests hold every function here against mortie.

Source: format 1.1-1.3; mortie's specification of packed words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweep.errors import DeclarationError

__all__ = [
    "BASES",
    "MAX_ORDER",
    "MAX_SHARD_ORDER",
    "Words",
    "ancestor_of",
    "ancestors",
    "base_of",
    "checked_words",
    "child_words",
    "common_ancestors",
    "decimals_of",
    "is_decimal",
    "order_of",
    "orders_of",
    "path_of",
    "ranks_in",
    "reduce_times",
    "string_order",
    "word_of",
    "words_of",
]

type Words = NDArray[np.uint64]

MAX_ORDER = 29
MAX_SHARD_ORDER = 27
"""The finest order whose words are plain digits, which every node of a store has to be."""

_MAX_PACKED = MAX_SHARD_ORDER
_MAX_WORD = (1 << 64) - 1
_FEW = 16
BASES = ("1", "2", "3", "4", "5", "6", "-1", "-2", "-3", "-4", "-5", "-6")
"""The twelve base cells in the order of their words."""

_DECIMAL = re.compile(r"-?[1-6][1-4]{0,29}")
_SUFFIX = np.uint64(0x3F)
_SOUTH = np.uint64(7 << 60)


def order_of(decimal: str) -> int:
    """The order of a decimal: its number of digits after the base digit."""
    return len(decimal) - len(base_of(decimal))


def base_of(decimal: str) -> str:
    """The base component of a decimal, ``"-2"`` of ``"-2111"``."""
    return decimal[:2] if decimal.startswith("-") else decimal[:1]


def ancestor_of(decimal: str, order: int) -> str:
    """The ancestor of a decimal at ``order``, which is not above its own."""
    return decimal[: len(base_of(decimal)) + order]


def path_of(decimal: str) -> str:
    """The directory of a node below the store root: ``-2/1/1/1`` of ``-2111``."""
    base = base_of(decimal)
    return "/".join((base, *decimal[len(base) :]))


def is_decimal(text: object) -> bool:
    """Whether ``text`` spells a node."""
    return isinstance(text, str) and _DECIMAL.fullmatch(text) is not None


def word_of(decimal: str) -> int:
    """The packed word of a decimal.

    Raises
    ------
    DeclarationError
        The text is no decimal.
    """
    if not is_decimal(decimal):
        raise DeclarationError(
            f"{decimal!r} is not a node: expected an optional '-', a base digit 1-6 and digits 1-4, "
            "for example -2111",
            kind="node",
        )
    base = base_of(decimal)
    order = len(decimal) - len(base)
    if order > _MAX_PACKED:
        import mortie  # loaded only for the two finest orders

        return int(mortie.decimal_to_word(decimal, dtype=int))
    word = (BASES.index(base) + 1) << 60
    for position, digit in enumerate(decimal[len(base) :], start=1):
        word |= (ord(digit) - 49) << (60 - 2 * position)
    return word | order


def words_of(decimals: Sequence[str]) -> Words:
    """The packed words of decimals, shape (len(decimals),). Raises as :func:`word_of`."""
    if len(decimals) >= _FEW:
        words = _pack(decimals)
        if words is not None:
            return words
    return np.fromiter((word_of(d) for d in decimals), dtype=np.uint64, count=len(decimals))


def _pack(decimals: Sequence[str]) -> Words | None:
    """Many decimals at once, or None where one of them needs :func:`word_of`."""
    if set(map(type, decimals)) != {str} or "\0" in "".join(decimals):
        return None
    try:
        texts = np.array(decimals, dtype=np.bytes_)
    except UnicodeEncodeError:
        return None
    width = texts.dtype.itemsize
    if width > _MAX_PACKED + 2:
        return None
    letters = texts.view(np.uint8).reshape(-1, width)
    south = letters[:, 0] == ord("-")
    digits = np.zeros((len(letters), width), dtype=np.uint8)
    digits[~south] = letters[~south]
    digits[south, :-1] = letters[south, 1:]
    order = np.count_nonzero(digits, axis=1).astype(np.uint64) - np.uint64(1)
    words = (digits[:, 0] - np.uint8(48) + np.where(south, 6, 0)).astype(np.uint64) << np.uint64(60)
    sound = (digits[:, 0] >= 49) & (digits[:, 0] <= 54)
    for position in range(1, width):
        column = digits[:, position]
        is_digit = (column >= 49) & (column <= 52)
        sound &= is_digit | (column == 0)
        words |= np.where(is_digit, column - 49, 0).astype(np.uint64) << np.uint64(max(60 - 2 * position, 0))
    return words | order if bool(sound.all()) and int(order.max()) <= _MAX_PACKED else None


def orders_of(words: Any) -> NDArray[np.int64]:
    """The order of each packed word.

    Raises
    ------
    DeclarationError
        A word is not a cell: zero, or a base cell outside 1-12. Negative integers (the
        signed decimal ids of old stores) are named as such.
    """
    array = checked_words(words)
    suffix = (array & _SUFFIX).astype(np.int64)
    if len(suffix) == 0 or suffix.max() <= _MAX_PACKED:
        return suffix
    fine = np.where((suffix - 28) % 5 == 0, 28, 29)
    return np.where(suffix <= _MAX_PACKED, suffix, np.where(suffix < 48, fine, 29))


def checked_words(words: Any) -> Words:
    """``words`` as a ``uint64`` array of the same shape, each one a possible cell.

    Raises
    ------
    DeclarationError
        As :func:`orders_of`.
    """
    raw = words if isinstance(words, np.ndarray) else np.array(words, dtype=object)
    if raw.dtype.kind == "i":
        if (raw < 0).any():
            raise _negative(int(raw[raw < 0][0]))
    elif raw.dtype.kind != "u":
        for item in raw.ravel().tolist():
            _check_integer(item)
    array = raw.astype(np.uint64, copy=False)
    base = array >> np.uint64(60)
    bad = (base < 1) | (base > 12)
    if bad.any():
        raise DeclarationError(
            f"{int(array[bad][0])} is not a packed word: its base cell is {int(base[bad][0])}, expected 1-12",
            kind="word",
        )
    return array


def _check_integer(item: Any) -> None:
    if isinstance(item, bool) or not isinstance(item, int | np.integer):
        raise DeclarationError(f"{item!r} is not a packed word: expected an integer", kind="word")
    if item < 0:
        raise _negative(int(item))
    if item > _MAX_WORD:
        raise DeclarationError(f"{item} is not a packed word: it needs more than 64 bits", kind="word")


def _negative(item: int) -> DeclarationError:
    return DeclarationError(
        f"{item} is negative: a packed word is an unsigned 64-bit integer; signed decimal ids of old "
        "stores are not words (write them as text, for example '-2111')",
        kind="word",
    )


def ancestors(words: Words, order: int) -> Words:
    """The ancestor at ``order`` of each word; a coarser word stays itself."""
    if len(words) == 0:
        return words
    if order > _MAX_PACKED:
        import mortie  # loaded only for the two finest orders

        return np.asarray(mortie.clip2order(order, words), dtype=np.uint64)
    keep = np.uint64(((1 << (4 + 2 * order)) - 1) << (60 - 2 * order))
    clipped = (words & keep) | np.uint64(order)
    return np.where((words & _SUFFIX) <= np.uint64(order), words, clipped)


def ranks_in(words: Words, order: int, ancestor_order: int) -> NDArray[np.int64]:
    """The base-4 rank of each word of ``order`` inside its ancestor at ``ancestor_order``."""
    width = 2 * (order - ancestor_order)
    path = words >> np.uint64(60 - 2 * order)
    return (path & np.uint64((1 << width) - 1)).astype(np.int64)


def child_words(word: int, order: int) -> Words:
    """All descendants of ``word`` at ``order``, ascending, shape (4**(order - own order),)."""
    own = word & 0x3F
    if order > _MAX_PACKED:
        import mortie  # loaded only for the two finest orders

        return np.asarray(mortie.generate_morton_children(word, order), dtype=np.uint64)
    n_cells = 1 << (2 * (order - own))
    start = np.uint64((word & ~0x3F) | order)
    return start + (np.arange(n_cells, dtype=np.uint64) << np.uint64(60 - 2 * order))


def decimals_of(words: Words) -> list[str]:
    """The decimals of packed words of any orders, in the order given."""
    if len(words) == 0:
        return []
    if ((words & _SUFFIX) > _MAX_PACKED).any():
        import mortie  # loaded only for the two finest orders

        return [str(text) for text in mortie.MortonIndexArray.from_words(words).decimal_repr()]
    result: list[str] = [""] * len(words)
    orders = (words & _SUFFIX).astype(np.int64)
    for order in np.unique(orders).tolist():
        places = np.flatnonzero(orders == order)
        for place, text in zip(places.tolist(), _spell(words[places], order), strict=True):
            result[place] = text
    return result


def _spell(words: Words, order: int) -> list[str]:
    base = (words >> np.uint64(60)).astype(np.int64)
    south = base > 6
    digits = np.empty((len(words), order + 1), dtype=np.uint8)
    digits[:, 0] = np.where(south, base - 6, base) + 48
    for position in range(1, order + 1):
        digits[:, position] = ((words >> np.uint64(60 - 2 * position)) & np.uint64(3)) + np.uint64(49)
    texts = digits.view(f"S{order + 1}").ravel().astype(f"U{order + 1}").tolist()
    return [("-" + text if is_south else text) for text, is_south in zip(texts, south.tolist(), strict=True)]


def string_order(words: Words) -> Words:
    """Words of one order sorted as their decimals sort as text: southern cells first."""
    words = np.sort(words)
    split = int(np.searchsorted(words, _SOUTH))
    return np.concatenate([words[split:], words[:split]])


def common_ancestors(words: Words, offsets: NDArray[np.int64]) -> Words:
    """The deepest common ancestor of each segment ``words[offsets[i]:offsets[i+1]]``.

    Raises
    ------
    ValueError
        A word is no cell, or a segment spans base cells.
    """
    import mortie  # cold start: only located digests need it

    return np.asarray(mortie.common_ancestor(words, offsets=offsets), dtype=np.uint64)


def reduce_times(words: Words, offsets: NDArray[np.int64]) -> Words:
    """The joined time word of each segment ``words[offsets[i]:offsets[i+1]]``.

    Raises
    ------
    ValueError
        A segment is empty.
    """
    import mortie  # cold start: only timed digests need it

    return np.asarray(mortie.toc_reduce(words, offsets=offsets), dtype=np.uint64)
