"""Finding the leaves of a store: semantics 2.1."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import mortie
import pyarrow as pa
import pytest
from tests.reference import ReferenceStore
from tests.support.made import manifest_json, manifest_of, memory_store
from tests.unit.control.test_run_records import parquet

from sweep.control.discovery import DiscoveredLeaves, discover_leaves
from sweep.errors import StoreUnavailableError
from sweep.model.manifest import Manifest, parse_manifest
from sweep.model.nodes import decimals_of
from sweep.store.base import ObjectStore
from sweep.store.open import open_store
from sweep.testing.stores import READS, CountingStore, Fault, FaultyStore

WINDOWED = manifest_of(windowed=True)
PLAIN = manifest_of()


def word(decimal: str) -> int:
    found: int = mortie.decimal_to_word(decimal, dtype=int)
    return found


def record(
    *decimals: str, windows: list[str | None] | None = None, success: list[Any] | None = None
) -> bytes:
    columns: dict[str, Any] = {"shard_key": pa.array([word(each) for each in decimals], pa.uint64())}
    if windows is not None:
        columns["window"] = pa.array(windows, pa.string())
    if success is not None:
        columns["success"] = pa.array(success)
    return parquet(columns)


def store_of(**objects: bytes) -> ObjectStore:
    store = memory_store()
    for name, data in objects.items():
        store.put(f"stats_{name}.parquet", data)
    return store


def pairs(found: DiscoveredLeaves) -> list[tuple[str, str | None]]:
    """(decimal, window) of every leaf, in the order of the work set."""
    work = found.work
    labels = [None if code < 0 else work.labels[code] for code in work.codes.tolist()]
    return list(zip(decimals_of(work.words), labels, strict=True))


def test_records_are_united_and_sorted_by_word_then_window() -> None:
    store = store_of(
        b=record("-211", "111", "111", windows=["2020", "2020", None]),
        a=record("111", "111", "444", windows=["2019", "2020", "2019"]),
    )
    assert pairs(discover_leaves(store, WINDOWED)) == [
        ("111", None),
        ("111", "2019"),
        ("111", "2020"),
        ("444", "2019"),
        ("-211", "2020"),
    ]


def test_only_parquet_run_records_at_the_root_count() -> None:
    store = memory_store()
    good = record("111")
    for key in (
        "stats_x.parquet",
        "stats_.parquet",
        "stats_x.parquet.bak",
        "sweep_stats_x_stages.json",
        "my_stats_x.parquet",
        "1/1/1/stats_x.parquet",
        "stats_y.json",
    ):
        store.put(key, good if key == "stats_x.parquet" else record("444"))
    counting = CountingStore(store)
    assert pairs(discover_leaves(counting, PLAIN)) == [("111", None)]
    # one listing of the root, and no walk
    assert counting.log == [("list_dir", ""), ("get", "stats_x.parquet")]


def test_failed_leaves_are_left_out_and_coverage_is_not_asked() -> None:
    store = store_of(a=record("111", "112", "113", success=[True, False, None]))
    store.put("coverage.moc", b"anything")
    found = discover_leaves(store, PLAIN)
    assert pairs(found) == [("111", None)]
    assert found.skipped_records == ()


def test_bad_records_are_skipped_and_named(caplog: pytest.LogCaptureFixture) -> None:
    store = store_of(
        a=record("111"),
        b=b"no parquet",
        c=parquet({"success": pa.array([True])}),
        d=parquet({"shard_key": pa.array([-211])}),
        e=parquet({"shard_key": pa.array([5], pa.uint64())}),
    )
    with caplog.at_level(logging.WARNING, "sweep"):
        found = discover_leaves(store, PLAIN)
    assert pairs(found) == [("111", None)]
    said = dict(line.split(": ", 1) for line in found.skipped_records)
    assert sorted(said) == [f"stats_{name}.parquet" for name in "bcde"]
    assert "Parquet" in said["stats_b.parquet"]
    assert "shard_key" in said["stats_c.parquet"]
    assert "-211" in said["stats_d.parquet"]
    assert said["stats_e.parquet"].startswith("5 is not a packed word")
    assert [vars(each)["key"] for each in caplog.records] == sorted(said)


def test_inexact_float_keys_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    # a word is far beyond 2**53, so no float can hold one exactly
    floats = parquet({"shard_key": pa.array([float(word("111")), float(word("112"))])})
    with caplog.at_level(logging.WARNING, "sweep"):
        found = discover_leaves(store_of(a=floats, b=record("113"), c=floats), PLAIN)
    assert pairs(found) == [("113", None)]
    (warning,) = (each for each in caplog.records if vars(each)["event"] == "inexact-keys")
    assert vars(warning)["n_keys"] == 4


def test_leaves_at_another_order_are_named() -> None:
    found = discover_leaves(store_of(a=record("111", "1111", "-21")), PLAIN)
    assert pairs(found) == [("111", None)]
    assert sorted(found.work.skipped) == ["-21", "1111"]


def test_no_records() -> None:
    found = discover_leaves(memory_store(), PLAIN)
    assert pairs(found) == []
    assert found.work.is_empty


def test_a_record_that_vanished_after_the_listing() -> None:
    store = store_of(a=record("111"), b=record("112"))
    hook = Fault(hook=lambda: store.delete("stats_b.parquet"))
    faulty = FaultyStore(store, lambda _n, _m, key: hook if key == "stats_b.parquet" else None, methods=READS)
    assert pairs(discover_leaves(faulty, PLAIN)) == [("111", None)]


def test_a_store_that_does_not_answer() -> None:
    fault = Fault(before=StoreUnavailableError("no answer"))
    with pytest.raises(StoreUnavailableError):
        discover_leaves(FaultyStore(memory_store(), lambda *_: fault, methods=READS), PLAIN)


def sidecars(store: ObjectStore, node: str, *names: str) -> None:
    for name in names:
        store.put(f"{node}/{name}", b"{}")


@pytest.mark.parametrize(
    ("spec", "names", "labels"),
    [
        ("morton-hive/2", ["stats_2019.json", "stats_2020.json"], ["2019", "2020"]),
        ("morton-hive/2", ["stats.json", "stats_2019.json"], [None, "2019"]),
        (
            "morton-hive/2",
            [
                "2019.stats.json",
                "2019.pyramid.stats.json",
                "111_2019.zarr/zarr.json",
                "stats_x/y",
                "stats_a.txt",
            ],
            [],
        ),
        (
            "morton-hive/3",
            ["2019.stats.json", "2020.stats.json", "2019.pyramid.stats.json"],
            ["2019", "2020"],
        ),
        ("morton-hive/3", ["stats_2019.json", "stats.json"], []),
    ],
)
def test_without_a_window_column_the_directory_is_listed(
    spec: str, names: list[str], labels: list[str | None]
) -> None:
    store = store_of(a=record("111", "111"), b=record("444", windows=["2018"]))
    sidecars(store, "1/1/1", *names)
    sidecars(store, "4/4/4", "stats_1999.json", "1999.stats.json")
    manifest = _with_spec(spec)
    counting = CountingStore(store)
    assert pairs(discover_leaves(counting, manifest)) == [
        *(("111", each) for each in labels),
        ("444", "2018"),
    ]
    assert [key for method, key in counting.log if method == "list_dir"] == ["", "1/1/1"]


def _with_spec(spec: str) -> Manifest:
    document = manifest_json(windowed=True) | {"spec": spec}
    return parse_manifest(json.dumps(document).encode(), "made")


def test_without_a_window_column_an_unwindowed_store_has_no_windows() -> None:
    store = store_of(a=record("111"))
    sidecars(store, "1/1/1", "stats_2019.json")
    assert pairs(discover_leaves(store, PLAIN)) == [("111", None)]


@pytest.mark.parametrize("name", ["kitchen_sink", "kitchen_sink_windowed", "wide", "scale_tiny"])
def test_the_leaves_of_a_real_store_are_its_columns(reference_store: ReferenceStore, name: str) -> None:
    root = reference_store(name, "pre", mode="link")
    manifest = parse_manifest((root / "morton_hive.json").read_bytes(), str(root))
    columns = {_column(path.relative_to(root)) for path in root.rglob("*.pyramid.zarr")}
    found = discover_leaves(open_store(root), manifest)
    expected = {(node, None if stem == "all" else stem) for node, stem in columns}
    if manifest.is_windowed:
        expected = {each for each in expected if each[1] is not None}
    assert set(pairs(found)) == expected
    assert found.work.n_leaves == len(expected)


def _column(path: Path) -> tuple[str, str]:
    *digits, name = path.parts
    return "".join(digits), name.removesuffix(".pyramid.zarr")
