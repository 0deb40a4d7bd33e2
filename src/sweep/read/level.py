"""One level of a store as an xarray Dataset.

Source: format 1.2 (words), 4.3 (DGGS attributes), 5 (arrays).
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweep.errors import ArtifactError, DeclarationError
from sweep.fold.ragged import Ragged
from sweep.model.fields import DigestField, ExactField, Field, PackedField
from sweep.model.nodes import Words
from sweep.read.cells import LevelCells, choose_fields, read_level
from sweep.read.digests import DigestArray
from sweep.read.places import Catalogue, read_catalogue
from sweep.store.open import StoreLike, StoreOptions, as_store
from sweep.system import import_extra

if TYPE_CHECKING:
    import xarray

__all__ = ["DIM", "level_dataset", "nested_ids", "open_level"]

DIM = "cells"
_ELLIPSOID = "WGS84"
_LATITUDE = "authalic-wgs84"


def open_level(
    store: StoreLike,
    order: int,
    window: str | None = None,
    *,
    fields: Iterable[str] | None = None,
    nodes: Any = None,
    cell_order: int | None = None,
    skip_unreadable: bool = False,
    options: StoreOptions | None = None,
) -> xarray.Dataset:
    """Open one level of a swept store.

    Parameters
    ----------
    store : str, path or ObjectStore
        A folder, ``file://``, ``s3://bucket/prefix``, or a store that is open already.
    order : int
        Node order of the level; :func:`~sweep.read.ladder.open_ladder` lists them. The shard
        order opens the leaf columns.
    window : str, optional
        A window's label. None is the whole store, or the all-time fold of a windowed one.
    fields : iterable of str, optional
        What to read; everything where None.
    nodes : optional
        Read only what lies in these nodes: decimals separated by commas, or an iterable of
        decimals or packed words, of any orders.
    cell_order : int, optional
        Which resolution of the leaf columns; the finest where None.
    skip_unreadable : bool
        Leave out artifacts that cannot be read (their number stands in the attribute
        ``n_unreadable``) instead of raising.
    options : StoreOptions, optional
        How to reach an address on S3.

    Returns
    -------
    xarray.Dataset
        Dimension ``cells``, sorted by word: all cells of every node that stands, those
        without data included. Coordinates ``morton`` (packed words, uint64) and ``cell_ids``
        (HEALPix NESTED, int64) with the attributes that ``xdggs.decode`` needs. Exact fields
        are arrays with their fill value where there is no data; digest fields are
        :class:`~sweep.read.digests.DigestArray`; composition fields are words. The accessor
        ``.sweep`` gives quantiles, counts and lanes.

    Raises
    ------
    DeclarationError
        No such store, level, window or field; nothing is swept there; or xarray is missing.
    ArtifactError
        An artifact cannot be read.
    AccessError, StoreUnavailableError
        The store cannot be reached.

    Notes
    -----
    Eager: holds every cell of the chosen fields (dense: the dtype's bytes for each cell;
    digests: eight bytes for each centroid, twice while they are read). ``fields`` and
    ``nodes`` bound it, and nothing else is fetched.
    """
    return level_dataset(
        read_catalogue(as_store(store, options)),
        order,
        window,
        fields=fields,
        nodes=nodes,
        cell_order=cell_order,
        skip_unreadable=skip_unreadable,
    )


def level_dataset(
    catalogue: Catalogue,
    order: int,
    window: str | None = None,
    *,
    fields: Iterable[str] | None = None,
    nodes: Any = None,
    cell_order: int | None = None,
    skip_unreadable: bool = False,
) -> xarray.Dataset:
    """A level of a store whose catalogue is read already; see :func:`open_level`."""
    xr = import_extra("xarray", "xarray")
    import_module("sweep.read._accessor")  # registers .sweep; not before, for xarray is an extra
    rung = catalogue.rung(order, cell_order)
    stem = catalogue.stem(window, rung)
    chosen = choose_fields(catalogue, fields)
    cells = read_level(catalogue, rung, stem, fields=chosen, scope=nodes, skip_unreadable=skip_unreadable)
    if len(cells.nodes) == 0 and nodes is None:
        raise _unswept(catalogue, cells, window)
    data = {each.name: (DIM, _values(each, cells), _attributes(each)) for each in chosen}
    coords = {
        "morton": (DIM, cells.words, {"long_name": "packed morton word of the cell"}),
        "cell_ids": (DIM, nested_ids(cells.words, rung.level.cell_order), _grid(rung.level.cell_order)),
    }
    return xr.Dataset(data, coords, _about(catalogue, cells))  # type: ignore[no-any-return]


def nested_ids(words: Words, order: int) -> NDArray[np.int64]:
    """HEALPix NESTED ids of words of one order: base cell and digits are numbered alike."""
    path = words >> np.uint64(60 - 2 * order)
    return (path - np.uint64(1 << (2 * order))).astype(np.int64)


def _values(each: Field, cells: LevelCells) -> Any:
    values = cells.arrays[each.name]
    if not isinstance(values, Ragged):
        return values
    assert isinstance(each, DigestField)
    try:
        return DigestArray.from_ragged(values, each.dtype)
    except ArtifactError as error:
        raise ArtifactError(f"field {each.name}: {error.message}", kind=error.kind) from error


def _attributes(each: Field) -> dict[str, Any]:
    match each:
        case ExactField():
            return {"class": "exact", "law": each.law, "fill_value": each.fill}
        case PackedField():
            return {"class": "packed", "law": each.method, "of": each.of, "fill_value": each.fill}
        case DigestField():
            return {"class": "approximate", "law": each.method, "weights": each.weights or "counts"}


def _grid(cell_order: int) -> dict[str, Any]:
    # These and no other: xdggs hands every attribute of the coordinate to its grid.
    return {
        "grid_name": "healpix",
        "level": cell_order,
        "indexing_scheme": "nested",
        "ellipsoid": _ELLIPSOID,
    }


def _about(catalogue: Catalogue, cells: LevelCells) -> dict[str, Any]:
    level = cells.rung.level
    about: dict[str, Any] = {
        "title": catalogue.manifest.name or "",
        "store": catalogue.store.root,
        "node_order": level.node_order,
        "cell_order": level.cell_order,
        "ellipsoid": _ELLIPSOID,
        "latitude": _LATITUDE,
        "latitude_note": "cells are HEALPix cells of the authalic sphere; geographic latitudes are geodetic",
        "n_nodes": len(cells.nodes),
        "n_missing": len(cells.missing),
        "n_unreadable": len(cells.unreadable),
    }
    if catalogue.manifest.is_windowed:
        about["window"] = cells.stem
    return about


def _unswept(catalogue: Catalogue, cells: LevelCells, window: str | None) -> DeclarationError:
    level = cells.rung.level
    where = f"level {level.node_order}" + ("" if window is None else f", window {window}")
    seen = f"{len(cells.missing)} nodes have leaves beneath, none has an artifact"
    if cells.unreadable:
        seen += f" that can be read ({cells.unreadable[0]})"
    return DeclarationError(
        f"{catalogue.store.root} holds nothing at {where}: {seen}; sweep the store first "
        "(sweep local STORE --scope all)",
        kind="unswept",
        key=catalogue.store.root,
    )
