"""Content hashes, against the vectors of semantics 14.4 and against hashlib by hand."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.reference import ReferenceStore
from tests.support.made import ragged

from sweep.artifacts.hashing import array_hash, content_hash, hash_record
from sweep.fold.level import Cells

DENSE = np.array([0, 47, 0, 0], dtype=np.int64)
VLEN = ragged([b"", b"ab", b"", b"c"])


def test_vectors() -> None:
    dense, vlen = array_hash(DENSE), array_hash(VLEN)
    assert dense == "48df9bbbf4144a4b03f74cda279897f7154c8acb86eb6bbf2f7407eaa52bf53a"
    assert vlen == "66d1177d715551e475024cb0e1418f30543b958ddd5f884b9c7660afce8c14f1"
    record = hash_record({"5/b": vlen, "5/a": dense})
    assert record["combined"] == "fda1bc211a34196d630c50855e5e38ba4f9e51417f71631719e1e22130f5409f"
    assert list(record["arrays"]) == ["5/a", "5/b"]
    assert content_hash("11", 1, 2, {"b": VLEN, "a": DENSE}) == (
        "ba3938191b96580d451fc3afdc8447f7cc61e16453b496e1af15e221633f08bb"
    )


def test_hashes_by_hand() -> None:
    framed = b"".join(struct.pack("<Q", len(cell)) + cell for cell in (b"", b"ab", b"", b"c"))
    assert array_hash(VLEN) == hashlib.sha256(framed).hexdigest()
    floats = np.array([1.5, np.nan], dtype=np.float32)
    assert array_hash(floats) == hashlib.sha256(struct.pack("<2f", 1.5, np.nan)).hexdigest()
    assert array_hash(floats.astype(">f4")) == array_hash(floats)
    assert array_hash(np.empty(0, dtype=np.int8)) == hashlib.sha256(b"").hexdigest()


def test_a_strided_view_is_hashed_by_its_values() -> None:
    assert array_hash(np.arange(8, dtype=np.int64)[::2]) == array_hash(np.array([0, 2, 4, 6]))


@pytest.mark.parametrize("changed", [("12", 1, 2), ("11", 0, 2), ("11", 1, 3)])
def test_the_informative_hash_knows_its_place(changed: tuple[str, int, int]) -> None:
    assert content_hash(*changed, {"a": DENSE}) != content_hash("11", 1, 2, {"a": DENSE})


def cells_by_zarr(artifact: Path) -> dict[str, Cells]:
    """Every array of an artifact as zarr-python reads it."""
    found: dict[str, Cells] = {}
    for document in sorted(artifact.glob("*/*/zarr.json")):
        values: Any = zarr.open_array(document.parent, mode="r")[:]
        key = document.parent.relative_to(artifact).as_posix()
        found[key] = ragged(values.tolist()) if values.dtype == object else values
    return found


@pytest.mark.filterwarnings("ignore:The data type")
@pytest.mark.parametrize(
    "path", ["6/all.zarr", "1/2/all.zarr", "1/2/3/4/all.pyramid.zarr", "-2/1/1/1/1/all.pyramid.zarr"]
)
def test_hashes_of_real_artifacts(reference_store: ReferenceStore, path: str) -> None:
    artifact = reference_store("kitchen_sink", "post") / path
    attributes = json.loads((artifact / "zarr.json").read_bytes())["attributes"]
    cells = cells_by_zarr(artifact)
    recorded = attributes["morton_hive_commit"]["content_hashes"]
    assert hash_record({key: array_hash(each) for key, each in cells.items()}) == recorded
    block = attributes.get("zagg_overview")
    if block is not None:
        named = {key.split("/")[1]: each for key, each in cells.items() if not key.endswith("/morton")}
        assert (
            content_hash(block["node"], block["order"], block["cell_order"], named) == block["content_hash"]
        )
