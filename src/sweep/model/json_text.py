"""The three JSON layouts of a store.

Source: format 1.6.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["compact_json", "root_json", "zarr_json"]


def root_json(value: Any) -> bytes:
    """Manifest, coverage, lease, records, envelopes, companion groups: indent 1."""
    return json.dumps(value, indent=1).encode()


def compact_json(value: Any) -> bytes:
    """Stats sidecars: one line."""
    return json.dumps(value).encode()


def zarr_json(value: Any) -> bytes:
    """zarr metadata documents: indent 2."""
    return json.dumps(value, indent=2).encode()
