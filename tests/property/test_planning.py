"""Planning on packed words against the same rules spelled out on text, prefix by prefix."""

from __future__ import annotations

import mortie
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.support.decimals import ancestor, decimals, is_related, order, tail_rank, under, whole_sphere

from sweep.model.nodes import Words, decimals_of, word_of, words_of
from sweep.plan.leaves import work_set
from sweep.plan.moc import compact_ranges, expand_ranges
from sweep.plan.partitions import partition_cells
from sweep.plan.planner import candidates, plan_tuple
from sweep.plan.scope import admit, intersect, parse_scope
from sweep.plan.tuples import OrderTuple, fixed_tuples, sized_tuples

S = 4
shards = decimals(min_order=S, max_order=S)
labels = st.sampled_from([None, "2019", "2020", "a", "all", "a/b"])
scopes = st.sets(decimals(max_order=S + 1), min_size=1, max_size=6)
spans = st.integers(0, S - 1).flatmap(lambda d: st.tuples(st.just(d), st.integers(d + 1, S)))


def nested_in_none(cells: set[str]) -> set[str]:
    return {cell for cell in cells if not any(cell != up and cell.startswith(up) for up in cells)}


@given(st.sets(decimals(max_order=5), max_size=8), scopes)
def test_admission(nodes: set[str], scope: set[str]) -> None:
    parsed = parse_scope(scope)
    for node_order in {order(node) for node in nodes}:
        texts = sorted(node for node in nodes if order(node) == node_order)
        expected = [any(is_related(text, cell) for cell in scope) for text in texts]
        assert admit(words_of(texts), parsed).tolist() == expected
        assert admit(words_of(texts), words_of(sorted(scope))).tolist() == expected, "in any sequence"


@given(scopes, st.sets(decimals(max_order=S + 1), max_size=6))
def test_intersection(scope: set[str], part: set[str]) -> None:
    shared = intersect(parse_scope(scope), words_of(sorted(part)))
    pairs = {(one, other) for one in scope for other in part if is_related(one, other)}
    assert set(decimals_of(shared)) == {max(pair, key=len) for pair in pairs}
    assert (shared[1:] > shared[:-1]).all()


@given(scopes, st.sets(decimals(max_order=S + 1), min_size=1, max_size=6))
def test_intersection_is_that_of_mortie_up_to_compaction(scope: set[str], part: set[str]) -> None:
    one, other = words_of(sorted(scope)), words_of(sorted(part))
    expected = np.asarray(mortie.moc_and(np.sort(one), np.sort(other)), dtype=np.uint64)
    ours = intersect(np.sort(one), np.sort(other))
    assert cells_at(ours, S + 1) == cells_at(expected, S + 1)


def cells_at(words: Words, cell_order: int) -> set[str]:
    tails = {size: whole_sphere(size)[: 4**size] for size in range(cell_order + 1)}
    return {
        text + tail.removeprefix("1")
        for text in decimals_of(words)
        for tail in tails[cell_order - order(text)]
    }


@given(st.sets(shards, min_size=1), st.integers(0, S), st.data())
def test_each_cell_is_in_one_partition(cells: set[str], part_order: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, 4**part_order - 1))
    part = partition_cells(index, 4**part_order)
    words = words_of(sorted(cells))
    expected = [tail_rank(ancestor(cell, part_order)) == index for cell in sorted(cells)]
    assert admit(words, part).tolist() == expected


@given(st.sets(shards))
def test_ranges_cover_exactly_the_cells_and_cannot_be_joined(cells: set[str]) -> None:
    ranges = compact_ranges(words_of(sorted(cells)))
    assert set(decimals_of(expand_ranges(ranges, S))) == cells
    starts = {cell for cell in cells if predecessor(cell) not in cells}
    assert {first for first, _ in ranges} == starts
    assert len(ranges) == len(starts)
    assert [word_of(first) for first, _ in ranges] == sorted(word_of(first) for first, _ in ranges)


def predecessor(cell: str) -> str | None:
    rank = tail_rank(cell) - 1
    digits = "".join(str((rank >> (2 * place)) % 4 + 1) for place in reversed(range(order(cell))))
    return ancestor(cell, 0) + digits if rank >= 0 else None


@given(st.lists(st.tuples(shards, shards), max_size=6))
def test_expansion_of_ranges_that_overlap(pairs: list[tuple[str, str]]) -> None:
    ranges = [sorted(pair) for pair in pairs if ancestor(pair[0], 0) == ancestor(pair[1], 0)]
    expected = {
        cell for cell in whole_sphere(S) for lo, hi in ranges if same_base(cell, lo) and lo <= cell <= hi
    }
    cells = expand_ranges(ranges, S)
    assert set(decimals_of(cells)) == expected
    assert (cells[1:] > cells[:-1]).all()


def same_base(one: str, other: str) -> bool:
    return ancestor(one, 0) == ancestor(other, 0)


@given(
    leaves=st.sets(st.tuples(shards, labels), max_size=25),
    dirt=st.sets(shards, max_size=5),
    covered=st.sets(shards, max_size=10),
    scope=st.none() | scopes,
    span=spans,
    is_windowed=st.booleans(),
    closes=st.booleans(),
)
def test_plans(
    leaves: set[tuple[str, str | None]],
    dirt: set[str],
    covered: set[str],
    scope: set[str] | None,
    span: tuple[int, int],
    is_windowed: bool,
    closes: bool,
) -> None:
    closes = closes and is_windowed
    work = work_set(
        [(word_of(shard), label) for shard, label in leaves],
        S,
        dirt_only=[word_of(shard) for shard in dirt],
    )
    made = plan_tuple(
        OrderTuple(dispatch_order=span[0], child_order=span[1]),
        work=work,
        candidates=candidates(work, words_of(sorted(covered))),
        scope=parse_scope(scope),
        is_windowed=is_windowed,
        closes=closes,
    )
    dirty = {shard for shard, _ in leaves}
    known = dirty | dirt | covered
    expected: dict[str, list[str]] = {}
    for node in sorted({ancestor(shard, span[0]) for shard in known}):
        if scope is not None and not any(is_related(node, cell) for cell in scope):
            continue
        folds = bool(under(dirty, node)) or not under(dirt, node)
        if is_windowed:
            windows = {label for shard, label in leaves if shard.startswith(node) and label is not None}
            units = [*sorted(windows - {"all", "a/b"}), *(["close"] if closes and folds else [])]
            if units:
                expected[node] = units
        else:
            expected[node] = ["all"] if folds else []
    nodes = list(made.iter_nodes())
    assert [(each.node, [unit.label for unit in each.units]) for each in nodes] == list(expected.items())
    assert made.n_units == sum(map(len, expected.values()))
    assert made.close_units == sum("close" in units for units in expected.values())
    ladder = {(k, ancestor(shard, k)) for shard in known for k in made.order_tuple.orders}
    listed = tuple(expected)
    assert made.n_ladder_nodes == sum(bool(listed) and node.startswith(listed) for _, node in ladder)
    for each in nodes:
        assert each.word == word_of(each.node)
        assert set(decimals_of(each.leaves)) == under(known, each.node)


@given(st.sets(st.tuples(shards, labels), min_size=1, max_size=25), spans, st.data())
def test_what_lies_under_a_node(
    leaves: set[tuple[str, str | None]], span: tuple[int, int], data: st.DataObject
) -> None:
    work = work_set([(word_of(shard), label) for shard, label in leaves], S)
    made = plan_tuple(
        OrderTuple(dispatch_order=span[0], child_order=span[1]),
        work=work,
        candidates=candidates(work, None),
        scope=None,
        is_windowed=True,
        closes=True,
    )
    known = {shard for shard, _ in leaves}
    node_order = data.draw(st.integers(span[0], span[1]))
    for plan in made.iter_nodes():
        words, slices = plan.descendants(node_order)
        names = decimals_of(words)
        assert names == sorted({ancestor(shard, node_order) for shard in under(known, plan.node)})
        for name, word, below in zip(names, words.tolist(), slices, strict=True):
            assert set(decimals_of(below)) == under(known, name)
            children, ranks = plan.children(word, span[1])
            texts = decimals_of(children)
            assert texts == sorted({ancestor(shard, span[1]) for shard in under(known, name)})
            assert ranks.tolist() == [tail_rank("1" + text.removeprefix(name)) for text in texts]
            dirty = {label for shard, label in leaves if shard.startswith(name) and label is not None}
            assert plan.labels_under(word) == tuple(sorted(dirty - {"all", "a/b"}))


@given(st.integers(1, 12), st.integers(1, 5))
def test_fixed_tuples_cover_every_order_once(shard_order: int, width: int) -> None:
    tuples = fixed_tuples(shard_order, width)
    assert [k for each in tuples for k in each.orders] == list(reversed(range(shard_order)))
    assert all(each.dispatch_order % width == 0 for each in tuples)


@given(st.sets(shards, min_size=1), st.integers(1, 30), st.integers(1, 5))
def test_sized_tuples_are_as_wide_as_they_can_be(covered: set[str], target: int, max_width: int) -> None:
    tuples = sized_tuples(S, target=target, max_width=max_width, covered=np.sort(words_of(sorted(covered))))
    assert [k for each in tuples for k in each.orders] == list(reversed(range(S)))
    for each in tuples:
        assert each.fold_max == fullest(covered, each.dispatch_order, each.child_order)
        assert each.width == each.child_order - each.dispatch_order <= max_width
        assert each.fold_max <= target or each.width == 1
        if each.width < max_width and each.dispatch_order > 0:
            assert fullest(covered, each.dispatch_order - 1, each.child_order) > target


def fullest(covered: set[str], dispatch: int, child: int) -> int:
    nodes = {ancestor(shard, k) for shard in covered for k in range(dispatch, child)}
    return max(len(under(nodes, ancestor(shard, dispatch))) for shard in covered)
