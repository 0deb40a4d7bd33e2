"""Addresses and options; nothing here reaches a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.errors import AccessError, DeclarationError
from sweep.store.base import ObjectStore
from sweep.store.local import LocalStore
from sweep.store.open import StoreOptions, open_store
from sweep.store.remote import RemoteStore


@pytest.fixture(autouse=True)
def _no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "s3://",
        "s3:///x",
        "s3://bucket/a//b",
        "s3://bucket/a?x=1",
        "s3://bucket/../x",
        "gs://bucket/x",
        "http://host/x",
        "memory://",
        "file://",
        "file://otherhost/x",
    ],
)
def test_what_is_no_address_is_refused_by_name(address: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        open_store(address)
    assert repr(address) in str(caught.value) or "'../x'" in str(caught.value) or "a//b" in str(caught.value)


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address in (tmp_path / "a b", f"{tmp_path}/a b/", f"file://{tmp_path}/a%20b", "a b", "./a b"):
        store = open_store(address)
        assert isinstance(store, LocalStore)
        assert store.root == f"{tmp_path}/a b"
        assert isinstance(store, ObjectStore)
    assert list(tmp_path.iterdir()) == []


def test_a_memory_name_means_the_same_objects() -> None:
    open_store("memory://open-1").put("a", b"1")
    assert open_store("memory://open-1").get("a") == b"1"
    assert open_store("memory://open-2").get("a") is None
    assert open_store("memory://open-1/a").get("a") is None
    assert open_store("memory://open-1").capabilities.shared is False


def test_an_s3_address_is_kept_as_written() -> None:
    store = open_store("s3://bucket/some/prefix/", StoreOptions(region="eu-west-1", anonymous=True))
    assert isinstance(store, RemoteStore)
    assert isinstance(store, ObjectStore)
    assert (store.root, store.concurrency) == ("s3://bucket/some/prefix", 32)
    assert store.sibling(".status").root == "s3://bucket/some/prefix.status"
    # Unsigned requests cannot carry the signed delete; nothing is asked of a server to know that.
    assert store.capabilities.conditional_delete is False


def test_a_bare_bucket_has_no_sibling() -> None:
    store = open_store("s3://bucket", StoreOptions(anonymous=True))
    with pytest.raises(DeclarationError, match=r"s3://bucket is a whole bucket"):
        store.sibling(".status")


def test_a_profile_without_boto3_is_a_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setattr("sweep.store.open.find_spec", lambda name: None)
    with pytest.raises(DeclarationError, match=r"AWS_PROFILE=work.*boto3.*sweep\[aws\]"):
        open_store("s3://bucket/x")


@pytest.mark.parametrize(
    "endpoint",
    ["not a url", "localhost:9000", "http://", "ftp://host", "http://host:port", "http://[::1", "http://a b"],
)
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(DeclarationError, match="is no address") as caught:
        open_store("s3://bucket/prefix", StoreOptions(endpoint=endpoint, region="us-east-1", anonymous=True))
    assert caught.value.kind == "endpoint"


def test_a_relative_folder_needs_a_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(AccessError, match="working folder"):
        open_store("store")
    assert open_store(tmp_path).root == str(tmp_path)
