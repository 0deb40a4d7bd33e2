"""Content hashes of artifacts.

Source: format 7.1 (stamps and sidecars), 7.2 (the informative hash of an overview).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.fold.level import Cells
from sweep.fold.ragged import Ragged, frame32, frame64

__all__ = ["array_hash", "content_hash", "hash_record"]


def _dense_bytes(cells: Any) -> memoryview:
    array = np.ascontiguousarray(cells, dtype=cells.dtype.newbyteorder("<"))
    return memoryview(array).cast("B") if array.size else memoryview(b"")


def array_hash(cells: Cells) -> str:
    """sha256 of an array's decoded cells, fill included; a ragged cell carries its length."""
    body = frame64(cells) if isinstance(cells, Ragged) else _dense_bytes(cells)
    return hashlib.sha256(body).hexdigest()


def hash_record(hashes: Mapping[str, str]) -> dict[str, Any]:
    """The ``content_hashes`` record over array hashes keyed ``"{cell_order}/{array}"``."""
    arrays = {key: hashes[key] for key in sorted(hashes)}
    combined = hashlib.sha256("\n".join(sorted(arrays.values())).encode("ascii")).hexdigest()
    return {"arrays": arrays, "combined": combined}


def content_hash(node: str, node_order: int, cell_order: int, arrays: Mapping[str, Cells]) -> str:
    """The informative hash of an overview, independent of window, run and clock.

    ``arrays`` holds every field and companion but ``morton``.
    """
    digest = hashlib.sha256(f"zagg-overview/1:{node}:{node_order}:{cell_order}".encode("ascii"))
    for name in sorted(arrays):
        cells = arrays[name]
        digest.update(name.encode())
        digest.update(frame32(cells) if isinstance(cells, Ragged) else _dense_bytes(cells))
    return digest.hexdigest()
