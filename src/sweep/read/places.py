"""Which levels, windows and nodes a store offers to a reader.

Source: format 2.1 (levels), 1.4 (stems), 8 (coverage); semantics 2.1, 2.5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from sweep.artifacts.coverage import load_coverage
from sweep.artifacts.manifest_io import read_manifest
from sweep.control.discovery import DiscoveredLeaves, discover_leaves
from sweep.errors import DeclarationError
from sweep.model.keys import column_key, overview_key
from sweep.model.ladder import Level
from sweep.model.manifest import Manifest
from sweep.model.nodes import BASES, Words, is_decimal, path_of, words_of
from sweep.model.windows import ALL, is_label
from sweep.plan.planner import candidates
from sweep.plan.runs import distinct_ancestors
from sweep.plan.scope import admit, parse_scope
from sweep.store.base import ObjectStore
from sweep.store.io import map_calls

__all__ = [
    "EARTH_RADIUS_KM",
    "Catalogue",
    "Rung",
    "cell_km",
    "km_text",
    "read_catalogue",
    "windows_of",
]

EARTH_RADIUS_KM = 6371.0088
"""Mean radius of the WGS84 ellipsoid, (2a + b) / 3."""

_COLUMN_DIR = re.compile(r"[0-9A-Za-z-]{1,32}\.pyramid\.zarr")


def cell_km(order: int) -> float:
    """The side of a square as large as a cell of ``order``, in km: every cell has one area."""
    return float(np.sqrt(4 * np.pi / (12 * 4**order)) * EARTH_RADIUS_KM)


def km_text(km: float) -> str:
    """A length as people read it."""
    return f"{km:,.0f} km" if km >= 100 else f"{km:.3g} km"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One level that can be opened: an overview of the ladder, or a resolution of the leaf columns."""

    level: Level
    is_leaf: bool

    @property
    def block_name(self) -> str:
        """The provenance block of its artifacts."""
        return "zagg_column" if self.is_leaf else "zagg_overview"

    def key(self, node: str, stem: str) -> str:
        """The zarr root of one node's artifact."""
        return column_key(node, stem) if self.is_leaf else overview_key(node, stem)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Catalogue:
    """What there is to open in one store.

    Attributes
    ----------
    store : ObjectStore
    manifest : Manifest
    shards : ndarray of uint64, shape (n_shards,)
        Sorted: what run records and root coverage name; where neither names any, what
        a walk of the directories finds.
    windows : tuple of str
        Labels seen, sorted; empty on an unwindowed store.
    """

    store: ObjectStore
    manifest: Manifest
    shards: Words
    windows: tuple[str, ...]

    def rungs(self) -> tuple[Rung, ...]:
        """Every level, finest first."""
        ladder = self.manifest.ladder
        leaves = [
            Rung(level=Level(node_order=ladder.shard_order, cell_order=cell_order), is_leaf=True)
            for cell_order in ladder.leaf_members()
        ]
        return (*leaves, *(Rung(level=level, is_leaf=False) for level in ladder.levels))

    def rung(self, node_order: int, cell_order: int | None = None) -> Rung:
        """The level of ``node_order``; at the shard order the finest one, or that of ``cell_order``.

        Raises
        ------
        DeclarationError
            There is no such level; the message lists those there are.
        """
        rungs = self.rungs()
        for rung in rungs:
            if rung.level.node_order == node_order and cell_order in (None, rung.level.cell_order):
                return rung
        known = ", ".join(f"{rung.level.node_order} (cells {rung.level.cell_order})" for rung in rungs)
        wanted = f"level {node_order!r}" + ("" if cell_order is None else f" with cells {cell_order!r}")
        raise DeclarationError(
            f"{self.store.root} declares no {wanted}; its levels, by node order, are {known}",
            kind="level",
            key=self.store.root,
        )

    def stem(self, window: str | None, rung: Rung) -> str:
        """The base name of a window's artifacts; None is the whole of time.

        Raises
        ------
        DeclarationError
            The store has no such window, or holds no artifact of the whole of time there.
        """
        known = (
            f"its windows are {', '.join(self.windows) or 'not recorded'}, and {ALL} for their all-time fold"
        )
        if not self.manifest.is_windowed:
            if window in (None, ALL):
                return ALL
            raise self._no_window(f"window {window!r} asked of a store without windows: leave it out")
        if window not in (None, ALL):
            if window in self.windows or (not self.windows and is_label(window)):
                return str(window)
            raise self._no_window(f"there is no window {window!r}; {known}")
        if rung.is_leaf:
            raise self._no_window(f"leaves hold one window each: name one; {known}")
        if not self.manifest.closes:
            raise self._no_window(f"no all-time fold is declared: name a window; {known}")
        return ALL

    def _no_window(self, problem: str) -> DeclarationError:
        return DeclarationError(f"{self.store.root}: {problem}", kind="window", key=self.store.root)

    def nodes(self, rung: Rung, scope: object = None) -> Words:
        """The nodes of a level that have leaves beneath, sorted.

        ``scope`` is None for all of them, or what
        :func:`~sweep.plan.scope.parse_scope` reads.
        """
        nodes = distinct_ancestors(self.shards, rung.level.node_order)
        return nodes[admit(nodes, parse_scope(scope))]


def read_catalogue(store: ObjectStore) -> Catalogue:
    """Read what a store declares and which shards it holds.

    Raises
    ------
    DeclarationError
        It is no store that a sweep reads (format 2.4).
    AccessError, StoreUnavailableError
        The store does not give its root objects.
    """
    manifest = read_manifest(store)
    found = discover_leaves(store, manifest)
    coverage = load_coverage(store, manifest.shard_order)
    shards = candidates(found.work, None if coverage is None else coverage.words)
    windows = windows_of(manifest, found)
    if len(shards) == 0:
        shards, walked = _walk(store, manifest)
        windows = tuple(sorted({*windows, *walked})) if manifest.is_windowed else ()
    return Catalogue(store=store, manifest=manifest, shards=shards, windows=windows)


def windows_of(manifest: Manifest, found: DiscoveredLeaves) -> tuple[str, ...]:
    """The labels of the recorded leaves that can name a window."""
    return tuple(filter(is_label, found.work.labels)) if manifest.is_windowed else ()


def _walk(store: ObjectStore, manifest: Manifest) -> tuple[Words, set[str]]:
    """Shards and labels found in the directories: one listing for each node."""
    nodes = list(BASES)
    for _ in range(manifest.shard_order):
        listed = map_calls(store, lambda node: store.list_dir(path_of(node)).prefixes, nodes)
        nodes = [
            child
            for node, prefixes in zip(nodes, listed, strict=True)
            for prefix in prefixes
            if is_decimal(child := node + prefix.rsplit("/", 1)[-1])
        ]
    listed = map_calls(store, lambda node: store.list_dir(path_of(node)).prefixes, nodes)
    names = [[prefix.rsplit("/", 1)[-1] for prefix in prefixes] for prefixes in listed]
    labels = {
        name.removesuffix(".pyramid.zarr") for each in names for name in each if _COLUMN_DIR.fullmatch(name)
    }
    held = [node for node, each in zip(nodes, names, strict=True) if any(map(_COLUMN_DIR.fullmatch, each))]
    return np.sort(words_of(held)), {label for label in labels if is_label(label)}
