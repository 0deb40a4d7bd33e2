"""The manifest of a store, read into values with every refusal of format 2.4.

Source: format 2; semantics 2.3, 3.1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeGuard

from sweep.errors import DeclarationError
from sweep.model.fields import FieldMap, parse_fields
from sweep.model.json_text import loads
from sweep.model.keys import MANIFEST
from sweep.model.ladder import Ladder, Level
from sweep.model.nodes import MAX_ORDER, MAX_SHARD_ORDER

__all__ = ["PYRAMID_SPEC", "Manifest", "missing_manifest", "parse_manifest"]

PYRAMID_SPEC = "zagg-pyramid/2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a store declares.

    ``document`` is the whole object as read: a rewrite keeps what this program does
    not know.
    """

    document: Mapping[str, Any]
    spec: str | None
    name: str | None
    is_windowed: bool
    all_time: bool
    ladder: Ladder
    fields: FieldMap

    @property
    def shard_order(self) -> int:
        return self.ladder.shard_order

    @property
    def closes(self) -> bool:
        """Whether the store declares an all-time fold over its windows."""
        return self.is_windowed and self.all_time

    @property
    def stamp_spec(self) -> str:
        """The ``spec`` of commit stamps in this store."""
        return "morton-hive/2" if self.is_windowed else "morton-hive/1"


def missing_manifest(root: str) -> DeclarationError:
    """The refusal of a root that holds no manifest."""
    return DeclarationError(
        f"no {MANIFEST} at {root}: not a hive store root; give the folder or prefix that holds it",
        kind="no-manifest",
        key=MANIFEST,
    )


def parse_manifest(data: bytes, root: str) -> Manifest:
    """Read ``morton_hive.json``.

    Parameters
    ----------
    data : bytes
        The object.
    root : str
        The store, for messages.

    Raises
    ------
    DeclarationError
        The object is not JSON, is not a ``zagg-pyramid/2`` store, or declares a ladder or
        fields that cannot be folded. Carries all problems found.
    """
    where = f"{MANIFEST} at {root}"
    document = _document(data, where)
    pyramid = _gate(document, where)
    problems: list[str] = []
    shard_order = _order(document, "shard_order", problems, finest=MAX_SHARD_ORDER)
    cell_order = _order(document, "cell_order", problems)
    entries = _entries(pyramid, where)
    ladder = _ladder(entries, shard_order, cell_order, problems)
    overview = pyramid.get("overview", {})
    if not isinstance(overview, Mapping):
        problems.append(f"pyramid.overview is {str(overview)[:80]!r}, expected an object (or no such key)")
        overview = {}
    fields, field_problems = parse_fields(overview.get("fields", {}))
    problems += field_problems
    if problems:
        raise DeclarationError.of(where, problems, kind="manifest", key=MANIFEST)
    dataset = document.get("dataset")
    return Manifest(
        document=document,
        spec=document.get("spec"),
        name=dataset.get("short_name") if isinstance(dataset, Mapping) else None,
        is_windowed=document.get("temporal") is not None,
        all_time=bool(overview.get("all_time")),
        ladder=ladder,
        fields=fields,
    )


def _document(data: bytes, where: str) -> Mapping[str, Any]:
    try:
        document = loads(data)
    except ValueError as error:
        raise DeclarationError(
            f"{where} is not JSON ({len(data)} bytes, {error}): it is truncated or damaged; restore it "
            "from the run that made the store",
            kind="manifest-torn",
            key=MANIFEST,
        ) from error
    if not isinstance(document, Mapping):
        raise DeclarationError(f"{where} is not a JSON object", kind="manifest-torn", key=MANIFEST)
    return document


def _gate(document: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    pyramid = document.get("pyramid")
    found = pyramid.get("spec") if isinstance(pyramid, Mapping) else None
    if isinstance(pyramid, Mapping) and found == PYRAMID_SPEC:
        return pyramid
    raise DeclarationError(
        f"{where}: pyramid.spec must be {PYRAMID_SPEC!r}, found {found!r}; a staged sweep folds only "
        "that grammar ('zagg-pyramid/1' stores are rolled up by the families pass of their writer)",
        kind="pyramid-spec",
        key=MANIFEST,
    )


def _entries(pyramid: Mapping[str, Any], where: str) -> list[Any]:
    entries = pyramid.get("overviews")
    if isinstance(entries, list) and entries:
        return entries
    raise DeclarationError(
        f"{where}: pyramid.overviews is {'absent' if entries is None else repr(entries)}, expected a "
        "non-empty list of {node, cells}: there is nothing to sweep",
        kind="no-ladder",
        key=MANIFEST,
    )


def _order(document: Mapping[str, Any], key: str, problems: list[str], *, finest: int = MAX_ORDER) -> int:
    value = document.get(key)
    if _is_order(value) and value <= finest:
        return value
    problems.append(f"{key} is {'absent' if value is None else repr(value)}, expected an order 0-{finest}")
    return -1


def _ladder(entries: list[Any], shard_order: int, cell_order: int, problems: list[str]) -> Ladder:
    levels: list[Level] = []
    leaf_cells: list[int] = []
    for place, entry in enumerate(entries):
        node = entry.get("node") if isinstance(entry, Mapping) else None
        cells = entry.get("cells") if isinstance(entry, Mapping) else None
        if not _is_order(node) or not isinstance(cells, list) or not all(map(_is_order, cells)):
            problems.append(
                f"overviews[{place}] is {json.dumps(entry)[:80]}, expected {{node: order, cells: [order]}}"
            )
        elif node >= shard_order:
            leaf_cells += cells
        elif len(cells) != 1:
            problems.append(
                f"overviews[{place}] (node {node}) has {len(cells)} members in cells; a ladder entry has "
                "exactly one"
            )
        else:
            levels.append(Level(node_order=node, cell_order=cells[0]))
    levels.sort(key=lambda level: -level.node_order)
    for finer, coarser in pairwise(levels):
        if finer.node_order == coarser.node_order:
            problems.append(f"overviews declares node {finer.node_order} twice")
    ladder = Ladder(
        shard_order=shard_order, cell_order=cell_order, leaf_cells=tuple(leaf_cells), levels=tuple(levels)
    )
    if not problems:
        problems += ladder.problems()
    return ladder


def _is_order(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_ORDER
