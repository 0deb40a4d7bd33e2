"""Exact folds: sum, min and max of what is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support import numpy_folds

from sweep.errors import DeclarationError
from sweep.fold.exact import fold_exact, is_fill, is_missing
from sweep.model.fields import Law

NAN = float("nan")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")


@pytest.mark.parametrize("law", ["sum", "min", "max"])
@pytest.mark.parametrize("fan_in", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_folds_as_numpy_reductions_do(dtype: str, fan_in: int, law: Law) -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(0, 6, 40 * fan_in).astype(dtype)
    if dtype in FLOATS:
        values = (rng.normal(0, 10, 40 * fan_in) * (values > 1)).astype(dtype)
        values[:: 2 * fan_in + 1] = NAN
    for fill in (0, 3) if dtype in INTEGERS else (NAN, -9999.0):
        expected = numpy_folds.fold_exact(values, factor=fan_in, method=law, fill=fill)
        folded = fold_exact(values, fan_in=fan_in, law=law, fill=fill)
        assert folded.dtype == values.dtype
        np.testing.assert_array_equal(folded, expected)


@pytest.mark.parametrize(
    ("dtype", "values", "total"),
    [
        ("int8", [100, 100, 100, 0], 44),
        ("uint8", [200, 100, 0, 0], 44),
        ("int32", [2**31 - 1, 1, 0, 0], -(2**31)),
        ("int64", [2**63 - 1, 1, 0, 0], -(2**63)),
        ("uint64", [2**64 - 1, 2, 0, 0], 1),
    ],
)
def test_integer_sums_wrap(dtype: str, values: list[int], total: int) -> None:
    folded = fold_exact(np.array(values, dtype=dtype), fan_in=4, law="sum", fill=0)
    assert folded.tolist() == [total]


def test_a_float32_sum_runs_in_float32() -> None:
    values = np.array([2.0**24, 1.0, 1.0, 1.0], dtype=np.float32)
    assert fold_exact(values, fan_in=4, law="sum", fill=NAN).tolist() == [2.0**24]


def test_what_is_missing_is_left_out() -> None:
    values = np.array([NAN, -9999.0, 7.0, NAN, -9999.0, NAN, NAN, -9999.0])
    assert fold_exact(values, fan_in=4, law="min", fill=-9999.0).tolist() == [7.0, -9999.0]
    whole = np.array([-9999, 5, -9999, 3, -9999, -9999, -9999, -9999], dtype=np.int32)
    assert fold_exact(whole, fan_in=4, law="max", fill=-9999).tolist() == [5, -9999]
    assert fold_exact(whole, fan_in=4, law="sum", fill=-9999).tolist() == [8, -9999]


def test_infinities_are_values() -> None:
    values = np.array([np.inf, NAN, NAN, NAN, -np.inf, 1.0, NAN, 2.0])
    assert fold_exact(values, fan_in=4, law="min", fill=NAN).tolist() == [np.inf, -np.inf]
    assert fold_exact(values, fan_in=4, law="max", fill=NAN).tolist() == [np.inf, 2.0]
    opposite = fold_exact(np.array([np.inf, -np.inf, 1.0, 1.0]), fan_in=4, law="sum", fill=-1.0)
    assert np.isnan(opposite).all()


def test_a_sum_of_negative_zeros_is_positive() -> None:
    folded = fold_exact(np.full(4, -0.0), fan_in=4, law="sum", fill=NAN)
    assert not np.signbit(folded).any()


def test_byte_order_of_the_input_does_not_matter() -> None:
    values = np.array([1, 2, 3, 4], dtype=">i4")
    assert fold_exact(values, fan_in=2, law="sum", fill=0).tolist() == [3, 7]


def test_read_only_unaligned_input_is_folded() -> None:
    raw = np.frombuffer(b"x" + np.arange(4, dtype="<f8").tobytes(), dtype=np.uint8)[1:]
    assert fold_exact(raw.view("<f8"), fan_in=2, law="max", fill=NAN).tolist() == [1.0, 3.0]


def test_an_unknown_law_is_refused_with_the_known_ones() -> None:
    law: Any = "mean"
    with pytest.raises(DeclarationError, match=r"'mean' is unknown.*sum, min, max"):
        fold_exact(np.zeros(4), fan_in=4, law=law, fill=0)


@pytest.mark.parametrize("fill", [-1, NAN, "none", None])
def test_a_fill_beyond_the_dtype_is_refused(fill: Any) -> None:
    with pytest.raises(DeclarationError, match="does not fit uint8"):
        fold_exact(np.zeros(4, dtype=np.uint8), fan_in=4, law="sum", fill=fill)


def test_missing_and_fill_differ_where_the_fill_is_a_number() -> None:
    values = np.array([NAN, -9999.0, 0.0], dtype=np.float32)
    assert is_missing(values, -9999.0).tolist() == [True, True, False]
    assert is_fill(values, -9999.0).tolist() == [False, True, False]
    assert is_missing(values, NAN).tolist() == [True, False, False]
    assert is_fill(np.array([3, 4], dtype=np.int16), 3).tolist() == [True, False]


def test_fill_is_judged_by_bits_but_for_the_payload_of_nan() -> None:
    strange = np.array([0x7FF8DEAD00000001, 0xFFF8000000000000], dtype=np.uint64).view(np.float64)
    assert is_fill(strange, NAN).tolist() == [True, True]
    assert is_fill(np.array([0.0, -0.0]), 0.0).tolist() == [True, False]
    assert is_fill(np.array([0.0, -0.0]), -0.0).tolist() == [False, True]
