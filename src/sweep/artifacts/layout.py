"""How an array found in a store is laid out: its shape, chunks and codecs.

Covers what morton-hive stores hold (format 3.2, 5, 6.1): one dimension of cells, regular
chunks, optionally sharded, ``bytes`` for dense and ``vlen-bytes`` for ragged arrays,
optionally ``zstd`` and ``crc32c``. Anything else is refused by name, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from sweep.errors import ArtifactError
from sweep.model.fields import DTYPES
from sweep.model.json_text import loads

__all__ = ["ArrayLayout", "CodecChain", "parse_layout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecChain:
    """The codecs of one chunk: is it zstd-framed, and does a crc32c end it."""

    zstd: bool = False
    crc32c: bool = False
    big_endian: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayLayout:
    """One array's metadata, as far as reading it needs.

    ``chunk_cells`` are the cells of one decoded chunk; a sharded array has ``shard_cells``
    of them in one object, and ``shard_cells`` is None otherwise. ``dtype`` is None for a
    ragged array.
    """

    n_cells: int
    dtype: np.dtype[Any] | None
    fill: Any
    chunk_cells: int
    shard_cells: int | None
    index_at_end: bool
    codecs: CodecChain
    attributes: Mapping[str, Any]

    @property
    def is_ragged(self) -> bool:
        """Whether a cell is a run of bytes instead of one value."""
        return self.dtype is None


# A shard's index is read whole; one longer than its array needs is borne up to here.
_SHARD_CHUNKS = 2**20


@lru_cache(maxsize=4096)
def parse_layout(document: bytes) -> ArrayLayout:
    """Read an array's ``zarr.json``; equal documents are read once.

    Raises
    ------
    ArtifactError
        The document is torn, or declares what this reader does not know. The message names
        the member at fault; the caller adds the key.
    """
    try:
        meta = loads(document)
        return _layout(meta)
    except ArtifactError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ArtifactError(
            f"array document is not usable ({type(error).__name__}: {error})", kind="array-document"
        ) from error


def _layout(meta: Mapping[str, Any]) -> ArrayLayout:
    if meta.get("zarr_format") != 3 or meta.get("node_type") != "array":
        raise ArtifactError("array document is no zarr v3 array", kind="array-document")
    n_cells = _extent(meta["shape"], "shape", least=0)
    grid = meta["chunk_grid"]
    if grid["name"] != "regular":
        raise ArtifactError(f"chunk_grid {grid} is not regular", kind="array-document")
    outer = _extent(grid["configuration"]["chunk_shape"], "chunk_shape", least=1)
    encoding = meta["chunk_key_encoding"]
    if encoding["name"] != "default" or encoding.get("configuration", {}).get("separator", "/") != "/":
        raise ArtifactError(f"chunk_key_encoding {encoding} is not default with '/'", kind="array-document")
    if meta.get("storage_transformers"):
        raise ArtifactError(
            f"storage_transformers {meta['storage_transformers']} are not known", kind="array-document"
        )
    dtype = _dtype(meta["data_type"])
    codecs = meta["codecs"]
    if codecs[0]["name"] != "sharding_indexed":
        inner, shard_cells, at_end = outer, None, True
        chain = _chain(codecs, ragged=dtype is None)
    else:
        inner, at_end, chain = _sharding(codecs, outer, ragged=dtype is None)
        shard_cells = outer
        n_chunks = outer // inner
        if n_chunks > max(_SHARD_CHUNKS, -(-n_cells // inner)):
            raise ArtifactError(f"a shard of {n_chunks} chunks is beyond its array", kind="array-document")
    return ArrayLayout(
        n_cells=n_cells,
        dtype=dtype,
        fill=None if dtype is None else _fill(meta["fill_value"], dtype),
        chunk_cells=inner,
        shard_cells=shard_cells,
        index_at_end=at_end,
        codecs=chain,
        attributes=meta.get("attributes", {}),
    )


def _sharding(codecs: list[Any], outer: int, *, ragged: bool) -> tuple[int, bool, CodecChain]:
    config = codecs[0]["configuration"]
    index = config["index_codecs"]
    location = config.get("index_location", "end")
    if len(codecs) != 1 or [c["name"] for c in index] != ["bytes", "crc32c"] or _is_big_endian(index[0]):
        raise ArtifactError("sharding_indexed with other than a plain crc32c index", kind="codec")
    if location not in ("start", "end"):
        raise ArtifactError(f"index_location {location!r} is neither start nor end", kind="codec")
    inner = _extent(config["chunk_shape"], "inner chunk_shape", least=1)
    if outer % inner:
        raise ArtifactError(f"inner chunk_shape {inner} does not divide the shard {outer}", kind="codec")
    return inner, location == "end", _chain(config["codecs"], ragged=ragged)


def _extent(shape: Any, member: str, *, least: int) -> int:
    if isinstance(shape, list) and len(shape) == 1 and type(shape[0]) is int and shape[0] >= least:
        return int(shape[0])
    raise ArtifactError(
        f"{member} {shape} is not one whole number of at least {least}", kind="array-document"
    )


def _is_big_endian(codec: Mapping[str, Any]) -> bool:
    return bool(codec.get("configuration", {}).get("endian", "little") == "big")


def _dtype(name: Any) -> np.dtype[Any] | None:
    if name in ("variable_length_bytes", "bytes"):
        return None
    if name not in DTYPES and name != "bool":
        raise ArtifactError(f"data_type {name!r} is not known", kind="array-document")
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


def _chain(codecs: list[Any], *, ragged: bool) -> CodecChain:
    names = [codec["name"] for codec in codecs]
    head = "vlen-bytes" if ragged else "bytes"
    rest = names[1:]
    if not names or names[0] != head or rest not in ([], ["zstd"], ["crc32c"], ["zstd", "crc32c"]):
        raise ArtifactError(
            f"codecs {names} are not known; expected {head}, then optionally zstd and crc32c", kind="codec"
        )
    return CodecChain(zstd="zstd" in rest, crc32c="crc32c" in rest, big_endian=_is_big_endian(codecs[0]))


def _fill(value: Any, dtype: np.dtype[Any]) -> Any:
    try:
        if isinstance(value, str) and value.startswith("0x"):
            raw = int(value, 16).to_bytes(dtype.itemsize, "big")
            return np.frombuffer(raw, dtype.newbyteorder(">")).astype(dtype)[0]
        if value is None or (dtype.kind in "iu" and type(value) is not int):
            raise TypeError(f"not of {dtype.name}")
        tokens = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
        return dtype.type(tokens[value] if isinstance(value, str) else value)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"fill_value {value!r} is no value of {dtype.name}", kind="array-document"
        ) from error
