"""Writes zarr v3 groups, arrays, hashes and stamps for test stores, through zarr-python alone.

Source: leaves 3.4-3.10 and 4.3, format 3-5 and 7.1.
"""

import hashlib
import struct
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import VLenBytesCodec, ZstdCodec
from zarr.core.dtype import VariableLengthBytes

Json = dict[str, Any]

_MORTIE = "https://github.com/espg/mortie/blob/main/docs/specification.md"
_CONVENTIONS = [
    {
        "schema_url": "https://raw.githubusercontent.com/zarr-conventions/dggs/refs/tags/v1/schema.json",
        "spec_url": "https://github.com/zarr-conventions/dggs/blob/v1/README.md",
        "uuid": "7b255807-140c-42ca-97f6-7a1cfecdbc38",
        "name": "dggs",
        "description": "Discrete Global Grid Systems convention for zarr",
    },
    {
        "schema_url": _MORTIE + "#dggs-attrs",
        "spec_url": _MORTIE,
        "uuid": "3e22156d-ea9e-4e01-95fe-e3809a4b41e7",
        "name": "morton-dggs",
        "description": "Packed-u64 morton (HEALPix) DGGS convention",
    },
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One array to write: dense values or a list of byte strings, one for each cell."""

    values: npt.NDArray[Any] | list[bytes]
    fill: float = 0
    attributes: Mapping[str, Any]


def group_attributes(cell_order: int) -> Json:
    """Return the attributes of a resolution group."""
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


def column_chunks(cell_order: int, shard_order: int) -> tuple[int, int | None]:
    """Return the chunk length and, from 1,024 cells up, the length of the shard around it."""
    width = cell_order - shard_order
    if width < 5:
        return 4**width, None
    return 4 ** (cell_order - max(cell_order - 5, shard_order + 1)), 4**width


def write_artifact(
    root: Path,
    groups: Mapping[int, Mapping[str, Member]],
    *,
    chunks: Mapping[int, tuple[int, int | None]],
) -> None:
    """Write a zarr group with one child group for each resolution; its root has no attributes yet."""
    zarr.create_group(root, zarr_format=3, overwrite=True)
    for cell_order, members in groups.items():
        attributes = group_attributes(cell_order)
        zarr.create_group(root, path=str(cell_order), zarr_format=3, attributes=attributes)
        for name, member in members.items():
            _write_array(root, f"{cell_order}/{name}", member, *chunks[cell_order])


def seal(root: Path, attributes: Json) -> None:
    """Give the root group its attributes, the stamp among them: the last write."""
    zarr.open_group(root, mode="r+").attrs.put(attributes)


def _write_array(root: Path, name: str, member: Member, chunk: int, shard: int | None) -> None:
    values = member.values
    common: Json = {
        "name": name,
        "shape": (len(values),),
        "chunks": (chunk,),
        "shards": None if shard is None else (shard,),
        "dimension_names": ["cells"],
        "attributes": dict(member.attributes),
        "filters": None,
        "zarr_format": 3,
    }
    if isinstance(values, list):
        with warnings.catch_warnings():
            # zarr calls the dtype unstable; the format this builds is pinned to it
            warnings.simplefilter("ignore")
            array = zarr.create_array(
                root,
                dtype=VariableLengthBytes(),
                fill_value=b"",
                serializer=VLenBytesCodec(),
                compressors=ZstdCodec(level=3, checksum=False),
                **common,
            )
        cells = np.empty(len(values), object)
        cells[:] = values
        array[:] = cells
        return
    array = zarr.create_array(root, dtype=values.dtype, fill_value=member.fill, compressors=None, **common)
    array[:] = values


def content_hashes(groups: Mapping[int, Mapping[str, Member]]) -> Json:
    """Hash every array by its decoded values."""
    found = {
        f"{cell_order}/{name}": _hash(member.values)
        for cell_order, members in groups.items()
        for name, member in members.items()
    }
    joined = "\n".join(sorted(found.values()))
    return {"arrays": dict(sorted(found.items())), "combined": hashlib.sha256(joined.encode()).hexdigest()}


def _hash(values: npt.NDArray[Any] | Sequence[bytes]) -> str:
    if isinstance(values, np.ndarray):
        little = values.astype(values.dtype.newbyteorder("<"))
        return hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest()
    digest = hashlib.sha256()
    for cell in values:
        digest.update(struct.pack("<Q", len(cell)) + cell)
    return digest.hexdigest()
