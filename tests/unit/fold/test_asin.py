"""The package's own arcsine: accurate, rising, exact where a digest needs it to be."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from sweep.fold import kernels, twins


def asin(x: NDArray[np.float64]) -> NDArray[np.float64]:
    out = np.empty_like(x)
    kernels.asin_values(x, out)
    return out


def points() -> NDArray[np.float64]:
    rng = np.random.default_rng(3)
    near = rng.uniform(0, 1, 20_000) ** 8
    inner = rng.uniform(-1, 1, 200_000)
    edges = np.array([0.0, 0.5, np.nextafter(0.5, 1), 1.0, np.nextafter(1.0, 0), 5e-324, 1e-200, 2.0**-27])
    half = np.concatenate([near, 1 - near, inner, 0.5 + near / 1e9, edges])
    return np.concatenate([half, -half])


def test_ends_and_middle_are_exact() -> None:
    values = asin(np.array([-1.0, 1.0, 0.0, -0.0]))
    assert values.tolist() == [-math.pi / 2, math.pi / 2, 0.0, 0.0]
    assert np.signbit(values).tolist() == [True, False, False, True]
    # What a digest makes of them: the scale runs from 0 to delta without an error.
    assert (values / math.pi + 0.5).tolist() == [0.0, 1.0, 0.5, 0.5]


def test_nan_stays_nan() -> None:
    assert np.isnan(asin(np.array([np.nan]))).all()


def test_kernel_and_twin_agree_bit_for_bit() -> None:
    x = points()
    twin = np.empty_like(x)
    twins.asin_values(x, twin)
    assert asin(x).tobytes() == twin.tobytes()


def test_at_most_one_ulp_from_the_system_library() -> None:
    x = points()
    exact = np.array([math.asin(v) for v in x.tolist()])
    errors = np.abs(asin(x) - exact) / np.spacing(np.abs(exact))
    assert errors.max() <= 1.0
    assert (errors > 0).mean() < 0.1


def test_is_odd() -> None:
    x = points()
    assert asin(-x).tobytes() == (-asin(x)).tobytes()


@pytest.mark.parametrize("around", [0.5, 0.479425538604203, 0.8414709848078965, 0.25, 0.999999, 1e-3])
def test_never_falls_between_neighbours(around: float) -> None:
    steps = np.arange(-100_000, 100_000)
    x = (np.array([around]).view(np.int64) + steps).view(np.float64)
    assert (np.diff(asin(x)) >= 0).all()


def _sine(value: Fraction) -> Fraction:
    term = total = value
    for n in range(1, 22):
        term = -term * value * value / ((2 * n) * (2 * n + 1))
        total += term
    return total


@pytest.mark.parametrize("x", [0.1, 0.3, 0.499, 0.5, 0.501, 0.7, 0.9, 0.99])
def test_errors_stay_below_three_fifths_of_an_ulp(x: float) -> None:
    # asin rises, so the true arcsine lies between y - e and y + e if x lies between their sines.
    y = Fraction(float(asin(np.array([x]))[0]))
    allowed = Fraction(math.ulp(float(y))) * Fraction(6, 10)
    assert _sine(y - allowed) < Fraction(x) < _sine(y + allowed)
