"""Maps: what is drawn is what is there, and what cannot be drawn is said."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.sweeping import loaded

from sweep.errors import AccessError, DeclarationError
from sweep.model.nodes import word_of
from sweep.read import _map
from sweep.read._outlines import outlines
from sweep.read.level import open_level
from sweep.read.show import DrawnLevel, draw_level

type Objects = Mapping[str, bytes]
HEADS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def draw(objects: Objects, out: Path, level: int = 1, field: str = "h_tdigest", **options: Any) -> DrawnLevel:
    return draw_level(loaded(objects), level=level, field=field, out=out, **options)


@pytest.mark.parametrize("suffix", sorted(HEADS))
def test_every_kind_of_picture(swept: Objects, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"map{suffix}"
    drawn = draw(swept, out)
    assert out.read_bytes().startswith(HEADS[suffix])
    assert drawn.out == out


@pytest.mark.parametrize("level", [3, 2, 1, 0])
def test_it_says_what_it_drew(swept: Objects, tmp_path: Path, level: int) -> None:
    drawn = draw(swept, tmp_path / "map.png", level, quantile=0.25)
    values = open_level(loaded(swept), level).sweep.quantile("h_tdigest", 0.25).values
    held = values[np.isfinite(values)]
    assert (drawn.n_cells, drawn.n_with_data) == (len(values), len(held))
    assert (drawn.low, drawn.high) == (held.min(), held.max())
    assert drawn.node_order == level


@pytest.mark.parametrize("field", ["count", "h_min", "i_min", "h_sum"])
def test_exact_fields_leave_out_what_is_missing(swept: Objects, tmp_path: Path, field: str) -> None:
    drawn = draw(swept, tmp_path / "map.png", 0, field)
    level = open_level(loaded(swept), 0)
    values = level[field].values.astype(np.float64)
    held = values[~np.isnan(values) & (values != level[field].attrs["fill_value"])]
    assert drawn.n_with_data == len(held) > 0
    assert (drawn.low, drawn.high) == (held.min(), held.max())


def test_compositions(swept: Objects, tmp_path: Path) -> None:
    level = open_level(loaded(swept), 0)
    n_held = int((level["composition"] != 0).sum())
    strongest = draw(swept, tmp_path / "a.png", 0, "composition")
    assert (strongest.n_with_data, strongest.low, strongest.high) == (n_held, None, None)
    ocean = draw(swept, tmp_path / "b.png", 0, "composition", lane="ocean")
    shares = level.sweep.lanes("composition").sel(lane="ocean").values[level["composition"].values != 0]
    assert ocean.high == pytest.approx(shares.max() / 255)


def test_windows(windowed: Objects, tmp_path: Path) -> None:
    counts = [
        draw(windowed, tmp_path / "map.png", 0, "count", window=window).n_with_data
        for window in ("2019", "2020", None)
    ]
    assert max(counts[:2]) <= counts[2] <= sum(counts[:2])


def test_the_globe_is_larger_than_the_data(swept: Objects, tmp_path: Path) -> None:
    sizes = []
    for whole_globe in (False, True):
        out = tmp_path / "map.png"
        draw(swept, out, 0, whole_globe=whole_globe)
        sizes.append(struct.unpack(">II", out.read_bytes()[16:24]))
    width, height = sizes[1]
    assert width / height == pytest.approx((9.0) / (7.1 / 2 + 1.25), rel=0.01)


class TestView:
    def view(self, *decimals: str) -> _map._View:
        words = np.array([word_of(each) for each in decimals], dtype=np.uint64)
        order = int(words[0] & np.uint64(63))
        return _map._fit(*outlines(words, order))

    def test_it_fits_the_data_with_a_margin(self) -> None:
        # Base cell 5 spans 45 degrees either side of longitude 0, and 41.9 of latitude.
        view = self.view("5")
        assert (view.west, view.east) == pytest.approx((-48.6, 48.6))
        assert view.south == pytest.approx(-41.938 - 3.6, abs=0.01)

    def test_it_crosses_the_antimeridian(self) -> None:
        # Base cell -1 lies around longitude 180.
        view = self.view("-1")
        assert view.east - view.west == pytest.approx(97.2)
        assert view.west < -180 or view.east > 180

    def test_it_leaves_out_the_widest_gap(self) -> None:
        # Around 270 (-2) and around 0 (5): together from 225 to 45.
        view = self.view("-2", "5")
        assert view.east - view.west == pytest.approx(180 * 1.08)
        assert -180 <= (view.west + view.east) / 2 < 180
        assert (view.west % 360) == pytest.approx(225 - 7.2)

    def test_all_round_is_the_globe(self) -> None:
        view = self.view("5", "6", "-1", "-2")
        assert (view.west, view.east) == (-180, 180)

    def test_poles_stay_on_the_map(self) -> None:
        view = self.view("1", "-3")
        assert (view.south, view.north) == (-90, 90)

    def test_cells_are_drawn_on_every_turn_that_is_seen(self) -> None:
        words = np.array([word_of("-1")], dtype=np.uint64)
        shapes, owners = _map._polygons(*outlines(words, 0), _map._globe())
        assert owners.tolist() == [0, 0]
        assert sorted(shape[:, 0].min() for shape in shapes) == pytest.approx([-225, 135])

    @pytest.mark.parametrize(
        ("span", "step"),
        [(360, 60), (180, 30), (55, 10), (9, 2), (4, 1), (3, 0.5), (0.7, 0.1), (0.03, 0.005)],
    )
    def test_steps_of_the_grid(self, span: float, step: float) -> None:
        assert _map._step(span) == pytest.approx(step)

    @pytest.mark.parametrize(
        ("value", "east", "north"),
        [(-190, "170°E", "190°S"), (0, "0°", "0°"), (180, "180°", "180°N"), (30, "30°E", "30°N")],
    )
    def test_degrees(self, value: float, east: str, north: str) -> None:
        assert _map._degrees("E", "W")(value, 0) == east
        assert _map._degrees("N", "S")(value, 0) == north


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"field": "nothing"}, r"no field 'nothing'.*its fields are .*h_tdigest"),
            ({"level": 9}, r"no level 9.*2 \(cells 4\)"),
            ({"window": "2019"}, "store without windows"),
            ({"quantile": 1.5}, "from 0 to 1"),
            ({"lane": "ocean"}, "h_tdigest, which has no lanes"),
            ({"field": "composition", "lane": "x"}, r"no lane 'x'; its lanes are land, ocean"),
            ({"cmap": "mud"}, "no colour map 'mud'"),
        ],
    )
    def test_what_is_not_there(
        self, swept: Objects, tmp_path: Path, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(DeclarationError, match=message):
            draw(swept, tmp_path / "map.png", **options)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("name", "message"), [("map.gif", r"\.png, \.svg, \.pdf"), ("no/map.png", "no folder")]
    )
    def test_pictures_that_cannot_be(self, swept: Objects, tmp_path: Path, name: str, message: str) -> None:
        with pytest.raises(DeclarationError, match=message):
            draw(swept, tmp_path / name)

    def test_a_file_that_cannot_be_written(self, swept: Objects, tmp_path: Path) -> None:
        (tmp_path / "map.png").mkdir()
        with pytest.raises(AccessError, match=r"cannot write the picture .*map\.png"):
            draw(swept, tmp_path / "map.png")

    def test_an_unswept_level(self, unswept: Objects, tmp_path: Path) -> None:
        with pytest.raises(DeclarationError, match=r"level 1: nothing to draw.*sweep the store first"):
            draw(unswept, tmp_path / "map.png")

    def test_matplotlib_is_asked_for_by_name(
        self, swept: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
        with pytest.raises(
            DeclarationError, match=r"needs matplotlib.*its extra 'show'.*pip install '\.\[show\]'"
        ):
            draw(swept, tmp_path / "map.png")


def test_damaged_nodes_are_left_out_and_counted(swept: Objects, tmp_path: Path) -> None:
    roots = [key for key in sorted(swept) if key.endswith("/all.zarr/zarr.json") and key.count("/") == 4]
    document = json.loads(swept[roots[1]])
    del document["attributes"]["morton_hive_commit"]
    objects = {**swept, roots[0]: b"", roots[1]: json.dumps(document).encode()}
    drawn = draw(objects, tmp_path / "map.png", 2)
    assert (drawn.n_unreadable, drawn.n_missing) == (1, 1)
    assert drawn.n_nodes == len(roots) - 2


def test_no_figure_of_the_session_is_touched(swept: Objects, tmp_path: Path) -> None:
    from matplotlib import pyplot

    before = (pyplot.get_fignums(), pyplot.get_backend())
    draw(swept, tmp_path / "map.png")
    assert (pyplot.get_fignums(), pyplot.get_backend()) == before
