"""A damaged artifact that a sweep wrote loses its stamp, so that sweeping again folds it anew."""

from __future__ import annotations

import pytest
from tests.support.compare import compare_objects
from tests.support.small_stores import leaf_columns, plain_store
from tests.support.sweeping import loaded, objects_in, sweep

from sweep.errors import ArtifactError

RUN = "stage-heal"


def test_a_torn_overview_is_folded_anew() -> None:
    undisturbed = loaded(plain_store())
    sweep(undisturbed, run_id=RUN)
    want = objects_in(undisturbed)
    store = loaded(want)
    chunk = _ragged_chunk(want)
    artifact = chunk.partition(".zarr/")[0] + ".zarr"
    node = artifact.rpartition("/")[0]
    parent = node.rpartition("/")[0]
    store.put(chunk, b"\xff\xfe")
    store.delete(f"{parent}/all.zarr/zarr.json")
    with pytest.raises(ArtifactError, match="its stamp is removed") as caught:
        sweep(store, run_id=RUN)
    assert chunk.rpartition("/c/")[0] in caught.value.message
    assert store.get(f"{artifact}/zarr.json") is None
    sweep(store, run_id=RUN)
    assert compare_objects(want, objects_in(store), same_runs=False) == []


def _ragged_chunk(objects: dict[str, bytes]) -> str:
    """A compressed chunk of an overview that has a parent in the ladder."""
    return next(
        key
        for key, data in sorted(objects.items())
        if "all.zarr/" in key
        and "/c/" in key
        and data[:4] == b"\x28\xb5\x2f\xfd"
        and key.partition("/all.zarr")[0].count("/") == 1  # its parent, at order 0, merges
    )


def test_a_torn_leaf_column_is_left_to_its_writer() -> None:
    objects = plain_store()
    column = leaf_columns(objects)[0]
    chunk = next(key for key in sorted(objects) if key.startswith(f"{column}/") and "/count/c/" in key)
    store = loaded(objects | {chunk: b"x"})
    with pytest.raises(ArtifactError, match="re-run the leaf"):
        sweep(store, run_id=RUN)
    assert store.get(f"{column}/zarr.json") == objects[f"{column}/zarr.json"]
