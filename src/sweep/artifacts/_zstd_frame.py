"""How much a zstd frame would decode to, told from its headers alone.

The decoder reserves what a frame claims before it looks at the rest, so a damaged or
hostile chunk of a few bytes could ask for all memory.

Source: RFC 8878, 3.1.1.
"""

from __future__ import annotations

__all__ = ["most_bytes"]

_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK_BYTES = 128 * 1024
_RAW, _RLE, _COMPRESSED = range(3)


def most_bytes(frame: bytes) -> int:
    """The size that the frame declares, or where it declares none, the most that its blocks can hold.

    Raises
    ------
    ValueError
        It is no zstd frame, or is cut short.
    """
    if frame[:4] != _MAGIC or len(frame) < 6:
        raise ValueError("no zstd frame")
    descriptor = frame[4]
    is_single = bool(descriptor & 32)
    place = 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3]
    width = (int(is_single), 2, 4, 8)[descriptor >> 6]
    if width == 0:
        return _most_in_blocks(frame, place)
    if place + width > len(frame):
        raise ValueError("the frame ends in its header")
    declared = int.from_bytes(frame[place : place + width], "little")
    return declared + 256 if width == 2 else declared


def _most_in_blocks(frame: bytes, place: int) -> int:
    most = 0
    while place + 3 <= len(frame):
        header = int.from_bytes(frame[place : place + 3], "little")
        kind, size = header >> 1 & 3, header >> 3
        most += _BLOCK_BYTES if kind == _COMPRESSED else size
        place += 3 + (1 if kind == _RLE else size)
        if header & 1:
            return most
    raise ValueError("the frame ends before its last block")
