"""The root coverage: what counts as usable, and the union that a sweep writes."""

from __future__ import annotations

import json
import logging
from typing import Any

import mortie
import numpy as np
import pytest
from tests.reference import ReferenceStore
from tests.support.made import Json, memory_store

from sweep.artifacts.coverage import Coverage, load_coverage, read_coverage, united_coverage
from sweep.model.nodes import Words

NOW = "2026-11-29T16:26:39+00:00"


def words(*decimals: str) -> Words:
    return np.array([mortie.decimal_to_word(each, dtype=int) for each in decimals], dtype=np.uint64)


def document(**changes: Any) -> Json:
    whole: Json = {
        "spec": "morton-moc/1",
        "encoding": "ranges",
        "order": 2,
        "source": "dispatcher",
        "generated_at": "2024-06-01T00:00:00+00:00",
        "ranges": [["111", "113"], ["-211", "-211"]],
    }
    return whole | changes


def read(value: Any) -> Coverage | None:
    return read_coverage(json.dumps(value).encode(), 2)


def test_ranges_expand_to_shards() -> None:
    coverage = read(document())
    assert coverage is not None
    assert coverage.words.tolist() == words("111", "112", "113", "-211").tolist()
    assert coverage.is_canonical


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        document(order=3),
        document(order=None),
        document(ranges=None),
        document(ranges={"111": "113"}),
        document(ranges=[["111"]]),
        document(ranges=[["111", "1111"]]),
        document(ranges=[["113", "111"]]),
        document(ranges=[["111", "211"]]),
        document(ranges=[["115", "116"]]),
        document(ranges=[[111, 112]]),
    ],
    ids=repr,
)
def test_an_unusable_coverage(value: Any) -> None:
    assert read(value) is None


@pytest.mark.parametrize("raw", [None, b"", b"{", b"\xff"])
def test_no_coverage(raw: bytes | None) -> None:
    assert read_coverage(raw, 2) is None


@pytest.mark.parametrize("change", [{"spec": "morton-moc/2"}, {"encoding": "list"}, {"spec": None}])
def test_another_spec_is_read_and_not_kept(change: Json) -> None:
    # semantics 2.5 asks for order and ranges alone; format 8 unites only with its own kind
    coverage = read(document(time_range=[NOW, NOW], **change))
    assert coverage is not None
    assert not coverage.is_canonical
    written = json.loads(united_coverage(coverage, words("444"), 2, NOW))
    assert written["ranges"] == [["444", "444"]]
    assert "time_range" not in written


def test_a_union() -> None:
    written = united_coverage(read(document()), words("114", "611", "-211"), 2, NOW)
    assert json.loads(written) == {
        "spec": "morton-moc/1",
        "encoding": "ranges",
        "order": 2,
        "source": "sweep",
        "generated_at": NOW,
        "ranges": [["111", "114"], ["611", "611"], ["-211", "-211"]],
    }


def test_what_survives() -> None:
    temporal = {"spec": "zagg-coverage-toc/1", "anything": [1]}
    time_range = ["2019-01-01T04:29:47+00:00", "2021-12-30T18:30:04+00:00"]
    old = read(document(time_range=time_range, temporal=temporal, other="lost"))
    written = json.loads(united_coverage(old, words("111"), 2, NOW))
    assert list(written) == [
        "spec", "encoding", "order", "source", "generated_at", "ranges", "time_range", "temporal",
    ]  # fmt: skip
    assert written["time_range"] == time_range
    assert written["temporal"] == temporal


@pytest.mark.parametrize(
    "change",
    [
        {"time_range": None},
        {"time_range": ["2019-01-01T04:29:47+00:00"]},
        {"time_range": ["then", "now"]},
        {"temporal": {"spec": "zagg-coverage-toc/2"}},
        {"temporal": ["zagg-coverage-toc/1"]},
    ],
)
def test_what_does_not_survive(change: Json) -> None:
    written = json.loads(united_coverage(read(document(**change)), words("111"), 2, NOW))
    assert not {"time_range", "temporal"} & set(written)


@pytest.mark.parametrize("name", ["kitchen_sink", "kitchen_sink_windowed", "wide"])
def test_the_coverage_of_a_real_store(reference_store: ReferenceStore, name: str) -> None:
    raw = (reference_store(name, "post") / "coverage.moc").read_bytes()
    old = (reference_store(name, "pre", mode="link") / "coverage.moc").read_bytes()
    found = json.loads(raw)
    after = read_coverage(raw, found["order"])
    assert after is not None
    # the shards are ours to name in any sequence
    shards = after.words[::-1]
    assert (
        united_coverage(read_coverage(old, found["order"]), shards, found["order"], found["generated_at"])
        == raw
    )
    without = united_coverage(None, shards, found["order"], found["generated_at"])
    assert json.loads(without) == {key: each for key, each in found.items() if key != "time_range"}


def test_an_object_that_cannot_be_used_is_said(caplog: pytest.LogCaptureFixture) -> None:
    store = memory_store()
    with caplog.at_level(logging.WARNING, "sweep"):
        assert load_coverage(store, 2) is None
        assert caplog.records == []
        for raw in (b"{", b"[]", json.dumps(document(order=5)).encode()):
            store.put("coverage.moc", raw)
            assert load_coverage(store, 2) is None
    assert [vars(record)["found"] for record in caplog.records] == [
        "no JSON",
        "no object",
        "spec 'morton-moc/1', encoding 'ranges', order 5",
    ]
    store.put("coverage.moc", json.dumps(document()).encode())
    assert load_coverage(store, 2) is not None


def test_a_deep_object_is_not_used_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    store = memory_store()
    store.put("coverage.moc", b"[" * 100_000)
    with caplog.at_level(logging.WARNING, "sweep"):
        assert load_coverage(store, 2) is None
    assert [vars(record)["found"] for record in caplog.records] == ["no JSON"]
