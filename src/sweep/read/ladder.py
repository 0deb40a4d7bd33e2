"""The levels of a store, listed for a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from sweep.model.windows import ALL
from sweep.read.level import level_dataset
from sweep.read.places import Catalogue, cell_km, km_text, read_catalogue
from sweep.store.open import StoreLike, StoreOptions, as_store

if TYPE_CHECKING:
    import xarray

__all__ = ["LadderView", "LevelRow", "open_ladder"]

_HEADINGS = ("order", "cells", "cell size", "nodes", "held in", "windows")


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRow:
    """One level that :meth:`LadderView.open` opens.

    Attributes
    ----------
    node_order, cell_order : int
    cell_km : float
        Side of a square as large as a cell.
    n_nodes : int
        Nodes with leaves beneath.
    is_leaf : bool
        It is a resolution of the leaf columns, not a level above them.
    windows : tuple of str
        What ``window`` may be; empty on an unwindowed store, with ``all`` last where the
        store declares an all-time fold.
    """

    node_order: int
    cell_order: int
    cell_km: float
    n_nodes: int
    is_leaf: bool
    windows: tuple[str, ...]

    def texts(self) -> tuple[str, ...]:
        """The row as it is shown."""
        return (
            str(self.node_order),
            str(self.cell_order),
            km_text(self.cell_km),
            f"{self.n_nodes:,}",
            "leaf columns" if self.is_leaf else "overviews",
            ", ".join(self.windows) or "-",
        )


class LadderView:
    """The levels of one store, finest first: iterate, index, or open one.

    Attributes
    ----------
    name : str or None
        The dataset's name.
    root : str
    fields : tuple of str
    rows : tuple of LevelRow
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.name = catalogue.manifest.name
        self.root = catalogue.store.root
        self.fields = tuple(each.name for each in catalogue.manifest.fields)
        self.rows = tuple(_rows(catalogue))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[LevelRow]:
        return iter(self.rows)

    def __getitem__(self, place: int) -> LevelRow:
        return self.rows[place]

    def __repr__(self) -> str:
        table = [_HEADINGS, *(row.texts() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        ]
        return "\n".join([self._title(), *lines, f"fields: {', '.join(self.fields)}"])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(text)}</th>" for text in _HEADINGS)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row.texts()) + "</tr>"
            for row in self.rows
        )
        return (
            f"<p><b>{escape(self._title())}</b></p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<p>fields: {escape(', '.join(self.fields))}</p>"
        )

    def _title(self) -> str:
        return f"{self.name or 'unnamed store'}, {len(self.rows)} levels ({self.root})"

    def open(
        self,
        order: int,
        window: str | None = None,
        *,
        fields: Iterable[str] | None = None,
        nodes: Any = None,
        cell_order: int | None = None,
        skip_unreadable: bool = False,
    ) -> xarray.Dataset:
        """Open one level, as :func:`~sweep.read.level.open_level` does."""
        return level_dataset(
            self._catalogue,
            order,
            window,
            fields=fields,
            nodes=nodes,
            cell_order=cell_order,
            skip_unreadable=skip_unreadable,
        )


def _rows(catalogue: Catalogue) -> Iterator[LevelRow]:
    for rung in catalogue.rungs():
        all_time = (ALL,) if catalogue.manifest.closes and not rung.is_leaf else ()
        yield LevelRow(
            node_order=rung.level.node_order,
            cell_order=rung.level.cell_order,
            cell_km=cell_km(rung.level.cell_order),
            n_nodes=len(catalogue.nodes(rung)),
            is_leaf=rung.is_leaf,
            windows=(*catalogue.windows, *all_time) if catalogue.manifest.is_windowed else (),
        )


def open_ladder(store: StoreLike, *, options: StoreOptions | None = None) -> LadderView:
    """List the levels of a store.

    Parameters
    ----------
    store : str, path or ObjectStore
        A folder, ``file://``, ``s3://bucket/prefix``, or a store that is open already.
    options : StoreOptions, optional
        How to reach an address on S3.

    Raises
    ------
    DeclarationError
        It is no store that a sweep reads.
    AccessError, StoreUnavailableError
        The store cannot be reached.

    Notes
    -----
    Reads the manifest, the run records and the root coverage, and no artifact.
    """
    return LadderView(read_catalogue(as_store(store, options)))
