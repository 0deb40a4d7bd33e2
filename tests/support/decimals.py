"""Nodes as text, handled as text: what the planning tests are held against.

Everything here works on decimals by prefixes and knows nothing of packed words.
"""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

__all__ = ["ancestor", "decimals", "is_related", "order", "tail_rank", "under", "whole_sphere"]

BASES = tuple("123456") + tuple(f"-{digit}" for digit in "123456")


def order(decimal: str) -> int:
    return len(decimal.lstrip("-")) - 1


def ancestor(decimal: str, node_order: int) -> str:
    return decimal[: len(decimal) - order(decimal) + node_order]


def under(decimals: set[str], node: str) -> set[str]:
    return {each for each in decimals if each.startswith(node)}


def is_related(one: str, other: str) -> bool:
    """Whether one contains the other, either way round."""
    return one.startswith(other) or other.startswith(one)


def tail_rank(decimal: str) -> int:
    """The digits after the base as a base-4 number."""
    digits = decimal.lstrip("-")[1:]
    return int("".join(str(int(digit) - 1) for digit in digits) or "0", 4)


def whole_sphere(node_order: int) -> list[str]:
    """Every node of an order."""
    tails = ["".join(tail) for tail in itertools.product("1234", repeat=node_order)]
    return [base + tail for base in BASES for tail in tails]


def decimals(*, min_order: int = 0, max_order: int = 5, bases: str = "16") -> st.SearchStrategy[str]:
    """Decimals in a few base cells of both hemispheres, so that draws meet each other."""
    signs = st.sampled_from(["", "-"])
    tails = st.text(alphabet="1234", min_size=min_order, max_size=max_order)
    return st.builds(lambda sign, base, tail: sign + base + tail, signs, st.sampled_from(bases), tails)
