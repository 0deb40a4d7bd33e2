"""What artifacts record of their sources: generations, time ranges, counters, actuals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sweep.errors import ArtifactError
from sweep.model.ladder import Level
from sweep.model.provenance import (
    Actuals,
    Demotion,
    Generation,
    SourceCounts,
    generation_of,
    join_time_ranges,
    sum_generations,
)

EARLY, LATE = "2026-11-29T16:00:00+00:00", "2026-11-29T17:00:00+00:00"


def generation(n_leaves: int, newest: str | None = None, *run_ids: str) -> Generation:
    return Generation(n_leaves=n_leaves, max_leaf_timestamp=newest, run_ids=frozenset(run_ids))


def test_a_leaf_column_is_one_leaf_of_its_stamp() -> None:
    assert generation_of(None, {"written_at": EARLY, "run_id": "ignored"}) == generation(1, EARLY)
    assert generation_of([], {"written_at": 5}) == generation(1)


def test_a_swept_artifact_adds_its_own_run() -> None:
    block = {"n_leaves": 4, "max_leaf_timestamp": EARLY, "run_ids": ["b", "a", "b"]}
    assert generation_of(block, {"written_at": LATE, "run_id": "c"}) == generation(4, EARLY, "a", "b", "c")
    assert generation_of(block, {"written_at": LATE}) == generation(4, EARLY, "a", "b")


def test_sums() -> None:
    parts = [generation(1, LATE), generation(4, EARLY, "b", "a"), generation(2, None, "c", "a")]
    total = sum_generations(parts)
    assert total == generation(7, LATE, "a", "b", "c")
    assert total.to_json() == {"n_leaves": 7, "max_leaf_timestamp": LATE, "run_ids": ["a", "b", "c"]}
    assert sum_generations([]) == generation(0)
    assert sum_generations([generation(1), generation(2)]).max_leaf_timestamp is None
    assert sum_generations(iter(parts[::-1])) == total


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"n_leaves": 2, "max_leaf_timestamp": EARLY, "run_ids": ["a"]}, generation(2, EARLY, "a")),
        ({}, generation(0)),
        ({"n_leaves": None, "max_leaf_timestamp": None, "run_ids": None}, generation(0)),
        ({"n_leaves": "2", "max_leaf_timestamp": 3, "run_ids": "ab"}, generation(0)),
        ({"n_leaves": True, "run_ids": [1]}, generation(0, None, "1")),
    ],
)
def test_recorded_generations(block: Any, expected: Generation) -> None:
    assert Generation.parse(block) == expected


@pytest.mark.parametrize("block", [None, [], "x", 3])
def test_what_is_no_object_equals_no_generation(block: Any) -> None:
    assert Generation.parse(block) is None
    assert Generation.parse(block) != generation(0)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"folded": 3, "missing": 2, "unreadable": 1}, SourceCounts(folded=3, missing=2, unreadable=1)),
        ({"folded": 3, "missing": None, "unreadable": True, "more": 1}, SourceCounts(folded=3)),
        (None, SourceCounts()),
        ([1, 2, 3], SourceCounts()),
    ],
)
def test_recorded_counters(block: Any, expected: SourceCounts) -> None:
    assert SourceCounts.parse(block) == expected


def test_counters_add_up() -> None:
    parts = [SourceCounts(folded=1, missing=2, unreadable=3), SourceCounts(folded=10, unreadable=30)]
    total = sum(parts, SourceCounts())
    assert list(total.to_json().items()) == [("folded", 11), ("missing", 2), ("unreadable", 33)]


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], None),
        ([None, [], "ab", ["x", "y"], [EARLY], [EARLY, None], [EARLY, LATE, LATE]], None),
        ([[EARLY, LATE]], [EARLY, LATE]),
        ([(EARLY, EARLY)], [EARLY, EARLY]),
        (
            [["2019-05-01T00:00:00+00:00", "2019-06-01T00:00:00+00:00"], None, ["2018-01-01", "2019-05-20"]],
            ["2018-01-01T00:00:00+00:00", "2019-06-01T00:00:00+00:00"],
        ),
        # UTC, whole seconds
        (
            [["2019-05-01T02:00:00.750+02:00", "2019-05-01T12:00:00Z"]],
            ["2019-05-01T00:00:00+00:00", "2019-05-01T12:00:00+00:00"],
        ),
        # one reversed source inside a sound union
        ([[LATE, EARLY], [EARLY, LATE]], [EARLY, LATE]),
    ],
)
def test_time_ranges(ranges: list[Any], expected: list[str] | None) -> None:
    assert join_time_ranges(ranges) == expected


def test_a_reversed_union_is_refused_by_name() -> None:
    with pytest.raises(ArtifactError) as caught:
        join_time_ranges([[LATE, EARLY]])
    assert LATE in caught.value.message
    assert EARLY in caught.value.message
    assert caught.value.kind == "time-range"


@pytest.mark.parametrize(("cells", "tail"), [(4, ', "cells": 4'), (None, ""), (0, "")])
def test_demotions(cells: int | None, tail: str) -> None:
    record = Demotion(field="composition", reason="word-missing", contributors=1, of="h", cells=cells)
    assert json.dumps(record.to_json()) == (
        '{"field": "composition", "class": "packed", "reason": "word-missing", '
        f'"contributors": 1, "of": "h"{tail}}}'
    )


def observe(actuals: Actuals, order: int, artifact: str, folded: int, depth: int = 1) -> None:
    actuals.observe(
        Level(node_order=order, cell_order=order + 2),
        artifact=artifact,
        regime="stage-gather",
        merges_from_raw=depth,
        counts=SourceCounts(folded=folded, missing=1),
    )


def test_actuals_are_assigned_by_artifact_and_not_added() -> None:
    actuals = Actuals()
    observe(actuals, 1, "11|all", 3, depth=2)
    observe(actuals, 1, "11|all", 4, depth=1)
    observe(actuals, 1, "12|all", 1)
    observe(actuals, 2, "111|2019", 5)
    assert list(actuals.to_json().items()) == [
        ("2", _level(4, 1, 5, 1)),
        ("1", _level(3, 2, 5, 2)),
    ]


def _level(cells: int, depth: int, folded: int, missing: int) -> dict[str, Any]:
    return {
        "cells": cells,
        "regime": "stage-gather",
        "merges_from_raw": depth,
        "source_children": {"folded": folded, "missing": missing, "unreadable": 0},
    }


def test_merging_passes() -> None:
    ours, theirs = Actuals(), Actuals()
    observe(ours, 1, "11|all", 3, depth=1)
    observe(theirs, 1, "11|all", 4, depth=3)
    observe(theirs, 1, "12|all", 1)
    observe(theirs, 0, "1|all", 2)
    ours.merge(theirs)
    assert ours.to_json() == {"1": _level(3, 3, 5, 2), "0": _level(2, 1, 2, 1)}
    # what was taken over is a copy
    observe(ours, 0, "2|all", 10)
    assert theirs.to_json()["0"] == _level(2, 1, 2, 1)


def test_orders_are_sorted_as_numbers() -> None:
    actuals = Actuals()
    for order in (2, 10, 9):
        observe(actuals, order, "x", 1)
    assert list(actuals.to_json()) == ["10", "9", "2"]
