"""Nodes: bit arithmetic against mortie, refusals against the specification."""

from __future__ import annotations

import pickle

import mortie
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.decimals import ancestor, decimals, order, tail_rank, whole_sphere

from sweep.errors import DeclarationError
from sweep.model import nodes
from sweep.model.nodes import Words

FINE = ["3" + "12" * 14, "-6" + "4" * 28, "1" + "1" * 29, "-1" + "4321" * 7 + "2"]
"""Orders 28 and 29, whose words are not plain digits."""


def words_by_mortie(texts: list[str]) -> Words:
    return np.array([mortie.decimal_to_word(text, dtype=int) for text in texts], dtype=np.uint64)


mixed = st.lists(decimals(max_order=27, bases="123456"), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("decimal", "word"),
    [
        ("12344", 1652821063244972036),
        ("-2111", 9223372036854775811),
        ("123", 0x1600000000000002),
        ("6", 6917529027641081856),
        ("111", 1152921504606846978),
    ],
)
def test_words_of_the_specification(decimal: str, word: int) -> None:
    assert nodes.word_of(decimal) == word
    assert nodes.decimals_of(np.array([word], dtype=np.uint64)) == [decimal]


def test_children_of_the_specification() -> None:
    assert nodes.child_words(0x1600000000000002, 3).tolist() == [
        0x1600000000000003,
        0x1640000000000003,
        0x1680000000000003,
        0x16C0000000000003,
    ]


@given(mixed)
def test_words_are_those_of_mortie(texts: list[str]) -> None:
    expected = words_by_mortie(texts)
    assert [nodes.word_of(text) for text in texts] == expected.tolist()
    assert nodes.words_of(texts).tolist() == expected.tolist()
    assert nodes.words_of(texts * 16).tolist() == expected.tolist() * 16
    assert nodes.words_of(texts).dtype == np.uint64
    assert nodes.decimals_of(expected) == texts
    assert nodes.orders_of(expected).tolist() == [order(text) for text in texts]


def test_words_of_the_two_finest_orders() -> None:
    texts = FINE + ["12344", "-2111"] * 8
    words = words_by_mortie(texts)
    assert nodes.words_of(texts).tolist() == words.tolist()
    assert nodes.decimals_of(words) == texts
    assert nodes.orders_of(words).tolist() == [order(text) for text in texts]
    for node_order in (28, 27, 20, 0):
        clipped = [ancestor(text, min(node_order, order(text))) for text in texts]
        assert nodes.ancestors(words, node_order).tolist() == words_by_mortie(clipped).tolist()


def test_orders_of_random_fine_words_are_those_of_mortie() -> None:
    rng = np.random.default_rng(7)
    texts = ["".join(rng.choice(list("1234"), size)) for size in rng.integers(26, 30, 200)]
    words = words_by_mortie(["5" + text for text in texts])
    assert nodes.orders_of(words).tolist() == mortie.orders_of(words).tolist()


@given(mixed, st.integers(0, 27))
def test_ancestors_are_those_of_mortie(texts: list[str], node_order: int) -> None:
    words = words_by_mortie(texts)
    expected = mortie.clip2order(node_order, words)
    assert nodes.ancestors(words, node_order).tolist() == expected.tolist()


@given(decimals(max_order=20, bases="123456"), st.integers(0, 4))
def test_children_are_those_of_mortie(text: str, deeper: int) -> None:
    word, child_order = nodes.word_of(text), order(text) + deeper
    assert nodes.child_words(word, child_order).tolist() == (
        [word]
        if deeper == 0
        else np.asarray(mortie.generate_morton_children(word, child_order), dtype=np.uint64).tolist()
    )


def test_children_at_the_two_finest_orders() -> None:
    parent = "-3" + "2" * 26
    children = nodes.child_words(nodes.word_of(parent), 28)
    assert sorted(nodes.decimals_of(children)) == [parent + a + b for a in "1234" for b in "1234"]


@given(st.lists(st.text("1234", min_size=6, max_size=6), min_size=1), st.integers(0, 6))
def test_ranks_are_the_base_4_value_of_the_digits_left(tails: list[str], above: int) -> None:
    words = nodes.words_of(["-4" + tail for tail in tails])
    assert nodes.ranks_in(words, 6, above).tolist() == [tail_rank("1" + tail[above:]) for tail in tails]


@given(st.lists(st.text("1234", min_size=3, max_size=3), min_size=1, unique=True))
def test_string_order_is_the_order_of_text(tails: list[str]) -> None:
    texts = [base + tail for tail in tails for base in ("1", "-1", "6", "-6", "-2")]
    assert nodes.decimals_of(nodes.string_order(nodes.words_of(texts))) == sorted(texts)


def test_string_order_of_the_whole_sphere() -> None:
    texts = whole_sphere(2)
    assert nodes.decimals_of(nodes.string_order(nodes.words_of(texts))) == sorted(texts)


def test_words_ascend_by_base_then_path() -> None:
    words = nodes.words_of(["6444", "-1111", "1111", "-6444"])
    assert np.argsort(words).tolist() == [2, 0, 1, 3]
    assert tuple(nodes.decimals_of(np.sort(nodes.words_of(whole_sphere(0))))) == nodes.BASES


def test_parts_of_a_decimal() -> None:
    assert nodes.order_of("-2111") == 3
    assert nodes.order_of("6") == 0
    assert nodes.base_of("-2111") == "-2"
    assert nodes.base_of("2111") == "2"
    assert nodes.ancestor_of("-2111", 0) == "-2"
    assert nodes.ancestor_of("-2111", 2) == "-211"


@given(decimals(max_order=12, bases="123456"))
def test_paths_are_those_of_mortie(text: str) -> None:
    array = mortie.MortonIndexArray.from_words(words_by_mortie([text]))
    folder = str(array.hive_path()[0]).rpartition("/")[0]
    assert nodes.path_of(text) == folder


@pytest.mark.parametrize(
    "text",
    ["", "-", "0", "7", "1235", "12 3", "12\n", "--1", "1-2", "é", "1" * 31, "+1", "all", "1\x002", "12\x00"],
)
def test_malformed_decimals_are_named(text: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        nodes.word_of(text)
    assert repr(text) in str(caught.value)
    assert caught.value.kind == "node"
    assert not nodes.is_decimal(text)
    with pytest.raises(DeclarationError, match="is not a node"):
        nodes.words_of(["1"] * 40 + [text])


@pytest.mark.parametrize("value", [123, None, b"123", 1.5])
def test_a_decimal_is_text(value: object) -> None:
    with pytest.raises(DeclarationError, match="is not a node"):
        nodes.word_of(value)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="is not a node"):
        nodes.words_of(["1"] * 40 + [value])  # type: ignore[list-item]


@pytest.mark.parametrize("words", [[-2111], np.array([4, -2111]), np.array([-2111], dtype=object)])
def test_a_negative_word_is_a_legacy_id(words: object) -> None:
    with pytest.raises(DeclarationError) as caught:
        nodes.checked_words(words)
    message = str(caught.value)
    assert "-2111 is negative" in message
    assert "signed decimal ids" in message
    assert caught.value.kind == "word"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([0], "0 is not a packed word"),
        ([13 << 60], str(13 << 60)),
        ([1 << 64], str(1 << 64)),
        ([True], "True"),
        ([1.5], "1.5"),
        (["111"], "'111'"),
        ([None], "None"),
        (np.array([1.0]), "1.0"),
        (np.array([True]), "True"),
    ],
)
def test_what_is_no_word_is_named(words: object, named: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        nodes.orders_of(words)
    assert named in str(caught.value)


def test_checked_words_keep_shape_and_take_any_integer() -> None:
    grid = np.array([[1 << 60, 2 << 60]], dtype=np.int64)
    assert nodes.checked_words(grid).shape == (1, 2)
    assert nodes.checked_words(grid).dtype == np.uint64
    assert nodes.checked_words([np.int64(1 << 60), 12 << 60]).tolist() == [1 << 60, 12 << 60]
    assert nodes.checked_words([]).shape == (0,)


def test_empty_arrays_pass_through() -> None:
    nothing = np.empty(0, dtype=np.uint64)
    assert nodes.decimals_of(nothing) == []
    assert nodes.words_of([]).dtype == np.uint64
    assert nodes.orders_of(nothing).tolist() == []
    assert nodes.ancestors(nothing, 3).tolist() == []
    assert nodes.string_order(nothing).tolist() == []


def test_joins_of_the_specification() -> None:
    words = nodes.words_of(["12344", "12343", "12341", "12344", "12444", "12344"])
    joined = nodes.common_ancestors(words, np.array([0, 2, 3, 5, 6]))
    assert nodes.decimals_of(joined) == ["1234", "12341", "12", "12344"]
    times = np.array([5102790400000000000, 5102790400000000005, 5102790400000000000], dtype=np.uint64)
    assert nodes.reduce_times(times, np.array([0, 2, 3])).tolist() == [
        5102790400000000005,
        5102790400000000000,
    ]


def test_refusals_survive_pickling() -> None:
    with pytest.raises(DeclarationError) as caught:
        nodes.word_of("77")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.kind) == (str(caught.value), "node")
