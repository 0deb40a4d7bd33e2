"""Recomputes the hashes that stamps record, from the objects alone.

Shares no code with the package: zarr documents and chunks are read by hand.
Source: format 5.4, 7.1.
"""

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import zstandard

Objects = Mapping[str, bytes]


def swept_artifacts(objects: Objects) -> dict[str, dict[str, Any]]:
    """Map the key of each stamped artifact that a sweep wrote to its root attributes."""
    found = {}
    for key, data in objects.items():
        if not key.endswith(".zarr/zarr.json") or key.startswith("multiscales/"):
            continue
        try:
            attributes = json.loads(data)["attributes"]
        except (ValueError, KeyError):
            continue
        block = attributes.get("zagg_overview") or attributes.get("zagg_column") or {}
        if "generation" in block and isinstance(attributes.get("morton_hive_commit"), dict):
            found[key.removesuffix("/zarr.json")] = attributes
    return found


def broken_stamps(objects: Objects) -> list[str]:
    """Return one line for each stamped artifact whose arrays are not what its stamp says."""
    return [
        f"{artifact}/{name}: {why}"
        for artifact, attributes in swept_artifacts(objects).items()
        for name, why in _contradictions(objects, artifact, attributes["morton_hive_commit"])
    ]


def _contradictions(objects: Objects, artifact: str, stamp: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    hashes = stamp["content_hashes"]["arrays"]
    below = f"{artifact}/"
    names = {key.removeprefix(below) for key in objects if key.startswith(below)}
    arrays = {name.removesuffix("/zarr.json") for name in names if name.count("/") == 2}
    for name in sorted(arrays ^ hashes.keys()):
        yield name, "hashed and not there, or there and not hashed"
    for name in sorted(arrays & hashes.keys()):
        if _hash(objects, below + name) != hashes[name]:
            yield name, "its content is not what the stamp says"


def _hash(objects: Objects, array: str) -> str:
    document = json.loads(objects[f"{array}/zarr.json"])
    (n_cells,) = document["shape"]
    (chunk,) = document["chunk_grid"]["configuration"]["chunk_shape"]
    digest = hashlib.sha256()
    for number in range(-(-n_cells // chunk)):
        data = objects.get(f"{array}/c/{number}")
        size = min(chunk, n_cells - number * chunk)
        if document["data_type"] == "variable_length_bytes":
            for cell in [b""] * size if data is None else _cells(data):
                digest.update(struct.pack("<Q", len(cell)) + cell)
        elif data is None:
            digest.update(_fill(document, size))
        else:
            digest.update(data)
    return digest.hexdigest()


def _fill(document: Mapping[str, Any], size: int) -> bytes:
    fill = document["fill_value"]
    return np.full(
        size, float(fill) if isinstance(fill, str) else fill, dtype=document["data_type"]
    ).tobytes()


def _cells(data: bytes) -> Iterator[bytes]:
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    (count,) = struct.unpack_from("<I", plain)
    place = 4
    for _ in range(count):
        (length,) = struct.unpack_from("<I", plain, place)
        yield plain[place + 4 : place + 4 + length]
        place += 4 + length
