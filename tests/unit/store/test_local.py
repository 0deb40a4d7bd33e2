"""What is particular to the local store: private files, folders, and the system's errors."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.errors import AccessError, DeclarationError, StoreUnavailableError
from sweep.store import _files
from sweep.store.base import DELETED, Listing, Written
from sweep.store.io import clear_prefix
from sweep.store.local import LocalStore, open_local


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "store"))


def _files_below(store: LocalStore) -> set[str]:
    return {
        os.path.relpath(os.path.join(folder, name), store.root)
        for folder, _, names in os.walk(store.root)
        for name in names
    }


def test_nothing_but_the_objects_stays_on_the_disk(store: LocalStore) -> None:
    store.put("a/b", b"1")
    created = store.put_if_absent("a/c", b"1")
    assert isinstance(created, Written)
    store.put_if_absent("a/c", b"2")
    store.put_if_match("a/c", b"2", "no")
    swapped = store.put_if_match("a/c", b"2", created.etag)
    assert isinstance(swapped, Written)
    assert _files_below(store) == {"a/b", "a/c"}
    assert store.delete_if_match("a/c", swapped.etag) is DELETED
    store.delete("a/b")
    assert os.listdir(store.root) == []


def test_private_files_are_no_objects(store: LocalStore) -> None:
    store.put("a/b", b"1")
    for name in (".sweep-tmp-0-1-2", ".sweep-lock-ab"):
        (Path(store.root) / "a" / name).write_bytes(b"x")
        (Path(store.root) / "only").mkdir(exist_ok=True)
        (Path(store.root) / "only" / name).write_bytes(b"x")
        for call in (store.get, store.delete, store.touch):
            with pytest.raises(DeclarationError, match="keeps for itself"):
                call(f"a/{name}")
    assert [info.key for info in store.list()] == ["a/b"]
    assert store.list_dir().prefixes == ("a",)
    assert [info.key for info in store.list_dir("a").objects] == ["a/b"]
    assert store.list_dir("only") == Listing((), ())


def test_empty_folders_are_invisible(store: LocalStore) -> None:
    os.makedirs(os.path.join(store.root, "a", "b"))
    assert list(store.list()) == []
    assert store.list_dir() == Listing((), ())
    assert store.get("a") is None


def test_a_writer_that_is_killed_leaves_the_old_object_and_no_lock_that_holds(store: LocalStore) -> None:
    store.put("lease", b"old")
    script = """
import os, signal, sys
from sweep.store.local import LocalStore
store = LocalStore(sys.argv[1])
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
store.put_if_match("lease", b"new", store.get_versioned("lease").etag)
"""
    done = subprocess.run([sys.executable, "-c", script, store.root], check=False)
    assert done.returncode < 0
    assert len(_files_below(store)) == 3  # the object, its temporary file and its lock file
    assert [info.key for info in store.list()] == ["lease"]
    seen = store.get_versioned("lease")
    assert seen is not None
    assert seen.data == b"old"
    assert isinstance(store.put_if_match("lease", b"next", seen.etag), Written)
    assert clear_prefix(store, "") == 1
    assert _files_below(store) == set()


def test_only_the_files_of_the_dead_are_reaped(store: LocalStore) -> None:
    store.put("a/b", b"1")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    folder = Path(store.root) / "a"
    host = _files.host_token()
    names = [f".sweep-tmp-{host}-{dead.pid}-0", f".sweep-tmp-{host}-{os.getpid()}-0", ".sweep-tmp-00-1-0"]
    for name in names:
        (folder / name).write_bytes(b"x")
    assert store.reap() == 1
    assert {path.name for path in folder.iterdir()} == {"b", *names[1:]}


@pytest.mark.parametrize(
    ("number", "error", "kind", "advice"),
    [
        (errno.ENOSPC, AccessError, "store-full", "free some space"),
        (errno.EDQUOT, AccessError, "store-full", "quota"),
        (errno.EROFS, AccessError, "store-read-only", "read-only"),
        (errno.EACCES, AccessError, "store-denied", "owner"),
        (errno.EPERM, AccessError, "store-denied", "owner"),
        (errno.EMFILE, StoreUnavailableError, "store-unavailable", "ulimit"),
        (errno.EIO, StoreUnavailableError, "store-unavailable", "disk"),
    ],
)
def test_errors_of_the_system_say_what_to_do(
    store: LocalStore,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    error: type[Exception],
    kind: str,
    advice: str,
) -> None:
    store.put("a/b", b"old")

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", fail)
    calls: list[Callable[[], object]] = [
        lambda: store.put("a/b", b"new"),
        lambda: store.put_if_absent("a/c", b"new"),
    ]
    for call in calls:
        with pytest.raises(error, match=advice) as caught:
            call()
        assert getattr(caught.value, "kind", None) == kind
        assert store.root in str(caught.value)
    monkeypatch.undo()
    assert store.get("a/b") == b"old"
    assert _files_below(store) == {"a/b"}


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_read_that_fails_is_not_a_missing_object(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises((AccessError, StoreUnavailableError), match="a/b"):
        store.get("a/b")


def test_a_key_below_a_file_cannot_be_written(store: LocalStore) -> None:
    store.put("a", b"1")
    with pytest.raises(AccessError, match=r"a file where a folder is needed|another kind"):
        store.put("a/b", b"2")
    store.put("c/d", b"3")
    with pytest.raises(AccessError, match="folder"):
        store.put("c", b"4")
    with pytest.raises(AccessError):
        store.put_if_absent("c", b"4")
    assert _files_below(store) == {"a", "c/d"}


def test_a_short_write_goes_on(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:3])))
    store.put("a", b"0123456789")
    assert store.get("a") == b"0123456789"


def test_create_works_without_hard_links(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", fail)
    assert isinstance(store.put_if_absent("a", b"1"), Written)
    monkeypatch.setattr("sweep.store.local.is_file", lambda path: os.path.lexists(path))
    assert not isinstance(store.put_if_absent("a", b"2"), Written)
    assert _files_below(store) == {"a"}


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DeclarationError, match="is a file"):
        open_local(str(tmp_path / "file"))
    with pytest.raises(DeclarationError, match="below a file"):
        open_local(str(tmp_path / "file" / "store"))
    with pytest.raises(DeclarationError, match="no sibling"):
        LocalStore("/").sibling(".status")


def test_a_folder_that_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    store = LocalStore(str(root))
    root.rename(tmp_path / "elsewhere")
    with pytest.raises(AccessError, match="is gone since it was opened") as caught:
        store.put("1/2/zarr.json", b"{}")
    assert caught.value.kind == "store-gone"
    assert not root.exists()


def test_nothing_outside_is_deleted_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "file").write_bytes(b"keep")
    store = LocalStore(str(tmp_path / "store"))
    store.put("6/object", b"x")
    (tmp_path / "store" / "6" / "all.zarr").symlink_to(outside)
    with pytest.raises(AccessError, match="symbolic link") as caught:
        store.delete("6/all.zarr/file")
    assert caught.value.kind == "store-link"
    assert (outside / "file").read_bytes() == b"keep"
    assert store.get("6/all.zarr/file") == b"keep"
