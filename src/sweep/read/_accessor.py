"""The accessor ``.sweep`` of Datasets: what a digest or a composition says.

Imported when a level is first opened, for xarray is an optional extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray

from sweep.errors import DeclarationError
from sweep.model.fields import LANES
from sweep.model.nodes import word_of
from sweep.read.cells import lanes_of
from sweep.read.digests import DigestArray

__all__ = ["SweepAccessor"]


@xarray.register_dataset_accessor("sweep")  # type: ignore[no-untyped-call]
class SweepAccessor:
    """Digest and composition fields of a level.

    Parameters
    ----------
    dataset : xarray.Dataset
        As :func:`~sweep.read.level.open_level` gives it, or any selection of its cells.
    """

    def __init__(self, dataset: xarray.Dataset) -> None:
        self._dataset = dataset

    def quantile(self, field: str, q: float | Sequence[float]) -> xarray.DataArray:
        """The quantile of a digest field in each cell; NaN where a cell is empty.

        Parameters
        ----------
        field : str
        q : float or sequence of float
            From 0 to 1. A sequence adds the dimension ``quantile``.

        Raises
        ------
        DeclarationError
            It is no digest field, or a ``q`` is out of range.

        Notes
        -----
        Linear between the midpoints of centroids, constant beyond the outer ones: see
        :mod:`sweep.read.digests`.
        """
        digests, dims = self._digests(field)
        values = digests.quantile(q)
        has_many = values.ndim > 1
        coords = self._coords(field)
        coords["quantile"] = ("quantile", np.asarray(q, dtype=np.float64)) if has_many else q
        return xarray.DataArray(
            values if dims else values[0],
            coords,
            (*dims, "quantile") if has_many else dims,
            name=field,
            attrs={"long_name": f"quantile of {field}"},
        )

    def count(self, field: str) -> xarray.DataArray:
        """The total weight of a digest field in each cell: its observations, or its flux."""
        digests, dims = self._digests(field)
        counts = digests.counts()
        return xarray.DataArray(
            counts if dims else counts[0],
            self._coords(field),
            dims,
            name=field,
            attrs={"long_name": f"total weight of {field}"},
        )

    def digest(self, field: str, cell: int | str) -> NDArray[np.floating[Any]]:
        """The centroids of one cell: columns mean and weight, shape (n_centroids, 2).

        Parameters
        ----------
        field : str
        cell : int or str
            Packed word or decimal.

        Raises
        ------
        DeclarationError
            It is no digest field, or there is no such cell here.
        """
        digests, _ = self._digests(field)
        word = word_of(cell) if isinstance(cell, str) else int(cell)
        places = np.flatnonzero(np.atleast_1d(self._dataset["morton"].values) == np.uint64(word))
        if len(places) == 0:
            raise DeclarationError(
                f"cell {cell!r} is not in this Dataset: expected one of the words or decimals of its "
                "coordinate morton",
                kind="cell",
            )
        return digests.rows(int(places[0]))

    def lanes(self, field: str) -> xarray.DataArray:
        """The lanes of a composition field in each cell, 0 to 255 for none to all, uint8.

        Raises
        ------
        DeclarationError
            It is no composition field.
        """
        variable = self._variable(field)
        if variable.attrs.get("class") != "packed":
            raise self._other(field, "packed", "composition")
        values = lanes_of(np.asarray(variable.values, dtype=np.uint64))
        coords = {**self._coords(field), "lane": list(LANES)}
        return xarray.DataArray(values, coords, (*variable.dims, "lane"), name=field)

    def _coords(self, field: str) -> dict[Any, Any]:
        return dict(self._dataset[field].coords)

    def _variable(self, field: str) -> xarray.Variable:
        if field not in self._dataset.data_vars:
            known = ", ".join(map(str, self._dataset.data_vars)) or "none"
            raise DeclarationError(f"this Dataset has no field {field!r}; it has {known}", kind="field")
        return self._dataset[field].variable

    def _digests(self, field: str) -> tuple[DigestArray, tuple[Any, ...]]:
        variable = self._variable(field)
        if variable.attrs.get("class") != "approximate":
            raise self._other(field, "approximate", "digest")
        if isinstance(variable.data, DigestArray):
            return variable.data, variable.dims
        # One cell was selected: an array of no dimension that holds its rows.
        return DigestArray.single(variable.values.item()), ()

    def _other(self, field: str, wanted: str, kind: str) -> DeclarationError:
        fitting = [
            str(name) for name, each in self._dataset.data_vars.items() if each.attrs.get("class") == wanted
        ]
        return DeclarationError(
            f"{field!r} is no {kind} field; here these are {', '.join(fitting) or 'none'}", kind="field"
        )
