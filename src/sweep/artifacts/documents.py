"""zarr v3 documents of overviews and columns, rendered once and reused as bytes.

A group or array document depends only on the field, the resolution and the chunking, so
a run renders each once however many artifacts it writes.

Source: format 4.1, 4.3, 5.1-5.3, 6.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.model.fields import ArraySpec, FieldMap
from sweep.model.json_text import zarr_json

__all__ = ["MORTON", "STAGE_CHUNK_CELLS", "Templates", "dggs_attributes", "root_document"]

MORTON = ArraySpec(name="morton", dtype=np.dtype(np.uint64), fill=np.uint64(0))
"""The coordinate array of every resolution group: its cells' packed words."""

STAGE_CHUNK_CELLS = 1024
"""Cells of one chunk of a stage column; an overview is always one chunk."""

_BYTES_CODEC = {"name": "bytes", "configuration": {"endian": "little"}}
_RAGGED_CODECS = [
    {"name": "vlen-bytes", "configuration": {}},
    {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
]
_CONVENTIONS = [
    {
        "schema_url": "https://raw.githubusercontent.com/zarr-conventions/dggs/refs/tags/v1/schema.json",
        "spec_url": "https://github.com/zarr-conventions/dggs/blob/v1/README.md",
        "uuid": "7b255807-140c-42ca-97f6-7a1cfecdbc38",
        "name": "dggs",
        "description": "Discrete Global Grid Systems convention for zarr",
    },
    {
        "schema_url": "https://github.com/espg/mortie/blob/main/docs/specification.md#dggs-attrs",
        "spec_url": "https://github.com/espg/mortie/blob/main/docs/specification.md",
        "uuid": "3e22156d-ea9e-4e01-95fe-e3809a4b41e7",
        "name": "morton-dggs",
        "description": "Packed-u64 morton (HEALPix) DGGS convention",
    },
]


def dggs_attributes(cell_order: int) -> dict[str, Any]:
    """The attributes of a resolution group whose cells are at ``cell_order``."""
    return {
        "zarr_conventions": _CONVENTIONS,
        "dggs": {
            "name": "morton",
            "refinement_level": cell_order,
            "spatial_dimension": "cells",
            "ellipsoid": {
                "name": "WGS84",
                "semi_major_axis": 6378137.0,
                "inverse_flattening": 298.257223563,
            },
            "compression": "none",
            "latitude": "authalic-wgs84",
            "coordinate": "morton",
        },
    }


def root_document(attributes: Mapping[str, Any]) -> bytes:
    """The ``zarr.json`` of a group."""
    return zarr_json({"attributes": dict(attributes), "zarr_format": 3, "node_type": "group"})


def array_document(spec: ArraySpec, n_cells: int, chunk_cells: int) -> bytes:
    """The ``zarr.json`` of an array of ``n_cells`` in regular chunks of ``chunk_cells``."""
    return zarr_json(
        {
            "shape": [n_cells],
            "data_type": "variable_length_bytes" if spec.is_ragged else spec.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk_cells]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": "" if spec.is_ragged else _fill_json(spec.fill),
            "codecs": _codecs(spec),
            "attributes": dict(spec.attributes),
            "dimension_names": ["cells"],
            "zarr_format": 3,
            "node_type": "array",
            "storage_transformers": [],
        }
    )


def _codecs(spec: ArraySpec) -> list[Any]:
    if spec.is_ragged:
        return _RAGGED_CODECS
    # One byte has no endianness: zarr leaves the configuration out.
    return [_BYTES_CODEC] if spec.dtype.itemsize > 1 else [{"name": "bytes"}]


def _fill_json(fill: Any) -> Any:
    value = fill.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


class Templates:
    """The documents of every resolution group of a store, each rendered once.

    Parameters
    ----------
    fields : FieldMap
        The fields that take part.
    """

    def __init__(self, fields: FieldMap) -> None:
        self.specs = (MORTON, *fields.arrays())
        self._rendered: dict[tuple[int, int, int], tuple[tuple[str, bytes], ...]] = {}

    def documents(self, cell_order: int, n_cells: int, chunk_cells: int) -> tuple[tuple[str, bytes], ...]:
        """``(key below the artifact, bytes)`` of the group document and each array document."""
        shape = (cell_order, n_cells, chunk_cells)
        found = self._rendered.get(shape)
        if found is None:
            group = (f"{cell_order}/zarr.json", root_document(dggs_attributes(cell_order)))
            arrays = (
                (f"{cell_order}/{spec.name}/zarr.json", array_document(spec, n_cells, chunk_cells))
                for spec in self.specs
            )
            found = self._rendered[shape] = (group, *arrays)
        return found
