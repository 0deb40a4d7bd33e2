"""The work set: one sorted entry for each shard and window."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from sweep.errors import DeclarationError
from sweep.model.nodes import decimals_of, word_of, words_of
from sweep.plan.leaves import NO_WINDOW, WindowCodes, WorkSet, with_dirt, work_set, work_set_of_arrays


def entries(work: WorkSet) -> list[tuple[str, str | None]]:
    labels = [None if code == NO_WINDOW else work.labels[code] for code in work.codes.tolist()]
    return list(zip(decimals_of(work.words), labels, strict=True))


def test_entries_ascend_by_word_then_no_window_then_label() -> None:
    refs = [
        (word_of("-2111"), "2019"),
        (word_of("1112"), "2020"),
        (word_of("1112"), None),
        (word_of("1112"), "2019"),
        (word_of("1111"), "b"),
    ]
    work = work_set(refs, 3)
    assert entries(work) == [
        ("1111", "b"),
        ("1112", None),
        ("1112", "2019"),
        ("1112", "2020"),
        ("-2111", "2019"),
    ]
    assert work.labels == ("2019", "2020", "b")
    assert (work.codes.dtype, work.words.dtype) == (np.dtype(np.int32), np.dtype(np.uint64))
    assert work.n_leaves == 5
    assert decimals_of(work.shards()) == ["1111", "1112", "-2111"]
    assert not work.is_empty


def test_refs_are_pairs_lists_bare_words_or_an_array() -> None:
    word = word_of("1112")
    spellings: list[Any] = [[word], [(word, None)], [[word, None]], np.array([word]), iter([word])]
    for refs in spellings:
        assert entries(work_set(refs, 3)) == [("1112", None)]


def test_duplicates_count_once() -> None:
    word = word_of("1112")
    assert work_set([word, (word, None), (word, "a"), (word, "a")], 3).n_leaves == 2
    assert work_set([word, word], 3).n_leaves == 1


def test_no_leaves() -> None:
    work = work_set([], 3)
    assert work.is_empty
    assert work.n_leaves == 0
    assert len(work.shards()) == 0
    assert work.skipped == ()


def test_refs_at_another_order_are_skipped_and_named(caplog: pytest.LogCaptureFixture) -> None:
    refs: list[Any] = [
        (word_of("1112"), None),
        (word_of("-21"), "a"),
        word_of("11111"),
        (word_of("-21"), "b"),
    ]
    with caplog.at_level(logging.WARNING):
        work = work_set(refs, 3)
    assert entries(work) == [("1112", None)]
    assert work.skipped == ("-21", "11111", "-21")
    (record,) = caplog.records
    assert record.__dict__["n_skipped"] == 3
    assert record.__dict__["shard_order"] == 3


def test_nothing_is_logged_where_nothing_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    work_set([word_of("1112")], 3, dirt_only=[word_of("1113")])
    assert caplog.records == []


def test_dirt_only_refs_of_dirty_shards_are_dropped() -> None:
    dirt = [(word_of("1112"), "x"), (word_of("1113"), "a"), (word_of("1113"), "b"), (word_of("1113"), "b")]
    work = work_set([(word_of("1112"), "2019")], 3, dirt_only=dirt)
    assert decimals_of(work.dirt) == ["1113"]
    assert work.n_dirt_only == 2, "one for each shard and window kept"
    assert work.n_leaves == 1
    assert work.labels == ("2019",)


def test_dirt_only_refs_alone_leave_the_work_set_empty() -> None:
    work = work_set([], 3, dirt_only=[word_of("-1113"), word_of("1113"), word_of("11")])
    assert work.is_empty
    assert decimals_of(work.dirt) == ["1113", "-1113"]
    assert work.skipped == ("11",)


def test_arrays_and_refs_give_the_same_set() -> None:
    texts = ["1112", "-2111", "1112", "1111", "1112"]
    windows = ["2020", "2019", "2019", "2019", "2020"]
    words = words_of(texts)
    expected = entries(work_set(list(zip(words.tolist(), windows, strict=True)), 3))
    codes = WindowCodes(
        codes=np.array([0, 1, 2, 2, 3], dtype=np.int32), labels=("2020", "2019", "2019", "2020")
    )
    for column in (windows, np.array(windows), np.array(windows, dtype=object), codes):
        assert entries(work_set_of_arrays(words, column, 3)) == expected
    signed = words[words < 1 << 63].astype(np.int64)
    assert entries(work_set_of_arrays(signed, None, 3)) == [("1111", None), ("1112", None)]


def test_codes_without_a_window_have_none() -> None:
    codes = WindowCodes(codes=np.array([1, NO_WINDOW, 0], dtype=np.int32), labels=("b", "a"))
    assert codes.texts() == ("a", None, "b")
    work = work_set_of_arrays(words_of(["1112"] * 3), codes, 3)
    assert entries(work) == [("1112", None), ("1112", "a"), ("1112", "b")]


def test_dirt_comes_to_a_work_set_as_if_it_had_been_there() -> None:
    refs: list[Any] = [(word_of("1112"), "2019"), word_of("21")]
    dirt: list[Any] = [word_of("1112"), (word_of("1113"), "a"), word_of("-21")]
    expected = work_set(refs, 3, dirt_only=dirt)
    found = with_dirt(work_set(refs, 3), dirt, 3)
    assert entries(found) == entries(expected)
    assert found.skipped == expected.skipped == ("21", "-21")
    assert decimals_of(found.dirt) == decimals_of(expected.dirt) == ["1113"]
    assert found.n_dirt_only == expected.n_dirt_only == 1


def test_labels_are_kept_as_given() -> None:
    work = work_set([(word_of("1112"), "all"), (word_of("1112"), "a/b"), (word_of("1112"), "")], 3)
    assert work.labels == ("", "a/b", "all")
    assert work.n_leaves == 3


@pytest.mark.parametrize(
    ("refs", "named"),
    [
        ([-2111], "-2111 is negative"),
        ([(-2111, None)], "-2111 is negative"),
        (np.array([-2111]), "-2111 is negative"),
        ([0], "0 is not a packed word"),
        (["1112"], "'1112' is not a packed word"),
        ([("1112", None)], "'1112' is not a packed word"),
        ([(1 << 60,)], "neither a packed word nor a pair"),
        ([(1 << 60, None, 3)], "neither a packed word nor a pair"),
        ([(1 << 60, 2019)], "window 2019"),
        ([(1 << 60, float("nan"))], "window nan"),
        (np.array([[1 << 60]], dtype=np.uint64), "(1, 1)"),
    ],
)
def test_malformed_refs_are_named(refs: Any, named: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        work_set(refs, 0)
    assert named in str(caught.value)
    with pytest.raises(DeclarationError) as caught:
        work_set([], 0, dirt_only=refs)
    assert named in str(caught.value)


def test_columns_have_one_length() -> None:
    with pytest.raises(DeclarationError, match="2 leaf words but 1 windows"):
        work_set_of_arrays(words_of(["1", "2"]), ["a"], 0)
