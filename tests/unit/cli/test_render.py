"""What `sweep info` prints of a store that is known in every number."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from sweep.cli.render import render_info
from sweep.read.info import (
    Counts,
    CoverageInfo,
    FieldInfo,
    LeafCounts,
    LeaseInfo,
    LevelInfo,
    StoreInfo,
    SweepInfo,
)


def counts(window: str = "all", **changes: int) -> Counts:
    known = {"expected": 5, "checked": 5, "swept": 5, "compared": 5}
    known |= {"stale": 0, "missing": 0, "empty": 0, "unreadable": 0}
    return Counts(window=window, **{**known, **changes})


def level(node_order: int, *windows: Counts) -> LevelInfo:
    return LevelInfo(
        node_order=node_order,
        cell_order=node_order + 2,
        cell_km=1629.5 / 2**node_order,
        n_cells=16,
        regime="stage-merge",
        windows=windows,
    )


STORE = StoreInfo(
    root="s3://bucket/[bold]store",
    spec="morton-hive/1",
    pyramid_spec="zagg-pyramid/2",
    name="AIRPORTS",
    version="001",
    shard_order=4,
    cell_order=8,
    leaf_cells=(6, 5, 4),
    is_windowed=False,
    windows=(),
    all_time=False,
    fields=(
        FieldInfo(name="h_max", field_class="exact", law="max", dtype="float32"),
        FieldInfo(
            name="h",
            field_class="approximate",
            law="tdigest_kway",
            dtype="float32",
            companions=("h_locations", "h_times"),
        ),
        FieldInfo(name="c", field_class="packed", law="composition_kway", dtype="uint64", of="h"),
    ),
    levels=(level(1, counts()), level(0, counts(expected=1234, checked=1234, swept=1234))),
    leaves=LeafCounts(n_leaves=1225, n_shards=1225, checked=1225, committed=1220, missing=3, unreadable=2),
    sweeps=(),
    lease=None,
    coverage=CoverageInfo(state="usable", n_shards=1225, n_unrecorded=7, source="sweep"),
    is_sample=False,
    n_opened=0,
    problems=(),
)


def printed(info: StoreInfo, *, width: int = 100, terminal: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=terminal, highlight=False).print(render_info(info))
    return out.getvalue()


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def test_what_the_store_is() -> None:
    text = printed(STORE)
    assert lines_with(text, "store", "s3://bucket/[bold]store")
    assert lines_with(text, "dataset", "AIRPORTS 001")
    assert lines_with(text, "orders", "shards 4, cells 8, leaf columns 6, 5, 4")
    assert lines_with(text, "windows", "none")
    assert lines_with(text, "leaves", "1,225 in 1,225 shards", "1,220 committed, 3 missing, 2 unreadable")
    assert lines_with(text, "coverage", "1,225 shards, from sweep; 7 not recorded")
    assert lines_with(text, "lease", "free")
    assert lines_with(text, "last sweep", "none recorded")
    assert lines_with(text, "h ", "approximate", "locations, times")
    assert lines_with(text, "c ", "packed", "by h")


def test_levels_and_verdict_of_a_current_store() -> None:
    text = printed(STORE)
    (row,) = lines_with(text, "1,234")
    assert row.split() == ["0", "2", "1,630", "km", "merge", "1,234", "1,234", "-", "-"]
    assert "unreadable  " not in text.split("level")[1]
    assert "swept and current" in text
    assert "problems" not in text


def test_work_to_do_names_the_command() -> None:
    info = replace(
        STORE, levels=(level(1, counts(stale=2, swept=4, missing=1)), level(0, counts(unreadable=3)))
    )
    text = printed(info)
    assert "1 missing, 2 stale, 3 unreadable: run 'sweep local s3://bucket/[bold]store --scope all'" in text
    assert lines_with(text, "level", "stale", "missing", "unreadable")
    assert "swept and current" not in text


def test_nothing_to_sweep() -> None:
    empty = counts(swept=0, compared=0, empty=5)
    text = printed(replace(STORE, levels=(level(0, empty),)))
    assert "nothing to sweep yet" in text
    assert lines_with(text, "level", "empty")


def test_windows_have_rows() -> None:
    info = replace(
        STORE,
        is_windowed=True,
        windows=("2019", "2020"),
        all_time=True,
        levels=(level(1, counts("2019"), counts("2020"), counts("all")),),
    )
    text = printed(info)
    assert lines_with(text, "windows", "2019, 2020 and all-time")
    assert [line.split()[0] for line in text.splitlines() if line.split()[-4:] == ["5", "5", "-", "-"]] == [
        "1",
        "2020",
        "all",
    ]


def test_lease_sweeps_sample_and_problems() -> None:
    info = replace(
        STORE,
        lease=LeaseInfo(
            run_id="r1",
            acquired_at="2026-11-29T16:31:05+00:00",
            heartbeat_at="2026-11-29T16:31:05+00:00",
            heartbeat_age_s=12.4,
            ttl_s=900,
            is_expired=False,
        ),
        sweeps=(
            SweepInfo(
                key="k",
                run_id="r0",
                finished_at="20261129T161729Z",
                n_leaves=9,
                written=4,
                failed=1,
                under_covered=2,
                error="OSError: disk",
            ),
        ),
        is_sample=True,
        n_opened=20000,
        problems=("coverage.moc cannot be used", "x: [red]torn[/red]"),
    )
    text = printed(info, width=200)
    assert lines_with(text, "held by r1", "heartbeat 12 s ago, ttl 900 s")
    assert lines_with(
        text, "r0: 9 leaves, 4 overviews written, 2 under-covered, 1 failed; ended by OSError: disk"
    )
    assert "a sample: 20,000 artifacts were opened" in text
    assert lines_with(text, "x: [red]torn[/red]")
    expired = replace(info, lease=replace(info.lease, heartbeat_age_s=None, is_expired=True))  # type: ignore[type-var]
    assert "expired, was held by r1" in printed(expired, width=200)


def test_plain_where_it_is_piped_and_coloured_on_a_terminal() -> None:
    assert "\x1b[" not in printed(STORE)
    assert "\x1b[" in printed(STORE, terminal=True)


def test_it_fits_into_eighty_columns() -> None:
    assert max(map(len, printed(STORE, width=80).splitlines())) <= 80
    assert "…" not in printed(STORE, width=80)
