"""Makes the golden stores: small synthetic ones, before and after a sweep by the peer program.

    python -m tests.golden.make_golden [NAME ...]

Each store is packed as NAME.pre and NAME.post in NAME.tar.xz beside this script. The archives are
meant to be made once and kept: a new one would differ in its run ids and clocks, and a difference
in anything else is a change of the format, the generator or the peer that wants an explanation.
"""

import argparse
import io
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.holes import Holes
from tests.support.programs import Peer, peer_python
from tests.support.synthetic import StoreSpec, write_store

FOLDER = Path(__file__).resolve().parent

GOLDEN: Mapping[str, StoreSpec] = {
    # every class of field, two tuples at the usual width
    "fields": StoreSpec(
        seed=11,
        shard_order=4,
        cell_order=7,
        leaf_cells=(6,),
        n_shards=6,
        fields=(
            *("exact", "exotic", "wrapping", "digest", "digest64"),
            *("located", "timed", "both", "flux", "packed", "none"),
        ),
        holes=Holes(empty_cells=0.7),
    ),
    "windows": StoreSpec(
        seed=36,
        n_shards=5,
        fields=("exact", "both", "flux", "packed", "none"),
        holes=Holes(empty_cells=0.85, window_gap=0.4, empty_shard=0.1),
        windows=("2019", "2020", "2021"),
    ),
    # sharded leaf groups, stage columns in several chunks, overviews of 1,024 cells
    "wide": StoreSpec(
        seed=13,
        shard_order=5,
        cell_order=12,
        leaf_cells=(11,),
        n_shards=4,
        fields=("digest", "located", "packed"),
    ),
    "holes": StoreSpec(
        seed=23,
        shard_order=4,
        cell_order=7,
        leaf_cells=(6,),
        n_shards=9,
        fields=("exact", "located", "timed", "packed"),
        holes=Holes(
            empty_cells=0.8,
            empty_shard=0.1,
            unrecorded=0.2,
            absent_array=0.5,
            absent_group=0.15,
            lost_companion=0.5,
            unstamped=0.15,
            missing_column=0.15,
            corrupt_root=0.2,
        ),
    ),
}


def make_golden(name: str, spec: StoreSpec, peer: Peer) -> Path:
    """Build one store, let the peer sweep a copy, pack both and return the archive."""
    with tempfile.TemporaryDirectory() as folder:
        before = write_store(Path(folder) / f"{name}.pre", spec)
        after = Path(folder) / f"{name}.post"
        shutil.copytree(before, after)
        summary = peer.sweep(after)
        if not sum(row["written"] for row in summary["stages"]):
            raise SystemExit(f"the peer wrote nothing into {name}: {summary}")
        _forget_place(after)
        return pack([before, after], FOLDER / f"{name}.tar.xz")


def _forget_place(root: Path) -> None:
    """Take the folder that the store happened to stand in out of its run record."""
    for path in root.glob("sweep_stats_*.json"):
        record = json.loads(path.read_bytes())
        path.write_bytes(json.dumps(record | {"store_root": root.name}, indent=1).encode())


def pack(roots: list[Path], archive: Path) -> Path:
    """Pack folders so that the same files always give the same archive."""
    with tarfile.open(archive, "w:xz", preset=9, format=tarfile.USTAR_FORMAT) as tar:
        for root in roots:
            for path in sorted(root.rglob("*")):
                if path.is_file():
                    data = path.read_bytes()
                    entry = tarfile.TarInfo(path.relative_to(root.parent).as_posix())
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
    return archive


def main() -> None:
    """Make the named golden stores, or all of them."""
    parser = argparse.ArgumentParser(description="make the golden stores with the peer program")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(GOLDEN)}; default: all")
    names = parser.parse_args().names or list(GOLDEN)
    if unknown := sorted(set(names) - set(GOLDEN)):
        parser.error(f"no golden store is called {', '.join(unknown)}")
    for name in names:
        archive = make_golden(name, GOLDEN[name], Peer(python=peer_python()))
        sys.stdout.write(f"{archive.name}: {archive.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
