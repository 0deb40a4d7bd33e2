"""Fields of a store: how each is folded, and which arrays it owns.

Source: format 2.2 (manifest entries), 4.1 and 6 (provenance), 5.2-5.3 (arrays).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from sweep.errors import DeclarationError

__all__ = [
    "DTYPES",
    "LANES",
    "LAWS",
    "ArraySpec",
    "DigestField",
    "ExactField",
    "Field",
    "FieldMap",
    "Law",
    "PackedField",
    "parse_fields",
]

type Law = Literal["sum", "min", "max"]
LAWS: tuple[Law, ...] = ("sum", "min", "max")
DTYPES = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
LANES = ("land", "ocean", "sea_ice", "land_ice", "inland_water", "low", "med", "high")
"""Meanings of the eight bytes of a composition word, least significant first."""

DEFAULT_DELTA = 512
MAX_DELTA = 2**31 - 1
MAX_NAME_BYTES = 200  # room for the endings of companions, and for a temporary file of that name
_RAGGED = "zagg-ragged/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """One zarr array of a resolution group.

    ``fill`` is a numpy scalar of ``dtype`` for a dense array and None for a ragged one,
    whose elements are bytes; ``dtype`` is then the element dtype of a cell's payload.
    """

    name: str
    dtype: np.dtype[Any]
    fill: Any
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_ragged(self) -> bool:
        return self.fill is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactField:
    """A dense field folded by sum, min or max."""

    name: str
    law: Law
    dtype: np.dtype[Any]
    fill: Any
    nan_policy: str = "skip"

    def arrays(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec(name=self.name, dtype=self.dtype, fill=self.fill),)

    def overview_provenance(self) -> dict[str, Any]:
        return {"class": "exact", "method": self.law, "nan_policy": self.nan_policy}

    column_provenance = overview_provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestField:
    """A t-digest per cell, with optional location and time words for each centroid.

    ``budget`` is the number of centroids a merge aims at; ``delta`` the declared one of
    the leaf's build.
    """

    name: str
    method: str
    dtype: np.dtype[Any]
    inner: tuple[int, ...]
    delta: int
    budget: int
    has_locations: bool
    has_times: bool
    weights: str | None
    gain: Any

    @property
    def locations(self) -> str:
        return f"{self.name}_locations"

    @property
    def times(self) -> str:
        return f"{self.name}_times"

    def siblings(self) -> tuple[str, ...]:
        """The names of the companion arrays that this field declares."""
        return (self.locations,) * self.has_locations + (self.times,) * self.has_times

    def arrays(self) -> tuple[ArraySpec, ...]:
        payload = ArraySpec(
            name=self.name, dtype=self.dtype, fill=None, attributes=self._payload_attributes()
        )
        companions = []
        if self.has_locations:
            companions.append(_companion(self.locations, "located", "zagg-located/1", "mortie-morton/1"))
        if self.has_times:
            companions.append(_companion(self.times, "temporal", "zagg-toc/1", "mortie-toc/1"))
        return (payload, *companions)

    def _payload_attributes(self) -> dict[str, Any]:
        ragged: dict[str, Any] = {
            "spec": _RAGGED,
            "element": {"dtype": self.dtype.name, "shape": [-1, *self.inner]},
        }
        if self.has_locations:
            ragged["locations"] = self.locations
        attributes: dict[str, Any] = {"ragged": ragged}
        if self.weights is not None:
            attributes["weights"] = self.weights
        if self.has_times:
            attributes["times"] = self.times
        if self.weights is not None and self.gain is not None:
            attributes["gain"] = self.gain
        return attributes

    def overview_provenance(self) -> dict[str, Any]:
        return {"class": "approximate", "method": self.method}

    def column_provenance(self) -> dict[str, Any]:
        return {
            **self.overview_provenance(),
            "delta": self.delta,
            "overview_delta": self.budget,
            "dtype": self.dtype.name,
            "inner_shape": list(self.inner),
        }


def _companion(name: str, block: str, spec: str, grammar: str) -> ArraySpec:
    return ArraySpec(
        name=name,
        dtype=np.dtype(np.uint64),
        fill=None,
        attributes={
            "ragged": {"spec": _RAGGED, "element": {"dtype": "uint64", "shape": [-1]}},
            block: {"spec": spec, "shape": "per-centroid", "grammar": grammar},
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedField:
    """A composition word per cell, weighted by the counts of the digest field ``of``."""

    name: str
    method: str
    dtype: np.dtype[Any]
    fill: Any
    of: str
    has_threshold: bool
    threshold: Any

    def arrays(self) -> tuple[ArraySpec, ...]:
        composition: dict[str, Any] = {"of": self.of}
        if self.has_threshold:
            composition["threshold"] = self.threshold
        composition |= {"spec": "zagg-composition/1", "lanes": list(LANES)}
        attributes = {"composition": composition}
        return (ArraySpec(name=self.name, dtype=self.dtype, fill=self.fill, attributes=attributes),)

    def overview_provenance(self) -> dict[str, Any]:
        return {"class": "packed", "method": self.method}

    def column_provenance(self) -> dict[str, Any]:
        return {**self.overview_provenance(), "dtype": self.dtype.name, "of": self.of}


type Field = ExactField | DigestField | PackedField


@dataclass(frozen=True, slots=True)
class FieldMap:
    """The fields that take part in a sweep, in manifest order."""

    fields: tuple[Field, ...]

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def get(self, name: str) -> Field | None:
        """The field called ``name``, or None."""
        return next((f for f in self.fields if f.name == name), None)

    def arrays(self) -> tuple[ArraySpec, ...]:
        """Every array of a resolution group but ``morton``: payloads with their companions."""
        return tuple(spec for f in self.fields for spec in f.arrays())


def parse_fields(entries: Any) -> tuple[FieldMap, list[str]]:
    """Read the manifest's field map.

    Entries of class ``none``, of unknown classes, and packed entries without ``of`` take no
    part and are passed over, as format 2.2 says.

    Returns
    -------
    fields : FieldMap
    problems : list of str
        What is wrong with entries that should take part; empty when all is well.
    """
    if not isinstance(entries, Mapping):
        return FieldMap(()), [f"pyramid.overview.fields is {_kind(entries)}, expected an object"]
    fields: list[Field] = []
    problems: list[str] = []
    for name, entry in entries.items():
        if not isinstance(entry, Mapping):
            continue
        try:
            parsed = _field(name, entry)
        except DeclarationError as error:
            problems.append(f"field {name!r}: {error.message}")
        else:
            fields += [] if parsed is None else [parsed]
    problems += _collisions(fields)
    digests = {each.name for each in fields if isinstance(each, DigestField)}
    problems += [
        f"field {each.name!r}: it is weighted by {each.of!r}, which is no approximate field of this store"
        for each in fields
        if isinstance(each, PackedField) and each.of not in digests
    ]
    return FieldMap(tuple(fields)), problems


def _field(name: str, entry: Mapping[str, Any]) -> Field | None:
    match entry.get("class"):
        case "exact":
            return _exact(name, entry)
        case "approximate":
            return _digest(name, entry)
        case "packed" if entry.get("of"):
            return _packed(name, entry)
        case _:
            return None


def _collisions(fields: list[Field]) -> list[str]:
    seen: dict[str, str] = {"morton": "the coordinate"}
    problems = []
    for each in fields:
        for spec in each.arrays():
            if spec.name in seen:
                problems.append(
                    f"field {each.name!r}: its array {spec.name!r} is also {seen[spec.name]}; rename one"
                )
            seen[spec.name] = f"an array of field {each.name!r}"
    return problems


def _exact(name: str, entry: Mapping[str, Any]) -> ExactField:
    law = entry.get("method")
    if law not in LAWS:
        raise DeclarationError(f"unknown fold law {law!r}; known laws are {', '.join(LAWS)}", kind="law")
    dtype = _dtype(entry.get("dtype", "float32"))
    return ExactField(
        name=_array_name(name),
        law=law,
        dtype=dtype,
        fill=_fill(entry.get("fill_value", "NaN"), dtype),
        nan_policy=str(entry.get("nan_policy", "skip")),
    )


def _digest(name: str, entry: Mapping[str, Any]) -> DigestField:
    dtype = _dtype(entry.get("dtype", "float32"))
    if dtype.kind != "f":
        raise DeclarationError(f"digest dtype {dtype.name} is not a float", kind="dtype")
    inner = entry.get("inner_shape", [2])
    if inner != [2]:
        raise DeclarationError(
            f"inner_shape {inner!r}, expected [2]: a (mean, weight) row", kind="inner-shape"
        )
    delta = _whole(entry, "delta") or DEFAULT_DELTA
    weights = entry.get("weights")
    return DigestField(
        name=_array_name(name),
        method=str(entry.get("method", "tdigest_kway")),
        dtype=dtype,
        inner=(2,),
        delta=delta,
        budget=_whole(entry, "overview_delta") or min(delta, DEFAULT_DELTA),
        has_locations=bool(entry.get("location")),
        has_times=bool(entry.get("temporal")),
        weights=None if weights in (None, "counts") else str(weights),
        gain=entry.get("gain"),
    )


def _packed(name: str, entry: Mapping[str, Any]) -> PackedField:
    dtype = _dtype(entry.get("dtype", "uint64"))
    if dtype != np.uint64:
        raise DeclarationError(f"composition dtype {dtype.name}, expected uint64", kind="dtype")
    return PackedField(
        name=_array_name(name),
        method=str(entry.get("method", "composition_kway")),
        dtype=dtype,
        fill=np.uint64(0),
        of=str(entry["of"]),
        has_threshold=entry.get("threshold") is not None,
        threshold=entry.get("threshold"),
    )


def _array_name(name: Any) -> str:
    """``name``, where a store's keys and a zarr group can hold an array of it."""
    is_sound = (
        isinstance(name, str)
        and name.isprintable()
        and 0 < len(name.encode()) <= MAX_NAME_BYTES
        and "/" not in name
        and not name.startswith((".", "__"))
        and name != "zarr.json"
    )
    if not is_sound:
        raise DeclarationError(
            f"its name cannot name a zarr array: expected at most {MAX_NAME_BYTES} bytes of printable text "
            "without '/', not 'zarr.json', and not beginning with '.' or '__'",
            kind="field-name",
        )
    return str(name)


def _dtype(text: Any) -> np.dtype[Any]:
    if text not in DTYPES:
        raise DeclarationError(f"dtype {text!r} is not one of {', '.join(DTYPES)}", kind="dtype")
    dtype: np.dtype[Any] = np.dtype(text)
    return dtype


def _whole(entry: Mapping[str, Any], key: str) -> int | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_DELTA:
        raise DeclarationError(
            f"{key} {repr(value)[:80]}, expected a whole number of at least 1 and at most {MAX_DELTA}",
            kind=key,
        )
    return value


_TOKENS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


def _fill(value: Any, dtype: np.dtype[Any]) -> Any:
    number = _TOKENS.get(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise DeclarationError(
            f"fill_value {value!r} is neither a number nor one of {', '.join(_TOKENS)}", kind="fill"
        )
    if dtype.kind == "f":
        return _float_fill(value, number, dtype)
    info = np.iinfo(dtype)
    is_whole = isinstance(number, int) or number.is_integer()
    if not is_whole or not info.min <= int(number) <= info.max:
        raise DeclarationError(f"fill_value {value!r} does not fit {dtype.name}", kind="fill")
    return dtype.type(int(number))


def _float_fill(value: Any, number: float, dtype: np.dtype[Any]) -> Any:
    try:
        with np.errstate(over="ignore"):
            fill = dtype.type(float(number))
    except OverflowError:
        fill = dtype.type(np.inf)
    if np.isinf(fill) and abs(number) != np.inf:
        raise DeclarationError(f"fill_value {value!r} does not fit {dtype.name}", kind="fill")
    return fill


def _kind(value: Any) -> str:
    return "absent" if value is None else f"of type {type(value).__name__}"
