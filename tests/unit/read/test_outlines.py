"""Outlines of cells, held against mortie's polygons."""

from __future__ import annotations

import mortie
import numpy as np
import pytest
from numpy.typing import NDArray

from sweep.model.nodes import BASES, Words, child_words, word_of
from sweep.read._outlines import geodetic, outlines


def cells(order: int) -> Words:
    """Cells of every base cell, at most some hundred."""
    words = np.concatenate([child_words(word_of(base), order) for base in BASES])
    return words[:: max(1, len(words) // 600)]


def test_latitudes_are_those_of_mortie() -> None:
    authalic = np.linspace(-90, 90, 721)
    np.testing.assert_allclose(geodetic(authalic), mortie.authalic_to_geodetic(authalic), atol=2e-8)


@pytest.mark.parametrize("order", [0, 1, 2, 5, 9])
def test_corners_are_those_of_mortie(order: int) -> None:
    words = cells(order)
    longitudes, latitudes = outlines(words, order, steps=1)
    for rings, word in zip(np.stack([longitudes, latitudes], axis=-1), words, strict=True):
        theirs = np.array(mortie.mort2polygon(word))[:4, ::-1]
        for corner in theirs:
            assert distances(rings, corner).min() < 1e-6, (hex(int(word)), corner, rings)


def distances(ring: NDArray[np.float64], corner: NDArray[np.float64]) -> NDArray[np.float64]:
    """Degrees between points; a pole has every longitude."""
    turned = np.abs((ring[:, 0] - corner[0] + 180) % 360 - 180)
    apart: NDArray[np.float64] = np.abs(ring[:, 1] - corner[1])
    return apart if abs(corner[1]) > 89.999 else apart + turned


@pytest.mark.parametrize("order", [0, 1, 2, 6])
def test_sides_run_through_the_points_of_mortie(order: int) -> None:
    words = cells(order)[:50]
    longitudes, latitudes = outlines(words, order, steps=8)
    for ring, word in zip(np.stack([longitudes, latitudes], axis=-1), words, strict=True):
        for point in np.array(mortie.mort2polygon(word, step=8))[:-1, ::-1]:
            assert distances(ring, point).min() < 1e-5


@pytest.mark.parametrize("order", [0, 1, 3, 7])
def test_no_outline_jumps(order: int) -> None:
    words = cells(order)
    longitudes, latitudes = outlines(words, order)
    _, centres = mortie.mort2geo(words)
    assert (np.abs(np.diff(longitudes, axis=1)) <= 90).all()
    assert (np.abs(latitudes) <= 90).all()
    reach = np.ptp(longitudes, axis=1)
    assert (reach <= 90 + 1e-6).all()
    inside = (longitudes.mean(axis=1) - np.asarray(centres) + 180) % 360 - 180
    assert (np.abs(inside) < 60).all()


def test_a_pole_is_a_line() -> None:
    # The northernmost cell of order 1 in base cell 1 spans 0 to 90 degrees east at the pole.
    longitudes, latitudes = outlines(np.array([word_of("14")], dtype=np.uint64), 1)
    top = longitudes[0][latitudes[0] > 89.99]
    assert top.min() == pytest.approx(0, abs=1e-6)
    assert top.max() == pytest.approx(90, abs=1e-6)


def test_an_outline_across_the_antimeridian_runs_on() -> None:
    longitudes, _ = outlines(np.array([word_of("-1")], dtype=np.uint64), 0)
    assert longitudes.min() < -180 < longitudes.max() or longitudes.min() < 180 < longitudes.max()
    assert np.ptp(longitudes) == pytest.approx(90, abs=1e-6)


def test_outlines_turn_to_the_left() -> None:
    longitudes, latitudes = outlines(cells(3), 3)
    x, y = longitudes, latitudes
    area = (x * np.roll(y, -1, axis=1) - np.roll(x, -1, axis=1) * y).sum(axis=1) / 2
    assert (area > 0).all()
