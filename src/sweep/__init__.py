"""Build the coarse levels of a HEALPix zarr store.

``import sweep`` is light: it brings the version and the errors. Everything that needs
numpy or more is loaded when it is first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sweep._version import __version__
from sweep.errors import (
    AccessError,
    AdmissionError,
    ArtifactError,
    CapacityError,
    ColumnMovedError,
    DeclarationError,
    FleetUnreachableError,
    ForeignWriteError,
    LeaseHeldError,
    LeaseLostError,
    StoreUnavailableError,
    SweepError,
    TransientError,
    TransportThrottledError,
)

__all__ = [
    "AccessError",
    "AdmissionError",
    "ArtifactError",
    "CapacityError",
    "ColumnMovedError",
    "DeclarationError",
    "FleetOptions",
    "FleetSummary",
    "FleetUnreachableError",
    "ForeignWriteError",
    "LeaseHeldError",
    "LeaseLostError",
    "StoreOptions",
    "StoreUnavailableError",
    "SweepError",
    "SweepOptions",
    "SweepSummary",
    "TransientError",
    "TransportThrottledError",
    "__version__",
    "open_ladder",
    "open_level",
    "open_store",
    "run_fleet",
    "run_local",
    "store_info",
]

# Public names whose modules are loaded on first use: name -> module.
_LAZY: dict[str, str] = {
    "StoreOptions": "sweep.store.open",
    "SweepOptions": "sweep.stage.run",
    "SweepSummary": "sweep.stage.run",
    "open_ladder": "sweep.read.ladder",
    "open_level": "sweep.read.level",
    "open_store": "sweep.store.open",
    "FleetOptions": "sweep.fleet.options",
    "FleetSummary": "sweep.fleet.options",
    "run_fleet": "sweep.fleet.run",
    "run_local": "sweep.local",
    "store_info": "sweep.read.info",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
