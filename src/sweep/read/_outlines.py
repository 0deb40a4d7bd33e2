"""Outlines of HEALPix cells in longitude and geodetic latitude.

A cell is a square (x, y) on one of twelve faces. Its sides are curves on the globe, so each is
cut into steps, coarse cells into more of them. Longitudes of an outline run on from its
centre's, so that no outline jumps across the antimeridian; where a corner is a pole it gives
two points, for a map of longitudes and latitudes shows the pole as a line.

Source: Gorski et al., HEALPix (2005), 5.2 (faces and projection); Snyder, Map projections: a
working manual (1987), 3-18 (authalic latitude); format 4.3 (latitude).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sweep.model.nodes import Words

__all__ = ["geodetic", "outlines"]

type Floats = NDArray[np.float64]

_FACE_ROW = np.array([2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4])
_FACE_COLUMN = np.array([1, 3, 5, 7, 0, 2, 4, 6, 1, 3, 5, 7])
# Off the corners by this share of a side: a pole has no longitude, a point beside it has.
_CORNER = 1e-9
_ECCENTRICITY_2 = (2 - 1 / 298.257223563) / 298.257223563


def outlines(words: Words, order: int, steps: int | None = None) -> tuple[Floats, Floats]:
    """The outlines of cells of one order.

    Parameters
    ----------
    words : ndarray of uint64, shape (n_cells,)
    order : int
    steps : int, optional
        Pieces of a side; chosen by the order where None.

    Returns
    -------
    longitudes, latitudes : ndarray of float64, shape (n_cells, 4 * (steps + 1)), degrees
        Counter-clockwise from the southern corner, each corner twice (as the end of one side
        and the start of the next). Longitudes lie within 180 degrees of the cell's centre,
        which lies in [-180, 180).
    """
    steps = steps or max(1, 16 >> order)
    face, x, y = _places(words, order)
    side = np.clip(np.linspace(0, 1, steps + 1), _CORNER, 1 - _CORNER)
    zero, one = np.zeros_like(side), np.ones_like(side)
    around_x = np.concatenate([side, one, side[::-1], zero])
    around_y = np.concatenate([zero, side, one, side[::-1]])
    size = 1 << order
    longitudes, latitudes = _project(
        face[:, None], (x[:, None] + around_x) / size, (y[:, None] + around_y) / size
    )
    centres, _ = _project(face, (x + 0.5) / size, (y + 0.5) / size)
    centres = (centres + 180) % 360 - 180
    longitudes = centres[:, None] + (longitudes - centres[:, None] + 180) % 360 - 180
    return longitudes, geodetic(latitudes)


def _places(words: Words, order: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Face, x and y of each cell: a digit holds one bit of x and one of y."""
    face = (words >> np.uint64(60)).astype(np.int64) - 1
    path = (words >> np.uint64(60 - 2 * order)).astype(np.int64)
    x, y = np.zeros_like(face), np.zeros_like(face)
    for bit in range(order):
        x |= ((path >> (2 * bit)) & 1) << bit
        y |= ((path >> (2 * bit + 1)) & 1) << bit
    return face, x, y


def _project(face: NDArray[np.int64], x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Longitude and latitude on the authalic sphere, degrees."""
    row = _FACE_ROW[face] - x - y
    reach = np.where(row < 1, row, np.where(row > 3, 4 - row, 1.0))
    cap = 1 - reach**2 / 3
    height = np.where(row < 1, cap, np.where(row > 3, -cap, (2 - row) * 2 / 3))
    longitude = 45 * (_FACE_COLUMN[face] + (x - y) / reach)
    return longitude, np.degrees(np.arcsin(np.clip(height, -1, 1)))


def geodetic(authalic: Floats) -> Floats:
    """Geodetic latitudes (WGS84) of authalic ones, degrees; good to 2e-8 of one."""
    e2 = _ECCENTRICITY_2
    beta = np.radians(authalic)
    return authalic + np.degrees(
        (e2 / 3 + 31 * e2**2 / 180 + 517 * e2**3 / 5040) * np.sin(2 * beta)
        + (23 * e2**2 / 360 + 251 * e2**3 / 3780) * np.sin(4 * beta)
        + (761 * e2**3 / 45360) * np.sin(6 * beta)
    )
