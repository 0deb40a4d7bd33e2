"""What ``sweep info`` prints."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sweep.read.info import CoverageInfo, LeafCounts, LeaseInfo, StoreInfo, SweepInfo
from sweep.read.places import km_text

__all__ = ["render_info"]

_COUNTERS = ("expected", "swept", "stale", "missing", "empty", "unreadable")
# Shown where any is above 0.
_RARE = ("empty", "unreadable")


def render_info(info: StoreInfo) -> RenderableType:
    """A store for a person's eyes; plain where it is piped.

    Parameters
    ----------
    info : StoreInfo
    """
    return Group(
        _head(info), Text(), _fields(info), Text(), _levels(info), Text(), *_verdict(info), *_problems(info)
    )


def _head(info: StoreInfo) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    name = " ".join(filter(None, (info.name, info.version)))
    rows = [
        ("store", info.root),
        ("dataset", name or "unnamed"),
        ("format", f"{info.spec or 'no spec'}, {info.pyramid_spec}"),
        (
            "orders",
            f"shards {info.shard_order}, cells {info.cell_order}, leaf columns {_list(info.leaf_cells)}",
        ),
        ("windows", _windows(info)),
        ("leaves", _leaves(info.leaves)),
        ("coverage", _coverage(info.coverage)),
        ("lease", _lease(info.lease)),
        *(("last sweep" if place == 0 else "before", _sweep(each)) for place, each in enumerate(info.sweeps)),
    ]
    if not info.sweeps:
        rows.append(("last sweep", "none recorded"))
    for label, text in rows:
        table.add_row(label, Text(text))
    return table


def _list(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))


def _windows(info: StoreInfo) -> str:
    if not info.is_windowed:
        return "none"
    return (", ".join(info.windows) or "none recorded") + (" and all-time" if info.all_time else "")


def _leaves(leaves: LeafCounts) -> str:
    text = f"{leaves.n_leaves:,} in {leaves.n_shards:,} shards; columns: {leaves.committed:,} committed"
    for name, count in (("missing", leaves.missing), ("unreadable", leaves.unreadable)):
        if count:
            text += f", {count:,} {name}"
    return text + (f" of {leaves.checked:,} looked at" if leaves.checked < leaves.n_leaves else "")


def _coverage(coverage: CoverageInfo) -> str:
    if coverage.state != "usable":
        return coverage.state
    text = f"{coverage.n_shards:,} shards"
    if coverage.source:
        text += f", from {coverage.source}"
    if coverage.generated_at:
        text += f", {coverage.generated_at}"
    for count, what in (
        (coverage.n_unrecorded, "not recorded"),
        (coverage.n_uncovered, "recorded but not in it"),
    ):
        if count:
            text += f"; {count:,} {what}"
    return text


def _lease(lease: LeaseInfo | None) -> str:
    if lease is None:
        return "free"
    age = "of unknown age" if lease.heartbeat_age_s is None else f"{lease.heartbeat_age_s:.0f} s ago"
    state = "expired, was held" if lease.is_expired else "held"
    return f"{state} by {lease.run_id} since {lease.acquired_at}, heartbeat {age}, ttl {lease.ttl_s:.0f} s"


def _sweep(sweep: SweepInfo) -> str:
    text = (
        f"{sweep.finished_at}  {sweep.run_id}: {sweep.n_leaves:,} leaves, {sweep.written:,} overviews written"
    )
    if sweep.under_covered:
        text += f", {sweep.under_covered:,} under-covered"
    if sweep.failed:
        text += f", {sweep.failed:,} failed"
    return text + (f"; ended by {sweep.error}" if sweep.error else "")


def _fields(info: StoreInfo) -> Table:
    table = _table("field", "class", "law", "dtype", "beside it")
    for each in info.fields:
        beside = ", ".join(name.removeprefix(f"{each.name}_") for name in each.companions)
        beside = beside or ("" if each.of is None else f"by {each.of}")
        table.add_row(*map(Text, (each.name, each.field_class, each.law, each.dtype, beside)))
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def _levels(info: StoreInfo) -> Table:
    windows = ("window",) if info.is_windowed else ()
    table = _table("level", "cells", "cell size", "fold", *windows)
    counters = [name for name in _COUNTERS if name not in _RARE or info.total(name)]
    for name in counters:
        table.add_column("nodes" if name == "expected" else name, justify="right", no_wrap=True)
    for level in info.levels:
        for place, counts in enumerate(level.windows):
            first = (
                str(level.node_order),
                str(level.cell_order),
                km_text(level.cell_km),
                level.regime.removeprefix("stage-"),
            )
            cells = [Text(text if place == 0 else "") for text in first]
            if info.is_windowed:
                cells.append(Text(counts.window))
            cells += [_number(name, getattr(counts, name)) for name in counters]
            table.add_row(*cells)
    return table


def _number(name: str, count: int) -> Text:
    if count == 0 and name not in ("expected", "swept"):
        return Text("-", style="dim")
    style = {"stale": "yellow", "missing": "yellow", "unreadable": "red", "swept": "green"}.get(name, "")
    return Text(f"{count:,}", style=style)


def _verdict(info: StoreInfo) -> Iterator[RenderableType]:
    if info.is_sample:
        yield Text(f"a sample: {info.n_opened:,} artifacts were opened; counts are of these", style="yellow")
    todo = [f"{count:,} {name}" for name in ("missing", "stale", "unreadable") if (count := info.total(name))]
    if todo:
        yield Text(
            f"{', '.join(todo)}: run 'sweep local {info.root} --scope all'", style="yellow", overflow="fold"
        )
    elif info.total("swept"):
        yield Text("swept and current", style="green")
    else:
        yield Text("nothing to sweep yet: no leaf column is committed")


def _problems(info: StoreInfo) -> Iterator[RenderableType]:
    if info.problems:
        yield Text()
        yield Text("problems", style="bold")
        for problem in info.problems:
            yield Text(f"  {problem}", overflow="fold")
