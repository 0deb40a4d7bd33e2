"""The root coverage object: which shards a store holds.

Source: format 8; semantics 2.5.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.errors import DeclarationError
from sweep.model.clock import parse_timestamp, timestamp
from sweep.model.json_text import loads, root_json
from sweep.model.keys import COVERAGE
from sweep.model.nodes import Words
from sweep.plan.moc import compact_ranges, expand_ranges
from sweep.plan.runs import sorted_distinct
from sweep.store.base import ObjectStore

__all__ = ["COVERAGE_SPEC", "Coverage", "load_coverage", "read_coverage", "united_coverage"]

log = logging.getLogger(__name__)

COVERAGE_SPEC = "morton-moc/1"
_ENCODING = "ranges"
_TEMPORAL_SPEC = "zagg-coverage-toc/1"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coverage:
    """A usable root coverage: its shards and the object it was read from."""

    words: Words
    document: Mapping[str, Any]

    @property
    def is_canonical(self) -> bool:
        """Whether spec and encoding are the ones this program writes."""
        return self.document.get("spec") == COVERAGE_SPEC and self.document.get("encoding") == _ENCODING


def read_coverage(raw: bytes | None, shard_order: int) -> Coverage | None:
    """The coverage at the shard order, or None where the object is absent or unusable."""
    if raw is None:
        return None
    try:
        document = loads(raw)
    except ValueError:
        return None
    if not isinstance(document, Mapping) or document.get("order") != shard_order:
        return None
    ranges = document.get("ranges")
    if not isinstance(ranges, list):
        return None
    try:
        words = expand_ranges(ranges, shard_order)
    except DeclarationError:
        return None
    return Coverage(words=words, document=document)


def load_coverage(store: ObjectStore, shard_order: int) -> Coverage | None:
    """The root coverage of a store, or None, with a warning where an object stands and is unusable.

    Raises
    ------
    AccessError, StoreUnavailableError
        The store does not give it.
    """
    raw = store.get(COVERAGE)
    coverage = read_coverage(raw, shard_order)
    if coverage is None and raw is not None:
        log.warning("root coverage is not usable", extra={"event": "coverage-stale", "found": _says(raw)})
    return coverage


def _says(raw: bytes) -> str:
    try:
        document = loads(raw)
    except ValueError:
        return "no JSON"
    if not isinstance(document, Mapping):
        return "no object"
    return ", ".join(f"{key} {document.get(key)!r}" for key in ("spec", "encoding", "order"))


def united_coverage(existing: Coverage | None, shards: Words, shard_order: int, now: str) -> bytes:
    """The object that covers ``shards`` and what a compatible existing one covers.

    A time range and a temporal section of the existing object survive; an incompatible
    object is replaced.
    """
    kept = existing if existing is not None and existing.is_canonical else None
    words = shards if kept is None else sorted_distinct(np.concatenate([kept.words, shards]))
    document: dict[str, Any] = {
        "spec": COVERAGE_SPEC,
        "encoding": _ENCODING,
        "order": shard_order,
        "source": "sweep",
        "generated_at": now,
        "ranges": compact_ranges(words),
    }
    if kept is not None:
        time_range = _time_range(kept.document.get("time_range"))
        if time_range is not None:
            document["time_range"] = time_range
        temporal = kept.document.get("temporal")
        if isinstance(temporal, Mapping) and temporal.get("spec") == _TEMPORAL_SPEC:
            document["temporal"] = temporal
    return root_json(document)


def _time_range(value: Any) -> list[str] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    start, end = map(parse_timestamp, value)
    return None if start is None or end is None else [timestamp(start), timestamp(end)]
