"""The ladder: members, regimes and merge sources of the reference stores."""

from __future__ import annotations

import pytest

from sweep.model.ladder import Ladder, Level


def ladder(shard_order: int, cell_order: int, leaf_cells: tuple[int, ...], depth: int) -> Ladder:
    levels = tuple(Level(node_order=k, cell_order=k + depth) for k in reversed(range(shard_order)))
    return Ladder(shard_order=shard_order, cell_order=cell_order, leaf_cells=leaf_cells, levels=levels)


KITCHEN_SINK = ladder(4, 7, (6,), 2)
WIDE = ladder(6, 14, (13,), 7)


def test_regimes_of_kitchen_sink() -> None:
    regimes = {level.node_order: KITCHEN_SINK.regime(level) for level in KITCHEN_SINK.levels}
    assert regimes == {3: "stage-gather", 2: "stage-gather", 1: "stage-merge", 0: "stage-merge"}


def test_stage_members() -> None:
    assert [KITCHEN_SINK.stage_members(order) for order in (3, 2, 1, 0)] == [(4,), (), (), ()]
    assert WIDE.stage_members(3) == (9, 8, 7)
    assert WIDE.stage_members(0) == ()


def test_leaf_members() -> None:
    assert KITCHEN_SINK.leaf_members() == (6, 5, 4)
    assert WIDE.leaf_members() == tuple(range(13, 5, -1))


def test_leaf_depth_is_one_above_the_raw_fold_boundary_and_two_below() -> None:
    assert KITCHEN_SINK.leaf_merges_from_raw() == 1
    assert ladder(4, 7, (6, 5), 1).leaf_merges_from_raw() == 2
    assert ladder(4, 6, (5,), 1).leaf_merges_from_raw() == 1, "no boundary below the cells themselves"
    assert ladder(4, 9, (5,), 1).leaf_merges_from_raw() == 1, "no boundary that is no member"
    assert ladder(4, 7, (), 1).leaf_merges_from_raw() == 1


def test_a_merge_level_folds_the_nearest_finer_one() -> None:
    source = KITCHEN_SINK.merge_source(Level(node_order=1, cell_order=3))
    assert source == Level(node_order=2, cell_order=4)
    sparse = Ladder(
        shard_order=6,
        cell_order=8,
        leaf_cells=(),
        levels=(Level(node_order=5, cell_order=6), Level(node_order=3, cell_order=5)),
    )
    assert sparse.merge_source(Level(node_order=1, cell_order=3)) == Level(node_order=3, cell_order=5)
    assert sparse.merge_source(Level(node_order=5, cell_order=6)) is None


def test_levels_are_found_by_order() -> None:
    assert KITCHEN_SINK.level_at(2) == Level(node_order=2, cell_order=4)
    assert KITCHEN_SINK.level_at(4) is None
    found = KITCHEN_SINK.levels_in((2, 1, 0, 9))
    assert [level.node_order for level in found] == [2, 1, 0]
    assert Level(node_order=2, cell_order=4).n_cells == 16


def test_sound_ladders_have_no_problem() -> None:
    assert KITCHEN_SINK.problems() == []
    assert WIDE.problems() == []
    assert ladder(4, 7, (6,), 0).levels[0].n_cells == 1


@pytest.mark.parametrize(
    ("levels", "named"),
    [
        ([(3, 2)], ["node 3", "[2]", "coarser than the node"]),
        ([(3, 9)], ["node 3", "[9]", "finer than the data", "7"]),
        ([(3, 3)], ["node 3", "[3]", "malformed declaration", "shard_order 4"]),
        ([(3, 4), (2, 2), (1, 3)], ["node 1", "[3]", "malformed declaration", "node 2", "[2]"]),
    ],
)
def test_problems_name_the_level(levels: list[tuple[int, int]], named: list[str]) -> None:
    built = Ladder(
        shard_order=4,
        cell_order=7,
        leaf_cells=(),
        levels=tuple(Level(node_order=node, cell_order=cells) for node, cells in levels),
    )
    (problem,) = built.problems()
    assert all(text in problem for text in named)
