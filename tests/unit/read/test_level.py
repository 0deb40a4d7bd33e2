"""Levels as Datasets: what they hold, what they refuse, and what the accessor gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mortie
import numpy as np
import pytest
import xarray as xr
import xdggs
from tests.support.sweeping import loaded, sweep_folder
from tests.support.synthetic import make_store

from sweep.errors import ArtifactError, DeclarationError
from sweep.model.fields import LANES
from sweep.model.nodes import decimals_of, path_of
from sweep.read.digests import DigestArray
from sweep.read.ladder import open_ladder
from sweep.read.level import nested_ids, open_level
from sweep.testing.stores import CountingStore

type Objects = Mapping[str, bytes]


def open_objects(objects: Objects, order: int, *args: Any, **options: Any) -> xr.Dataset:
    return open_level(loaded(objects), order, *args, **options)


def nodes_of(objects: Objects, order: int, name: str = "all.zarr") -> list[str]:
    """Decimals of the nodes of one order that hold an artifact, by their keys."""
    tail = f"/{name}/zarr.json"
    keys = [key.removesuffix(tail) for key in objects if key.endswith(tail) and key.count("/") == order + 2]
    return sorted(key.replace("/", "") for key in keys)


def test_cells_are_those_of_the_nodes_that_stand(swept: Objects) -> None:
    level = open_objects(swept, 1)
    expected = np.sort(
        np.concatenate(
            [
                mortie.generate_morton_children(mortie.decimal_to_word(node, dtype=int), 3)
                for node in nodes_of(swept, 1)
            ]
        )
    )
    np.testing.assert_array_equal(level["morton"], expected)
    ids, order = mortie.mort2healpix(expected)
    np.testing.assert_array_equal(level["cell_ids"], ids)
    assert order == level.attrs["cell_order"] == level["cell_ids"].attrs["level"] == 3
    assert level["morton"].dtype == np.uint64
    assert level["cell_ids"].dtype == np.int64
    assert level.attrs["n_nodes"] == len(nodes_of(swept, 1))
    assert level.attrs["latitude"] == "authalic-wgs84"


@pytest.mark.parametrize("order", [0, 1, 12, 27])
def test_nested_ids_are_those_of_mortie(order: int) -> None:
    rng = np.random.default_rng(order)
    words = mortie.geo2mort(rng.uniform(-90, 90, 200), rng.uniform(-180, 180, 200), order=order)
    np.testing.assert_array_equal(nested_ids(np.asarray(words), order), mortie.mort2healpix(words)[0])


def test_every_field_is_there_in_its_form(swept: Objects) -> None:
    level = open_objects(swept, 2)
    declared = json.loads(swept["morton_hive.json"])["pyramid"]["overview"]["fields"]
    assert list(level.data_vars) == [name for name, entry in declared.items() if entry["class"] != "none"]
    for name, each in level.data_vars.items():
        entry = declared[name]
        assert each.attrs["class"] == entry["class"]
        if entry["class"] == "approximate":
            assert isinstance(each.data, DigestArray)
        else:
            assert each.dtype == np.dtype(entry["dtype"])
    assert level["h_tdigest"].attrs["weights"] == "counts"
    assert level["rx_flux"].attrs["weights"] == "flux"


def test_counts_of_digests_add_up_over_the_ladder(swept: Objects) -> None:
    levels = [open_objects(swept, order) for order in (3, 2, 1, 0)]
    totals = {float(level.sweep.count("h_tdigest").sum()) for level in levels}
    assert len(totals) == 1
    # Heights that are no numbers are counted by `count` alone.
    assert 0 < totals.pop() <= int(levels[0]["count"].sum())


def test_quantiles_lie_between_the_extremes(swept: Objects) -> None:
    level = open_objects(swept, 0)
    held = level.isel(cells=np.flatnonzero(level["count"].values))
    quantiles = held.sweep.quantile("h_tdigest", [0, 0.25, 0.5, 0.75, 1])
    assert quantiles.dims == ("cells", "quantile")
    assert quantiles["quantile"].values.tolist() == [0, 0.25, 0.5, 0.75, 1]
    np.testing.assert_array_equal(quantiles["morton"], held["morton"])
    assert (quantiles.diff("quantile") >= 0).all()
    # A centroid's mean is a rounded mean of float32 heights.
    slack = 1e-5 * np.abs(held["h_max"])
    assert (quantiles.isel(quantile=0) >= held["h_min"] - slack).all()
    assert (quantiles.isel(quantile=-1) <= held["h_max"] + slack).all()
    one = held.sweep.quantile("h_tdigest", 0.5)
    assert one.dims == ("cells",)
    np.testing.assert_array_equal(one, quantiles.sel(quantile=0.5))


def test_digest_of_a_cell_by_word_and_by_decimal(swept: Objects) -> None:
    level = open_objects(swept, 0)
    place = int(np.flatnonzero(level["count"].values)[0])
    word = level["morton"].values[place]
    rows = level.sweep.digest("h_tdigest", word)
    assert rows.shape[1] == 2
    assert rows[:, 1].sum() == level.sweep.count("h_tdigest").values[place]
    (decimal,) = decimals_of(np.array([word], dtype=np.uint64))
    np.testing.assert_array_equal(level.sweep.digest("h_tdigest", decimal), rows)
    with pytest.raises(DeclarationError, match="not in this Dataset"):
        level.isel(cells=slice(place + 1, None)).sweep.digest("h_tdigest", word)


def test_lanes_are_the_bytes_of_the_word(swept: Objects) -> None:
    level = open_objects(swept, 0)
    lanes = level.sweep.lanes("composition")
    assert lanes.dims == ("cells", "lane")
    assert lanes["lane"].values.tolist() == list(LANES)
    for word, row in zip(level["composition"].values, lanes.values, strict=True):
        assert bytes(row) == int(word).to_bytes(8, "little")
    assert lanes.values.any()


def test_selections_keep_their_digests(swept: Objects) -> None:
    level = open_objects(swept, 1)
    counts = level.sweep.count("h_tdigest").values
    for key in (slice(3, 20, 2), [5, 1, 1], np.flatnonzero(counts)):
        np.testing.assert_array_equal(level.isel(cells=key).sweep.count("h_tdigest"), counts[key])
    one = level.isel(cells=7)
    assert one.sweep.count("h_tdigest").item() == counts[7]
    assert one.sweep.quantile("h_tdigest", [0.1, 0.9]).shape == (2,)
    both = xr.concat([level, level.isel(cells=slice(4))], dim="cells")
    np.testing.assert_array_equal(both.sweep.count("h_tdigest"), [*counts, *counts[:4]])
    assert "DigestArray" in repr(level)
    assert level.copy(deep=True).sweep.count("h_tdigest").equals(level.sweep.count("h_tdigest"))


def test_the_accessor_refuses_other_fields(swept: Objects) -> None:
    level = open_objects(swept, 0)
    with pytest.raises(DeclarationError, match=r"'count' is no digest field; here these are .*h_tdigest"):
        level.sweep.quantile("count", 0.5)
    with pytest.raises(DeclarationError, match=r"is no composition field; here these are composition"):
        level.sweep.lanes("count")
    with pytest.raises(DeclarationError, match=r"no field 'nothing'; it has .*count"):
        level.sweep.count("nothing")
    with pytest.raises(DeclarationError, match="from 0 to 1"):
        level.sweep.quantile("h_tdigest", 2)


def test_xdggs_knows_the_grid(swept: Objects) -> None:
    level = open_objects(swept, 1).pipe(xdggs.decode)
    latitudes, longitudes = mortie.mort2geo(level["morton"].values)
    centres = level.dggs.cell_centers()
    np.testing.assert_allclose(centres["latitude"], latitudes, atol=1e-7)
    np.testing.assert_allclose(centres["longitude"] % 360, np.asarray(longitudes) % 360, atol=1e-7)
    places = [2, 9]
    found = level.dggs.sel_latlon(
        latitude=np.asarray(latitudes)[places], longitude=np.asarray(longitudes)[places]
    )
    np.testing.assert_array_equal(found["morton"], level["morton"].values[places])
    np.testing.assert_array_equal(
        found.sweep.count("h_tdigest"), level.sweep.count("h_tdigest").values[places]
    )


def test_nodes_are_opened_and_read_some_at_a_time(many: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = open_objects(many, 3)
    monkeypatch.setattr("sweep.read.cells._AT_ONCE", 5)
    store = CountingStore(loaded(many))
    xr.testing.assert_identical(open_level(store, 3).drop_attrs(), expected.drop_attrs())
    read = [key for _, key in store.log]
    leaves = [path_of(node) for node in nodes_of(many, 3, "all.pyramid.zarr")]
    roots = [read.index(f"{leaf}/all.pyramid.zarr/zarr.json") for leaf in leaves]
    chunks = [place for place, key in enumerate(read) if "/c/" in key]
    assert min(chunks) < max(roots), "no document waits for all the others"


class TestWhatIsRead:
    def keys(self, objects: Objects, **options: Any) -> list[str]:
        store = CountingStore(loaded(objects))
        open_level(store, 1, **options)
        return [key for name, key in store.log if name.startswith("get")]

    def test_only_the_fields_asked_for(self, swept: Objects) -> None:
        read = self.keys(swept, fields=["h_tdigest_signal"])
        arrays = {
            key.split(".zarr/")[1].split("/")[1] for key in read if key.count(".zarr/") and "/c/" in key
        }
        assert arrays == {"h_tdigest_signal"}

    def test_only_the_nodes_asked_for(self, swept: Objects) -> None:
        node = nodes_of(swept, 1)[0]
        path = "/".join([node[:-1], node[-1]])
        read = [key for key in self.keys(swept, nodes=node) if "/all.zarr/" in key]
        assert read
        assert all(key.startswith(f"{path}/all.zarr/") for key in read)

    def test_fields_by_name_alone(self, swept: Objects) -> None:
        assert list(open_objects(swept, 1, fields="count").data_vars) == ["count"]
        assert list(open_objects(swept, 1, fields=[]).data_vars) == []

    @pytest.mark.parametrize("spelling", ["text", "list", "word", "leaf"])
    def test_nodes_in_every_spelling(self, swept: Objects, spelling: str) -> None:
        node = nodes_of(swept, 1)[0]
        leaf = next(each for each in nodes_of(swept, 3, "all.pyramid.zarr") if each.startswith(node))
        word = mortie.decimal_to_word(node, dtype=int)
        scope = {"text": node, "list": [node], "word": [word], "leaf": leaf}[spelling]
        part = open_objects(swept, 1, nodes=scope)
        np.testing.assert_array_equal(part["morton"], mortie.generate_morton_children(word, 3))

    def test_a_scope_without_nodes_is_empty(self, swept: Objects) -> None:
        free = next(base for base in ("1", "2", "3", "-1", "-2", "-3") if base not in nodes_of(swept, 0))
        part = open_objects(swept, 0, nodes=free)
        assert part.sizes["cells"] == 0
        assert part.sweep.quantile("h_tdigest", 0.5).shape == (0,)

    def test_a_scope_that_is_none_is_refused(self, swept: Objects) -> None:
        with pytest.raises(DeclarationError, match="not a node decimal"):
            open_objects(swept, 1, nodes="9")


class TestLeafColumns:
    def test_each_resolution(self, swept: Objects) -> None:
        for cell_order in (5, 4, 3):
            level = open_objects(swept, 3, cell_order=cell_order)
            assert level.sizes["cells"] == 6 * 4 ** (cell_order - 3)
        assert open_objects(swept, 3).attrs["cell_order"] == 5

    def test_counts_add_up_to_those_of_the_ladder(self, swept: Objects) -> None:
        totals = {int(open_objects(swept, order)["count"].sum()) for order in (3, 2, 1, 0)}
        assert len(totals) == 1


class TestWindows:
    def test_each_window_and_the_whole_of_time(self, windowed: Objects) -> None:
        parts = [open_objects(windowed, 0, window) for window in ("2019", "2020")]
        whole = open_objects(windowed, 0)
        assert [part.attrs["window"] for part in (*parts, whole)] == ["2019", "2020", "all"]
        assert sum(int(part["count"].sum()) for part in parts) == int(whole["count"].sum())
        np.testing.assert_array_equal(open_objects(windowed, 0, "all")["count"], whole["count"])

    def test_unknown_windows_are_refused_with_those_there_are(self, windowed: Objects) -> None:
        with pytest.raises(DeclarationError, match=r"no window '1999'; its windows are 2019, 2020"):
            open_objects(windowed, 0, "1999")
        with pytest.raises(DeclarationError, match=r"leaves hold one window each.*2019, 2020"):
            open_objects(windowed, 3)

    def test_no_all_time_fold(self, windowed: Objects) -> None:
        manifest = json.loads(windowed["morton_hive.json"])
        manifest["pyramid"]["overview"]["all_time"] = False
        with pytest.raises(DeclarationError, match=r"no all-time fold is declared.*2019, 2020"):
            open_objects({**windowed, "morton_hive.json": json.dumps(manifest).encode()}, 0)

    def test_a_window_of_a_store_without_any(self, swept: Objects) -> None:
        with pytest.raises(DeclarationError, match="store without windows"):
            open_objects(swept, 0, "2019")


class TestRefusals:
    def test_unknown_levels_are_refused_with_those_there_are(self, swept: Objects) -> None:
        with pytest.raises(DeclarationError, match=r"no level 7.*3 \(cells 5\).*0 \(cells 2\)"):
            open_objects(swept, 7)
        with pytest.raises(DeclarationError, match=r"level 3 with cells 6"):
            open_objects(swept, 3, cell_order=6)

    def test_unknown_fields_are_refused_with_those_there_are(self, swept: Objects) -> None:
        with pytest.raises(DeclarationError, match=r"no field 'h_mean', 'x'.*its fields are .*count"):
            open_objects(swept, 1, fields=["count", "h_mean", "x"])

    def test_an_unswept_level_says_what_to_do(self, unswept: Objects) -> None:
        with pytest.raises(DeclarationError, match=r"nothing at level 1: \d+ nodes .*sweep the store first"):
            open_objects(unswept, 1)

    def test_xarray_is_asked_for_by_name(self, swept: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "xarray", None)
        with pytest.raises(
            DeclarationError, match=r"needs xarray.*its extra 'xarray'.*pip install '\.\[xarray\]'"
        ):
            open_objects(swept, 1)


class TestDamage:
    def damaged(self, swept: Objects) -> tuple[str, dict[str, bytes]]:
        """One overview of level 2 whose digests cannot be decoded."""
        key = next(key for key in sorted(swept) if "/all.zarr/4/h_tdigest/c/" in key and key.count("/") == 7)
        return key, {**swept, key: swept[key][:-3]}

    def test_a_torn_chunk_is_raised_and_named(self, swept: Objects) -> None:
        key, objects = self.damaged(swept)
        with pytest.raises(ArtifactError, match=key.split("/all.zarr")[0]):
            open_objects(objects, 2)

    def test_it_can_be_left_out(self, swept: Objects) -> None:
        _, objects = self.damaged(swept)
        whole, part = open_objects(swept, 2), open_objects(objects, 2, skip_unreadable=True)
        assert part.attrs["n_unreadable"] == 1
        assert part.sizes["cells"] == whole.sizes["cells"] - 16
        kept = np.isin(whole["morton"].values, part["morton"].values)
        np.testing.assert_array_equal(part["count"], whole["count"].values[kept])

    def test_other_fields_are_still_there(self, swept: Objects) -> None:
        _, objects = self.damaged(swept)
        np.testing.assert_array_equal(
            open_objects(objects, 2, fields=["count"])["count"], open_objects(swept, 2)["count"]
        )

    def test_a_torn_root_is_unreadable_and_an_unstamped_one_is_missing(self, swept: Objects) -> None:
        roots = [key for key in sorted(swept) if key.endswith("/all.zarr/zarr.json") and key.count("/") == 4]
        document = json.loads(swept[roots[1]])
        del document["attributes"]["morton_hive_commit"]
        objects = {**swept, roots[0]: b"{", roots[1]: json.dumps(document).encode()}
        with pytest.raises(ArtifactError, match=r"1 artifacts .* cannot be read"):
            open_objects(objects, 2)
        level = open_objects(objects, 2, skip_unreadable=True)
        assert (level.attrs["n_unreadable"], level.attrs["n_missing"]) == (1, 1)

    def test_an_absent_array_reads_as_fill(self, swept: Objects) -> None:
        node = nodes_of(swept, 2)[0]
        path = "/".join([node[:-2], *node[-2:]])
        objects = {
            key: data
            for key, data in swept.items()
            if not key.startswith((f"{path}/all.zarr/4/h_max/", f"{path}/all.zarr/4/h_tdigest/"))
        }
        level = open_objects(objects, 2, nodes=node)
        assert np.isnan(level["h_max"]).all()
        assert (level.sweep.count("h_tdigest") == 0).all()
        assert (level["count"] > 0).any()


class TestWithoutRecords:
    def test_leaves_are_found_by_a_walk(self, swept: Objects) -> None:
        bare = {k: v for k, v in swept.items() if not k.endswith(".parquet") and k != "coverage.moc"}
        np.testing.assert_array_equal(open_objects(bare, 1)["count"], open_objects(swept, 1)["count"])

    def test_and_so_are_windows(self, windowed: Objects) -> None:
        bare = {k: v for k, v in windowed.items() if not k.endswith(".parquet") and k != "coverage.moc"}
        assert open_ladder(loaded(bare))[0].windows == ("2019", "2020")
        np.testing.assert_array_equal(
            open_objects(bare, 1, "2020")["count"], open_objects(windowed, 1, "2020")["count"]
        )


class TestLadder:
    def test_rows(self, swept: Objects) -> None:
        ladder = open_ladder(loaded(swept))
        assert [(row.node_order, row.cell_order, row.is_leaf) for row in ladder] == [
            (3, 5, True),
            (3, 4, True),
            (3, 3, True),
            (2, 4, False),
            (1, 3, False),
            (0, 2, False),
        ]
        assert [row.n_nodes for row in ladder][3:] == [len(nodes_of(swept, order)) for order in (2, 1, 0)]
        assert len(ladder) == 6
        assert ladder[5].cell_km == pytest.approx(mortie.order2res(2), rel=1e-4)

    def test_windows_of_rows(self, windowed: Objects) -> None:
        ladder = open_ladder(loaded(windowed))
        assert ladder[0].windows == ("2019", "2020")
        assert ladder[-1].windows == ("2019", "2020", "all")

    def test_it_opens_its_levels(self, swept: Objects) -> None:
        ladder = open_ladder(loaded(swept))
        np.testing.assert_array_equal(
            ladder.open(1, fields=["count"])["count"], open_objects(swept, 1)["count"]
        )

    def test_it_is_shown(self, windowed: Objects) -> None:
        manifest = json.loads(windowed["morton_hive.json"])
        manifest["dataset"]["short_name"] = "<b>&"
        ladder = open_ladder(loaded({**windowed, "morton_hive.json": json.dumps(manifest).encode()}))
        text = repr(ladder)
        assert "<b>&, 6 levels" in text
        assert "2019, 2020, all" in text
        assert len(text.splitlines()) == 1 + 1 + 6 + 1
        html = ladder._repr_html_()
        assert "&lt;b&gt;&amp;" in html
        assert html.count("<tr>") == 7

    def test_no_artifact_is_read(self, swept: Objects) -> None:
        store = CountingStore(loaded(swept))
        open_ladder(store)
        assert not [key for _, key in store.log if ".zarr" in key]


def test_a_store_by_its_address(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", seed=3, n_shards=2, fields=("exact",))
    sweep_folder(root)
    for address in (root, str(root), root.as_uri()):
        assert open_level(address, 0)["count"].sum() > 0
        assert len(open_ladder(address)) == 6
