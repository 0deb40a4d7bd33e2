"""The manifest: what is read, and every refusal of format 2.4 with what it must name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.reference import ReferenceStore

from sweep.errors import DeclarationError
from sweep.model.manifest import Manifest, missing_manifest, parse_manifest

ROOT = "s3://bucket/store"


def document(**changes: Any) -> dict[str, Any]:
    """A small sound manifest, with keys replaced, or removed where the value is ``...``."""
    base: dict[str, Any] = {
        "spec": "morton-hive/1",
        "dataset": {"short_name": "SMALL", "version": "001"},
        "cell_order": 7,
        "shard_order": 4,
        "pyramid": pyramid(),
    }
    base |= changes
    return {key: value for key, value in base.items() if value is not ...}


def pyramid(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "spec": "zagg-pyramid/2",
        "overviews": [{"node": 4, "cells": [6]}, *({"node": k, "cells": [k + 2]} for k in (3, 2, 1, 0))],
        "overview": {
            "all_time": True,
            "fields": {"count": {"class": "exact", "method": "sum", "dtype": "int64", "fill_value": 0}},
        },
    }
    base |= changes
    return {key: value for key, value in base.items() if value is not ...}


def read(value: Any) -> Manifest:
    return parse_manifest(json.dumps(value).encode(), ROOT)


def refusal(value: Any) -> DeclarationError:
    with pytest.raises(DeclarationError) as caught:
        read(value)
    assert "morton_hive.json" in str(caught.value)
    assert ROOT in str(caught.value)
    assert isinstance(caught.value, ValueError)
    return caught.value


def test_what_is_read() -> None:
    manifest = read(document())
    assert manifest.shard_order == 4
    assert manifest.ladder.cell_order == 7
    assert manifest.ladder.leaf_cells == (6,)
    assert [(level.node_order, level.cell_order) for level in manifest.ladder.levels] == [
        (3, 5),
        (2, 4),
        (1, 3),
        (0, 2),
    ]
    assert [field.name for field in manifest.fields] == ["count"]
    assert manifest.name == "SMALL"
    assert manifest.spec == "morton-hive/1"
    assert manifest.stamp_spec == "morton-hive/1"
    assert not manifest.is_windowed


def test_closes_needs_windows_and_all_time() -> None:
    assert not read(document()).closes
    windowed = read(document(temporal={"windows": []}, spec="morton-hive/2"))
    assert windowed.is_windowed
    assert windowed.closes
    assert windowed.stamp_spec == "morton-hive/2"
    assert not read(document(temporal=None)).is_windowed
    without = pyramid(overview={"fields": {}})
    assert not read(document(temporal={}, pyramid=without)).closes


def test_unknown_keys_are_kept() -> None:
    value = document(novel={"a": 1})
    assert read(value).document == value


def test_an_absent_manifest() -> None:
    error = missing_manifest(ROOT)
    assert isinstance(error, DeclarationError)
    for text in ("morton_hive.json", ROOT, "not a hive store root"):
        assert text in str(error)


@pytest.mark.parametrize("data", [b"", b"{", json.dumps(document()).encode()[:-9], b"\xff\xfe"])
def test_a_truncated_manifest(data: bytes) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_manifest(data, ROOT)
    message = str(caught.value)
    for text in ("morton_hive.json", ROOT, f"{len(data)} bytes", "restore"):
        assert text in message
    assert caught.value.kind == "manifest-torn"


def test_a_manifest_is_an_object() -> None:
    assert "not a JSON object" in str(refusal([1]))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (document(pyramid=...), "None"),
        (document(pyramid="zagg-pyramid/2"), "None"),
        (document(pyramid=pyramid(spec=...)), "None"),
        (document(pyramid=pyramid(spec="zagg-pyramid/1")), "'zagg-pyramid/1'"),
    ],
)
def test_another_pyramid_grammar(value: Any, found: str) -> None:
    error = refusal(value)
    assert error.kind == "pyramid-spec"
    message = str(error)
    assert "'zagg-pyramid/2'" in message
    assert f"found {found}" in message
    assert "'zagg-pyramid/1' stores" in message


@pytest.mark.parametrize("overviews", [..., None, [], {}, "none"])
def test_nothing_declared_to_sweep(overviews: Any) -> None:
    error = refusal(document(pyramid=pyramid(overviews=overviews)))
    assert error.kind == "no-ladder"
    assert "pyramid.overviews" in str(error)
    assert "nothing to sweep" in str(error)


@pytest.mark.parametrize("cells", [[], [5, 4]])
def test_a_ladder_entry_has_one_member(cells: list[int]) -> None:
    error = refusal(document(pyramid=pyramid(overviews=[{"node": 3, "cells": cells}])))
    message = str(error)
    for text in ("overviews[0]", "node 3", f"{len(cells)} members", "exactly one"):
        assert text in message


def test_a_leaf_entry_may_have_any_number_of_members() -> None:
    entries = [{"node": 4, "cells": [6, 5]}, {"node": 5, "cells": []}, {"node": 3, "cells": [5]}]
    ladder = read(document(pyramid=pyramid(overviews=entries))).ladder
    assert ladder.leaf_cells == (6, 5)
    assert len(ladder.levels) == 1


def test_a_ladder_may_be_empty() -> None:
    assert read(document(pyramid=pyramid(overviews=[{"node": 4, "cells": [6]}]))).ladder.levels == ()


def test_a_merge_level_needs_a_finer_one() -> None:
    error = refusal(document(pyramid=pyramid(overviews=[{"node": 1, "cells": [3]}])))
    message = str(error)
    for text in ("node 1", "[3]", "malformed declaration"):
        assert text in message


@pytest.mark.parametrize(
    "entry", [{"node": 3}, {"cells": [5]}, {"node": "3", "cells": [5]}, {"node": 3, "cells": ["5"]},
              {"node": True, "cells": [5]}, {"node": 30, "cells": [5]}, 3, None]
)  # fmt: skip
def test_a_malformed_entry_is_shown(entry: Any) -> None:
    error = refusal(document(pyramid=pyramid(overviews=[{"node": 3, "cells": [5]}, entry])))
    assert "overviews[1]" in str(error)
    assert json.dumps(entry) in str(error)


def test_a_level_is_declared_once() -> None:
    twice = [{"node": 3, "cells": [5]}, {"node": 3, "cells": [6]}]
    assert "node 3 twice" in str(refusal(document(pyramid=pyramid(overviews=twice))))


@pytest.mark.parametrize("key", ["shard_order", "cell_order"])
@pytest.mark.parametrize(
    ("value", "shown"),
    [(..., "absent"), (None, "absent"), ("4", "'4'"), (-1, "-1"), (30, "30"), (True, "True")],
)
def test_an_order_is_required(key: str, value: Any, shown: str) -> None:
    error = refusal(document(**{key: value}))
    assert f"{key} is {shown}" in str(error)


def test_a_missing_shard_order_is_the_only_problem_named() -> None:
    entries = [{"node": 4, "cells": [6, 5]}, {"node": 3, "cells": [5]}]
    error = refusal(document(shard_order=..., pyramid=pyramid(overviews=entries)))
    assert error.problems == ("shard_order is absent, expected an order 0-27",)


def test_shards_finer_than_plain_words_are_refused() -> None:
    assert "shard_order is 28, expected an order 0-27" in str(refusal(document(shard_order=28)))


def test_all_problems_are_carried() -> None:
    fields = {"a": {"class": "exact", "method": "mean"}, "b": {"class": "exact", "method": "mode"}}
    error = refusal(
        document(
            cell_order="x",
            pyramid=pyramid(overviews=[{"node": 3, "cells": []}], overview={"fields": fields}),
        )
    )
    assert len(error.problems) == 4
    assert all(problem in str(error) for problem in error.problems)


@pytest.mark.parametrize("dataset", [..., None, "x", {}])
def test_a_name_is_optional(dataset: Any) -> None:
    assert read(document(dataset=dataset)).name is None


@pytest.mark.parametrize(
    ("name", "shard_order", "cell_order", "is_windowed", "closes", "n_fields"),
    [
        ("kitchen_sink", 4, 7, False, False, 13),
        ("kitchen_sink_windowed", 4, 7, True, True, 13),
        ("wide", 6, 14, False, False, 4),
        ("airports", 4, 8, False, False, 5),
        ("scale_tiny", 6, 12, False, False, 4),
    ],
)
def test_manifests_of_real_stores(
    reference_store: ReferenceStore,
    name: str,
    shard_order: int,
    cell_order: int,
    is_windowed: bool,
    closes: bool,
    n_fields: int,
) -> None:
    path = reference_store(name, "post") / "morton_hive.json"
    manifest = parse_manifest(path.read_bytes(), str(path.parent))
    assert (manifest.shard_order, manifest.ladder.cell_order) == (shard_order, cell_order)
    assert (manifest.is_windowed, manifest.closes) == (is_windowed, closes)
    assert len(manifest.fields) == n_fields
    assert len(manifest.ladder.levels) == shard_order


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"pyramid": ' * 5_000 + b"1" + b"}" * 5_000])
def test_a_deep_manifest_is_refused(raw: bytes) -> None:
    with pytest.raises(DeclarationError, match="nested") as caught:
        parse_manifest(raw, ROOT)
    assert caught.value.kind == "manifest-torn"


@pytest.mark.parametrize("overview", [None, [], 5, "x", False])
def test_an_overview_that_is_no_object_is_refused(overview: Any) -> None:
    assert "pyramid.overview is" in str(refusal(document(pyramid=pyramid(overview=overview))))


def test_an_absent_overview_declares_no_fields() -> None:
    manifest = read(document(pyramid=pyramid(overview=...)))
    assert len(manifest.fields) == 0
    assert not manifest.all_time
