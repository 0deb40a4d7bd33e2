"""A look at a Parquet footer before a reader in another language is trusted with it. Pure.

The Rust reader ends the whole process, past every ``except``, where a footer places a column
at a negative offset, and it reserves memory for as many elements as a list claims to have.
So the footer's Thrift is walked here first. What lies in the pages themselves is not looked
at: damage there is the reader's to find, and where it should abort on it, so does the run.

Source: semantics 2.1; the Thrift compact protocol and parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep.errors import ArtifactError

__all__ = ["check_footer"]

_TAIL_BYTES = 8
_MAX_DEPTH = 24
_TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_WHOLE = (_I16, _I32, _I64)

# The wire types of the members on the way to the offsets; a reader may take them as given.
_FILE = {1: _I32, 2: _LIST, 3: _I64, 4: _LIST, 5: _LIST, 6: _BINARY, 7: _LIST}
_ROW_GROUP = {1: _LIST, 2: _I64, 3: _I64, 4: _LIST, 5: _I64, 6: _I64, 7: _I16}
_CHUNK = {1: _BINARY, 2: _I64, 3: _STRUCT, 4: _I64, 5: _I32, 6: _I64, 7: _I32}
_COLUMN = {
    1: _I32, 2: _LIST, 3: _LIST, 4: _I32, 5: _I64, 6: _I64, 7: _I64, 8: _LIST, 9: _I64, 10: _I64, 11: _I64,
    12: _STRUCT, 13: _LIST, 14: _I64, 15: _I32,
}  # fmt: skip
_SIZE, _OFFSETS = 7, {9: "data_page_offset", 10: "index_page_offset", 11: "dictionary_page_offset"}
_COUNTS = {5: "num_values", 6: "total_uncompressed_size", _SIZE: "total_compressed_size"}


def check_footer(data: bytes) -> None:
    """Refuse a Parquet file whose footer cannot be walked, or places a column outside of the file.

    ``data`` is the file, whose ends and footer length were found sound.

    Raises
    ------
    ArtifactError
        Kind ``run-record``: what is wrong with the footer.
    """
    size = int.from_bytes(data[-_TAIL_BYTES:-4], "little")
    end = len(data) - _TAIL_BYTES
    walk = _Walk(data=data[end - size : end])
    try:
        footer = _typed(walk.struct(), _FILE)
        _count(footer, 3, "num_rows")
        for group in _structs(footer, 4, _ROW_GROUP):
            _count(group, 3, "num_rows of a row group")
            for chunk in _structs(group, 1, _CHUNK):
                if 3 in chunk:
                    _check_column(_typed(chunk[3][1], _COLUMN), end - size)
    except IndexError as error:
        raise _damaged("it ends in the middle of a value") from error


def _check_column(column: Mapping[int, Any], pages_end: int) -> None:
    for member, name in _COUNTS.items():
        _count(column, member, name)
    length = column[_SIZE][1] if _SIZE in column else 0
    for member, name in _OFFSETS.items():
        if member in column and not 0 <= column[member][1] <= pages_end:
            raise _damaged(f"{name} is {column[member][1]}, the pages end at {pages_end}")
    start = column.get(11, column.get(9, (_I64, 0)))[1]
    if start + length > pages_end:
        raise _damaged(f"a column of {length} bytes at {start} reaches beyond the pages, to {pages_end}")


def _count(found: Mapping[int, Any], member: int, name: str) -> None:
    if member in found and found[member][1] < 0:
        raise _damaged(f"{name} is {found[member][1]}")


def _structs(found: Mapping[int, Any], member: int, types: Mapping[int, int]) -> list[Mapping[int, Any]]:
    kind, elements = found[member][1] if member in found else (_STRUCT, [])
    if kind != _STRUCT and elements:
        raise _damaged(f"its member {member} is no list of structures")
    return [_typed(each, types) for each in elements]


def _typed(found: Mapping[int, Any], types: Mapping[int, int]) -> Mapping[int, Any]:
    for member, (kind, _) in found.items():
        if types.get(member, kind) != kind:
            raise _damaged(f"its member {member} is of wire type {kind}, expected {types[member]}")
    return found


def _damaged(what: str) -> ArtifactError:
    return ArtifactError(f"it is not readable as Parquet (damaged footer: {what})", kind="run-record")


@dataclass(slots=True, kw_only=True)
class _Walk:
    """Reads values of the Thrift compact protocol one after another; IndexError at the end."""

    data: bytes
    place: int = 0

    def struct(self, depth: int = 0) -> dict[int, tuple[int, Any]]:
        """Members by number, each with its wire type."""
        if depth > _MAX_DEPTH:
            raise _damaged("its structures are nested too deeply")
        found: dict[int, tuple[int, Any]] = {}
        member = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            member = member + step if step else self._whole()
            if not 0 < member < 2**15 or member in found:
                raise _damaged(f"a structure has the member {member} twice or out of range")
            found[member] = (kind, kind == _TRUE if kind <= _FALSE else self._value(kind, depth))
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _WHOLE:
            return self._whole()
        if kind in (_TRUE, _FALSE, _I8):
            return self._byte()
        if kind == _DOUBLE:
            return self._skip(8)
        if kind == _BINARY:
            return self._skip(self._varint())
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise _damaged(f"a value is of wire type {kind}")

    def _list(self, depth: int) -> tuple[int, list[Any]]:
        if depth > _MAX_DEPTH:
            raise _damaged("its lists are nested too deeply")
        head = self._byte()
        size, kind = head >> 4, head & 15
        size = self._varint() if size == 15 else size
        if size > len(self.data) - self.place:
            raise _damaged(f"a list claims {size} elements")
        return kind, [self._value(kind, depth + 1) for _ in range(size)]

    def _skip(self, n_bytes: int) -> None:
        if n_bytes > len(self.data) - self.place:
            raise _damaged(f"a text claims {n_bytes} bytes")
        self.place += n_bytes

    def _byte(self) -> int:
        value = self.data[self.place]
        self.place += 1
        return value

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                break
        else:
            raise _damaged("a number has no end")
        return value

    def _whole(self) -> int:
        raw = self._varint()
        return (raw >> 1) ^ -(raw & 1)
