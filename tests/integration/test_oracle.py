"""Sweeping a reference store gives the bytes that the reference gave.

The comparison is made by the tool that stands beside the stores, not by code of this project.
Source: format 13, semantics 1 and 3.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.reference import CompareStores, ReferenceStore
from tests.support.sweeping import sweep_folder

# name and number of objects after the sweep, less the run records of the leaves
STORES = (("kitchen_sink", 3502), ("kitchen_sink_windowed", 8825), ("scale_tiny", 5188), ("wide", 1257))
# The tool gives all run records of the leaves one name; where there are two, either is compared.
LEAF_RECORDS = "stats_*.parquet"
# Stage columns sit at other nodes where the tuples differ, and provenance counts other sources.
OVERVIEW_CHUNKS = ("--chunks", "--ignore", "*.pyramid.zarr/*")
GROUPINGS: tuple[dict[str, int], ...] = (
    {"tuple_width": 1},
    {"tuple_width": 2},
    {"target_nodes": 8},
    {"partitions": 4},
    {"partitions": 16},
)


def leaf_records(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.glob(LEAF_RECORDS)}


def assert_none_differ(said: str, n_at_least: int) -> None:
    """The tool compared what it should have, and found nothing."""
    compared, _, rest = said.splitlines()[-1].partition(" objects compared, ")
    assert rest == "0 differences"
    assert int(compared) >= n_at_least


@pytest.mark.parametrize(("name", "n_objects"), STORES)
def test_every_object_is_the_references(
    reference_store: ReferenceStore, compare_stores: CompareStores, name: str, n_objects: int
) -> None:
    root, expected = reference_store(name, "pre"), reference_store(name, "post")
    sweep_folder(root)
    assert_none_differ(compare_stores(expected, root, "--ignore", LEAF_RECORDS), n_objects)
    assert leaf_records(root) == leaf_records(expected)
    assert leaf_records(root)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_object_of_airports_is_the_references(
    reference_store: ReferenceStore, compare_stores: CompareStores
) -> None:
    root, expected = reference_store("airports", "pre", mode="link"), reference_store("airports", "post")
    summary = sweep_folder(root)
    assert (summary.n_leaves, summary.tally.written, summary.tally.columns_written) == (1225, 611, 413)
    assert_none_differ(compare_stores(expected, root, "--ignore", LEAF_RECORDS), 70_000)
    assert leaf_records(root) == leaf_records(expected)


@pytest.mark.parametrize("options", GROUPINGS, ids=str)
@pytest.mark.parametrize("name", ["kitchen_sink"])
def test_overview_bytes_do_not_depend_on_the_grouping(
    reference_store: ReferenceStore, compare_stores: CompareStores, name: str, options: dict[str, int]
) -> None:
    root = reference_store(name, "pre")
    sweep_folder(root, **options)
    assert_none_differ(compare_stores(reference_store(name, "post"), root, *OVERVIEW_CHUNKS), 100)


@pytest.mark.slow
@pytest.mark.parametrize("options", GROUPINGS, ids=str)
@pytest.mark.parametrize("name", ["wide", "kitchen_sink_windowed", "scale_tiny"])
def test_overview_bytes_of_larger_stores_do_not_depend_on_the_grouping(
    reference_store: ReferenceStore, compare_stores: CompareStores, name: str, options: dict[str, int]
) -> None:
    root = reference_store(name, "pre")
    sweep_folder(root, **options)
    assert_none_differ(compare_stores(reference_store(name, "post"), root, *OVERVIEW_CHUNKS), 100)


def _flip_a_chunk(root: Path) -> str:
    chunk = next(path for path in sorted(root.glob("**/all.zarr/**/c/0")) if path.stat().st_size)
    data = bytearray(chunk.read_bytes())
    data[-1] ^= 1
    chunk.write_bytes(data)
    return chunk.relative_to(root).as_posix()


def _change_a_number(root: Path) -> str:
    path = sorted(root.glob("*/all.zarr/zarr.json"))[0]
    document: dict[str, Any] = json.loads(path.read_bytes())
    document["attributes"]["zagg_overview"]["source_children"]["folded"] += 1
    path.write_text(json.dumps(document, indent=2))
    return path.relative_to(root).as_posix()


def _lay_out_otherwise(root: Path) -> str:
    path = root / "morton_hive.json"
    path.write_text(json.dumps(json.loads(path.read_bytes())))
    return "morton_hive.json"


def _remove_a_chunk(root: Path) -> str:
    chunk = next(iter(sorted(root.glob("**/all.pyramid.zarr/**/c/0"))))
    chunk.unlink()
    return chunk.relative_to(root).as_posix()


@pytest.mark.parametrize(
    "damage", [_flip_a_chunk, _change_a_number, _lay_out_otherwise, _remove_a_chunk], ids=lambda f: f.__name__
)
def test_the_comparison_sees_one_difference(
    reference_store: ReferenceStore, compare_stores: CompareStores, tmp_path: Path, damage: Any
) -> None:
    expected = reference_store("wide", "post")
    root = reference_store("wide", "post", mode="copy")
    key = damage(root)
    with pytest.raises(AssertionError) as caught:
        compare_stores(expected, root)
    assert f"\n{key}: " in str(caught.value)
    assert "1 differences" in str(caught.value)
