"""Scope: every spelling, every refusal, admission both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sweep.errors import DeclarationError
from sweep.model.nodes import Words, decimals_of, word_of, words_of
from sweep.plan.partitions import partition_cells
from sweep.plan.scope import admit, intersect, parse_scope

PAIR = sorted([word_of("111"), word_of("6")])


def scope_of(*decimals: str) -> Words:
    words = parse_scope(decimals)
    assert words is not None
    return words


@pytest.mark.parametrize("value", [None, "all", " all "])
def test_the_whole_store(value: object) -> None:
    assert parse_scope(value) is None


@pytest.mark.parametrize(
    "value",
    [
        "111,6",
        " 6 , 111,",
        ["111", "6"],
        {"6", "111"},
        ("6", word_of("111")),
        [word_of("6"), np.uint64(word_of("111")), "111"],
        {"111": "anything", word_of("6"): None},
        np.array(PAIR, dtype=np.uint64),
        np.array(PAIR, dtype=np.int64),
        np.array(["6", "111"]),
        iter(["6", "111"]),
    ],
)
def test_every_spelling(value: object) -> None:
    words = parse_scope(value)
    assert words is not None
    assert words.dtype == np.uint64
    assert words.tolist() == PAIR


def test_southern_words_need_all_64_bits() -> None:
    assert decimals_of(scope_of("-6444", "6")) == ["6", "-6444"]
    words = parse_scope([word_of("-6444"), "6"])
    assert words is not None
    assert words.tolist() == [word_of("6"), word_of("-6444")]


@pytest.mark.parametrize("value", ["", " , ", [], {}, (), np.empty(0, dtype=np.uint64)])
def test_an_empty_scope_is_refused(value: object) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_scope(value)
    message = str(caught.value)
    assert "scope is empty" in message
    assert "'all'" in message
    assert "whole store" in message
    assert caught.value.kind == "scope"


@pytest.mark.parametrize("value", [7, 1.5, b"111", object()])
def test_another_type_is_refused(value: object) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_scope(value)
    assert type(value).__name__ in str(caught.value)
    assert caught.value.kind == "scope"


def test_all_malformed_members_are_named_at_once() -> None:
    members: list[Any] = ["111", "7", "12x", -2111, True, 0, None, "1111222233334444555"]
    with pytest.raises(DeclarationError) as caught:
        parse_scope(members)
    message = str(caught.value)
    for text in ("'7'", "'12x'", "-2111 is negative", "True", "0 is not", "None", "'1111222233334444555'"):
        assert text in message
    assert "'111'" not in message
    assert "'all' for the whole store" in message
    assert caught.value.kind == "scope"


def test_a_word_written_as_text_gets_a_hint() -> None:
    with pytest.raises(DeclarationError, match="given as an integer, not as text"):
        parse_scope("1152921504606846978")


def test_a_long_list_of_malformed_members_is_cut() -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_scope([f"x{number}" for number in range(5000)])
    assert "and 4990 more" in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("scope", "admitted"),
    [
        (("1111",), ["11"]),
        (("11",), ["11"]),
        (("1",), ["11", "12"]),
        (("-2",), ["-21"]),
        (("12344", "-2"), ["12", "-21"]),
        (("3",), []),
        (("2" + "1" * 29,), ["21"]),
    ],
)
def test_a_scope_admits_what_it_contains_and_what_contains_it(
    scope: tuple[str, ...], admitted: list[str]
) -> None:
    nodes = words_of(["11", "12", "21", "-21"])
    mask = admit(nodes, scope_of(*scope))
    assert decimals_of(nodes[mask]) == admitted


def test_no_scope_admits_everything() -> None:
    nodes = words_of(["11", "-21"])
    assert admit(nodes, None).tolist() == [True, True]
    assert admit(nodes[:0], scope_of("1")).tolist() == []


def test_intersection_of_the_specification() -> None:
    shared = intersect(words_of(["123"]), words_of(["12344", "61234"]))
    assert decimals_of(shared) == ["12344"]
    assert decimals_of(intersect(words_of(["12344", "61234"]), words_of(["123"]))) == ["12344"]


def test_intersection_with_the_whole_store() -> None:
    assert decimals_of(intersect(None, words_of(["6", "123", "6"]))) == ["123", "6"]


def test_a_scope_of_two_cells_meets_one_partition_of_four() -> None:
    scope = scope_of("111", "6")
    parts = [decimals_of(intersect(scope, partition_cells(index, 4))) for index in range(4)]
    assert parts == [["111", "61"], ["62"], ["63"], ["64"]]


def test_disjoint_sets_share_nothing() -> None:
    assert len(intersect(words_of(["12"]), words_of(["13", "-12"]))) == 0
