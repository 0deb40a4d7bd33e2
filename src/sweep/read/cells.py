"""Reading the cells of one level: every node's artifact, under its stamp, into arrays.

Source: format 3-5; semantics 8.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweep.artifacts.reading import Block, read_blocks
from sweep.artifacts.source import BlockRequest, StoredSource, Unreadable, open_sources
from sweep.errors import ArtifactError, DeclarationError
from sweep.fold.level import Cells
from sweep.fold.ragged import Ragged, concat
from sweep.model.fields import LANES, ArraySpec, DigestField, Field
from sweep.model.nodes import Words, decimals_of
from sweep.read.places import Catalogue, Rung
from sweep.store.base import ObjectStore

__all__ = ["LevelCells", "choose_fields", "lanes_of", "read_level"]

_AT_ONCE = 256
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LevelCells:
    """The cells of a level's committed nodes, sorted by word.

    Attributes
    ----------
    rung : Rung
    stem : str
        Window label, or ``all``.
    nodes : ndarray of uint64, shape (n_nodes,)
        The nodes whose artifact stands.
    words : ndarray of uint64, shape (n_cells,)
        Their cells; node ``i`` owns the ``n_cells / n_nodes`` cells from its own place on.
    arrays : mapping of str to ndarray or Ragged, n_cells each
    missing : tuple of str
        Decimals of nodes with leaves beneath and no committed artifact.
    unreadable : tuple of str
        What could not be read, and why.
    """

    rung: Rung
    stem: str
    nodes: Words
    words: Words
    arrays: Mapping[str, Cells]
    missing: tuple[str, ...]
    unreadable: tuple[str, ...]


def choose_fields(catalogue: Catalogue, names: Iterable[str] | None) -> tuple[Field, ...]:
    """The fields called ``names`` (None: all of them), in manifest order.

    Raises
    ------
    DeclarationError
        A name is no field that the levels hold; the message lists those there are.
    """
    fields = catalogue.manifest.fields
    if names is None:
        return tuple(fields)
    wanted = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in wanted if fields.get(name) is None]
    if unknown:
        known = ", ".join(each.name for each in fields)
        raise DeclarationError(
            f"{catalogue.store.root} has no field {', '.join(map(repr, unknown))} in its levels; "
            f"its fields are {known}",
            kind="field",
            key=catalogue.store.root,
        )
    return tuple(each for each in fields if each.name in wanted)


def lanes_of(words: Words) -> NDArray[np.uint8]:
    """The eight bytes of composition words, in a last axis that follows :data:`~sweep.model.fields.LANES`."""
    shifts = np.arange(0, 8 * len(LANES), 8, dtype=np.uint64)
    return ((words[..., None] >> shifts) & np.uint64(0xFF)).astype(np.uint8)


def read_level(
    catalogue: Catalogue,
    rung: Rung,
    stem: str,
    *,
    fields: Sequence[Field],
    scope: object = None,
    companions: bool = False,
    skip_unreadable: bool = False,
) -> LevelCells:
    """Read one level.

    Parameters
    ----------
    catalogue : Catalogue
    rung : Rung
    stem : str
    fields : sequence of Field
        What to read; nothing else is fetched.
    scope
        Nodes to read: None for all, decimals, words, or a cover of any orders.
    companions : bool
        Read the location and time words of digests, too.
    skip_unreadable : bool
        Leave out what cannot be read and name it in the result, instead of raising.

    Raises
    ------
    ArtifactError
        An artifact cannot be read (all of them are counted, some named).
    ColumnMovedError
        An artifact was rewritten again and again while it was being read.
    DeclarationError
        The scope is none.
    AccessError, StoreUnavailableError
        The store does not answer, or says no.

    Notes
    -----
    Holds every cell of the chosen fields, the ragged ones twice while they are joined, and
    the documents of some hundred nodes at a time.
    """
    nodes = catalogue.nodes(rung, scope)
    specs = [spec for each in fields for spec in _arrays(each, companions=companions)]
    reader = _Reader(catalogue.store, rung, specs)
    missing: list[str] = []
    unreadable: list[str] = []
    for first in range(0, len(nodes), _AT_ONCE):
        names = decimals_of(nodes[first : first + _AT_ONCE])
        opened = open_sources(catalogue.store, [rung.key(node, stem) for node in names], rung.block_name)
        sources: list[tuple[int, StoredSource]] = []
        for place, (node, each) in enumerate(zip(names, opened, strict=True), start=first):
            match each:
                case StoredSource() as source:
                    sources.append((place, source))
                case Unreadable() as bad:
                    unreadable.append(f"{bad.key}: {bad.reason}")
                case _:
                    missing.append(node)
        unreadable += reader.read(sources, skip_unreadable=skip_unreadable)
    if unreadable and not skip_unreadable:
        raise _damaged(catalogue.store.root, unreadable)
    kept = nodes[np.array(reader.places, dtype=np.int64)]
    return LevelCells(
        rung=rung,
        stem=stem,
        nodes=kept,
        words=_cell_words(kept, rung),
        arrays=reader.arrays(),
        missing=tuple(missing),
        unreadable=tuple(unreadable),
    )


def _arrays(each: Field, *, companions: bool) -> tuple[ArraySpec, ...]:
    specs = each.arrays()
    return specs[:1] if isinstance(each, DigestField) and not companions else specs


def _cell_words(nodes: Words, rung: Rung) -> Words:
    """All cells of ``nodes``, in order: a node's word is its first cell's but for the suffix."""
    suffix = np.uint64(0x3F)
    step = np.arange(rung.level.n_cells, dtype=np.uint64) << np.uint64(60 - 2 * rung.level.cell_order)
    first = (nodes & ~suffix) | np.uint64(rung.level.cell_order)
    return (first[:, None] + step[None, :]).ravel()


def _damaged(root: str, unreadable: Sequence[str]) -> ArtifactError:
    more = f", and {len(unreadable) - _SHOWN} more" if len(unreadable) > _SHOWN else ""
    return ArtifactError(
        f"{len(unreadable)} artifacts of {root} cannot be read: {'; '.join(unreadable[:_SHOWN])}{more}; "
        "sweep the store again, or read what stands with skip_unreadable=True",
        kind="unreadable",
        key=root,
    )


class _Reader:
    """Reads nodes some at a time and keeps their pieces."""

    def __init__(self, store: ObjectStore, rung: Rung, specs: Sequence[ArraySpec]) -> None:
        self.places: list[int] = []
        self._store = store
        self._rung = rung
        self._specs = specs
        self._pieces: dict[str, list[Cells]] = {spec.name: [] for spec in specs}

    def read(self, sources: Sequence[tuple[int, StoredSource]], *, skip_unreadable: bool) -> list[str]:
        """Read the artifacts of some nodes; what is wrong with those that cannot be read."""
        try:
            self._take(sources)
        except ArtifactError as error:
            if not skip_unreadable:
                raise
            if len(sources) == 1:
                return [error.message]
            return [bad for each in sources for bad in self.read([each], skip_unreadable=True)]
        return []

    def _take(self, sources: Sequence[tuple[int, StoredSource]]) -> None:
        n_cells = self._rung.level.n_cells
        requests = [
            BlockRequest(
                source=source, cell_order=self._rung.level.cell_order, n_cells=n_cells, start=0, stop=n_cells
            )
            for _, source in sources
        ]
        blocks = read_blocks(self._store, requests, list(self._pieces), None) if self._pieces else []
        joined = {
            spec.name: _joined(spec, [source.key for _, source in sources], blocks, n_cells)
            for spec in self._specs
            if sources
        }
        for name, cells in joined.items():
            self._pieces[name].append(cells)
        self.places += [place for place, _ in sources]

    def arrays(self) -> dict[str, Cells]:
        """Everything read, joined."""
        return {spec.name: _whole(spec, self._pieces[spec.name]) for spec in self._specs}


def _joined(spec: ArraySpec, keys: Sequence[str], blocks: Sequence[Block], n_cells: int) -> Cells:
    found = [_checked(spec, key, block[spec.name]) for key, block in zip(keys, blocks, strict=True)]
    if spec.is_ragged:
        return concat([each if isinstance(each, Ragged) else Ragged.empty(n_cells) for each in found])
    dense = np.full((len(found), n_cells), spec.fill, dtype=spec.dtype)
    for row, each in zip(dense, found, strict=True):
        if each is not None:
            row[:] = each
    return dense.ravel()


def _checked(spec: ArraySpec, key: str, cells: Cells | None) -> Cells | None:
    if cells is None or isinstance(cells, Ragged) == spec.is_ragged:
        return cells
    raise ArtifactError(
        f"{key}: array {spec.name} is {'dense' if spec.is_ragged else 'ragged'}, unlike its declaration; "
        "sweep the store again",
        kind="array-kind",
        key=key,
    )


def _whole(spec: ArraySpec, pieces: Sequence[Cells]) -> Cells:
    if spec.is_ragged:
        return concat([piece for piece in pieces if isinstance(piece, Ragged)])
    dense = [piece for piece in pieces if not isinstance(piece, Ragged)]
    return np.concatenate(dense) if dense else np.empty(0, dtype=spec.dtype)
