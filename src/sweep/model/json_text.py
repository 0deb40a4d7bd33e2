"""The three JSON layouts of a store, and the one reader of JSON that others wrote.

Source: format 1.6.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["compact_json", "loads", "printable", "root_json", "zarr_json"]

MAX_DEPTH = 100
"""Deepest nesting that is read: well above any document of a store, well below what writing can bear."""


def root_json(value: Any) -> bytes:
    """Manifest, coverage, lease, records, envelopes, companion groups: indent 1."""
    return json.dumps(value, indent=1).encode()


def compact_json(value: Any) -> bytes:
    """Stats sidecars: one line."""
    return json.dumps(value).encode()


def zarr_json(value: Any) -> bytes:
    """zarr metadata documents: indent 2."""
    return json.dumps(value, indent=2).encode()


def loads(raw: bytes | str) -> Any:
    """The value that ``raw`` spells, for text from outside: damage is always a ValueError.

    Raises
    ------
    ValueError
        It is no JSON, is not UTF-8, holds a number of thousands of digits, or is nested deeper
        than 100.

    Notes
    -----
    Numbers can still be too large for a float, and texts can hold lone surrogates: whoever
    computes with the one or prints the other must look.
    """
    try:
        value = json.loads(raw)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if _is_deep(value):
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    return value


def _is_deep(value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, dict | list)
        ]
    return bool(level)


def printable(text: str) -> str:
    """``text`` with each lone surrogate, which JSON can spell and no stream can write, escaped."""
    return text.encode("utf-8", "backslashreplace").decode()
