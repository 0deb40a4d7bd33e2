"""The declared levels above the shard, and how each is folded.

Source: format 2.1 (the list), 2.3 (raw-fold boundary), 3.1 (column members);
semantics 3.1, 3.5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Ladder", "Level", "Regime"]

type Regime = Literal["stage-gather", "stage-merge"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Level:
    """One rung: nodes at ``node_order`` hold cells of ``cell_order``."""

    node_order: int
    cell_order: int

    @property
    def n_cells(self) -> int:
        """Cells of one node."""
        return 1 << (2 * (self.cell_order - self.node_order))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The declaration of one store.

    ``levels`` holds the entries above the shard, finest first; ``leaf_cells`` the cells
    of the entries at the shard order and below it, as declared.
    """

    shard_order: int
    cell_order: int
    leaf_cells: tuple[int, ...]
    levels: tuple[Level, ...]

    def level_at(self, node_order: int) -> Level | None:
        """The level of ``node_order``, or None where none is declared."""
        return next((level for level in self.levels if level.node_order == node_order), None)

    def levels_in(self, orders: Iterable[int]) -> tuple[Level, ...]:
        """The declared levels among ``orders``, finest first."""
        wanted = set(orders)
        return tuple(level for level in self.levels if level.node_order in wanted)

    def is_gather(self, level: Level) -> bool:
        """Whether a level copies cells of columns instead of merging finer overviews."""
        return level.cell_order >= self.shard_order

    def regime(self, level: Level) -> Regime:
        """What an overview of ``level`` records of how it was folded."""
        return "stage-gather" if self.is_gather(level) else "stage-merge"

    def merge_source(self, level: Level) -> Level | None:
        """The level whose overviews a merge level folds: the nearest finer one."""
        return next((finer for finer in reversed(self.levels) if finer.node_order > level.node_order), None)

    def stage_members(self, dispatch_order: int) -> tuple[int, ...]:
        """The resolutions of the stage column of a node at ``dispatch_order``, finest first."""
        if dispatch_order == 0:
            return ()
        cells = {
            level.cell_order
            for level in self.levels
            if level.node_order < dispatch_order and level.cell_order >= self.shard_order
        }
        return tuple(sorted(cells, reverse=True))

    def leaf_members(self) -> tuple[int, ...]:
        """The resolutions of a leaf column, finest first."""
        cells = {*self.leaf_cells, *(level.cell_order for level in self.levels)}
        return tuple(sorted({c for c in cells if c >= self.shard_order} | {self.shard_order}, reverse=True))

    def leaf_merges_from_raw(self) -> int:
        """Depth that the leaf entry's actuals record."""
        boundary = self.shard_order + 2
        if boundary >= self.cell_order or boundary not in self.leaf_members():
            return 1
        return max((2 if cells < boundary else 1 for cells in self.leaf_cells), default=1)

    def problems(self) -> list[str]:
        """What makes this ladder impossible to fold; empty when it is sound."""
        found = []
        for level in self.levels:
            where = f"overviews entry node {level.node_order}, cells [{level.cell_order}]"
            if level.cell_order < level.node_order:
                found.append(f"{where}: cells coarser than the node")
            elif level.cell_order > self.cell_order:
                found.append(f"{where}: cells finer than the data (cell_order {self.cell_order})")
            elif not self.is_gather(level):
                found += self._merge_problems(level, where)
        return found

    def _merge_problems(self, level: Level, where: str) -> list[str]:
        source = self.merge_source(level)
        if source is None:
            return [
                f"{where}: malformed declaration, a merge level (cells below shard_order "
                f"{self.shard_order}) needs a finer ladder level to fold, and none is declared"
            ]
        if source.cell_order < level.cell_order:
            return [
                f"{where}: malformed declaration, its source level node {source.node_order} has coarser "
                f"cells [{source.cell_order}]"
            ]
        return []
