"""The drawing itself: polygons on a plain map of longitudes and latitudes.

Imported when something is drawn, for matplotlib is an optional extra. No figure of the
caller's is touched, and no window is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import BoundaryNorm, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MultipleLocator
from numpy.typing import NDArray

from sweep.errors import AccessError, DeclarationError
from sweep.model.nodes import Words
from sweep.read._outlines import outlines

__all__ = ["Layer", "Picture", "draw"]

_INK, _FAINT, _LAND_OF_NODES, _GRID = "#1f2933", "#6b7785", "#eceff2", "#c9d0d8"
_LANE_COLOURS = (
    "#b5894e", "#2b6cb0", "#9bd1e5", "#5c6b80", "#3aa6a0", "#f2c14e", "#e07a5f", "#8e44ad",
)  # fmt: skip
_WIDTH_IN = 9.0
_DPI = 150
_MANY = 20_000
_TRIMMED = 50


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """Cells of one order."""

    words: Words
    order: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picture:
    """What to draw; ``categories`` names the values 0, 1, ... where they have no order."""

    title: str
    subtitle: str
    label: str
    nodes: Layer
    cells: Layer
    values: NDArray[np.float64]
    categories: Sequence[str] | None
    whole_globe: bool
    cmap: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """The part of the map shown, degrees; ``west`` may lie beyond -180 where data straddles it."""

    west: float
    east: float
    south: float
    north: float

    @property
    def aspect(self) -> float:
        """Height of a degree of latitude over the width of one of longitude."""
        if self.east - self.west > 200:
            return 1.0
        return float(1 / max(np.cos(np.radians((self.south + self.north) / 2)), 0.3))


def draw(picture: Picture, out: Path) -> None:
    """Draw ``picture`` to ``out``, whose suffix says how.

    Raises
    ------
    DeclarationError
        There is no such colour map.
    AccessError
        The file cannot be written.
    """
    if picture.cmap not in colormaps:
        raise DeclarationError(f"matplotlib has no colour map {picture.cmap!r}", kind="picture")
    longitudes, latitudes = outlines(picture.cells.words, picture.cells.order)
    view = _globe() if picture.whole_globe else _fit(longitudes, latitudes)
    figure, axes, side = _frame(view)
    _add_nodes(axes, picture.nodes, view)
    mapped = _add_cells(axes, picture, longitudes, latitudes, view)
    _finish_axes(axes, view)
    _add_titles(figure, axes, picture)
    if picture.categories is None:
        _add_bar(figure, side, mapped, picture)
    else:
        _add_legend(side, picture)
    try:
        figure.savefig(out, dpi=_DPI, metadata={"Date": None} if out.suffix.lower() == ".svg" else None)
    except OSError as error:
        raise AccessError(
            f"cannot write the picture {out}: {error.strerror or error}", kind="picture"
        ) from error


def _globe() -> _View:
    return _View(west=-180, east=180, south=-90, north=90)


def _fit(longitudes: NDArray[np.float64], latitudes: NDArray[np.float64]) -> _View:
    """The data's extent with a margin; the widest empty stretch of longitudes is left out."""
    west, east = _span(longitudes.min(axis=1), longitudes.max(axis=1))
    south, north = float(latitudes.min()), float(latitudes.max())
    margin = max(0.04 * max(east - west, north - south), 0.02)
    if east - west + 2 * margin >= 330:
        west, east = -180.0, 180.0
    else:
        west, east = west - margin, east + margin
    return _View(west=west, east=east, south=max(south - margin, -90.0), north=min(north + margin, 90.0))


def _span(west: NDArray[np.float64], east: NDArray[np.float64]) -> tuple[float, float]:
    start = west % 360
    sequence = np.argsort(start)
    start, stop = start[sequence], (start + (east - west))[sequence]
    reach = np.maximum.accumulate(stop)
    gaps = np.append(start[1:], start[0] + 360) - reach
    widest = int(np.argmax(gaps))
    if gaps[widest] <= 0:
        return -180.0, 180.0
    first = float(start[(widest + 1) % len(start)])
    last = first + 360 - float(gaps[widest])
    shift = 360 * np.floor(((first + last) / 2 + 180) / 360)
    return first - float(shift), last - float(shift)


def _frame(view: _View) -> tuple[Figure, Axes, Axes]:
    """A figure as tall as the view needs: the map, and room at its right for a scale."""
    map_width = _WIDTH_IN - 1.9
    ratio = view.aspect * (view.north - view.south) / (view.east - view.west)
    map_height = float(np.clip(map_width * ratio, 2.2, 9.0))
    height = map_height + 1.25
    figure = Figure(figsize=(_WIDTH_IN, height), facecolor="white")
    bottom, tall = 0.45 / height, map_height / height
    axes = figure.add_axes((0.65 / _WIDTH_IN, bottom, map_width / _WIDTH_IN, tall))
    side = figure.add_axes(((0.65 + map_width + 0.2) / _WIDTH_IN, bottom, 0.16 / _WIDTH_IN, tall))
    return figure, axes, side


def _polygons(
    longitudes: NDArray[np.float64], latitudes: NDArray[np.float64], view: _View
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Outlines once for each turn of the globe in which the view shows them, and whose they are."""
    shapes, owners = [], []
    west, east = longitudes.min(axis=1), longitudes.max(axis=1)
    for turn in (-360.0, 0.0, 360.0):
        seen = np.flatnonzero((east + turn > view.west) & (west + turn < view.east))
        shapes.append(np.stack([longitudes[seen] + turn, latitudes[seen]], axis=-1))
        owners.append(seen)
    return np.concatenate(shapes), np.concatenate(owners)


def _add_nodes(axes: Axes, nodes: Layer, view: _View) -> None:
    shapes, _ = _polygons(*outlines(nodes.words, nodes.order), view)
    axes.add_collection(
        PolyCollection(
            list(shapes), facecolors=_LAND_OF_NODES, edgecolors="#dde2e7", linewidths=0.4, zorder=1
        )
    )


def _add_cells(
    axes: Axes,
    picture: Picture,
    longitudes: NDArray[np.float64],
    latitudes: NDArray[np.float64],
    view: _View,
) -> PolyCollection:
    shapes, owners = _polygons(longitudes, latitudes, view)
    colours: dict[str, Any]
    if picture.categories is None:
        colours = {"cmap": picture.cmap, "norm": Normalize(*_range(picture.values))}
    else:
        n_categories = len(picture.categories)
        colours = {
            "cmap": ListedColormap(list(_LANE_COLOURS[:n_categories])),
            "norm": BoundaryNorm(np.arange(n_categories + 1) - 0.5, n_categories),
        }
    cells = PolyCollection(
        list(shapes),
        array=picture.values[owners],
        edgecolors="face",  # closes the seams that antialiasing leaves between neighbours
        linewidths=0.3,
        zorder=2,
        rasterized=len(shapes) > _MANY,
        **colours,
    )
    axes.add_collection(cells)
    return cells


def _range(values: NDArray[np.float64]) -> tuple[float, float]:
    if len(values) < _TRIMMED:
        low, high = float(values.min()), float(values.max())
    else:
        low, high = map(float, np.quantile(values, [0.02, 0.98]))
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _finish_axes(axes: Axes, view: _View) -> None:
    axes.set_xlim(view.west, view.east)
    axes.set_ylim(view.south, view.north)
    axes.set_facecolor("white")
    axes.set_axisbelow(False)
    axes.xaxis.set_major_locator(MultipleLocator(_step(view.east - view.west)))
    axes.yaxis.set_major_locator(MultipleLocator(_step(view.north - view.south)))
    axes.xaxis.set_major_formatter(FuncFormatter(_degrees("E", "W")))
    axes.yaxis.set_major_formatter(FuncFormatter(_degrees("N", "S")))
    axes.grid(color=_GRID, linewidth=0.5, alpha=0.7, zorder=3)
    axes.tick_params(length=0, labelsize=8, colors=_FAINT)
    for spine in axes.spines.values():
        spine.set(color=_GRID, linewidth=0.8)


def _step(span: float) -> float:
    """Degrees between grid lines: round ones, of which four or more fit into ``span``."""
    if span >= 4:
        return next(step for step in (60.0, 30.0, 15.0, 10.0, 5.0, 2.0, 1.0) if span / step >= 4)
    decade = 10.0 ** np.floor(np.log10(span / 4))
    return float(max(step for step in (1, 2, 5) if step * decade <= span / 4) * decade)


def _degrees(positive: str, negative: str) -> Any:
    def spell(value: float, _place: int) -> str:
        turned = (value + 180) % 360 - 180 if positive == "E" else value
        mark = "" if turned in (0, -180) else positive if turned > 0 else negative
        return f"{round(abs(turned), 6):g}°{mark}"

    return spell


def _add_titles(figure: Figure, axes: Axes, picture: Picture) -> None:
    left, top = axes.get_position().x0, axes.get_position().y1
    height = figure.get_size_inches()[1]
    figure.text(
        left, top + 0.36 / height, picture.title, fontsize=13, fontweight="bold", color=_INK, va="bottom"
    )
    figure.text(left, top + 0.12 / height, picture.subtitle, fontsize=9, color=_FAINT, va="bottom")


def _add_bar(figure: Figure, side: Axes, mapped: PolyCollection, picture: Picture) -> None:
    low, high = mapped.get_clim()
    assert low is not None
    assert high is not None
    below, above = bool(picture.values.min() < low), bool(picture.values.max() > high)
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get((below, above), "neither")
    bar = figure.colorbar(mapped, cax=side, extend=extend)
    bar.set_label(picture.label, fontsize=9, color=_INK)
    bar.ax.tick_params(labelsize=8, length=2, colors=_FAINT)
    bar.outline.set_visible(False)


def _add_legend(side: Axes, picture: Picture) -> None:
    assert picture.categories is not None
    side.set_axis_off()
    present = np.unique(picture.values).astype(int).tolist()
    patches = [Patch(color=_LANE_COLOURS[place], label=picture.categories[place]) for place in present]
    side.legend(
        handles=patches,
        title=picture.label.replace(", ", "\n"),
        loc="upper left",
        bbox_to_anchor=(-0.6, 1.0),
        frameon=False,
        fontsize=8,
        title_fontsize=8,
        alignment="left",
        handlelength=1,
        handleheight=1,
    )
