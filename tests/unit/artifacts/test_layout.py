"""Array documents as layouts, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.reference import ReferenceStore
from tests.support.made import Json

from sweep.artifacts.documents import MORTON, array_document
from sweep.artifacts.layout import parse_layout
from sweep.errors import ArtifactError


def plain() -> Json:
    """A dense array of 16 cells in chunks of 4, as zarr-python writes it."""
    return {
        "shape": [16],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": "NaN",
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {"a": 1},
        "dimension_names": ["cells"],
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }


def sharded() -> Json:
    index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
    config = {
        "chunk_shape": [4],
        "codecs": [{"name": "vlen-bytes"}, {"name": "zstd", "configuration": {"level": 3}}],
        "index_codecs": index,
        "index_location": "end",
    }
    document = plain() | {"data_type": "variable_length_bytes", "fill_value": ""}
    document["chunk_grid"]["configuration"]["chunk_shape"] = [8]
    return document | {"codecs": [{"name": "sharding_indexed", "configuration": config}]}


def read(document: Any) -> Any:
    return parse_layout(json.dumps(document).encode())


def test_a_plain_array() -> None:
    layout = read(plain())
    assert (layout.n_cells, layout.chunk_cells, layout.shard_cells) == (16, 4, None)
    assert layout.dtype == np.float32
    assert np.isnan(layout.fill)
    assert not layout.is_ragged
    assert (layout.codecs.zstd, layout.codecs.crc32c, layout.codecs.big_endian) == (False, False, False)
    assert layout.attributes == {"a": 1}


def test_a_sharded_ragged_array() -> None:
    layout = read(sharded())
    assert (layout.n_cells, layout.chunk_cells, layout.shard_cells) == (16, 4, 8)
    assert (layout.is_ragged, layout.dtype, layout.fill) == (True, None, None)
    assert (layout.codecs.zstd, layout.codecs.crc32c, layout.index_at_end) == (True, False, True)


def test_an_index_at_the_start() -> None:
    document = sharded()
    document["codecs"][0]["configuration"]["index_location"] = "start"
    assert read(document).index_at_end is False


@pytest.mark.parametrize(
    ("dtype", "fill", "expected"),
    [
        ("int32", -9999, np.int32(-9999)),
        ("uint64", 2**64 - 1, np.uint64(2**64 - 1)),
        ("float64", "Infinity", np.float64(np.inf)),
        ("float64", "-Infinity", np.float64(-np.inf)),
        ("float32", 1.5, np.float32(1.5)),
        ("float32", "0x3fc00000", np.float32(1.5)),
        ("bool", False, np.False_),
    ],
)
def test_fill_values(dtype: str, fill: Any, expected: Any) -> None:
    layout = read(plain() | {"data_type": dtype, "fill_value": fill})
    assert layout.fill == expected
    assert layout.fill.dtype == expected.dtype


def test_a_nan_with_a_payload() -> None:
    fill = read(plain() | {"fill_value": "0x7fc00001"}).fill
    assert fill.tobytes() == bytes.fromhex("0100c07f")


@pytest.mark.parametrize("endian", ["little", "big"])
def test_byte_order(endian: str) -> None:
    document = plain() | {"codecs": [{"name": "bytes", "configuration": {"endian": endian}}]}
    assert read(document).codecs.big_endian == (endian == "big")


def _at(*path: str | int, value: Any, of: Callable[[], Json] = plain) -> Json:
    document = of()
    inner: Any = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return document


def _without(key: str) -> Json:
    document = plain()
    del document[key]
    return document


_SHARDING: tuple[str | int, ...] = ("codecs", 0, "configuration")


@pytest.mark.parametrize(
    ("document", "member"),
    [
        (_without("shape"), "shape"),
        (_without("chunk_grid"), "chunk_grid"),
        (_without("codecs"), "codecs"),
        (_without("fill_value"), "fill_value"),
        (_without("data_type"), "data_type"),
        (_without("chunk_key_encoding"), "chunk_key_encoding"),
        (_at("zarr_format", value=2), "zarr v3 array"),
        (_at("node_type", value="group"), "zarr v3 array"),
        (_at("shape", value=[4, 4]), "shape"),
        (_at("shape", value=[-1]), "shape"),
        (_at("shape", value=[16.0]), "shape"),
        (_at("shape", value="16"), "shape"),
        (_at("chunk_grid", "name", value="rectilinear"), "chunk_grid"),
        (_at("chunk_grid", "configuration", "chunk_shape", value=[0]), "chunk_shape"),
        (_at("chunk_grid", "configuration", "chunk_shape", value=[4.0]), "chunk_shape"),
        (_at("chunk_key_encoding", "name", value="v2"), "chunk_key_encoding"),
        (_at("chunk_key_encoding", "configuration", "separator", value="."), "chunk_key_encoding"),
        (_at("storage_transformers", value=[{"name": "cache"}]), "storage_transformers"),
        (_at("data_type", value="complex64"), "data_type 'complex64'"),
        (_at("data_type", value={"name": "numpy.datetime64"}), "data_type {'name': 'numpy.datetime64'}"),
        (_at("fill_value", value="null"), "fill_value 'null'"),
        (_at("fill_value", value=None), "fill_value None"),
        (_at("data_type", value="uint8") | {"fill_value": 300}, "fill_value 300"),
        (_at("data_type", value="int32") | {"fill_value": 1.5}, "fill_value 1.5"),
        (_at("data_type", value="int32") | {"fill_value": "NaN"}, "fill_value 'NaN'"),
        (_at("data_type", value="uint8") | {"fill_value": "0xffff"}, "fill_value '0xffff'"),
        (_at("codecs", value=[]), "IndexError"),
        (_at("codecs", 0, "name", value="vlen-bytes"), "vlen-bytes"),
        (_at("codecs", value=[{"name": "bytes"}, {"name": "gzip"}]), "gzip"),
        (_at("codecs", value=[{"name": "transpose"}, {"name": "bytes"}]), "transpose"),
        (_at("codecs", value=[{"name": "bytes"}, {"name": "crc32c"}, {"name": "zstd"}]), "crc32c"),
        (_at(*_SHARDING, "chunk_shape", value=[3], of=sharded), "inner chunk_shape 3"),
        (_at(*_SHARDING, "chunk_shape", value=[0], of=sharded), "inner chunk_shape"),
        (_at(*_SHARDING, "index_codecs", value=[{"name": "bytes"}], of=sharded), "sharding_indexed"),
        (
            _at(*_SHARDING, "index_codecs", 0, "configuration", "endian", value="big", of=sharded),
            "sharding_indexed",
        ),
        (_at(*_SHARDING, "index_location", value="middle", of=sharded), "index_location 'middle'"),
        (_at(*_SHARDING, "codecs", value=[{"name": "bytes"}], of=sharded), "codecs"),
        ([], "AttributeError"),
        (None, "AttributeError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals_name_the_member(document: Any, member: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        read(document)
    assert member in caught.value.message
    assert caught.value.kind in ("array-document", "codec")


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe"])
def test_a_torn_document_is_refused(raw: bytes) -> None:
    with pytest.raises(ArtifactError, match="array document is not usable"):
        parse_layout(raw)


def test_equal_documents_are_read_once() -> None:
    document = array_document(MORTON, 64, 64)
    assert parse_layout(document) is parse_layout(bytes(bytearray(document)))


def test_every_array_of_a_real_leaf_column(reference_store: ReferenceStore) -> None:
    """Layouts of format 3.2: one chunk below 1,024 cells, a shard of inner chunks from there on."""
    root = reference_store("wide", "post")
    shard_order = 6
    seen = set()
    for path in sorted(root.rglob("all.pyramid.zarr")):
        if len(path.relative_to(root).parts) - 2 < shard_order:
            continue
        for document in path.glob("*/*/zarr.json"):
            raw = document.read_bytes()
            layout = parse_layout(raw)
            meta = json.loads(raw)
            cell_order = int(document.parent.parent.name)
            width = cell_order - shard_order
            assert layout.n_cells == 4**width == meta["shape"][0]
            assert layout.is_ragged == (meta["data_type"] == "variable_length_bytes")
            if width < 5:
                assert (layout.chunk_cells, layout.shard_cells) == (4**width, None)
            else:
                inner = min(1024, 4 ** (width - 1))
                assert (layout.chunk_cells, layout.shard_cells) == (inner, 4**width)
            seen.add(width)
    assert max(seen) >= 6


def test_a_deep_document_is_refused() -> None:
    with pytest.raises(ArtifactError, match="not usable"):
        parse_layout(b"[" * 100_000)


def test_a_shard_of_more_chunks_than_memory_is_refused() -> None:
    document = sharded()
    document["chunk_grid"]["configuration"]["chunk_shape"] = [10**15]
    document["codecs"][0]["configuration"]["chunk_shape"] = [1]
    with pytest.raises(ArtifactError, match="beyond its array"):
        read(document)
