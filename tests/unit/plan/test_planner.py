"""The planner: nodes and units of real runs, and the cases of the specification."""

from __future__ import annotations

import logging
import tracemalloc

import numpy as np
import pytest
from tests.unit.plan.test_moc import KITCHEN_SINK_LEAVES

from sweep.errors import DeclarationError
from sweep.model.nodes import Words, child_words, decimals_of, word_of, words_of
from sweep.plan.leaves import WorkSet, work_set, work_set_of_arrays
from sweep.plan.moc import expand_ranges
from sweep.plan.planner import NodePlan, TuplePlan, candidates, plan_tuple
from sweep.plan.scope import parse_scope
from sweep.plan.tuples import OrderTuple, fixed_tuples
from sweep.plan.units import CLOSE, NODE, Unit, window_unit

SCALE_TINY = [
    ("3121111", "3121113"), ("3121121", "3121122"), ("3121124", "3121233"), ("3121241", "3121241"),
    ("3121243", "3121323"), ("3121331", "3121413"), ("3121422", "3121423"), ("3121431", "3121444"),
    ("5413131", "5413131"), ("6114234", "6114234"), ("-4442313", "-4442313"), ("-6211222", "-6211222"),
]  # fmt: skip
WIDE = ["2111111", "2111112", "2111134", "2114444", "2141111", "-5123412"]
YEARS = {
    "-21111": "2019", "-21112": "2019 2020 2021", "-34443": "2019 2020 2021", "11111": "2019",
    "11112": "2019 2020 2021", "11113": "2019 2020 2021", "11114": "2019 2020 2021", "11121": "2020",
    "11131": "2019 2020 2021", "11132": "2019 2020 2021", "12344": "2019 2020 2021", "14433": "2021",
    "61234": "2019",
}  # fmt: skip
"""The leaves of kitchen_sink_windowed."""


def refs(decimals: list[str]) -> WorkSet:
    return work_set([word_of(each) for each in decimals], len(decimals[0].lstrip("-")) - 1)


def windowed(years: dict[str, str] = YEARS, *, dirt: tuple[str, ...] = ()) -> WorkSet:
    pairs = [(word_of(shard), label) for shard, labels in years.items() for label in labels.split()]
    return work_set(pairs, 4, dirt_only=[word_of(each) for each in dirt])


def plan(
    work: WorkSet,
    order_tuple: OrderTuple | None = None,
    *,
    covered: Words | None = None,
    scope: object = None,
    is_windowed: bool = False,
    closes: bool = False,
    only: Unit | None = None,
) -> TuplePlan:
    return plan_tuple(
        order_tuple or OrderTuple(dispatch_order=3, child_order=4),
        work=work,
        candidates=candidates(work, covered),
        scope=parse_scope(scope),
        is_windowed=is_windowed,
        closes=closes,
        only=only,
    )


def units(made: TuplePlan) -> dict[str, list[str]]:
    return {each.node: [unit.label for unit in each.units] for each in made.iter_nodes()}


@pytest.mark.parametrize(
    ("leaves", "rows", "n_written"),
    [
        (KITCHEN_SINK_LEAVES, [((3,), 8), ((2, 1, 0), 4)], 24),
        (WIDE, [((5, 4, 3), 4), ((2, 1, 0), 2)], 20),
        (decimals_of(expand_ranges(SCALE_TINY, 6)), [((5, 4, 3), 5), ((2, 1, 0), 5)], None),
    ],
)
def test_rows_of_real_runs(
    leaves: list[str], rows: list[tuple[tuple[int, ...], int]], n_written: int | None
) -> None:
    """``orders``, ``nodes`` and ``window_units`` of the stage rows that the reference recorded."""
    work = refs(leaves)
    shard_order = len(leaves[0]) - 1
    plans = [plan(work, each) for each in fixed_tuples(shard_order, 3)]
    assert [(each.order_tuple.orders, each.n_nodes) for each in plans] == rows
    assert [(each.window_units, each.close_units) for each in plans] == [(n, 0) for _, n in rows]
    if n_written is not None:
        assert sum(each.n_ladder_nodes for each in plans) == n_written


def test_rows_of_a_real_windowed_run() -> None:
    work = windowed()
    assert work.n_leaves == 29
    finer, coarser = (plan(work, each, is_windowed=True, closes=True) for each in fixed_tuples(4, 3))
    assert (finer.n_nodes, finer.window_units, finer.close_units, finer.n_units) == (8, 18, 8, 26)
    assert (coarser.n_nodes, coarser.window_units, coarser.close_units) == (4, 10, 4)


def test_nodes_come_in_the_order_of_text() -> None:
    made = plan(refs(KITCHEN_SINK_LEAVES))
    names = [each.node for each in made.iter_nodes()]
    assert names == sorted(names)
    assert names == decimals_of(made.nodes)
    assert names[:2] == ["-2111", "-3444"]


def test_an_unwindowed_node_is_one_unit_with_or_without_a_dirty_leaf() -> None:
    made = plan(refs(["11111"]), covered=words_of(["11112", "-21111"]))
    assert units(made) == {"-2111": ["all"], "1111": ["all"]}
    assert [each.units for each in made.iter_nodes()] == [(NODE,), (NODE,)]


def test_windows_of_an_unwindowed_store_make_no_difference() -> None:
    assert units(plan(windowed())) == units(plan(refs(list(YEARS))))


def test_window_units_in_label_order_then_the_close() -> None:
    made = plan(windowed(), is_windowed=True, closes=True)
    assert units(made)["-2111"] == ["2019", "2020", "2021", "close"]
    assert units(made)["1443"] == ["2021", "close"]
    node = next(made.iter_nodes())
    assert node.units == (window_unit("2019"), window_unit("2020"), window_unit("2021"), CLOSE)


def test_a_windowed_node_without_units_is_not_listed() -> None:
    covered = words_of(["33333"])
    assert "3333" not in units(plan(windowed(), covered=covered, is_windowed=True))
    assert units(plan(windowed(), covered=covered, is_windowed=True, closes=True))["3333"] == ["close"]


def test_a_leaf_without_window_makes_no_unit_on_a_windowed_store() -> None:
    work = refs(["11111"])
    assert units(plan(work, is_windowed=True)) == {}
    assert units(plan(work, is_windowed=True, closes=True)) == {"1111": ["close"]}


def test_a_label_that_names_no_window_is_dropped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    work = windowed({"11111": "2019 all", "11121": "all", "-21111": "a/b 2020"})
    with caplog.at_level(logging.WARNING):
        made = plan(work, is_windowed=True)
    assert units(made) == {"-2111": ["2020"], "1111": ["2019"]}
    assert [each.labels_under(each.word) for each in made.iter_nodes()] == [("2020",), ("2019",)]
    (record,) = caplog.records
    assert record.__dict__["labels"] == ["a/b", "all"]


def test_dirt_only_nodes_fold_nothing() -> None:
    work = work_set([word_of("11111")], 4, dirt_only=[word_of("11112"), word_of("-21111")])
    assert units(plan(work)) == {"-2111": [], "1111": ["all"]}
    assert plan(work).window_units == 1
    covered = words_of(["-21111"])
    assert units(plan(work, covered=covered)) == {"-2111": [], "1111": ["all"]}


def test_dirt_only_nodes_of_a_windowed_store_do_not_close() -> None:
    work = windowed({"11111": "2019"}, dirt=("11112", "-21111"))
    assert units(plan(work, is_windowed=True, closes=True)) == {"1111": ["2019", "close"]}


def test_one_unit_by_name() -> None:
    work = windowed({"11111": "2019 2020", "-21111": "2020"})
    only_2019 = plan(work, is_windowed=True, closes=True, only=window_unit("2019"))
    assert units(only_2019) == {"1111": ["2019"]}
    assert (only_2019.window_units, only_2019.close_units) == (1, 0)
    assert [each.labels_under(each.word) for each in only_2019.iter_nodes()] == [("2019", "2020")]
    closes = plan(work, is_windowed=True, closes=True, only=CLOSE)
    assert units(closes) == {"-2111": ["close"], "1111": ["close"]}
    assert units(plan(work, is_windowed=True, closes=False, only=CLOSE)) == {}
    assert units(plan(work, is_windowed=True, closes=True, only=window_unit("1999"))) == {}


@pytest.mark.parametrize("only", [CLOSE, window_unit("2019")])
def test_a_named_unit_needs_windows(only: Unit) -> None:
    with pytest.raises(DeclarationError, match="no windows") as caught:
        plan(refs(["11111"]), only=only)
    assert only.label in str(caught.value)


@pytest.mark.parametrize(
    ("scope", "nodes"),
    [
        (["-2", "12344"], ["-2111", "1234"]),
        (["11111"], ["1111"]),
        (["111"], ["1111", "1112", "1113"]),
        (["4"], []),
    ],
)
def test_a_scope_filters_dispatch_nodes(scope: list[str], nodes: list[str]) -> None:
    assert decimals_of(plan(refs(KITCHEN_SINK_LEAVES), scope=scope).nodes) == nodes


def test_a_scope_filters_nothing_below_a_dispatch_node() -> None:
    made = plan(refs(KITCHEN_SINK_LEAVES), OrderTuple(dispatch_order=0, child_order=4), scope=["11111"])
    (node,) = made.iter_nodes()
    assert decimals_of(node.leaves) == [each for each in KITCHEN_SINK_LEAVES if each.startswith("1")]
    assert made.n_ladder_nodes == 5 + 3 + 3 + 1


def test_candidates_are_work_dirt_and_coverage() -> None:
    work = work_set([word_of("11112"), (word_of("11112"), "x")], 4, dirt_only=[word_of("-21111")])
    assert decimals_of(candidates(work, None)) == ["11112", "-21111"]
    covered = words_of(["61234", "11112"])
    assert decimals_of(candidates(work, covered)) == ["11112", "61234", "-21111"]


@pytest.mark.parametrize("is_windowed", [False, True])
def test_no_candidates_no_nodes(is_windowed: bool) -> None:
    work = work_set([], 4)
    assert len(candidates(work, None)) == 0
    made = plan(work, is_windowed=is_windowed, closes=is_windowed)
    assert (made.n_nodes, made.n_units, made.n_ladder_nodes) == (0, 0, 0)
    assert list(made.iter_nodes()) == []


def root_node() -> NodePlan:
    made = plan(windowed(), OrderTuple(dispatch_order=0, child_order=3), is_windowed=True, closes=True)
    return next(each for each in made.iter_nodes() if each.node == "1")


def test_the_ladder_nodes_under_a_dispatch_node() -> None:
    nodes, leaves = root_node().descendants(2)
    assert decimals_of(nodes) == ["111", "123", "144"]
    assert [decimals_of(each) for each in leaves] == [
        ["11111", "11112", "11113", "11114", "11121", "11131", "11132"],
        ["12344"],
        ["14433"],
    ]
    own, everything = root_node().descendants(0)
    assert decimals_of(own) == ["1"]
    assert everything[0].tolist() == root_node().leaves.tolist()


def test_the_children_of_a_ladder_node_and_their_ranks() -> None:
    children, ranks = root_node().children(word_of("11"), 3)
    assert decimals_of(children) == ["1111", "1112", "1113"]
    assert ranks.tolist() == [0, 1, 2]
    children, ranks = root_node().children(word_of("1"), 3)
    assert decimals_of(children) == ["1111", "1112", "1113", "1234", "1443"]
    assert ranks.tolist() == [0, 1, 2, 0b011011, 0b111110]
    children, ranks = root_node().children(word_of("13"), 3)
    assert (len(children), len(ranks)) == (0, 0)


def test_the_labels_dirty_under_a_ladder_node() -> None:
    node = root_node()
    assert node.labels_under(word_of("1")) == ("2019", "2020", "2021")
    assert node.labels_under(word_of("1112")) == ("2020",)
    assert node.labels_under(word_of("144")) == ("2021",)
    assert node.labels_under(word_of("13")) == ()


def test_a_full_sphere_of_order_nine_makes_no_object_for_a_leaf() -> None:
    words = np.concatenate([child_words(base << 60, 9) for base in range(1, 13)])
    assert len(words) == 3_145_728
    tracemalloc.start()
    try:
        work = work_set_of_arrays(words, None, 9)
        plans = [plan(work, each) for each in fixed_tuples(9, 3)]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [each.n_nodes for each in plans] == [49_152, 768, 12]
    assert sum(each.n_ladder_nodes for each in plans) == 12 * (4**9 - 1) // 3
    assert peak_bytes < 64 * len(words), "the smallest Python integer alone takes 28 bytes, its slot 8"
    last = next(plans[-1].iter_nodes())
    assert (last.node, len(last.leaves)) == ("-1", 4**9)


def test_a_node_shares_memory_with_the_plan() -> None:
    work = refs(KITCHEN_SINK_LEAVES)
    shards = candidates(work, None)
    made = plan_tuple(
        OrderTuple(dispatch_order=3, child_order=4),
        work=work,
        candidates=shards,
        scope=None,
        is_windowed=False,
        closes=False,
    )
    assert all(np.shares_memory(each.leaves, shards) for each in made.iter_nodes())
