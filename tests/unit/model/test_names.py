"""Keys, windows and clock: the spellings that other programs read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from sweep.model import keys
from sweep.model.clock import file_stamp, parse_timestamp, timestamp
from sweep.model.windows import is_label, stem_of


def test_objects_of_a_node() -> None:
    assert keys.column_key("-2111", "all") == "-2/1/1/1/all.pyramid.zarr"
    assert keys.column_sidecar_key("12344", "2019") == "1/2/3/4/4/2019.pyramid.stats.json"
    assert keys.overview_key("6", "all") == "6/all.zarr"
    assert keys.overview_sidecar_key("6", "2019") == "6/2019.stats.json"
    assert keys.envelope_key("-21") == "-2/1/overview.rollup.json"


def test_objects_of_the_root() -> None:
    assert keys.MANIFEST == "morton_hive.json"
    assert keys.COVERAGE == "coverage.moc"
    assert keys.AGGREGATION == "aggregation.yaml"
    assert keys.LEASE == "sweep.lease.json"
    assert keys.MULTISCALES == "multiscales/zarr.json"
    assert keys.multiscales_level_key(3) == "multiscales/3/zarr.json"
    assert keys.sweep_record_key("20261129T162639Z") == "sweep_stats_20261129T162639Z_stages.json"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("stats_20261129T162559Z_a55609622c974ad480a90988167cbe7e.parquet", True),
        ("stats_x.parquet", True),
        ("stats_.parquet", False),
        ("sweep_stats_20261129T162639Z_stages.json", False),
        ("sweep_stats_x.parquet", False),
        ("stats_x.json", False),
    ],
)
def test_run_records_are_known_by_name(name: str, expected: bool) -> None:
    assert keys.is_run_record(name) is expected


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("2019.zarr", "2019"),
        ("2019-06.zarr", "2019-06"),
        ("2019.pyramid.zarr", None),
        ("all.zarr", None),
        ("all.pyramid.zarr", None),
        ("2019.stats.json", None),
        ("a_b.zarr", None),
        (".zarr", None),
    ],
)
def test_windows_are_read_from_overview_names(name: str, window: str | None) -> None:
    assert keys.window_of_overview(name) == window


@pytest.mark.parametrize("text", ["2019", "a", "Z" * 32, "2019-06-01", "-"])
def test_labels(text: str) -> None:
    assert is_label(text)


@pytest.mark.parametrize("text", ["", "all", "Z" * 33, "a_b", "a/b", "a.b", "a\n", "é", None, 2019])
def test_what_labels_no_window(text: object) -> None:
    assert not is_label(text)


def test_stems() -> None:
    assert stem_of(None) == "all"
    assert stem_of("2019") == "2019"


MOMENT = datetime(2026, 11, 29, 17, 26, 39, 999999, tzinfo=timezone(timedelta(hours=1)))


def test_both_spellings_of_a_moment_are_utc_whole_seconds() -> None:
    assert timestamp(MOMENT) == "2026-11-29T16:26:39+00:00"
    assert file_stamp(MOMENT) == "20261129T162639Z"


@pytest.mark.parametrize(
    "text",
    ["2026-11-29T16:26:39+00:00", "2026-11-29T16:26:39Z", "2026-11-29T16:26:39", "2026-11-29T17:26:39+01:00"],
)
def test_a_timestamp_is_read_as_utc(text: str) -> None:
    moment = parse_timestamp(text)
    assert moment == datetime(2026, 11, 29, 16, 26, 39, tzinfo=UTC)
    assert moment is not None
    assert timestamp(moment) == "2026-11-29T16:26:39+00:00"


@pytest.mark.parametrize("text", [None, 7, "", "yesterday", "2026-13-01"])
def test_what_is_no_timestamp(text: object) -> None:
    assert parse_timestamp(text) is None
