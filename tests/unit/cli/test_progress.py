"""Progress: plain lines when piped, one live line on a terminal, nothing when quiet."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from rich.console import Console

from sweep.cli.progress import progress
from sweep.events import Event, RunFinished, RunStarted, TupleFinished, TupleStarted, UnitFinished, ignore


def tuple_events(dispatch: int, orders: tuple[int, ...], *, failed: int = 0) -> list[Event]:
    started = TupleStarted(dispatch_order=dispatch, orders=orders, n_nodes=8, n_units=2, n_ladder_nodes=24)
    units = [
        UnitFinished(dispatch_order=dispatch, node=node, unit="all", written=written, current=1, failed=0)
        for node, written in (("11", 3), ("12", 4))
    ]
    finished = TupleFinished(dispatch_order=dispatch, written=7, current=2, failed=failed, duration_s=1.25)
    return [started, *units, finished]


EVENTS: list[Event] = [
    RunStarted(run_id="stage-[x]", store_root="/data", n_leaves=13, n_tuples=2, n_units=4),
    *tuple_events(3, (3,)),
    *tuple_events(0, (2, 1, 0), failed=1),
    RunFinished(run_id="stage-[x]", written=14, current=4, failed=1, under_covered=0, duration_s=2.5),
]


def shown(events: Sequence[Event], *, terminal: bool, quiet: bool = False, width: int = 120) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=width, highlight=False, legacy_windows=False)
    with progress(console, quiet=quiet) as observer:
        for event in events:
            observer(event)
    return out.getvalue()


def test_plain_lines() -> None:
    assert shown(EVENTS, terminal=False).splitlines() == [
        "run stage-[x]: 13 leaves, 2 tuples",
        "order 3: 8 dispatch nodes, 7 artifacts written, 2 current (1.2 s)",
        "orders 2-0: 8 dispatch nodes, 7 artifacts written, 2 current, 1 failed (1.2 s)",
    ]


def test_plain_lines_are_not_wrapped_or_coloured() -> None:
    text = shown(EVENTS, terminal=False, width=20)
    assert len(text.splitlines()) == 3
    assert "\x1b" not in text


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet(terminal: bool) -> None:
    assert shown(EVENTS, terminal=terminal, quiet=True) == ""


def test_quiet_observes_nothing() -> None:
    with progress(Console(file=io.StringIO()), quiet=True) as observer:
        assert observer is ignore


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_a_live_line_says_tuple_units_and_pace() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, legacy_windows=False)
    with progress(console, quiet=False) as observer:
        bar = observer._observer._bar  # type: ignore[attr-defined]
        for event in EVENTS:
            observer(event)
            bar.refresh()
        (task,) = bar.tasks
        assert (task.completed, task.total) == (4, 4)
        assert task.description == "tuple 2/2, orders 2-0, 8 dispatch nodes"
        assert re.fullmatch(r"\d+ artifacts/s", task.fields["rate"])
    text = plain(out.getvalue())
    assert "tuple 1/2, order 3, 8 dispatch nodes" in text
    assert "2/4" in text
    assert "4/4" in text
    # what was drawn is wiped: the summary stands alone
    assert out.getvalue().endswith(("\x1b[2K", "\x1b[?25h")) or "\x1b[2K" in out.getvalue()


def test_a_live_line_before_the_run_has_started() -> None:
    assert "tuple" not in plain(shown(EVENTS[1:3], terminal=True))


def test_progress_that_cannot_be_written_ends_nothing() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    with progress(Console(file=Full()), quiet=False) as observer:
        for event in EVENTS:
            observer(event)
