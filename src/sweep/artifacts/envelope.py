"""Node envelopes: what an unwindowed store says of a node's overview in one small object.

Source: format 7.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep.artifacts.writer import Committed
from sweep.model.json_text import loads, root_json

__all__ = ["envelope_entry", "parse_envelope", "updated_envelope"]

ENVELOPE_SPEC = "zagg-sweep/1"
_FAMILY = "overview"
_COPIED = ("generation", "content_hash", "regime", "merges_from_raw", "source_children", "run_id")


def parse_envelope(raw: bytes | None) -> Mapping[str, Any]:
    """The windows of a usable envelope; empty where there is none."""
    if raw is None:
        return {}
    try:
        envelope = loads(raw)
    except ValueError:
        return {}
    if (
        not isinstance(envelope, Mapping)
        or envelope.get("spec") != ENVELOPE_SPEC
        or envelope.get("family") != _FAMILY
    ):
        return {}
    windows = envelope.get("windows")
    return windows if isinstance(windows, Mapping) else {}


def envelope_entry(written: Committed) -> dict[str, Any]:
    """The entry of one overview: every value equals the artifact's own attributes."""
    name = written.key.rsplit("/", 1)[-1]
    return {"object": name, **{key: written.block[key] for key in _COPIED}}


def updated_envelope(
    windows: Mapping[str, Any], written: Committed, *, node: str, node_order: int, stem: str
) -> bytes | None:
    """The envelope after ``written``, or None where it already says so."""
    entry = envelope_entry(written)
    if windows.get(stem) == entry:
        return None
    return root_json(
        {
            "spec": ENVELOPE_SPEC,
            "family": _FAMILY,
            "node": node,
            "order": node_order,
            "windows": {**windows, stem: entry},
        }
    )
