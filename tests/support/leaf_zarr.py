"""Committed leaves of a test store, in the plain layout, with their sidecars.

Source: leaves 3.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mortie import compress_moc, decimal_to_word, span2toc, toc_normalize, toc_reduce
from mortie.morton_index import MortonIndexArray
from numcodecs.zstd import Zstd
from tests.support.catalog import Approximate, Field, Rows
from tests.support.columns import Cells, Column, members_of
from tests.support.numpy_folds import Words
from tests.support.zarr_writer import Json, Member, content_hashes, seal, write_artifact

_TEMPORAL_ORDER = 24
_BUCKET_NS = 2 ** (63 - _TEMPORAL_ORDER)
_CAP = 512


def write_leaf(
    path: Path, column: Column, fields: Sequence[Field], cells: Cells, words: Words, rows: Rows
) -> None:
    """Write the leaf beside ``column``: arrays, bitmap, time record, and last its stamp."""
    members = members_of(cells, fields, leaf=True)
    windowed = "window" in column.stamp
    if not windowed:
        members = {"morton": Member(values=words, attributes={})} | members
    groups = {column.cell_order: members}
    write_artifact(path, groups, chunks={column.cell_order: (len(words), None)})
    occupied = np.zeros(len(words), bool)
    occupied[rows.cell] = True
    coverage: Json = {
        "spec": "morton-moc/1",
        "box": _box(column.shard, words[occupied]),
        "cell_order": column.cell_order,
        "source": "worker",
    }
    if windowed and occupied.all():
        coverage["encoding"] = "full"
    else:
        raw = np.packbits(occupied).tobytes()
        stored = Zstd(level=3).encode(raw)
        (path / "coverage.moc").write_bytes(stored)
        coverage |= {
            "encoding": "bitmap",
            "sidecar": "coverage.moc",
            "nbytes": len(stored),
            "raw_nbytes": len(raw),
        }
    timed = sorted(f.name for f in fields if isinstance(f, Approximate) and f.timed)
    if timed and len(rows):
        record = _time_record(timed, rows, column.stamp["clock"])
        (path / "temporal.toc").write_bytes(json.dumps(record, indent=1).encode())
    commit = column.commit(int(occupied.sum()), coverage=coverage, content_hashes=content_hashes(groups))
    seal(path, {"morton_hive_commit": commit})


def _box(shard: str, words: Words) -> list[str | None]:
    """Return up to four cells that enclose the occupied ones."""
    if not len(words):
        return [shard]
    members = MortonIndexArray.from_words(compress_moc(words)).decimal_repr()
    members = [str(member) for member in members]
    if len(members) == 1:
        return [*members]
    stem = len(_shared(members))
    groups: dict[str, list[str]] = {}
    for member in members:
        groups.setdefault(member[: stem + 1], []).append(member)
    corners = sorted((_shared(group) for group in groups.values()), key=lambda s: int(decimal_to_word(s)))
    return [*corners, *[None] * (4 - len(corners))]


def _shared(decimals: Sequence[str]) -> str:
    first, last = min(decimals), max(decimals)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first[: min(len(first), len(last)) if length is None else length]


def _time_record(fields: Sequence[str], rows: Rows, clock: str) -> Json:
    """Return the record of the instants in a leaf: counts by time bucket, and the joined cover."""
    instants = _instants(rows.time)
    buckets, counts = np.unique(instants // _BUCKET_NS, return_counts=True)
    if len(buckets) > _CAP:
        raise ValueError(f"{len(buckets)} time buckets in a leaf, at most {_CAP} are supported here")
    starts = buckets.astype(np.uint64) * np.uint64(_BUCKET_NS)
    words = np.asarray(span2toc(starts, starts + np.uint64(_BUCKET_NS - 1)), np.uint64)
    cover = np.asarray(toc_normalize(words), np.uint64)
    element = {"dtype": "uint64", "shape": [-1]}
    return {
        "spec": "zagg-leaf-temporal/1",
        "source": "worker",
        "generated_at": clock,
        "fields": list(fields),
        "n_obs": len(rows),
        "word": str(int(toc_reduce(rows.time))),
        "temporal_order": _TEMPORAL_ORDER,
        "cap": _CAP,
        "counts": {
            "temporal_order": _TEMPORAL_ORDER,
            "cap": _CAP,
            "element": element,
            "encoding": "base64",
            "words": _base64(words),
            "obs": _base64(counts),
            "count": len(words),
            "obs_total": len(rows),
        },
        "cover": {"words": _base64(cover), "count": len(cover), "element": element, "encoding": "base64"},
    }


def _instants(words: Words) -> Any:
    """Take the flag bit at position 31 out of instant words."""
    low = words & np.uint64(2**31 - 1)
    return ((words >> np.uint64(32)) << np.uint64(31)) | low


def _base64(values: Any) -> str:
    return base64.b64encode(np.asarray(values).astype("<u8").tobytes()).decode("ascii")
