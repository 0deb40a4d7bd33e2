"""Window labels and stems: how one time slice is named in a store.

Source: format 1.4; leaves 6.2.
"""

from __future__ import annotations

import re

__all__ = ["ALL", "is_label", "stem_of"]

ALL = "all"
"""The stem of an unwindowed store, and of the all-time fold of a windowed one."""

_LABEL = re.compile(r"[0-9A-Za-z-]{1,32}")


def is_label(text: object) -> bool:
    """Whether ``text`` can label a window: 1-32 letters, digits or dashes, and not ``all``."""
    return isinstance(text, str) and _LABEL.fullmatch(text) is not None and text != ALL


def stem_of(window: str | None) -> str:
    """The base name of the objects of a window."""
    return ALL if window is None else window
