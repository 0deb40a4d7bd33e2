"""Reading the reference stores gives what zarr-python finds in the same arrays.

The other side of every comparison walks the folders and opens each array by zarr, knowing
nothing of leaves, records or coverage. Source: format 3-5.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mortie
import numpy as np
import pytest
import xdggs
import zarr
from numpy.typing import NDArray
from tests.reference import ReferenceStore
from tests.support.sweeping import START

from sweep.read.info import StoreInfo, store_info
from sweep.read.ladder import open_ladder
from sweep.read.level import open_level
from sweep.read.show import draw_level
from sweep.store.open import open_store
from sweep.testing.clocks import FakeClock

STORES = ("kitchen_sink", "kitchen_sink_windowed", "wide", "scale_tiny")


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """One level as zarr reads it: the words of its cells, and one value for each."""

    words: NDArray[np.uint64]
    values: list[Any]


def groups(root: Path, name: str, node_order: int) -> Iterator[tuple[Path, zarr.Group]]:
    """The artifacts called ``name`` of the nodes at one order."""
    for path in root.glob("/".join(["*"] * (node_order + 1) + [name])):
        if not path.parts[len(root.parts)].startswith(("multiscales", ".")):
            yield path, zarr.open_group(path, mode="r")


def by_zarr(root: Path, name: str, node_order: int, cell_order: int, field: str) -> Theirs:
    words: list[NDArray[np.uint64]] = []
    values: list[Any] = []
    for _, group in groups(root, name, node_order):
        member = group[str(cell_order)]
        assert isinstance(member, zarr.Group)
        array, morton = member[field], member["morton"]
        assert isinstance(array, zarr.Array)
        assert isinstance(morton, zarr.Array)
        words.append(np.asarray(morton[:], dtype=np.uint64))
        values += list(np.asarray(array[:]))
    joined = np.concatenate(words)
    order = np.argsort(joined)
    return Theirs(words=joined[order], values=[values[place] for place in order.tolist()])


def info_of(root: Path) -> StoreInfo:
    return store_info(open_store(root), clock=FakeClock(START))


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
@pytest.mark.parametrize(
    "name", [STORES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in STORES[1:])]
)
def test_every_level_and_field_is_what_zarr_reads(name: str, reference_store: ReferenceStore) -> None:
    root = reference_store(name, "post")
    n_compared = 0
    for row in open_ladder(root):
        if row.is_leaf and row.cell_order > row.node_order + 3:
            continue  # the widest leaf groups take zarr minutes and hold the same arrays
        window = row.windows[-1] if row.windows else None
        stem = window or "all"
        level = open_level(root, row.node_order, window, cell_order=row.cell_order)
        artifact = f"{stem}.pyramid.zarr" if row.is_leaf else f"{stem}.zarr"
        for field, ours in level.data_vars.items():
            theirs = by_zarr(root, artifact, row.node_order, row.cell_order, str(field))
            np.testing.assert_array_equal(level["morton"], theirs.words)
            if ours.attrs["class"] == "approximate":
                payloads = [each.tobytes() for each in np.asarray(ours.data)]
                assert payloads == [bytes(each) for each in theirs.values]
            else:
                np.testing.assert_array_equal(ours.values, np.array(theirs.values))
            n_compared += 1
    assert n_compared >= 4 * 6


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("window", ["2019", "2020", "2021"])
def test_each_window_is_what_zarr_reads(window: str, reference_store: ReferenceStore) -> None:
    root = reference_store("kitchen_sink_windowed", "post")
    level = open_level(root, 1, window, fields=["count", "composition"])
    for field in ("count", "composition"):
        theirs = by_zarr(root, f"{window}.zarr", 1, 3, field)
        np.testing.assert_array_equal(level["morton"], theirs.words)
        np.testing.assert_array_equal(level[field], np.array(theirs.values))


@pytest.mark.slow
def test_airports_as_a_person_reads_them(reference_store: ReferenceStore) -> None:
    root = reference_store("airports", "post")
    level = open_level(root, 2).pipe(xdggs.decode)
    # Every airport has an elevation, so digest and count agree.
    np.testing.assert_array_equal(level.sweep.count("h_tdigest"), level["count"])
    # La Paz lies high and Amsterdam low.
    high, low = (
        level.dggs.sel_latlon(latitude=[-16.5], longitude=[-68.2]),
        level.dggs.sel_latlon(latitude=[52.3], longitude=[4.8]),
    )
    assert high.sweep.quantile("h_tdigest", 0.9).item() > 3000
    assert low.sweep.quantile("h_tdigest", 0.5).item() < 150
    word = mortie.geo2mort(52.3, 4.8, order=4)
    assert int(low["morton"].item()) == int(np.asarray(word).ravel()[0])
    held = level.isel(cells=np.flatnonzero(level["count"].values))
    ends = held.sweep.quantile("h_tdigest", [0.0, 1.0]).values
    assert (ends[:, 0] >= held["h_min"].values - 1e-3).all()
    assert (ends[:, 1] <= held["h_max"].values + 1e-3).all()


@pytest.mark.parametrize("name", [*STORES, pytest.param("airports", marks=pytest.mark.slow)])
def test_info_of_swept_stores(name: str, reference_store: ReferenceStore) -> None:
    root = reference_store(name, "post")
    info = info_of(root)
    assert info.is_current
    assert info.problems == ()
    # What stands, by the folders alone.
    for level in info.levels:
        for counts in level.windows:
            tail = [f"{counts.window}.zarr"]
            n_standing = len(list(root.glob("/".join(["*"] * (level.node_order + 1) + tail))))
            assert counts.swept == counts.compared == counts.expected == n_standing
    (record,) = root.glob("sweep_stats_*_stages.json")
    written = json.loads(record.read_bytes())
    assert info.sweeps[0].run_id == written["run_id"]
    assert info.leaves.n_leaves == info.leaves.committed == written["n_leaves"]


@pytest.mark.parametrize("name", ["kitchen_sink", "kitchen_sink_windowed"])
def test_info_of_unswept_stores(name: str, reference_store: ReferenceStore) -> None:
    before, after = info_of(reference_store(name, "pre")), info_of(reference_store(name, "post"))
    assert before.total("swept") == 0
    assert before.total("missing") == after.total("swept")
    assert before.leaves == after.leaves
    assert before.sweeps == ()


@pytest.mark.parametrize("window", ["2020", "all"])
def test_a_leaf_that_is_rewritten_is_seen_in_its_window(window: str, reference_store: ReferenceStore) -> None:
    root = reference_store("kitchen_sink_windowed", "post", mode="copy")
    column = sorted(root.glob("*/*/*/*/*/2020.pyramid.zarr"))[0]
    document = json.loads((column / "zarr.json").read_bytes())
    document["attributes"]["morton_hive_commit"]["written_at"] = "2029-01-01T00:00:00+00:00"
    (column / "zarr.json").write_bytes(json.dumps(document).encode())
    info = info_of(root)
    stale = {
        (level.node_order, counts.window): counts.stale for level in info.levels for counts in level.windows
    }
    assert {key for key, count in stale.items() if count} == {
        (order, stem) for order in range(4) for stem in ("2020", "all")
    }
    assert stale[3, window] == 1


@pytest.mark.parametrize(
    ("name", "level", "field"),
    [
        pytest.param("airports", 3, "h_tdigest", marks=pytest.mark.slow),
        ("kitchen_sink", 2, "composition"),
        ("wide", 3, "h_max"),
    ],
)
def test_reference_stores_are_drawn(
    name: str, level: int, field: str, reference_store: ReferenceStore, tmp_path: Path
) -> None:
    root = reference_store(name, "post")
    drawn = draw_level(open_store(root), level=level, field=field, out=tmp_path / "map.png")
    assert drawn.n_nodes == len(list(root.glob("/".join(["*"] * (level + 1) + ["all.zarr"]))))
    opened = open_level(root, level, fields=["count", "h_tdigest"] if name != "kitchen_sink" else [field])
    held = opened[field] != 0 if field == "composition" else opened["count"] > 0
    assert drawn.n_with_data == int(held.sum())
