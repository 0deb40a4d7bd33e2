"""Ragged cells: one run of bytes for each cell, and its framings.

Source: format 5.3, 5.4, 7.1, 7.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweep.errors import ArtifactError
from sweep.fold import kernels

__all__ = ["Ragged", "concat", "decode_vlen", "encode_vlen", "frame32", "frame64", "interleave", "offsets_of"]

_HEADER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Ragged:
    """Cells of bytes, one after another in one buffer.

    Parameters
    ----------
    offsets : ndarray of int64, shape (n_cells + 1,), bytes
        Cell ``i`` is ``data[offsets[i]:offsets[i + 1]]``; ``offsets[0]`` is 0 and
        ``offsets[-1]`` is ``len(data)``.
    data : ndarray of uint8, shape (n_bytes,)
    """

    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]

    @classmethod
    def empty(cls, n_cells: int) -> Ragged:
        """``n_cells`` cells without bytes."""
        return cls(np.zeros(n_cells + 1, dtype=np.int64), np.empty(0, dtype=np.uint8))

    @property
    def n_cells(self) -> int:
        """How many cells there are."""
        return len(self.offsets) - 1

    def lengths(self) -> NDArray[np.int64]:
        """The size of each cell, shape (n_cells,), bytes."""
        return np.diff(self.offsets)

    def slice(self, start: int, stop: int) -> Ragged:
        """Cells ``start`` to ``stop`` (exclusive); the bytes are a view."""
        offsets = self.offsets[start : stop + 1]
        if len(offsets) == 0:
            return Ragged.empty(0)
        return Ragged(offsets - offsets[0], self.data[offsets[0] : offsets[-1]])


def concat(parts: Sequence[Ragged]) -> Ragged:
    """The cells of ``parts``, one part after another."""
    if len(parts) == 0:
        return Ragged.empty(0)
    if len(parts) == 1:
        return parts[0]
    return Ragged(
        offsets_of(np.concatenate([part.lengths() for part in parts])),
        np.concatenate([part.data for part in parts]),
    )


def interleave(parts: Sequence[Ragged]) -> Ragged:
    """Cell ``j`` of part ``w`` becomes cell ``j * len(parts) + w``.

    Raises
    ------
    ValueError
        The parts differ in their number of cells, or there is none.
    """
    if len(parts) == 0:
        raise ValueError("interleave needs at least one part, got none")
    if len(parts) == 1:
        return parts[0]
    sizes = {part.n_cells for part in parts}
    if len(sizes) > 1:
        raise ValueError(f"interleave needs parts of one number of cells, got {sorted(sizes)}")
    lengths = np.stack([part.lengths() for part in parts], axis=1)
    offsets = offsets_of(lengths.ravel())
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    for index, part in enumerate(parts):
        places = np.ascontiguousarray(offsets[index : -1 : len(parts)])
        kernels.copy_ranges(part.data, part.offsets[:-1], places, part.lengths(), data)
    return Ragged(offsets, data)


def decode_vlen(raw: bytes | memoryview, n_cells: int) -> Ragged:
    """Take a decompressed ``vlen-bytes`` chunk apart.

    Parameters
    ----------
    raw : bytes or memoryview
        ``u32le(n_cells)``, then for each cell ``u32le(length)`` and its bytes.
    n_cells : int
        The number of cells that the chunk must hold.

    Raises
    ------
    ArtifactError
        The framing is inconsistent: another number of cells, a length beyond the end,
        bytes left over.

    Notes
    -----
    Source: format 5.4.
    """
    buffer = np.frombuffer(raw, dtype=np.uint8)
    if len(buffer) < _HEADER_BYTES:
        raise ArtifactError(
            f"vlen chunk of {len(buffer)} bytes is torn: expected at least {_HEADER_BYTES} bytes of header; "
            "write the chunk again",
            kind="vlen-framing",
        )
    declared = int(buffer[:_HEADER_BYTES].view("<u4")[0])
    if declared != n_cells:
        raise ArtifactError(
            f"vlen chunk says it holds {declared} cells, expected {n_cells}; "
            "the array's metadata and its chunk disagree",
            kind="vlen-framing",
        )
    payload_bytes = len(buffer) - _HEADER_BYTES * (n_cells + 1)
    if payload_bytes < 0:
        raise _torn(f"its {n_cells} cells reach beyond its {len(buffer)} bytes")
    offsets = np.zeros(n_cells + 1, dtype=np.int64)
    data = np.empty(payload_bytes, dtype=np.uint8)
    parsed = int(kernels.unframe(buffer, _HEADER_BYTES, offsets, data))
    if parsed != n_cells or offsets[-1] != payload_bytes:
        seen = (
            f"its {n_cells} cells reach beyond its {len(buffer)} bytes"
            if parsed != n_cells
            else f"{payload_bytes - int(offsets[-1])} bytes are left after its {n_cells} cells"
        )
        raise _torn(seen)
    return Ragged(offsets, data)


def _torn(seen: str) -> ArtifactError:
    return ArtifactError(f"vlen chunk is torn: {seen}; write the chunk again", kind="vlen-framing")


def encode_vlen(cells: Ragged) -> bytes:
    """The inverse of :func:`decode_vlen`."""
    header = np.array([cells.n_cells], dtype="<u4").view(np.uint8)
    out = np.empty(_HEADER_BYTES * (cells.n_cells + 1) + len(cells.data), dtype=np.uint8)
    out[:_HEADER_BYTES] = header
    kernels.frame(cells.offsets, cells.data, 4, out[_HEADER_BYTES:])
    return out.tobytes()


def frame32(cells: Ragged) -> memoryview:
    """``u32le(length)`` and the bytes of each cell, for the informative hash (format 7.2)."""
    return _framed(cells, 4)


def frame64(cells: Ragged) -> memoryview:
    """``u64le(length)`` and the bytes of each cell, for the content hashes (format 7.1)."""
    return _framed(cells, 8)


def _framed(cells: Ragged, width: int) -> memoryview:
    out = np.empty(width * cells.n_cells + len(cells.data), dtype=np.uint8)
    kernels.frame(cells.offsets, cells.data, width, out)
    return memoryview(out)


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The offsets of consecutive cells of these lengths, shape (n_cells + 1,)."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
