"""Scope: the nodes that a run may touch, in every spelling, and how it admits others.

A scope is a set of cells of any mix of orders. It admits a node that contains, or lies in,
one of them. ``None`` stands for the whole store.

Source: semantics 1.2, 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweep.errors import DeclarationError
from sweep.model.nodes import Words, ancestors, checked_words, is_decimal, orders_of, words_of
from sweep.plan.runs import is_member, sorted_distinct

__all__ = ["WHOLE", "admit", "covered_by", "intersect", "parse_scope"]

WHOLE = "all"
"""The spelling of a scope that is the whole store."""

_SHOWN = 10
_HELP = f"give node decimals such as -2111, or {WHOLE!r} for the whole store (None from Python)"


def parse_scope(value: object) -> Words | None:
    """Read a scope.

    Parameters
    ----------
    value : None, str, mapping or iterable
        None or ``"all"``: the whole store. Another text: decimals separated by commas. A
        mapping contributes its keys. Members are decimals (text) or packed words (integers),
        of any mix of orders.

    Returns
    -------
    ndarray of uint64 or None
        Sorted and distinct; None for the whole store.

    Raises
    ------
    DeclarationError
        Kind ``scope``: the scope is empty, or of another type, or has members that are no
        nodes, all of which are named.
    """
    if value is None:
        return None
    if isinstance(value, str):
        if value.strip() == WHOLE:
            return None
        value = [token.strip() for token in value.split(",") if token.strip()]
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    if not isinstance(value, Iterable) or isinstance(value, bytes):
        raise DeclarationError(f"scope is of type {type(value).__name__}: {_HELP}", kind="scope")
    words = _words(list(value))
    if len(words) == 0:
        raise DeclarationError(f"the scope is empty, which selects no node: {_HELP}", kind="scope")
    return words


def _words(members: list[Any]) -> Words:
    problems = [problem for member in members if (problem := _problem(member)) is not None]
    if problems:
        more = len(problems) - _SHOWN
        shown = problems[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        raise DeclarationError.of("scope", [*shown, _HELP], kind="scope")
    texts = [member for member in members if isinstance(member, str)]
    numbers = [int(member) for member in members if not isinstance(member, str)]
    return sorted_distinct(np.concatenate([words_of(texts), checked_words(numbers)]))


def _problem(member: object) -> str | None:
    if isinstance(member, str):
        if is_decimal(member):
            return None
        hint = " (a packed word is given as an integer, not as text)" if _looks_packed(member) else ""
        return f"{member!r} is not a node decimal{hint}"
    try:
        checked_words([member])
    except DeclarationError as error:
        return error.message
    return None


def _looks_packed(text: str) -> bool:
    return text.isdecimal() and len(text) >= 19


def admit(words: Words, scope: Words | None) -> NDArray[np.bool_]:
    """Which nodes a scope admits: those that contain, or lie in, one of its cells.

    Parameters
    ----------
    words : ndarray of uint64, shape (n_nodes,)
        Nodes of one order.
    scope : ndarray of uint64 or None
        None admits every node.

    Returns
    -------
    ndarray of bool, shape (n_nodes,)
    """
    if scope is None:
        return np.ones(len(words), dtype=np.bool_)
    if len(words) == 0:
        return np.zeros(0, dtype=np.bool_)
    own_order = int(orders_of(words[:1])[0])
    return covered_by(words, scope) | is_member(words, np.sort(ancestors(scope, own_order)))


def covered_by(words: Words, cover: Words) -> NDArray[np.bool_]:
    """Which cells, of any orders, are in ``cover`` or below one of its cells."""
    inside = np.zeros(len(words), dtype=np.bool_)
    orders = orders_of(cover)
    for order in np.unique(orders).tolist():
        inside |= is_member(ancestors(words, order), np.sort(cover[orders == order]))
    return inside


def intersect(scope: Words | None, part: Words) -> Words:
    """The cells that two sets share; where one contains the other, the finer one.

    Parameters
    ----------
    scope : ndarray of uint64 or None
        None is the whole store.
    part : ndarray of uint64
        Of any mix of orders.

    Returns
    -------
    ndarray of uint64
        Sorted and distinct. Siblings are not joined, and a set that holds a cell beside its
        own ancestor may do so in the result.
    """
    if scope is None:
        return sorted_distinct(part)
    return sorted_distinct(np.concatenate([part[covered_by(part, scope)], scope[covered_by(scope, part)]]))
