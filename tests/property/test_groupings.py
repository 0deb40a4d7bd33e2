"""However a sweep is cut into tuples and parts, the overviews hold the same bytes."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.compare import is_overview_chunk
from tests.support.small_stores import Objects, plain_store, windowed_store
from tests.support.sweeping import loaded, objects_in, sweep

STORES = {"plain": plain_store, "windowed": windowed_store}


def overview_chunks(objects: Objects) -> Objects:
    return {key: data for key, data in objects.items() if is_overview_chunk(key)}


@cache
def before(name: str) -> Objects:
    return STORES[name]()


@cache
def undisturbed(name: str) -> Objects:
    store = loaded(before(name))
    sweep(store, tuple_width=3)
    return overview_chunks(objects_in(store))


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(STORES)),
    tuple_width=st.integers(1, 9),
    target_nodes=st.none() | st.integers(1, 100),
    partitions=st.none() | st.sampled_from([1, 4, 16]),
)
def test_any_grouping_gives_the_same_overviews(
    name: str, tuple_width: int, target_nodes: int | None, partitions: int | None
) -> None:
    store = loaded(before(name))
    summary = sweep(store, tuple_width=tuple_width, target_nodes=target_nodes, partitions=partitions)
    assert summary.tally.failed == 0
    assert overview_chunks(objects_in(store)) == undisturbed(name)
    assert len(undisturbed(name)) > 20
