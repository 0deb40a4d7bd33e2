"""The cells of one resolution of one node, held in memory.

Source: format 4.2 (populated cells), 5.4 (fill).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweep.fold.exact import is_missing
from sweep.fold.ragged import Ragged, concat
from sweep.model.fields import ArraySpec

__all__ = ["Cells", "LevelData", "assemble", "join_blocks", "slice_cells"]

type Cells = NDArray[Any] | Ragged
"""The values of a run of cells: a dense array, or one byte string per cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelData:
    """Every array of one resolution group but ``morton``, by array name."""

    n_cells: int
    arrays: Mapping[str, Cells]

    def populated(self, specs: Iterable[ArraySpec]) -> int:
        """The number of cells in which any array holds data."""
        mask = np.zeros(self.n_cells, dtype=np.bool_)
        for spec in specs:
            cells = self.arrays[spec.name]
            mask |= cells.lengths() > 0 if isinstance(cells, Ragged) else ~is_missing(cells, spec.fill)
        return int(mask.sum())


def slice_cells(cells: Cells, start: int, stop: int) -> Cells:
    """Cells ``start`` to ``stop`` (exclusive), without a copy where possible."""
    return cells.slice(start, stop) if isinstance(cells, Ragged) else cells[start:stop]


def assemble(spec: ArraySpec, n_cells: int, parts: Sequence[tuple[int, int, Cells | None]]) -> Cells:
    """One vector of ``n_cells`` from parts ``(start, stop, cells)`` in ascending order.

    What no part covers, and a part whose array is absent (None), is fill.
    """
    if not spec.is_ragged:
        dense = np.full(n_cells, spec.fill, dtype=spec.dtype)
        for start, stop, cells in parts:
            if cells is not None:
                dense[start:stop] = cells
        return dense
    ragged: list[Ragged] = []
    at = 0
    for start, stop, cells in parts:
        if isinstance(cells, Ragged):
            if start > at:
                ragged.append(Ragged.empty(start - at))
            ragged.append(cells)
            at = stop
    if at < n_cells:
        ragged.append(Ragged.empty(n_cells - at))
    return concat(ragged)


def join_blocks(specs: Iterable[ArraySpec], blocks: Sequence[Mapping[str, Cells]], n_cells: int) -> LevelData:
    """One level from its blocks of consecutive cells."""
    arrays: dict[str, Cells] = {}
    for spec in specs:
        pieces = [block[spec.name] for block in blocks]
        if spec.is_ragged:
            arrays[spec.name] = concat([piece for piece in pieces if isinstance(piece, Ragged)])
        else:
            dense = [piece for piece in pieces if not isinstance(piece, Ragged)]
            arrays[spec.name] = dense[0] if len(dense) == 1 else np.concatenate(dense)
    return LevelData(n_cells=n_cells, arrays=arrays)
