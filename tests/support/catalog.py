"""The fields a test store can declare, and the rows that feed them.

Source: leaves 3.6-3.7 and 5, format 2.2 and 5.2-5.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.support.numpy_folds import LANES, Digest, Words, build_digest, pack_lanes, quantize
from tests.support.zarr_writer import Json, Member

THRESHOLD = 2
GAIN = {"name": "bench", "version": "1", "value": 1.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Observations of one leaf, in input order."""

    cell: npt.NDArray[np.int64]
    height: npt.NDArray[np.float64]
    flux: npt.NDArray[np.float64]
    confidence: npt.NDArray[np.int64]
    surface: npt.NDArray[np.bool_]
    place: Words
    time: Words
    time_ns: npt.NDArray[np.int64]

    def take(self, index: npt.NDArray[Any]) -> "Rows":
        """Return the rows at ``index``."""
        return Rows(**{name: getattr(self, name)[index] for name in self.__slots__})

    def __len__(self) -> int:
        return len(self.cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """A dense field folded by sum, min or max."""

    name: str
    method: str
    dtype: str
    fill: float
    source: str

    def entry(self) -> Json:
        """Return the field's declaration."""
        fill: Any = "NaN" if np.isnan(self.fill) else np.dtype(self.dtype).type(self.fill).item()
        return {
            "class": "exact",
            "method": self.method,
            "nan_policy": "skip",
            "dtype": self.dtype,
            "fill_value": fill,
        }

    def leaf_value(self, rows: Rows) -> Any:
        """Reduce the rows of one cell, in float64 for a float field and in int64 for others."""
        if self.source == "rows":
            return np.dtype(self.dtype).type(len(rows))
        values = self._values(rows)
        if not len(values):
            return np.dtype(self.dtype).type(self.fill)
        ufunc = {"sum": np.add, "min": np.minimum, "max": np.maximum}[self.method]
        return ufunc.reduce(values).astype(self.dtype)

    def _values(self, rows: Rows) -> npt.NDArray[Any]:
        known = rows.height[np.isfinite(rows.height)]
        if self.source == "height":
            return known
        if self.source == "decimetre":
            return np.rint(known * 10).astype(np.int64)
        if self.source == "small":  # 1..200, so that no value is a fill
            return np.abs(np.rint(known * 3)).astype(np.int64) % 200 + 1
        return rows.confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Approximate:
    """A ragged field of digests."""

    name: str
    located: bool = False
    timed: bool = False
    flux: bool = False
    signal: bool = False
    dtype: str = "float32"

    def entry(self, delta: int, overview_delta: int) -> Json:
        """Return the field's declaration."""
        entry: Json = {"class": "approximate", "method": "tdigest_kway", "dtype": self.dtype}
        entry |= {"inner_shape": [2], "delta": delta, "overview_delta": overview_delta}
        if self.located:
            entry["location"] = "leaf_id"
        if self.timed:
            entry["temporal"] = "per-centroid"
        if self.flux:
            entry |= {"weights": "flux", "gain": dict(GAIN)}
        return entry

    def leaf_value(self, rows: Rows, delta: int) -> Digest:
        """Build the digest of one cell."""
        kept = rows.take(np.flatnonzero(rows.confidence >= THRESHOLD)) if self.signal else rows
        return build_digest(
            kept.height,
            kept.flux if self.flux else np.ones(len(kept)),
            delta=delta,
            locations=kept.place if self.located else None,
            times=kept.time if self.timed else None,
            dtype=self.dtype,
        )

    def attributes(self, *, leaf: bool) -> Json:
        """Return the attributes of the payload array; some are carried by leaves alone."""
        ragged: Json = {"spec": "zagg-ragged/1", "element": {"dtype": self.dtype, "shape": [-1, 2]}}
        if self.located:
            ragged["locations"] = f"{self.name}_locations"
        found: Json = {"ragged": ragged}
        if self.flux:
            found["weights"] = "flux"
        if self.timed:
            found["times"] = f"{self.name}_times"
        if self.flux:
            found["gain"] = dict(GAIN)
        if leaf and self.signal:
            found |= {"stratum": "signal", "signal_threshold": THRESHOLD}
        return found

    def members(self, cells: Sequence[Digest], *, leaf: bool) -> dict[str, Member]:
        """Return the payload array and its companions."""
        payload = [cell.rows.astype(f"<{cell.rows.dtype.str[1:]}").tobytes() for cell in cells]
        found = {self.name: Member(values=payload, attributes=self.attributes(leaf=leaf))}
        element = {"spec": "zagg-ragged/1", "element": {"dtype": "uint64", "shape": [-1]}}
        shape = {"shape": "per-centroid"}
        if self.located:
            words = [cell.locations.astype("<u8").tobytes() for cell in cells if cell.locations is not None]
            located = {"spec": "zagg-located/1", **shape, "grammar": "mortie-morton/1"}
            attributes = {"ragged": element, "located": located}
            found[f"{self.name}_locations"] = Member(values=words, attributes=attributes)
        if self.timed:
            words = [cell.times.astype("<u8").tobytes() for cell in cells if cell.times is not None]
            temporal = {"spec": "zagg-toc/1", **shape, "grammar": "mortie-toc/1"}
            attributes = {"ragged": element, "temporal": temporal}
            found[f"{self.name}_times"] = Member(values=words, attributes=attributes)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A packed word of eight shares, weighted by the rows of another field's digest."""

    name: str
    of: str

    def entry(self) -> Json:
        """Return the field's declaration."""
        return {
            "class": "packed",
            "method": "composition_kway",
            "dtype": "uint64",
            "fill_value": 0,
            "of": self.of,
            "threshold": THRESHOLD,
        }

    def leaf_value(self, rows: Rows) -> int:
        """Pack the shares of one cell's signal rows."""
        signal = rows.take(np.flatnonzero((rows.confidence >= THRESHOLD) & np.isfinite(rows.height)))
        if not len(signal):
            return 0
        counts = [*signal.surface.sum(axis=0).tolist()]
        counts += [int((signal.confidence == level).sum()) for level in (2, 3, 4)]
        return pack_lanes([quantize(255 * n / len(signal), present=n > 0) for n in counts])

    def attributes(self) -> Json:
        """Return the attributes of the array."""
        binding = {"of": self.of, "threshold": THRESHOLD, "spec": "zagg-composition/1", "lanes": list(LANES)}
        return {"composition": binding}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfolded:
    """A field that leaves hold and nothing above them does."""

    name: str

    def entry(self) -> Json:
        """Return the field's declaration."""
        return {"class": "none"}

    def leaf_value(self, rows: Rows) -> float:
        """Return the mean height of one cell."""
        known = rows.height[np.isfinite(rows.height)]
        return float(known.mean()) if len(known) else float("nan")


type Field = Exact | Approximate | Packed | Unfolded

_NAN = float("nan")
COUNT = Exact(name="count", method="sum", dtype="int64", fill=0, source="rows")


def _exact(name: str, method: str, dtype: str, fill: float, source: str = "height") -> Exact:
    return Exact(name=name, method=method, dtype=dtype, fill=fill, source=source)


CATALOG: Mapping[str, tuple[Field, ...]] = {
    "exact": (
        _exact("c_sum", "sum", "int32", 0, "confidence"),
        _exact("h_sum", "sum", "float64", _NAN),
        _exact("h_min", "min", "float32", _NAN),
        _exact("h_max", "max", "float32", _NAN),
        _exact("i_min", "min", "int32", -9999, "decimetre"),
        _exact("i_max", "max", "int32", -9999, "decimetre"),
    ),
    "exotic": (
        _exact("f_sum", "sum", "float32", -9999.0),
        _exact("g_sum", "sum", "float32", _NAN),
        _exact("d_min", "min", "float64", 1e20),
        _exact("d_max", "max", "float64", _NAN),
        _exact("b_max", "max", "uint8", 0, "small"),
        _exact("s_min", "min", "int16", -1, "decimetre"),
        _exact("u_min", "min", "uint16", 65535, "small"),
        _exact("l_max", "max", "int64", -(2**40), "decimetre"),
    ),
    # sums past the type's range, which wrap: no tolerance of a checker allows for them
    "wrapping": (
        _exact("w_sum", "sum", "int8", 0, "small"),
        _exact("v_sum", "sum", "uint8", 0, "small"),
    ),
    "digest": (Approximate(name="h_tdigest"),),
    "digest64": (Approximate(name="h_tdigest64", dtype="float64"),),
    "located": (Approximate(name="h_tdigest_place", located=True),),
    "timed": (Approximate(name="t_tdigest", timed=True),),
    "both": (Approximate(name="h_tdigest_signal", located=True, timed=True, signal=True),),
    "flux": (Approximate(name="rx_flux", timed=True, flux=True),),
    "packed": (
        Approximate(name="h_tdigest_land", signal=True),
        Packed(name="composition", of="h_tdigest_land"),
    ),
    "none": (Unfolded(name="h_mean"),),
}
CHECKED = ("exact", "digest", "located", "timed", "both", "flux", "packed", "none")


def choose_fields(names: Sequence[str], rng: np.random.Generator) -> tuple[Field, ...]:
    """Return the fields of the named choices, `count` first and the others in a random order."""
    chosen = [field for name in names for field in CATALOG[name]]
    return (COUNT, *(chosen[i] for i in rng.permutation(len(chosen))))
