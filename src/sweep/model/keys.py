"""Names of every object that the sweep reads or writes, relative to the store root.

Source: format 1.3-1.5.
"""

from __future__ import annotations

from sweep.model.nodes import path_of
from sweep.model.windows import is_label

__all__ = [
    "AGGREGATION",
    "COVERAGE",
    "LEASE",
    "MANIFEST",
    "MULTISCALES",
    "column_key",
    "column_sidecar_key",
    "envelope_key",
    "is_run_record",
    "multiscales_level_key",
    "overview_key",
    "overview_sidecar_key",
    "sweep_record_key",
    "window_of_overview",
]

MANIFEST = "morton_hive.json"
COVERAGE = "coverage.moc"
AGGREGATION = "aggregation.yaml"
LEASE = "sweep.lease.json"
MULTISCALES = "multiscales/zarr.json"

_COLUMN = ".pyramid.zarr"
_OVERVIEW = ".zarr"


def column_key(node: str, stem: str) -> str:
    """The zarr root of a leaf column or stage column."""
    return f"{path_of(node)}/{stem}{_COLUMN}"


def column_sidecar_key(node: str, stem: str) -> str:
    """The stats sidecar of a column."""
    return f"{path_of(node)}/{stem}.pyramid.stats.json"


def overview_key(node: str, stem: str) -> str:
    """The zarr root of an overview."""
    return f"{path_of(node)}/{stem}{_OVERVIEW}"


def overview_sidecar_key(node: str, stem: str) -> str:
    """The stats sidecar of an overview."""
    return f"{path_of(node)}/{stem}.stats.json"


def envelope_key(node: str) -> str:
    """The node envelope, on unwindowed stores."""
    return f"{path_of(node)}/overview.rollup.json"


def multiscales_level_key(order: int) -> str:
    """The companion group of one ladder level."""
    return f"multiscales/{order}/zarr.json"


def sweep_record_key(stamp: str) -> str:
    """The run record of a sweep that ended at the file-name clock ``stamp``."""
    return f"sweep_stats_{stamp}_stages.json"


def is_run_record(name: str) -> bool:
    """Whether a root object is a run record of leaf work (Parquet)."""
    return name.startswith("stats_") and name.endswith(".parquet") and len(name) > len("stats_.parquet")


def window_of_overview(name: str) -> str | None:
    """The window label of a ``{label}.zarr`` directory name, or None where it is none."""
    if name.endswith(_COLUMN) or not name.endswith(_OVERVIEW):
        return None
    label = name.removesuffix(_OVERVIEW)
    return label if is_label(label) else None
