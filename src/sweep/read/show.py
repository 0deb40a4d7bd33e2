"""One level of a store drawn as a map."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sweep.errors import DeclarationError
from sweep.fold.exact import is_missing
from sweep.fold.ragged import Ragged
from sweep.model.fields import LANES, DigestField, ExactField, Field, PackedField
from sweep.read.cells import LevelCells, choose_fields, lanes_of, read_level
from sweep.read.digests import DigestArray
from sweep.read.places import Catalogue, cell_km, km_text, read_catalogue
from sweep.store.base import ObjectStore
from sweep.system import import_extra

__all__ = ["DrawnLevel", "draw_level"]

_SUFFIXES = (".png", ".svg", ".pdf")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLevel:
    """What a map shows.

    Attributes
    ----------
    out : Path
    node_order, cell_order : int
    n_nodes : int
        Nodes whose artifact stands.
    n_cells : int
        Cells of these nodes.
    n_with_data : int
        Cells drawn.
    low, high : float or None
        The range of the values drawn; None where they have no order, or there are none.
    n_missing, n_unreadable : int
        Nodes with leaves beneath that were left out: no artifact, or one that is damaged.
    """

    out: Path
    node_order: int
    cell_order: int
    n_nodes: int
    n_cells: int
    n_with_data: int
    low: float | None
    high: float | None
    n_missing: int
    n_unreadable: int


def draw_level(
    store: ObjectStore,
    *,
    level: int,
    field: str,
    out: Path,
    window: str | None = None,
    quantile: float | None = None,
    lane: str | None = None,
    whole_globe: bool = False,
    cmap: str = "viridis",
) -> DrawnLevel:
    """Draw one level as a map of longitudes and latitudes.

    Parameters
    ----------
    store : ObjectStore
    level : int
        Node order; the shard order draws the leaf columns at their finest resolution.
    field : str
        Drawn as it is where it is exact, by ``quantile`` where it is a digest; of a
        composition the strongest lane, or the share of ``lane``.
    out : Path
        ``.png``, ``.svg`` or ``.pdf``.
    window : str, optional
        None is the whole store, or the all-time fold of a windowed one.
    quantile : float, optional
        From 0 to 1, of a digest field; the median where None.
    lane : str, optional
        One of :data:`~sweep.model.fields.LANES`.
    whole_globe : bool
        Draw the globe, not only where there is data.
    cmap : str
        Name of a matplotlib colour map.

    Raises
    ------
    DeclarationError
        No such level, field, window or lane; nothing to draw; ``out`` cannot be written
        there; or matplotlib is missing.
    AccessError, StoreUnavailableError
        The store does not answer.

    Notes
    -----
    Colours span the values from the 2nd to the 98th hundredth of the cells drawn, so that a
    few extremes do not flatten the rest; arrows on the colour bar say so. Holds the field's
    cells and some hundred bytes for each cell with data.
    """
    _check_out(out)
    if quantile is not None:
        _check_quantile(quantile)
    import_extra("matplotlib", "show")
    # Optional extra, and slow to load: only a drawing needs it.
    from sweep.read._map import Layer, Picture, draw

    catalogue = read_catalogue(store)
    rung = catalogue.rung(level)
    stem = catalogue.stem(window, rung)
    (chosen,) = choose_fields(catalogue, [field])
    _check_lane(chosen, lane)
    if quantile is not None and not isinstance(chosen, DigestField):
        raise DeclarationError(f"field {field!r} has no quantiles: it is no digest", kind="quantile")
    quantile = 0.5 if quantile is None else quantile
    cells = read_level(catalogue, rung, stem, fields=[chosen], skip_unreadable=True)
    values, has_data = _values(chosen, cells, quantile, lane)
    if not has_data.any():
        raise _nothing(catalogue, cells, field)
    categories = LANES if isinstance(chosen, PackedField) and lane is None else None
    draw(
        Picture(
            title=catalogue.manifest.name or catalogue.store.root,
            subtitle=_subtitle(cells, catalogue),
            label=_label(chosen, quantile, lane),
            nodes=Layer(words=cells.nodes, order=rung.level.node_order),
            cells=Layer(words=cells.words[has_data], order=rung.level.cell_order),
            values=values[has_data],
            categories=categories,
            whole_globe=whole_globe,
            cmap=cmap,
        ),
        out,
    )
    shown = values[has_data]
    return DrawnLevel(
        out=out,
        node_order=rung.level.node_order,
        cell_order=rung.level.cell_order,
        n_nodes=len(cells.nodes),
        n_cells=len(cells.words),
        n_with_data=len(shown),
        low=None if categories else float(shown.min()),
        high=None if categories else float(shown.max()),
        n_missing=len(cells.missing),
        n_unreadable=len(cells.unreadable),
    )


def _check_out(out: Path) -> None:
    if out.suffix.lower() not in _SUFFIXES:
        raise DeclarationError(
            f"cannot draw to {out}: its name must end in {', '.join(_SUFFIXES)}", kind="picture"
        )
    if not out.absolute().parent.is_dir():
        raise DeclarationError(f"cannot draw to {out}: there is no folder {out.parent}", kind="picture")


def _check_quantile(quantile: float) -> None:
    if not 0 <= quantile <= 1:
        raise DeclarationError(f"quantile {quantile!r}, expected a number from 0 to 1", kind="quantile")


def _check_lane(field: Field, lane: str | None) -> None:
    if lane is None:
        return
    if not isinstance(field, PackedField):
        raise DeclarationError(f"lane {lane!r} was asked of {field.name}, which has no lanes", kind="lane")
    if lane not in LANES:
        raise DeclarationError(
            f"{field.name} has no lane {lane!r}; its lanes are {', '.join(LANES)}", kind="lane"
        )


def _values(
    field: Field, cells: LevelCells, quantile: float, lane: str | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The number to colour each cell by, and which cells have one."""
    raw = cells.arrays[field.name]
    match field:
        case DigestField():
            assert isinstance(raw, Ragged)
            values = DigestArray.from_ragged(raw, field.dtype).quantile(quantile)
            return values, np.isfinite(values)
        case ExactField():
            assert not isinstance(raw, Ragged)
            values = raw.astype(np.float64)
            return values, ~is_missing(raw, field.fill) & np.isfinite(values)
        case PackedField():
            assert not isinstance(raw, Ragged)
            lanes = lanes_of(raw)
            if lane is not None:
                return lanes[:, LANES.index(lane)] / 255, raw != field.fill
            return lanes.argmax(axis=1).astype(np.float64), raw != field.fill


def _label(field: Field, quantile: float, lane: str | None) -> str:
    match field:
        case DigestField():
            return f"{field.name}, " + ("median" if quantile == 0.5 else f"quantile {quantile:g}")
        case PackedField():
            return f"{field.name}, " + ("strongest lane" if lane is None else f"share of {lane}")
        case _:
            return field.name


def _subtitle(cells: LevelCells, catalogue: Catalogue) -> str:
    level = cells.rung.level
    size = km_text(cell_km(level.cell_order))
    parts = [f"level {level.node_order}", f"cells of order {level.cell_order}, {size}"]
    if catalogue.manifest.is_windowed:
        parts.append("all time" if cells.stem == "all" else f"window {cells.stem}")
    left_out = len(cells.missing) + len(cells.unreadable)
    if left_out:
        parts.append(f"{left_out} nodes left out")
    return "  ·  ".join(parts)


def _nothing(catalogue: Catalogue, cells: LevelCells, field: str) -> DeclarationError:
    where = f"{catalogue.store.root}, level {cells.rung.level.node_order}"
    if len(cells.nodes):
        seen = f"{len(cells.words)} cells of {len(cells.nodes)} nodes hold no value of {field}"
    elif cells.unreadable:
        seen = f"{len(cells.unreadable)} artifacts cannot be read ({cells.unreadable[0]}); sweep it again"
    else:
        seen = f"none of the {len(cells.missing)} nodes above leaves has an artifact; sweep the store first"
    return DeclarationError(f"{where}: nothing to draw, {seen}", kind="nothing-to-draw")
