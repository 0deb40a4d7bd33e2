"""Both programs sweep the same store: every object must be the same."""

import shutil
from pathlib import Path

import pytest
from tests.interop.conftest import Build
from tests.interop.shapes import CHECKABLE, DAMAGED, SHAPES, random_shape
from tests.support.compare import compare_stores, node_objects
from tests.support.programs import Peer, sweep_ours
from tests.support.synthetic import StoreSpec

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

WIDTHS = [
    ("every field", 3),
    ("every field", 1),
    ("windows", 3),
    ("windows", 2),
    ("holes", 3),
    ("holes", 2),
    ("windows with holes", 3),
    ("wide", 3),
    ("wide", 1),
    ("one order", 3),
]
SEEDS = range(300, 308)


def sweep_both(
    peer: Peer, source: Path, folder: Path, tuple_width: int, *, damaged: bool = False
) -> tuple[Path, Path]:
    """Sweep one copy of a store with the peer and one with this program."""
    theirs, ours = (Path(shutil.copytree(source, folder / name / "store")) for name in ("theirs", "ours"))
    summary = peer.sweep(theirs, tuple_width=tuple_width)
    assert sum(row["written"] for row in summary["stages"]) > 0
    sweep_ours(ours, tuple_width=tuple_width, damaged=damaged)
    return theirs, ours


@pytest.mark.parametrize(("name", "tuple_width"), WIDTHS)
def test_shapes(peer: Peer, build: Build, tmp_path: Path, name: str, tuple_width: int, short: bool) -> None:
    if short and tuple_width != 3:
        pytest.skip("the short form sweeps each shape once")
    spec = SHAPES[name]
    theirs, ours = sweep_both(peer, build(spec), tmp_path, tuple_width, damaged=spec.holes is DAMAGED)
    assert compare_stores(theirs, ours) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_random_stores(peer: Peer, build: Build, tmp_path: Path, seed: int, short: bool) -> None:
    if short and seed >= SEEDS[3]:
        pytest.skip("the short form tries three seeds")
    spec = random_shape(seed)
    damaged = spec.holes is DAMAGED
    theirs, ours = sweep_both(peer, build(spec), tmp_path, 1 + seed % 3, damaged=damaged)
    assert compare_stores(theirs, ours) == []


@pytest.mark.parametrize("name", ["every field", "windows"])
def test_each_leaves_the_others_nodes_alone(peer: Peer, build: Build, tmp_path: Path, name: str) -> None:
    theirs, ours = sweep_both(peer, build(SHAPES[name]), tmp_path, 3)
    before = node_objects(ours)
    for _ in range(2):
        peer.sweep(ours)
        assert node_objects(ours) == before
    before = node_objects(theirs)
    sweep_ours(theirs)
    assert node_objects(theirs) == before


def damage_overviews(root: Path, spec: StoreSpec) -> None:
    """Take arrays out of fine overviews, and the root objects of the coarser ones above them."""
    fine, coarse = spec.shard_order - 1, spec.shard_order - 2
    nodes = {path.parent: len(path.parent.relative_to(root).parts) - 1 for path in root.rglob("all.zarr")}
    for number, node in enumerate(sorted(n for n, order in nodes.items() if order == fine)):
        name = ("composition", "h_tdigest_land", "h_tdigest_signal_locations")[number % 3]
        for array in node.glob(f"all.zarr/*/{name}"):
            shutil.rmtree(array)
    for node in (n for n, order in nodes.items() if order == coarse):
        (node / "all.zarr" / "zarr.json").unlink()


def test_refolding_over_damaged_overviews(peer: Peer, build: Build, tmp_path: Path) -> None:
    spec = StoreSpec(seed=401, shard_order=5, cell_order=7, leaf_cells=(6,), n_shards=9)
    swept = Path(shutil.copytree(build(spec), tmp_path / "swept"))
    peer.sweep(swept)
    damage_overviews(swept, spec)
    theirs, ours = sweep_both(peer, swept, tmp_path, 2, damaged=True)
    assert compare_stores(theirs, ours) == []


def test_an_added_leaf_changes_the_same_nodes(peer: Peer, build: Build, tmp_path: Path) -> None:
    """One column reappears in a store that was swept without it."""
    source = build(CHECKABLE["plain"])
    swept = Path(shutil.copytree(source, tmp_path / "swept"))
    column = sorted(swept.rglob("all.pyramid.zarr"))[0]
    shutil.rmtree(column)
    peer.sweep(swept)
    shutil.copytree(source / column.relative_to(swept), column)
    theirs, ours = sweep_both(peer, swept, tmp_path, 3)
    assert compare_stores(theirs, ours) == []
