"""zarr documents, against those of real stores and against zarr-python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.reference import ReferenceStore
from tests.support.made import fields_of

from sweep.artifacts.documents import STAGE_CHUNK_CELLS, Templates, array_document, root_document
from sweep.model.fields import ArraySpec, FieldMap
from sweep.model.manifest import Manifest, parse_manifest


def manifest_at(root: Path) -> Manifest:
    return parse_manifest((root / "morton_hive.json").read_bytes(), str(root))


def groups_of(root: Path, pattern: str) -> Iterator[tuple[Path, int, int]]:
    """(group folder, node order, cell order) of every resolution group of matching artifacts."""
    for artifact in sorted(root.rglob(pattern)):
        node_order = len(artifact.relative_to(root).parts) - 2
        for document in sorted(artifact.glob("*/zarr.json")):
            yield document.parent, node_order, int(document.parent.name)


def documents_in(group: Path) -> dict[str, bytes]:
    """The documents of a group and its arrays, by path below the artifact."""
    found = [group / "zarr.json", *group.glob("*/zarr.json")]
    return {path.relative_to(group.parent).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize(
    ("name", "stem"), [("kitchen_sink", "all"), ("wide", "all"), ("kitchen_sink_windowed", "2019")]
)
def test_overview_documents_of_real_stores(reference_store: ReferenceStore, name: str, stem: str) -> None:
    root = reference_store(name, "post")
    templates = Templates(manifest_at(root).fields)
    checked = 0
    for group, node_order, cell_order in groups_of(root, f"{stem}.zarr"):
        n_cells = 4 ** (cell_order - node_order)
        assert dict(templates.documents(cell_order, n_cells, n_cells)) == documents_in(group)
        checked += 1
    assert checked >= 5


@pytest.mark.parametrize(("name", "chunked"), [("kitchen_sink", False), ("wide", True)])
def test_stage_column_documents_of_real_stores(
    reference_store: ReferenceStore, name: str, chunked: bool
) -> None:
    root = reference_store(name, "post")
    manifest = manifest_at(root)
    templates = Templates(manifest.fields)
    most = 0
    for group, node_order, cell_order in groups_of(root, "all.pyramid.zarr"):
        if node_order < manifest.shard_order:
            n_cells = 4 ** (cell_order - node_order)
            chunk = min(n_cells, STAGE_CHUNK_CELLS)
            assert dict(templates.documents(cell_order, n_cells, chunk)) == documents_in(group)
            most = max(most, n_cells)
    assert (most > STAGE_CHUNK_CELLS) == chunked
    assert most


def test_root_documents_of_real_stores(reference_store: ReferenceStore) -> None:
    root = reference_store("kitchen_sink", "post")
    documents = [path / "zarr.json" for path in root.rglob("all*.zarr")]
    assert len(documents) > 20
    for path in documents:
        raw = path.read_bytes()
        assert root_document(json.loads(raw)["attributes"]) == raw


@pytest.mark.parametrize(
    ("dtype", "fill", "text"),
    [
        ("int64", 0, "0"),
        ("int32", -9999, "-9999"),
        ("uint64", 2**64 - 1, "18446744073709551615"),
        ("float32", -9999.0, "-9999.0"),
        ("float64", 1e20, "1e+20"),
        ("float32", 0.1, "0.10000000149011612"),
        ("float64", -0.0, "-0.0"),
        ("float32", np.nan, '"NaN"'),
        ("float64", np.inf, '"Infinity"'),
        ("float64", -np.inf, '"-Infinity"'),
    ],
)
def test_fill_values(dtype: str, fill: Any, text: str) -> None:
    spec = ArraySpec(name="x", dtype=np.dtype(dtype), fill=np.dtype(dtype).type(fill), attributes={})
    lines = array_document(spec, 4, 4).decode().splitlines()
    assert f'  "fill_value": {text},' in lines
    assert f'  "data_type": "{dtype}",' in lines


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"],
)
def test_documents_equal_those_of_zarr_python(tmp_path: Path, dtype: str) -> None:
    """Every member of every dense dtype; a single byte, for one, has no byte order."""
    fill = np.dtype(dtype).type(1)
    zarr.create_array(
        tmp_path,
        shape=(16,),
        chunks=(4,),
        dtype=dtype,
        fill_value=fill,
        compressors=None,
        filters=None,
        dimension_names=["cells"],
    )
    spec = ArraySpec(name="x", dtype=np.dtype(dtype), fill=fill, attributes={})
    made = json.loads(array_document(spec, 16, 4))
    assert made == json.loads((tmp_path / "zarr.json").read_bytes())


def test_documents_are_rendered_once() -> None:
    templates = Templates(fields_of())
    first = templates.documents(4, 16, 16)
    assert templates.documents(4, 16, 16) is first
    assert templates.documents(4, 16, 4) != first
    assert templates.documents(5, 16, 16)[0][0] == "5/zarr.json"


def test_a_store_without_fields_has_the_coordinate_alone() -> None:
    assert [key for key, _ in Templates(FieldMap(())).documents(4, 16, 16)] == [
        "4/zarr.json",
        "4/morton/zarr.json",
    ]
