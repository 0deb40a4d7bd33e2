"""Writing artifacts: real ones to the byte, the order of writes, and what failures leave."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.reference import ReferenceStore
from tests.support.made import Json, level_data, listed, manifest_of, memory_store, ragged
from tests.support.sweeping import objects_in, read_tree

from sweep.artifacts.documents import Templates
from sweep.artifacts.reading import read_blocks
from sweep.artifacts.source import BlockRequest, StoredSource, open_sources
from sweep.artifacts.writer import Member, Origin, Writer
from sweep.errors import StoreUnavailableError
from sweep.fold.level import Cells, LevelData
from sweep.fold.ragged import Ragged
from sweep.model.ladder import Level
from sweep.model.manifest import Manifest, parse_manifest
from sweep.model.provenance import Demotion, Generation, SourceCounts
from sweep.store.base import ObjectStore
from sweep.store.open import open_store
from sweep.testing.clocks import FakeClock
from sweep.testing.stores import WRITES, CountingStore, Fault, FaultyStore

RUN = "stage-20261129T163105Z-abcdef"
ORIGIN = Origin(
    node="21",
    stem="all",
    window=None,
    generation=Generation(
        n_leaves=3, max_leaf_timestamp="2026-11-29T16:00:00+00:00", run_ids=frozenset({"b", "a"})
    ),
    counts=SourceCounts(folded=2, missing=1, unreadable=0),
    granules=7,
    time_range=None,
)
LEVEL = Level(node_order=1, cell_order=3)
OVERVIEW, SIDECAR = "2/1/all.zarr", "2/1/all.stats.json"


def writer_on(
    store: ObjectStore, manifest: Manifest, *, run_id: str = RUN, program: str = "sweep 1"
) -> Writer:
    templates = Templates(manifest.fields)
    return Writer(
        store=store, manifest=manifest, templates=templates, clock=FakeClock(), run_id=run_id, program=program
    )


def write(store: ObjectStore, data: LevelData, *, run_id: str = RUN, origin: Origin = ORIGIN) -> Any:
    manifest = manifest_of(windowed=origin.window is not None)
    return writer_on(store, manifest, run_id=run_id).overview(
        LEVEL, origin, regime="stage-gather", merges_from_raw=2, data=data
    )


def data_of(seed: int = 0, *, n_cells: int = 16, filled: float = 0.5) -> LevelData:
    return level_data(manifest_of().fields, n_cells, seed, filled=filled)


def root_of(store: ObjectStore, key: str = OVERVIEW) -> Json:
    raw = store.get(f"{key}/zarr.json")
    assert raw is not None
    attributes: Json = json.loads(raw)["attributes"]
    return attributes


# -- real artifacts -----------------------------------------------------------------------

_CLOCKS = {"generated_at", "written_at", "timestamp", "zagg_version"}


def _without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: 0 if key in _CLOCKS else _without_clocks(each) for key, each in value.items()}
    return value


def comparable(objects: Iterable[tuple[str, bytes]]) -> dict[str, Any]:
    """Objects by key; those that carry clocks as text without them, in their own key order."""
    return {
        key: json.dumps(_without_clocks(json.loads(data)))
        if key.endswith(("zarr/zarr.json", "stats.json"))
        else data
        for key, data in objects
    }


def cells_of(store: ObjectStore, manifest: Manifest, key: str, cell_order: int, n_cells: int) -> LevelData:
    (source,) = open_sources(store, [key], "zagg_overview")
    assert isinstance(source, StoredSource)
    wanted = BlockRequest(source=source, cell_order=cell_order, n_cells=n_cells, start=0, stop=n_cells)
    (block,) = read_blocks(store, [wanted], [spec.name for spec in manifest.fields.arrays()], None)
    arrays: dict[str, Cells] = {name: cells for name, cells in block.items() if cells is not None}
    assert arrays.keys() == block.keys()
    return LevelData(n_cells=n_cells, arrays=arrays)


def origin_in(block: Json, stamp: Json) -> Origin:
    generation = Generation.parse(block["generation"])
    assert generation is not None
    return Origin(
        node=block["node"],
        stem=block["window"],
        window=stamp.get("window"),
        generation=generation,
        counts=SourceCounts.parse(block["source_children"]),
        granules=stamp["granule_count"],
        time_range=stamp.get("time_range"),
        windows=SourceCounts.parse(block["source_windows"]) if "source_windows" in block else None,
    )


def expected_in(root: Path, key: str) -> dict[str, Any]:
    sidecar = f"{key.removesuffix('.zarr')}.stats.json"
    found = {f"{key}/{name}": data for name, data in read_tree(root / key).items()}
    return comparable([*found.items(), (sidecar, (root / sidecar).read_bytes())])


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("kitchen_sink", "1/2/3/all.zarr"),
        ("kitchen_sink", "6/all.zarr"),
        ("kitchen_sink_windowed", "1/2/2019.zarr"),
        ("kitchen_sink_windowed", "1/all.zarr"),
    ],
)
def test_a_real_overview(reference_store: ReferenceStore, name: str, key: str) -> None:
    root = reference_store(name, "post")
    manifest = parse_manifest((root / "morton_hive.json").read_bytes(), str(root))
    original = open_store(root)
    attributes = root_of(original, key)
    block, stamp = attributes["zagg_overview"], attributes["morton_hive_commit"]
    level = Level(node_order=block["order"], cell_order=block["cell_order"])
    data = cells_of(original, manifest, key, level.cell_order, level.n_cells)
    store = memory_store()
    written = writer_on(store, manifest, run_id=block["run_id"]).overview(
        level,
        origin_in(block, stamp),
        regime=block["regime"],
        merges_from_raw=block["merges_from_raw"],
        data=data,
    )
    assert comparable(objects_in(store).items()) == expected_in(root, key)
    assert root_of(store, key) == {
        "role": "overview",
        "zagg_overview": written.block,
        "morton_hive_commit": written.stamp,
    }


@pytest.mark.parametrize("name", ["kitchen_sink", "wide"])
def test_a_real_stage_column(reference_store: ReferenceStore, name: str) -> None:
    """The widest stage column of a store: in ``wide`` it has chunks of 1,024 cells."""
    root = reference_store(name, "post")
    manifest = parse_manifest((root / "morton_hive.json").read_bytes(), str(root))
    original = open_store(root)
    (dispatch,) = {
        order for order in range(1, manifest.shard_order) if manifest.ladder.stage_members(order)
    } & {3}
    keys = [p.relative_to(root).as_posix() for p in root.rglob("all.pyramid.zarr")]
    key = min(key for key in keys if len(key.split("/")) - 2 == dispatch)
    attributes = root_of(original, key)
    block, stamp = attributes["zagg_column"], attributes["morton_hive_commit"]
    members = [
        Member(
            cell_order=int(order),
            merges_from_raw=group["merges_from_raw"],
            data=cells_of(original, manifest, key, int(order), group["n_cells"]),
        )
        for order, group in block["groups"].items()
    ]
    store = memory_store()
    writer_on(store, manifest, run_id=block["run_id"]).column(origin_in(block, stamp), members)
    assert comparable(objects_in(store).items()) == expected_in(root, key)
    if name == "wide":
        assert members[0].data.n_cells == 4096


@pytest.mark.filterwarnings("ignore:The data type")
def test_zarr_python_reads_what_was_written(tmp_path: Path) -> None:
    data = data_of(n_cells=4096)
    manifest = manifest_of(shard_order=2, cell_order=9, leaf_cells=(7,))
    members = [
        Member(cell_order=7, merges_from_raw=1, data=data),
        Member(cell_order=3, merges_from_raw=2, data=data_of(1)),
    ]
    writer_on(open_store(tmp_path), manifest).column(ORIGIN, members)
    for member in members:
        group: Any = zarr.open_group(tmp_path / "2/1/all.pyramid.zarr" / str(member.cell_order), mode="r")
        assert set(group.array_keys()) == {*member.data.arrays, "morton"}
        assert group["morton"].chunks == (min(1024, member.data.n_cells),)
        for array, cells in member.data.arrays.items():
            values = group[array][:]
            if isinstance(cells, Ragged):
                assert values.tolist() == listed(cells)
            else:
                assert values.dtype == cells.dtype
                np.testing.assert_array_equal(values, cells)


# -- what is written ----------------------------------------------------------------------


def test_an_overview_without_data_has_documents_and_the_coordinate() -> None:
    store = memory_store()
    stamp = write(store, data_of(filled=0.0)).stamp
    chunks = [key for key in objects_in(store) if "/c/" in key]
    assert chunks == [f"{OVERVIEW}/3/morton/c/0"]
    assert stamp["cells_with_data"] == 0
    arrays = {*data_of().arrays, "morton"}
    assert {
        key.split("/")[4] for key in objects_in(store) if key.endswith("/zarr.json") and key.count("/") == 5
    } == arrays


def test_chunks_of_absent_children_are_left_out() -> None:
    manifest = manifest_of(shard_order=2, cell_order=9, leaf_cells=(7,))
    values = np.zeros(4096, dtype=np.int64)
    values[1024:1030] = 5
    payloads = [b""] * 4096
    payloads[3000] = b"12345678"
    empty = level_data(manifest.fields, 4096, filled=0.0)
    data = replace(empty, arrays={**empty.arrays, "count": values, "flux": ragged(payloads)})
    store = memory_store()
    stamp = (
        writer_on(store, manifest).column(ORIGIN, [Member(cell_order=7, merges_from_raw=1, data=data)]).stamp
    )
    base = "2/1/all.pyramid.zarr/7"
    chunks = {key for key in objects_in(store) if "/c/" in key}
    assert chunks == {
        *(f"{base}/morton/c/{n}" for n in range(4)),
        f"{base}/count/c/1",
        f"{base}/flux/c/2",
    }
    assert stamp["cells_with_data"] == 7


def test_populated_cells_are_counted_by_any_array() -> None:
    data = data_of(filled=0.0)
    h_min = np.full(16, np.nan, dtype=np.float32)
    h_min[3] = 1.0
    h_min[4] = np.nan
    i_max = np.full(16, -9999, dtype=np.int32)
    i_max[[3, 5]] = 0
    cells: dict[str, Cells] = {"h_min": h_min, "i_max": i_max, "h_times": ragged([b""] * 15 + [b"12345678"])}
    stamp = write(memory_store(), replace(data, arrays={**data.arrays, **cells})).stamp
    assert stamp["cells_with_data"] == 3  # cells 3, 5 and 15


@pytest.mark.parametrize(
    ("window", "time_range", "keys"),
    [
        (None, None, []),
        ("2019", None, ["window"]),
        ("2019", ["2019-01-01T00:00:00+00:00", "2019-12-31T00:00:00+00:00"], ["window", "time_range"]),
        ("all", ["2019-01-01T00:00:00+00:00", "2020-12-31T00:00:00+00:00"], ["window", "time_range"]),
    ],
)
def test_stamp_keys(window: str | None, time_range: list[str] | None, keys: list[str]) -> None:
    origin = replace(ORIGIN, window=window, stem=window or "all", time_range=time_range)
    stamp = write(memory_store(), data_of(), origin=origin).stamp
    assert list(stamp) == [
        "spec",
        "complete",
        "cells_with_data",
        "granule_count",
        "written_at",
        *keys,
        "run_id",
        "content_hashes",
    ]
    assert stamp["spec"] == ("morton-hive/1" if window is None else "morton-hive/2")
    assert stamp.get("window") == window
    assert (stamp["granule_count"], stamp["run_id"], stamp["complete"]) == (7, RUN, True)
    assert stamp["written_at"] == "2026-11-29T16:31:05+00:00"


def test_block_keys_with_windows_and_demotions() -> None:
    demotions = (
        Demotion(field="comp", reason="word-missing", contributors=1, of="h", cells=4),
        Demotion(field="comp", reason="divisor-missing", contributors=2, of="h"),
    )
    origin = replace(ORIGIN, windows=SourceCounts(folded=2, missing=1), demotions=demotions)
    block = write(memory_store(), data_of(), origin=origin).block
    order = list(block)
    assert order[order.index("source_children") :] == [
        "source_children",
        "source_windows",
        "demotions",
        "generation",
        "content_hash",
        "run_id",
        "generated_at",
    ]
    assert block["source_windows"] == {"folded": 2, "missing": 1, "unreadable": 0}
    # format 4.1, the example, and one without cells
    assert json.dumps(block["demotions"][0]) == (
        '{"field": "comp", "class": "packed", "reason": "word-missing", '
        '"contributors": 1, "of": "h", "cells": 4}'
    )
    assert list(block["demotions"][1]) == ["field", "class", "reason", "contributors", "of"]
    assert block["generation"]["run_ids"] == ["a", "b"]
    plain = write(memory_store(), data_of()).block
    assert not {"source_windows", "demotions"} & set(plain)


def test_the_sidecar_names_the_node_by_its_word() -> None:
    store = memory_store()
    stamp = write(store, data_of(), origin=replace(ORIGIN, node="-2111")).stamp
    raw = store.get("-2/1/1/1/all.stats.json")
    assert raw is not None
    record = json.loads(raw)
    assert raw == json.dumps(record).encode()
    assert len(record) == 34
    assert record["shard_key"] == 9223372036854775811  # semantics 14.5
    assert record["content_hashes"] == stamp["content_hashes"]
    assert (record["zagg_version"], record["n_granules"], record["success"]) == ("sweep 1", 7, True)


# -- the order of writes ------------------------------------------------------------------


def writes(store: CountingStore) -> list[tuple[str, str]]:
    return [call for call in store.log if call[0] in WRITES]


def test_a_new_overview_is_stamped_last() -> None:
    counting = CountingStore(memory_store())
    write(counting, data_of())
    log = writes(counting)
    assert log[-1] == ("put", f"{OVERVIEW}/zarr.json")
    assert [key for _, key in log].count(f"{OVERVIEW}/zarr.json") == 1
    assert ("put", SIDECAR) in log
    assert {method for method, _ in log} == {"put"}


def test_a_new_column_is_stamped_last() -> None:
    counting = CountingStore(memory_store())
    members = [Member(cell_order=3, merges_from_raw=1, data=data_of())]
    writer_on(counting, manifest_of()).column(ORIGIN, members)
    log = writes(counting)
    assert log[-1] == ("put", "2/1/all.pyramid.zarr/zarr.json")
    assert ("put", "2/1/all.pyramid.stats.json") in log


def test_an_older_artifact_is_unstamped_first_and_what_it_had_more_is_removed() -> None:
    store = memory_store()
    write(store, data_of(filled=1.0), run_id="older")
    store.put(f"{OVERVIEW}/7/foreign/zarr.json", b"{}")
    store.put("2/1/all.zarr.txt", b"a neighbour")
    counting = CountingStore(store)
    empty = data_of(filled=0.0)
    write(counting, empty)
    log = writes(counting)
    assert log[0] == ("delete", f"{OVERVIEW}/zarr.json")
    gone = {key for method, key in log if method == "delete"} - {f"{OVERVIEW}/zarr.json"}
    assert gone == {f"{OVERVIEW}/7/foreign/zarr.json", *(f"{OVERVIEW}/3/{name}/c/0" for name in empty.arrays)}
    assert store.get("2/1/all.zarr.txt") == b"a neighbour"
    again = memory_store()
    write(again, empty)
    store.delete("2/1/all.zarr.txt")
    assert objects_in(store) == objects_in(again)


def _older(store: ObjectStore) -> dict[str, bytes]:
    write(store, data_of(1), run_id="older")
    return objects_in(store)


@pytest.mark.parametrize("has_older", [False, True])
def test_a_failing_write_leaves_the_old_artifact_or_none(has_older: bool) -> None:
    counting = CountingStore(memory_store())
    if has_older:
        _older(counting.inner)
    write(counting, data_of())
    n_writes = len(writes(counting))
    assert n_writes > 20
    for failing in range(1, n_writes + 1):
        store = memory_store()
        before = _older(store) if has_older else {}
        faulty = FaultyStore(
            store,
            lambda number, _m, _k, failing=failing: (  # type: ignore[misc]
                Fault(before=StoreUnavailableError("no answer")) if number >= failing else None
            ),
        )
        with pytest.raises(StoreUnavailableError):
            write(faulty, data_of())
        if store.get(f"{OVERVIEW}/zarr.json") is not None:
            assert objects_in(store) == before
            assert failing == 1
        # and the next run heals
        write(store, data_of())
        assert objects_in(store) == objects_in(counting.inner)


def test_a_doubled_write_of_one_run_leaves_the_first() -> None:
    store = memory_store()
    first = write(store, data_of())
    counting = CountingStore(store)
    clock = FakeClock()
    clock.advance(60)
    manifest = manifest_of()
    again = replace(writer_on(counting, manifest), clock=clock)
    second = again.overview(LEVEL, ORIGIN, regime="stage-gather", merges_from_raw=2, data=data_of())
    assert writes(counting) == []
    assert (second.stamp, second.block) == (first.stamp, first.block)


@pytest.mark.parametrize("what", ["run", "data", "column data"])
def test_what_differs_is_written_again(what: str) -> None:
    store = memory_store()
    if what == "column data":
        for seed in (0, 1):
            members = [Member(cell_order=3, merges_from_raw=1, data=data_of(seed))]
            written = writer_on(store, manifest_of()).column(ORIGIN, members)
            assert root_of(store, written.key)["morton_hive_commit"] == written.stamp
        return
    write(store, data_of(), run_id="older" if what == "run" else RUN)
    written = write(store, data_of(1 if what == "data" else 0))
    assert root_of(store)["morton_hive_commit"] == written.stamp


def test_an_unreadable_root_is_no_twin() -> None:
    store = memory_store()
    written = write(store, data_of())
    whole = objects_in(store)
    store.put(f"{OVERVIEW}/zarr.json", b"{")
    assert write(store, data_of()).stamp == written.stamp
    assert objects_in(store) == whole
