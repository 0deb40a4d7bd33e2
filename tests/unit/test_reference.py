"""The helpers that other tests lean on: copies are private and differences are seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.reference import CompareStores, ReferenceStore, find_shared

MANIFEST = "morton_hive.json"


def test_copies_are_private(reference_store: ReferenceStore, compare_stores: CompareStores) -> None:
    first = reference_store("wide", "pre")
    second = reference_store("wide", "pre")
    assert "0 differences" in compare_stores(first, second)
    (first / MANIFEST).write_text("{}")
    with pytest.raises(AssertionError, match=MANIFEST):
        compare_stores(first, second)


def test_links_survive_a_replaced_file(
    reference_store: ReferenceStore, compare_stores: CompareStores
) -> None:
    first = reference_store("wide", "pre", mode="link")
    (first / "new").write_text("{}")
    (first / "new").replace(first / MANIFEST)
    assert (reference_store("wide", "pre", mode="link") / MANIFEST).stat().st_size > 100


def test_a_swept_store_is_shared(reference_store: ReferenceStore) -> None:
    assert reference_store("wide", "post") == reference_store("wide", "post")


def test_a_stray_folder_named_shared_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEP_SHARED", str(tmp_path))
    assert find_shared() is None
