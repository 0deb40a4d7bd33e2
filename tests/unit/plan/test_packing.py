"""Packing: the greedy rule, the border of the payload, and what is too big to be sent.

Expected batches come from a second implementation that measures JSON texts one by one.

Source: semantics 12.1, 12.4.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import mortie
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.made import Json

from sweep.errors import DeclarationError
from sweep.plan.leaves import WorkSet, work_set
from sweep.plan.packing import Batch, FanOut, check_knob, close_fan_out, fan_outs, pack, refs_of
from sweep.plan.tuples import OrderTuple

SHARD_ORDER = 3
TUPLE = OrderTuple(dispatch_order=1, child_order=3)
Ref = tuple[int, str | None]
Bucket = tuple[str, list[Ref]]

_HEAD: Json = {
    "role": "stage",
    "run_id": "stage-x",
    "dispatch": 1,
    "records_from": "s3://b/s.status/run-stage-x",
}


def word(decimal: str) -> int:
    return int(mortie.decimal_to_word(decimal, dtype=int))


def decimal(packed: int) -> str:
    (text,) = mortie.MortonIndexArray.from_words(np.array([packed], dtype=np.uint64)).decimal_repr()
    return str(text)


def event(
    nodes: Sequence[str], refs: Sequence[Ref] | None, dirt: Sequence[Ref] = (), number: int = 0
) -> bytes:
    """An event in the shape of the wire's, written by json alone."""
    made: Json = {
        "mode": "sweep",
        "store_path": "s3://b/s",
        "stage": {**_HEAD, "nodes": nodes, "batch": number},
    }
    made |= {"discover": True} if refs is None else {"leaves": refs}
    if dirt:
        made["dirt_only"] = dirt
    return json.dumps(made).encode()


def measure(batch: Batch) -> int:
    return len(event(batch.nodes(), batch.leaves(), batch.dirt_only(), number=9_999_999))


def work_of(leaves: Sequence[tuple[str, str | None]], dirt: Sequence[str] = ()) -> WorkSet:
    refs = [(word(each), window) for each, window in leaves]
    return work_set(refs, SHARD_ORDER, dirt_only=[(word(each), None) for each in dirt])


def buckets_of(leaves: Sequence[tuple[str, str | None]], order: int = 1) -> list[Bucket]:
    """Nodes in the order of text, and the refs of each by text, null first."""
    found: dict[str, list[tuple[str, str | None]]] = {}
    for leaf, window in set(leaves):
        sign = 2 if leaf.startswith("-") else 1
        found.setdefault(leaf[: sign + order], []).append((leaf, window))
    return [
        (
            node,
            [
                (word(leaf), window)
                for leaf, window in sorted(found[node], key=lambda ref: (ref[0], ref[1] or ""))
            ],
        )
        for node in sorted(found)
    ]


def packed_by_hand(buckets: Sequence[Bucket], cap: int, max_nodes: int | None) -> list[list[str] | str]:
    """The rule of semantics 12.4, every text measured anew; a bare text is a node that discovers."""

    def size(part: Sequence[Bucket], **more: Any) -> int:
        refs = [ref for _, each in part for ref in each]
        return len(event([node for node, _ in part], refs, number=9_999_999))

    budget = cap - (size([]) + 64)
    greedy: list[list[Bucket]] = []
    spent = 0
    for node, refs in buckets:
        cost = len(node) + 4 + sum(len(json.dumps(list(ref))) + 2 for ref in refs)
        full = not greedy or spent + cost > budget or len(greedy[-1]) == (max_nodes or 10**9)
        if full:
            greedy.append([])
            spent = 0
        greedy[-1].append((node, refs))
        spent += cost

    def fit(part: list[Bucket]) -> list[list[str] | str]:
        if size(part) <= cap:
            return [[node for node, _ in part]]
        if len(part) == 1:
            return [part[0][0]]
        middle = len(part) // 2
        return fit(part[:middle]) + fit(part[middle:])

    return [each for part in greedy for each in fit(part)]


def shapes(batches: Sequence[Batch]) -> list[list[str] | str]:
    return [batch.nodes()[0] if batch.discover else list(batch.nodes()) for batch in batches]


leaf = st.builds(
    str.__add__, st.sampled_from(["1", "2", "6", "-1", "-5", "-6"]), st.text("1234", min_size=3, max_size=3)
)
caps = st.integers(200, 1400)


@settings(max_examples=200, deadline=None)
@given(st.lists(leaf, min_size=1, max_size=80, unique=True), caps, st.none() | st.integers(1, 6))
def test_packing_follows_the_rule(leaves: list[str], cap: int, max_nodes: int | None) -> None:
    work = work_of([(each, None) for each in leaves])
    (out,) = fan_outs(TUPLE, work=work, scope=None, is_windowed=False)
    buckets = buckets_of([(each, None) for each in leaves])
    batches = pack(out, cap_bytes=cap, max_nodes=max_nodes, measure=measure)
    assert shapes(batches) == packed_by_hand(buckets, cap, max_nodes)
    refs = dict(buckets)
    for batch in batches:
        expected = None if batch.discover else tuple(ref for node in batch.nodes() for ref in refs[node])
        assert batch.leaves() == expected
        assert batch.n_leaves == sum(len(refs[node]) for node in batch.nodes())


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(leaf, st.sampled_from([None, "2019", "2020", "é"])), max_size=60),
    st.lists(leaf, max_size=30),
    caps,
    st.none() | st.integers(1, 4),
)
def test_no_event_is_over_the_cap_and_every_leaf_goes_once(
    leaves: list[tuple[str, str | None]], dirt: list[str], cap: int, max_nodes: int | None
) -> None:
    work = work_of(leaves, dirt)
    outs = [*fan_outs(TUPLE, work=work, scope=None, is_windowed=True)]
    close = close_fan_out(TUPLE, work=work, scope=None)
    for out in [*outs, *([close] if close else [])]:
        batches = pack(out, cap_bytes=cap, max_nodes=max_nodes, measure=measure)
        # below some 250 bytes not even a bare event fits
        assert all(measure(batch) <= cap for batch in batches if cap > 250)
        assert all(batch.n_nodes <= (max_nodes or 10**9) for batch in batches)
        nodes = [node for batch in batches for node in batch.nodes()]
        assert nodes == sorted(set(nodes))
        if out.unit == "window":
            wanted = {(word(each), window) for each, window in leaves if window == out.window}
        else:
            wanted = {(word(each), window) for each, window in leaves}
        if not any(batch.discover for batch in batches):
            sent = [ref for batch in batches for ref in batch.leaves() or ()]
            assert sorted(sent, key=str) == sorted(wanted, key=str)
            only_dirt = (
                {word(each) for each in dirt} - {packed for packed, _ in wanted}
                if out.unit == "close"
                else set()
            )
            found = [ref for batch in batches for ref in batch.dirt_only()]
            assert sorted(found) == sorted((packed, None) for packed in only_dirt)


# -- the border -----------------------------------------------------------------------------


def fan_out_of(leaves: Sequence[str], dirt: Sequence[str] = (), order_tuple: OrderTuple = TUPLE) -> FanOut:
    (out,) = fan_outs(
        order_tuple, work=work_of([(each, None) for each in leaves], dirt), scope=None, is_windowed=False
    )
    return out


def test_a_batch_closes_exactly_at_its_budget() -> None:
    """Two nodes fit together when the cap is their cost, the base and 64 bytes; not at one byte less."""
    out = fan_out_of(["1111", "1112", "1211"])
    base = len(event([], [], number=9_999_999)) + 64
    cost = sum(len(node) + 4 for node in ("11", "12"))
    cost += sum(len(json.dumps([word(each), None])) + 2 for each in ("1111", "1112", "1211"))
    together = pack(out, cap_bytes=base + cost, max_nodes=None, measure=measure)
    assert shapes(together) == [["11", "12"]]
    apart = pack(out, cap_bytes=base + cost - 1, max_nodes=None, measure=measure)
    assert shapes(apart) == [["11"], ["12"]]


def test_costs_are_bytes_of_the_event() -> None:
    """What a node adds to an event is its cost; the last ref and node of a list want no comma."""
    work = work_of(
        [("1111", None), ("1112", "2019"), ("-3111", "é"), ("1211", "2020")], dirt=["1222", "-3144"]
    )
    out = close_fan_out(TUPLE, work=work, scope=None)
    assert out is not None
    batch = Batch(fan_out=out, start=0, stop=out.n_nodes)
    size = len(event(batch.nodes(), batch.leaves(), batch.dirt_only()))
    commas = 3 * len(", ")
    assert size == len(event([], [])) + len(', "dirt_only": []') + int(out.costs().sum()) - commas


def test_a_single_node_at_the_border() -> None:
    out = fan_out_of(["1111", "1112"])
    whole = Batch(fan_out=out, start=0, stop=1)
    fits = pack(out, cap_bytes=measure(whole), max_nodes=None, measure=measure)
    assert shapes(fits) == [["11"]]
    (too_big,) = pack(out, cap_bytes=measure(whole) - 1, max_nodes=None, measure=measure)
    assert (too_big.discover, too_big.leaves(), too_big.nodes()) == (True, None, ("11",))


def test_a_node_that_is_too_big_is_named(caplog: pytest.LogCaptureFixture) -> None:
    leaves = [f"12{a}{b}" for a in "1234" for b in "1234"] + ["1111", "-1111"]
    out = fan_out_of(leaves, dirt=["1344"])
    batches = pack(out, cap_bytes=400, max_nodes=None, measure=measure)
    assert shapes(batches) == [["-11", "11"], "12", ["13"]]
    (entry,) = caplog.records
    assert entry.levelno == logging.WARNING
    said = {key: entry.__dict__[key] for key in ("event", "node", "dispatch", "n_leaves", "n_dirt_only")}
    assert said == {"event": "discover", "node": "12", "dispatch": 1, "n_leaves": 16, "n_dirt_only": 0}
    assert batches[2].dirt_only() == ((word("1344"), None),)


def test_dirt_that_makes_an_event_too_big_goes_into_the_reckoning() -> None:
    dirt = [f"1{a}{b}{c}" for a in "12" for b in "1234" for c in "1234"]
    calls = []

    def counted(batch: Batch) -> int:
        calls.append(batch.n_nodes)
        return measure(batch)

    batches = pack(fan_out_of(["3111"], dirt), cap_bytes=900, max_nodes=None, measure=counted)
    assert shapes(batches) == [["11"], ["12", "31"]]
    assert calls == [0, 1, 2]  # by cost alone: nothing had to be cut in half
    assert sum(len(batch.dirt_only()) for batch in batches) == len(dirt)


@pytest.mark.parametrize(("max_nodes", "sizes"), [(None, [9]), (1, [1] * 9), (4, [4, 4, 1]), (100, [9])])
def test_max_nodes_composes_with_the_cap(max_nodes: int | None, sizes: list[int]) -> None:
    out = fan_out_of([f"{base}{digit}11" for base in "123" for digit in "123"])
    batches = pack(out, cap_bytes=10**6, max_nodes=max_nodes, measure=measure)
    assert [batch.n_nodes for batch in batches] == sizes


# -- order ----------------------------------------------------------------------------------


def test_southern_nodes_come_first_as_in_text() -> None:
    out = fan_out_of(["6111", "-6111", "1111", "-1111", "-1411"])
    assert [
        node for batch in pack(out, cap_bytes=10**6, max_nodes=2, measure=measure) for node in batch.nodes()
    ] == [
        "-11",
        "-14",
        "-61",
        "11",
        "61",
    ]


def test_windows_one_after_another_then_the_closes(caplog: pytest.LogCaptureFixture) -> None:
    work = work_of(
        [("1111", "2020"), ("1111", "2019"), ("2111", "2020"), ("3111", None), ("4111", "not a label")]
    )
    outs = fan_outs(TUPLE, work=work, scope=None, is_windowed=True)
    found = [
        (out.unit, out.window, shapes(pack(out, cap_bytes=10**6, max_nodes=1, measure=measure)))
        for out in outs
    ]
    assert found == [("window", "2019", [["11"]]), ("window", "2020", [["11"], ["21"]])]
    assert outs[1].words.tolist() == [word("1111"), word("2111")]
    assert [entry.__dict__["window"] for entry in caplog.records] == ["not a label"]
    close = close_fan_out(TUPLE, work=work, scope=None)
    assert close is not None
    assert (close.unit, close.window) == ("close", None)
    (batch,) = pack(close, cap_bytes=10**6, max_nodes=None, measure=measure)
    assert batch.nodes() == ("11", "21", "31", "41")
    assert batch.leaves() == (
        (word("1111"), "2019"),
        (word("1111"), "2020"),
        (word("2111"), "2020"),
        (word("3111"), None),
        (word("4111"), "not a label"),
    )


def test_scope_admits_nodes_and_takes_all_below() -> None:
    work = work_of([("1111", None), ("1144", None), ("1211", None), ("-1111", None)])
    scope = np.array([word("1144")], dtype=np.uint64)
    (out,) = fan_outs(TUPLE, work=work, scope=scope, is_windowed=False)
    (batch,) = pack(out, cap_bytes=10**6, max_nodes=None, measure=measure)
    assert batch.nodes() == ("11",)
    assert batch.leaves() == ((word("1111"), None), (word("1144"), None))


@pytest.mark.parametrize("is_windowed", [True, False])
def test_nothing_to_fire(is_windowed: bool) -> None:
    empty = work_of([])
    assert fan_outs(TUPLE, work=empty, scope=None, is_windowed=is_windowed) == ()
    assert close_fan_out(TUPLE, work=empty, scope=None) is None
    elsewhere = np.array([word("6")], dtype=np.uint64)
    assert fan_outs(TUPLE, work=work_of([("1111", None)]), scope=elsewhere, is_windowed=False) == ()


def test_a_fan_out_less_some_nodes_is_packed_by_itself() -> None:
    out = fan_out_of(["1111", "1211", "1212", "1311"])
    left = out.subset(np.array([True, False, True]))
    (batch,) = pack(left, cap_bytes=10**6, max_nodes=None, measure=measure)
    assert batch.nodes() == ("11", "13")
    assert batch.leaves() == ((word("1111"), None), (word("1311"), None))
    assert (
        pack(out.subset(np.zeros(3, dtype=np.bool_)), cap_bytes=10**6, max_nodes=None, measure=measure) == []
    )


def test_each_batch_is_measured_once_or_twice() -> None:
    """Costs are summed: nothing is written as JSON but the batches that come out."""
    calls = []

    def counted(batch: Batch) -> int:
        calls.append(batch.n_nodes)
        return measure(batch)

    out = fan_out_of(
        [f"{base}{a}{b}{c}" for base in "123456" for a in "1234" for b in "1234" for c in "1234"]
    )
    batches = pack(out, cap_bytes=2000, max_nodes=None, measure=counted)
    assert len(calls) == len(batches) + 1


def test_the_whole_work_set_in_the_order_of_text() -> None:
    leaves = [
        ("6111", None),
        ("-6111", "2020"),
        ("-6111", None),
        ("1111", "b"),
        ("1111", "a"),
        ("-1111", None),
    ]
    expected = [
        ("-1111", None),
        ("-6111", None),
        ("-6111", "2020"),
        ("1111", "a"),
        ("1111", "b"),
        ("6111", None),
    ]
    assert [(decimal(packed), window) for packed, window in refs_of(work_of(leaves))] == expected
    assert refs_of(work_of([])) == ()


# -- knobs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, True, False, 1.0, 2.5, "3", [1], float("nan"), None])
def test_knobs_that_are_no_whole_numbers(value: object) -> None:
    with pytest.raises(DeclarationError, match="max_nodes is ") as caught:
        check_knob("max_nodes", value, least=1)
    assert repr(value) in caught.value.message
    assert caught.value.kind == "knob"


def test_knobs() -> None:
    assert check_knob("max_nodes", 1, least=1) == 1
    assert check_knob("target_nodes", 0, least=0) == 0
    assert check_knob("max_nodes", None, least=1, none_means="payload only") is None
    with pytest.raises(DeclarationError, match="at least 1, or none for payload only"):
        check_knob("max_nodes", 0, least=1, none_means="payload only")
