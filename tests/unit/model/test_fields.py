"""Fields: what takes part, the arrays each owns, what artifacts record of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sweep.model.fields import DigestField, ExactField, FieldMap, PackedField, parse_fields

EXACT = {"class": "exact", "method": "sum", "nan_policy": "skip", "dtype": "int64", "fill_value": 0}
DIGEST = {
    "class": "approximate", "method": "tdigest_kway", "dtype": "float32", "inner_shape": [2], "delta": 64,
    "overview_delta": 24,
}  # fmt: skip
PACKED = {
    "class": "packed", "method": "composition_kway", "dtype": "uint64", "fill_value": 0, "of": "d",
}  # fmt: skip


def parsed(entries: Any) -> FieldMap:
    fields, problems = parse_fields(entries)
    assert problems == []
    return fields


def one_problem(entries: Any) -> str:
    _, problems = parse_fields(entries)
    (problem,) = problems
    return problem


def test_order_is_kept_and_bystanders_are_passed_over() -> None:
    fields = parsed(
        {
            "z": EXACT,
            "skipped": {"class": "none"},
            "d": DIGEST,
            "odd": {"class": "mystery"},
            "text": "exact",
            "bare": {"class": "packed"},
            "empty": {"class": "packed", "of": ""},
            "unhashable": {"class": ["exact"]},
            "c": PACKED,
        }
    )
    assert [field.name for field in fields] == ["z", "d", "c"]
    assert len(fields) == 3
    assert isinstance(fields.get("c"), PackedField)
    assert fields.get("skipped") is None
    assert [spec.name for spec in fields.arrays()] == ["z", "d", "c"]


def test_defaults_of_absent_keys() -> None:
    fields = parsed(
        {
            "e": {"class": "exact", "method": "max"},
            "d": {"class": "approximate"},
            "c": {"class": "packed", "of": "d"},
        }
    )
    exact, digest, packed = fields
    assert isinstance(exact, ExactField)
    assert (exact.dtype.name, exact.nan_policy) == ("float32", "skip")
    assert np.isnan(exact.fill)
    assert isinstance(digest, DigestField)
    assert (digest.dtype.name, digest.method, digest.inner) == ("float32", "tdigest_kway", (2,))
    assert not digest.siblings()
    assert isinstance(packed, PackedField)
    assert (packed.dtype.name, packed.method, packed.fill) == ("uint64", "composition_kway", 0)
    assert not packed.has_threshold


@pytest.mark.parametrize(
    ("dtype", "fill", "expected"),
    [
        ("int32", -9999, np.int32(-9999)),
        ("int32", -9999.0, np.int32(-9999)),
        ("uint64", 2**64 - 1, np.uint64(2**64 - 1)),
        ("float64", 0, np.float64(0)),
        ("float32", "Infinity", np.float32(np.inf)),
        ("float32", "-Infinity", np.float32(-np.inf)),
        ("float16", 65504, np.float16(65504)),
        ("float32", 3.4028235e38, np.finfo(np.float32).max),
        ("float32", float("inf"), np.float32(np.inf)),
    ],
)
def test_fills_become_scalars_of_the_dtype(dtype: str, fill: Any, expected: Any) -> None:
    (field,) = parsed({"e": {"class": "exact", "method": "min", "dtype": dtype, "fill_value": fill}})
    assert isinstance(field, ExactField)
    assert field.fill == expected
    assert type(field.fill) is type(expected)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"dtype": "int32", "fill_value": 2**31}, ["fill_value 2147483648", "int32"]),
        ({"dtype": "uint8", "fill_value": -1}, ["fill_value -1", "uint8"]),
        ({"dtype": "int64", "fill_value": 0.5}, ["fill_value 0.5", "int64"]),
        ({"dtype": "int64", "fill_value": "NaN"}, ["'NaN'", "int64"]),
        ({"dtype": "int64", "fill_value": 10**400}, ["int64"]),
        ({"dtype": "float32", "fill_value": 1e39}, ["1e+39", "float32"]),
        ({"dtype": "float64", "fill_value": 10**400}, ["float64"]),
        ({"dtype": "float16", "fill_value": 65520}, ["65520", "float16"]),
        ({"fill_value": "none"}, ["'none'", "NaN", "Infinity"]),
        ({"fill_value": True}, ["True"]),
        ({"fill_value": None}, ["None"]),
        ({"dtype": "complex64"}, ["'complex64'", "float64"]),
        ({"dtype": ["int64"]}, ["int64"]),
        ({"method": "mean"}, ["'mean'", "sum, min, max"]),
        ({"method": None}, ["None", "sum, min, max"]),
    ],
)
def test_problems_of_exact_fields(change: dict[str, Any], named: list[str]) -> None:
    problem = one_problem({"height": {**EXACT, **change}})
    assert "field 'height'" in problem
    assert all(text in problem for text in named)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"dtype": "int32"}, ["int32", "not a float"]),
        ({"inner_shape": [3]}, ["inner_shape [3]", "[2]"]),
        ({"delta": 0}, ["delta 0", "at least 1"]),
        ({"overview_delta": 1.5}, ["overview_delta 1.5"]),
        ({"delta": True}, ["delta True"]),
    ],
)
def test_problems_of_digest_fields(change: dict[str, Any], named: list[str]) -> None:
    problem = one_problem({"d": {**DIGEST, **change}})
    assert "field 'd'" in problem
    assert all(text in problem for text in named)


def test_a_composition_is_uint64_and_weighted_by_a_digest() -> None:
    assert "uint32" in one_problem({"d": DIGEST, "c": {**PACKED, "dtype": "uint32"}})
    problem = one_problem({"d": EXACT, "c": PACKED})
    assert "field 'c'" in problem
    assert "'d'" in problem


def test_all_problems_are_found() -> None:
    _, problems = parse_fields({"a": {**EXACT, "method": "?"}, "b": {**DIGEST, "dtype": "int8"}, "c": EXACT})
    assert [problem.split(":")[0] for problem in problems] == ["field 'a'", "field 'b'"]


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "__x", 7])
def test_names_that_name_no_array(name: Any) -> None:
    assert f"field {name!r}" in one_problem({name: EXACT})


def test_arrays_of_two_fields_do_not_collide() -> None:
    assert "'morton'" in one_problem({"morton": EXACT})
    problem = one_problem({"d": {**DIGEST, "location": "leaf_id"}, "d_locations": EXACT})
    assert "'d_locations'" in problem
    assert "'d'" in problem


@pytest.mark.parametrize("entries", [None, [], "fields"])
def test_a_field_map_is_an_object(entries: Any) -> None:
    assert "pyramid.overview.fields" in one_problem(entries)


@pytest.mark.parametrize(
    ("delta", "overview_delta", "budget"),
    [(64, 24, 24), (64, None, 64), (2048, None, 512), (None, None, 512)],
)
def test_the_centroid_budget(delta: int | None, overview_delta: int | None, budget: int) -> None:
    entry = {"class": "approximate", "delta": delta, "overview_delta": overview_delta}
    (field,) = parsed({"d": entry})
    assert isinstance(field, DigestField)
    assert field.budget == budget


def test_companions_follow_their_digest() -> None:
    (field,) = parsed({"h": {**DIGEST, "location": "leaf_id", "temporal": "per-centroid"}})
    assert isinstance(field, DigestField)
    assert field.siblings() == ("h_locations", "h_times")
    payload, locations, times = field.arrays()
    assert payload.is_ragged
    assert payload.attributes == {
        "ragged": {
            "spec": "zagg-ragged/1",
            "element": {"dtype": "float32", "shape": [-1, 2]},
            "locations": "h_locations",
        },
        "times": "h_times",
    }
    element = {"spec": "zagg-ragged/1", "element": {"dtype": "uint64", "shape": [-1]}}
    assert locations.attributes == {
        "ragged": element,
        "located": {"spec": "zagg-located/1", "shape": "per-centroid", "grammar": "mortie-morton/1"},
    }
    assert times.attributes == {
        "ragged": element,
        "temporal": {"spec": "zagg-toc/1", "shape": "per-centroid", "grammar": "mortie-toc/1"},
    }


def test_a_gain_stands_beside_flux_weights_only() -> None:
    gain = {"model": "x"}
    flux, plain = parsed({"f": {**DIGEST, "weights": "flux", "gain": gain}, "p": {**DIGEST, "gain": gain}})
    assert flux.arrays()[0].attributes.get("weights") == "flux"
    assert flux.arrays()[0].attributes.get("gain") == gain
    assert set(plain.arrays()[0].attributes) == {"ragged"}


def test_provenance() -> None:
    exact, digest, packed = parsed({"e": EXACT, "d": DIGEST, "c": {**PACKED, "threshold": 0.5}})
    assert exact.overview_provenance() == {"class": "exact", "method": "sum", "nan_policy": "skip"}
    assert exact.column_provenance() == exact.overview_provenance()
    assert digest.overview_provenance() == {"class": "approximate", "method": "tdigest_kway"}
    assert digest.column_provenance() == {
        "class": "approximate",
        "method": "tdigest_kway",
        "delta": 64,
        "overview_delta": 24,
        "dtype": "float32",
        "inner_shape": [2],
    }
    assert packed.overview_provenance() == {"class": "packed", "method": "composition_kway"}
    assert packed.column_provenance() == {
        "class": "packed",
        "method": "composition_kway",
        "dtype": "uint64",
        "of": "d",
    }


def test_a_composition_declares_its_lanes() -> None:
    _, packed = parsed({"d": DIGEST, "c": {**PACKED, "threshold": 0.5}})
    (spec,) = packed.arrays()
    assert spec.fill == 0
    composition = spec.attributes["composition"]
    assert list(composition) == ["of", "threshold", "spec", "lanes"]
    assert composition["threshold"] == 0.5
    assert composition["lanes"][0] == "land"
    assert len(composition["lanes"]) == 8


@pytest.mark.parametrize(
    "name",
    [
        "zarr.json", "a" * 201, "é" * 101, "a\0b", "a\nb", "\x7f", "a\ud800", "", ".x", "__x", "a/b",
        "a\u200bb", "a\u00a0b", 5,
    ],
)  # fmt: skip
def test_a_name_that_no_array_can_have_is_refused(name: Any) -> None:
    fields, problems = parse_fields(
        {name: {"class": "exact", "method": "sum", "dtype": "int64", "fill_value": 0}}
    )
    assert len(fields) == 0
    (problem,) = problems
    assert problem.startswith(f"field {name!r}: its name cannot name a zarr array")
    assert problem.encode()  # what is said can be printed


@pytest.mark.parametrize("name", ["a" * 200, "é" * 100, "c", "c0", "zarr", "with blank"])
def test_other_names_are_taken(name: str) -> None:
    fields, problems = parse_fields(
        {name: {"class": "exact", "method": "sum", "dtype": "int64", "fill_value": 0}}
    )
    assert problems == []
    assert [each.name for each in fields] == [name]


@pytest.mark.parametrize("key", ["delta", "overview_delta"])
def test_a_budget_beyond_any_array_is_refused(key: str) -> None:
    for value in (2**31, 10**400):
        fields, (problem,) = parse_fields({"d": {"class": "approximate", key: value}})
        assert len(fields) == 0
        assert f"{key} {str(value)[:70]}" in problem
        assert len(problem) < 300
    fields, problems = parse_fields({"d": {"class": "approximate", key: 2**31 - 1}})
    assert problems == []
    assert len(fields) == 1
