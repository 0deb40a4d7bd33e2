"""Which artifacts of a store stand, and which no longer stand for their leaves.

An overview is *stale* where the number of leaves or the newest leaf stamp that it records
differs from what the leaf columns beneath it add up to now. That sees leaves that came, went or
were rewritten. It does not see an overview whose finer sources were folded again from the same
leaves, nor a lost node envelope, which a sweep does see; and a leaf rewritten under its old stamp,
or under one older than its neighbours', neither of them can tell.

Source: format 3.4 (states); semantics 2.5 (candidates), 7.1 (generation); docs/design/0007-reading.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweep.artifacts.source import Opened, StoredSource, Unreadable, open_sources
from sweep.model.keys import column_key, overview_key
from sweep.model.ladder import Level
from sweep.model.manifest import Manifest
from sweep.model.nodes import Words, ancestors, decimals_of
from sweep.model.provenance import Generation
from sweep.model.windows import ALL
from sweep.plan.leaves import WorkSet
from sweep.plan.runs import distinct_ancestors, run_starts
from sweep.store.base import ObjectStore

__all__ = ["Counts", "LeafCounts", "Survey", "survey"]

_AT_ONCE = 1024
_SUBTREES = 10
_NOT_OPENED, _MISSING, _UNREADABLE, _COMMITTED = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The overviews of one level and one window.

    Attributes
    ----------
    window : str
        Label, or ``all``.
    expected : int
        Nodes with leaves of that window beneath.
    checked : int
        Of these, how many were opened; all of them unless the survey is a sample.
    swept : int
        Of the checked, how many are committed: current, stale or not compared.
    compared, stale : int
        Of the swept, how many could be held against their leaves, and of these how many
        differ.
    missing : int
        Of the checked, how many are not there though a leaf column beneath is (or may be).
    empty : int
        Of the checked, how many are not there and have no leaf column to be made from.
    unreadable : int
        Of the checked, how many have a damaged root document.
    """

    window: str
    expected: int
    checked: int
    swept: int
    compared: int
    stale: int
    missing: int
    empty: int
    unreadable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafCounts:
    """The leaves that the run records name, and their columns.

    ``committed``, ``missing`` and ``unreadable`` add up to ``checked``, which is less than
    ``n_leaves`` where the survey is a sample.
    """

    n_leaves: int
    n_shards: int
    checked: int
    committed: int
    missing: int
    unreadable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found; ``levels`` pairs every level with its counts for each window."""

    leaves: LeafCounts
    levels: tuple[tuple[Level, tuple[Counts, ...]], ...]
    is_sample: bool
    n_opened: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Columns:
    """The leaf columns of one window at every candidate shard.

    ``n_leaves`` is what each adds to a generation; ``stamp`` numbers its newest leaf stamp,
    -1 where there is none.
    """

    state: NDArray[np.int8]
    n_leaves: NDArray[np.int64]
    stamp: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sample:
    """What to look at: every shard where ``keep`` is set, and every node above ``split``."""

    keep: NDArray[np.bool_]
    split: int


def survey(
    store: ObjectStore,
    manifest: Manifest,
    *,
    work: WorkSet,
    shards: Words,
    windows: Sequence[str],
    limit: int | None,
) -> Survey:
    """Open the root documents of leaf columns and overviews, and compare them.

    Parameters
    ----------
    store : ObjectStore
    manifest : Manifest
    work : WorkSet
        The recorded leaves.
    shards : ndarray of uint64, sorted
        Every candidate shard: the recorded and the covered.
    windows : sequence of str
        Labels; empty on an unwindowed store.
    limit : int or None
        About how many artifacts to open. Where there are more, whole subtrees spread evenly
        over the store are looked at, so that what is compared is compared in full.

    Raises
    ------
    StoreUnavailableError
        The store did not answer.

    Notes
    -----
    Holds some 20 bytes for each candidate shard and window, and a thousand documents at a time.
    """
    stems = tuple(windows) if manifest.is_windowed else (ALL,)
    sample = _sample(manifest, shards, len(stems), limit)
    surveyor = _Surveyor(store, shards, sample)
    recorded = {stem: _recorded(work, shards, stem if manifest.is_windowed else None) for stem in stems}
    columns = {stem: surveyor.columns(stem) for stem in stems}
    everything = np.ones(len(shards), dtype=np.bool_)
    levels = []
    for level in manifest.ladder.levels:
        rows = [
            surveyor.count(
                level, stem, recorded[stem] if manifest.is_windowed else everything, [columns[stem]]
            )
            for stem in stems
        ]
        if manifest.closes:
            rows.append(surveyor.count(level, ALL, everything, list(columns.values())))
        levels.append((level, tuple(rows)))
    return Survey(
        leaves=_leaf_counts(work, [each.state[recorded[stem]] for stem, each in columns.items()]),
        levels=tuple(levels),
        is_sample=not bool(sample.keep.all()),
        n_opened=surveyor.n_opened,
        problems=tuple(surveyor.problems),
    )


def _sample(manifest: Manifest, shards: Words, n_stems: int, limit: int | None) -> _Sample:
    everything = _Sample(keep=np.ones(len(shards), dtype=np.bool_), split=0)
    orders = [level.node_order for level in manifest.ladder.levels]
    n_overview_stems = n_stems + manifest.closes
    n_nodes = {k: len(distinct_ancestors(shards, k)) for k in (*orders, manifest.shard_order)}
    total = len(shards) * n_stems + sum(n_nodes[k] * n_overview_stems for k in orders)
    if limit is None or total <= limit:
        return everything
    depth = next(
        (k for k in sorted(n_nodes) if total / n_nodes[k] <= limit / _SUBTREES), manifest.shard_order
    )
    split, above = 0, 0
    for k in sorted(order for order in orders if order < depth):
        if above + n_nodes[k] * n_overview_stems > limit / 2:
            break
        split, above = k + 1, above + n_nodes[k] * n_overview_stems
    nodes = distinct_ancestors(shards, depth)
    n_picked = max(1, min(len(nodes), int((limit - above) / (total / len(nodes)))))
    picked = nodes[np.linspace(0, len(nodes) - 1, n_picked).astype(np.int64)]
    own = ancestors(shards, depth)
    keep = picked[np.minimum(np.searchsorted(picked, own), len(picked) - 1)] == own
    return _Sample(keep=keep, split=split)


def _recorded(work: WorkSet, shards: Words, label: str | None) -> NDArray[np.bool_]:
    """Which shards have a recorded leaf of a window (None: of any)."""
    words = work.words if label is None else work.words[work.codes == work.labels.index(label)]
    mask = np.zeros(len(shards), dtype=np.bool_)
    mask[np.searchsorted(shards, words)] = True
    return mask


def _leaf_counts(work: WorkSet, states: Sequence[NDArray[np.int8]]) -> LeafCounts:
    all_states = np.concatenate(states) if states else np.empty(0, dtype=np.int8)
    return LeafCounts(
        n_leaves=work.n_leaves,
        n_shards=len(work.shards()),
        checked=int((all_states != _NOT_OPENED).sum()),
        committed=int((all_states == _COMMITTED).sum()),
        missing=int((all_states == _MISSING).sum()),
        unreadable=int((all_states == _UNREADABLE).sum()),
    )


class _Surveyor:
    """Opens artifacts, and remembers what was wrong with them."""

    def __init__(self, store: ObjectStore, shards: Words, sample: _Sample) -> None:
        self.n_opened = 0
        self.problems: list[str] = []
        self._store = store
        self._shards = shards
        self._sample = sample
        self._stamps: dict[str, int] = {}

    def columns(self, stem: str) -> _Columns:
        """The leaf columns of a window."""
        n_shards = len(self._shards)
        columns = _Columns(
            state=np.full(n_shards, _NOT_OPENED, dtype=np.int8),
            n_leaves=np.zeros(n_shards, dtype=np.int64),
            stamp=np.full(n_shards, -1, dtype=np.int64),
        )
        places = np.flatnonzero(self._sample.keep)
        opened = self._open(self._shards[places], lambda node: column_key(node, stem), "zagg_column")
        for place, each in opened:
            shard = places[place]
            columns.state[shard] = _state(each)
            if isinstance(each, StoredSource):
                generation = each.generation()
                columns.n_leaves[shard] = generation.n_leaves
                if generation.max_leaf_timestamp is not None:
                    columns.stamp[shard] = self._stamps.setdefault(
                        generation.max_leaf_timestamp, len(self._stamps)
                    )
        return columns

    def count(
        self, level: Level, stem: str, wanted: NDArray[np.bool_], columns: Sequence[_Columns]
    ) -> Counts:
        """The overviews of a level and window; ``wanted`` are the shards that make nodes expected."""
        above = ancestors(self._shards, level.node_order)
        starts = run_starts(above)
        nodes, whole = above[starts], _reduce(np.logical_and, self._sample.keep, starts)
        n_leaves, newest, texts = self._beneath(columns, starts)
        expected = _reduce(np.logical_or, wanted, starts)
        places = np.flatnonzero(expected & (whole | (level.node_order < self._sample.split)))
        state = np.full(len(nodes), _NOT_OPENED, dtype=np.int8)
        stale = np.zeros(len(nodes), dtype=np.bool_)
        opened = self._open(nodes[places], lambda node: overview_key(node, stem), "zagg_overview")
        for place, each in opened:
            at = places[place]
            state[at] = _state(each)
            if isinstance(each, StoredSource):
                stamp = texts[newest[at]] if newest[at] >= 0 else None
                stale[at] = not _is_current(each, level, int(n_leaves[at]), stamp)
        absent, without_source = state == _MISSING, whole & (n_leaves == 0)
        return Counts(
            window=stem,
            expected=int(expected.sum()),
            checked=len(places),
            swept=int((state == _COMMITTED).sum()),
            compared=int((whole & (state == _COMMITTED)).sum()),
            stale=int((whole & stale).sum()),
            missing=int((absent & ~without_source).sum()),
            empty=int((absent & without_source).sum()),
            unreadable=int((state == _UNREADABLE).sum()),
        )

    def _open(
        self, nodes: Words, key_of: Callable[[str], str], block_name: str
    ) -> Iterator[tuple[int, Opened]]:
        """Each node's artifact with its place among ``nodes``, some at a time."""
        for first in range(0, len(nodes), _AT_ONCE):
            keys = [key_of(node) for node in decimals_of(nodes[first : first + _AT_ONCE])]
            opened = open_sources(self._store, keys, block_name)
            self.n_opened += len(opened)
            for place, each in enumerate(opened, start=first):
                if isinstance(each, Unreadable):
                    self.problems.append(f"{each.key}: {each.reason}")
                yield place, each

    def _beneath(
        self, columns: Sequence[_Columns], starts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
        """What the columns under each node add up to: leaves, and the newest stamp.

        Stamps are places in the sorted texts that come third, -1 where there is none.
        """
        # Stamps compare as text, so the numbers that were given them are ranked by it.
        texts = sorted(self._stamps)
        rank = np.full(len(texts) + 1, -1, dtype=np.int64)
        rank[[self._stamps[text] for text in texts]] = np.arange(len(texts))
        n_leaves = np.zeros(len(starts), dtype=np.int64)
        newest = np.full(len(starts), -1, dtype=np.int64)
        for each in columns:
            if len(starts):
                n_leaves += np.add.reduceat(each.n_leaves, starts)
                newest = np.maximum(newest, np.maximum.reduceat(rank[each.stamp], starts))
        return n_leaves, newest, texts


def _state(each: Opened) -> int:
    if isinstance(each, StoredSource):
        return _COMMITTED
    return _UNREADABLE if isinstance(each, Unreadable) else _MISSING


def _reduce(law: np.ufunc, values: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    if len(starts) == 0:
        return np.empty(0, dtype=np.bool_)
    reduced: NDArray[np.bool_] = law.reduceat(values, starts)
    return reduced


def _is_current(overview: StoredSource, level: Level, n_leaves: int, newest: str | None) -> bool:
    recorded = Generation.parse(overview.block.get("generation"))
    return (
        recorded is not None
        and recorded.n_leaves == n_leaves
        and recorded.max_leaf_timestamp == newest
        and overview.block.get("cell_order") == level.cell_order
    )
