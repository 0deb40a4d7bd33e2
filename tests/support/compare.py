"""Compares two stores object by object: the same bytes, but for run identity and the clock.

Source: format 1.6 and 13.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

# values that name a run, a moment, a program or a place
_VOLATILE = frozenset(
    {
        "run_id",
        "run_ids",
        "pipeline_run_id",
        "record",
        "store_root",
        "zagg_version",
        "generated_at",
        "members_generated_at",
        "written_at",
        "timestamp",
        "acquired_at",
        "heartbeat_at",
        "run_started",
        "duration_s",
    }
)
_RUN_RECORD = re.compile(r"sweep_stats_\d{8}T\d{6}Z_stages\.json")


def objects_of(root: Path) -> dict[str, Path]:
    """Map each object's key to its file; run records are numbered by age, as their names hold a clock."""
    found: dict[str, Path] = {}
    records = 0
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        key = path.relative_to(root).as_posix()
        if _RUN_RECORD.fullmatch(key):
            records += 1
            key = f"sweep_stats_{records}"
        found[key] = path
    return found


def node_objects(root: Path) -> dict[str, bytes]:
    """Map each object below a base cell to its bytes: all but the objects of the store's root."""
    return {key: path.read_bytes() for key, path in objects_of(root).items() if re.match(r"-?[1-6]/", key)}


def is_overview_chunk(key: str) -> bool:
    """Tell whether a key names a chunk of an overview: what no tuple width changes."""
    return "/c/" in key and ".pyramid.zarr/" not in key


def compare_stores(expected: Path, actual: Path, *, overview_chunks: bool = False) -> list[str]:
    """Return what differs between two stores, one line each; nothing if they are the same.

    Parameters
    ----------
    expected, actual
        Roots of the stores.
    overview_chunks
        Look at the chunk objects of overviews alone.
    """
    want, have = objects_of(expected), objects_of(actual)
    if overview_chunks:
        want, have = _overview_chunks(want), _overview_chunks(have)
    if not want:
        return [f"{expected} holds nothing to compare"]
    return _compared(want, have, lambda path: path.read_bytes(), same_runs=True)


def compare_objects(want: Mapping[str, bytes], have: Mapping[str, bytes], *, same_runs: bool) -> list[str]:
    """Return what differs between two sets of objects, as `compare_stores` does.

    Where not ``same_runs``, it does not matter how many runs an artifact's sources come from, and
    the records of runs are left out: the stores were swept in another number of runs.
    """
    want, have = _records_named_alike(want, same_runs), _records_named_alike(have, same_runs)
    if not want:
        return ["there is nothing to compare"]
    return _compared(want, have, lambda data: data, same_runs=same_runs)


def _compared[T](
    want: Mapping[str, T], have: Mapping[str, T], read: Callable[[T], bytes], *, same_runs: bool
) -> list[str]:
    found = [f"{key}: missing" for key in sorted(want.keys() - have.keys())]
    found += [f"{key}: unexpected" for key in sorted(have.keys() - want.keys())]
    for key in sorted(want.keys() & have.keys()):
        lines = _differences(read(want[key]), read(have[key]), same_runs=same_runs)
        found += [f"{key}: {line}" for line in lines]
    return found


def _records_named_alike(objects: Mapping[str, bytes], keep: bool) -> dict[str, bytes]:
    named = {_RUN_RECORD.sub("sweep_stats_", key): data for key, data in objects.items()}
    return {key: data for key, data in named.items() if keep or not key.startswith("sweep_stats_")}


def _overview_chunks(objects: Mapping[str, Path]) -> dict[str, Path]:
    return {key: path for key, path in objects.items() if is_overview_chunk(key)}


def _without_runs(value: Any) -> Any:
    """Empty every list of run ids."""
    if isinstance(value, dict):
        return {key: [] if key == "run_ids" else _without_runs(item) for key, item in value.items()}
    return [_without_runs(item) for item in value] if isinstance(value, list) else value


def _differences(want: bytes, have: bytes, *, same_runs: bool) -> Iterable[str]:
    if want == have:
        return
    try:
        documents = [json.loads(text) for text in (want, have)]
    except ValueError:
        yield f"{len(want)} bytes expected, {len(have)} other bytes found"
        return
    expected, found = (_masked(value if same_runs else _without_runs(value)) for value in documents)
    lines = list(_walk(expected, found, "$"))
    yield from lines
    layouts = [_layout(text.decode(), value) for text, value in zip((want, have), documents, strict=True)]
    if not lines and layouts[0] != layouts[1]:
        yield f"laid out with indent {layouts[1]}, expected {layouts[0]}"


def _masked(value: Any) -> Any:
    """Replace volatile values by what they must still share: kind, and number of items."""
    if isinstance(value, dict):
        return {key: _mask(item) if key in _VOLATILE else _masked(item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _mask(value: Any) -> Any:
    match value:
        case None:
            return None
        case list():
            return [_mask(item) for item in value]
        case int() | float():
            return "a number"
        case _:
            return "a text"


def _walk(want: Any, have: Any, place: str) -> Iterable[str]:
    if isinstance(want, dict) and isinstance(have, dict):
        if list(want) != list(have):
            yield f"{place}: keys {list(have)}, expected {list(want)}"
        for key in want.keys() & have.keys():
            yield from _walk(want[key], have[key], f"{place}.{key}")
    elif isinstance(want, list) and isinstance(have, list) and len(want) == len(have):
        for number, (one, other) in enumerate(zip(want, have, strict=True)):
            yield from _walk(one, other, f"{place}[{number}]")
    elif type(want) is not type(have) or want != have:
        yield f"{place}: {json.dumps(have)[:160]}, expected {json.dumps(want)[:160]}"


def _layout(text: str, value: Any) -> str:
    """Name the indent that gives a document its text back."""
    return next((str(n) for n in (None, 1, 2) if json.dumps(value, indent=n) == text), "of no known kind")
