"""Cut a small store out of the airports reference store and pack it for ``make demo``.

    python tools/pack_demo.py STORE [--under DECIMAL,...] [--out FILE]

Keeps what a sweep reads: the manifest, the config, coverage and run record cut to the kept
leaves, and each leaf's column with its sidecar. The same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import lzma
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import mortie
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
# North America between 20 and 60 degrees north: plains, mountains, coasts, and a southern base cell.
REGION = ("32", "433", "434", "-243", "-244")


def leaf_decimal(store: Path, column: Path) -> str:
    """The decimal of the node that a leaf column stands at."""
    return "".join(column.parent.relative_to(store).parts)


def rank(decimal: str) -> tuple[str, int]:
    """Base cell, and position along the curve inside it."""
    n_base = 2 if decimal.startswith("-") else 1
    value = 0
    for digit in decimal[n_base:]:
        value = 4 * value + int(digit) - 1
    return decimal[:n_base], value


def ranges_of(decimals: Iterable[str]) -> list[list[str]]:
    """Inclusive runs of consecutive shards, ordered by packed word (format 8)."""
    ordered = sorted(decimals, key=lambda text: int(mortie.decimal_to_word(text, dtype=int)))
    found: list[list[str]] = []
    for decimal in ordered:
        base, value = rank(decimal)
        if found and rank(found[-1][1]) == (base, value - 1):
            found[-1][1] = decimal
        else:
            found.append([decimal, decimal])
    return found


def cut_coverage(text: str, decimals: Iterable[str]) -> bytes:
    """``coverage.moc`` with only the kept shards."""
    document: dict[str, Any] = json.loads(text)
    document["ranges"] = ranges_of(decimals)
    return json.dumps(document, indent=1).encode()


def cut_record(record: Path, decimals: Iterable[str]) -> bytes:
    """A run record with the kept shards' rows and the three columns that discovery reads."""
    words = {int(mortie.decimal_to_word(decimal, dtype=int)) for decimal in decimals}
    table = pq.read_table(record, columns=["shard_key", "success", "window"])
    keep = pa.array([key in words for key in table["shard_key"].to_pylist()])
    sink = io.BytesIO()
    pq.write_table(table.filter(keep).replace_schema_metadata(None), sink, compression="zstd")
    return sink.getvalue()


def kept_objects(store: Path, under: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Every object of the small store: key and bytes."""
    columns = {
        leaf_decimal(store, column): column
        for column in store.glob("**/all.pyramid.zarr")
        if leaf_decimal(store, column).startswith(under)
    }
    if not columns:
        sys.exit(f"{store}: no leaf column under {', '.join(under)}")
    for name in ("morton_hive.json", "aggregation.yaml"):
        yield name, (store / name).read_bytes()
    yield "coverage.moc", cut_coverage((store / "coverage.moc").read_text(), columns)
    for record in sorted(store.glob("stats_*.parquet")):
        yield record.name, cut_record(record, columns)
    for column in columns.values():
        sidecar = column.with_name("all.pyramid.stats.json")
        for path in itertools.chain([sidecar], column.rglob("*")):
            if path.is_file():
                yield path.relative_to(store).as_posix(), path.read_bytes()
    print(f"{len(columns)} leaves under {', '.join(under)}")


def packed(objects: Iterable[tuple[str, bytes]]) -> bytes:
    """A ``.tar.xz`` of ``objects``, without clock, owner or order of the file system."""
    # Like files of different nodes stand side by side, so that they compress to almost nothing.
    ordered = sorted(objects, key=lambda item: (item[0].lstrip("-0123456789/"), item[0]))
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for key, body in ordered:
            entry = tarfile.TarInfo(key)
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    return lzma.compress(plain.getvalue(), format=lzma.FORMAT_XZ, preset=9 | lzma.PRESET_EXTREME)


def main() -> None:
    """Write the archive and say how large it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", type=Path, help="the airports store before a sweep")
    parser.add_argument("--under", default=",".join(REGION), metavar="DECIMAL,...", help="nodes to keep")
    parser.add_argument("--out", type=Path, default=ROOT / "examples" / "airports-demo.tar.xz")
    args = parser.parse_args()
    body = packed(kept_objects(args.store, tuple(args.under.split(","))))
    args.out.write_bytes(body)
    print(f"{args.out}: {len(body):,} bytes")


if __name__ == "__main__":
    main()
