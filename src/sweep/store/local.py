"""A store in a folder of a local or shared disk.

Plain file calls, as few as the work allows. Three rules carry the guarantees:

- Every write goes to a private temporary file beside its target and is renamed over it,
  so that a reader sees the old bytes or the new ones, also when the writer is killed.
- Compare-and-swap holds an exclusive lock file around read, compare and rename. The
  lock file is unlinked while it is held; whoever then gets the lock of the unlinked file
  sees that the name no longer leads to it and opens it anew.
- Folders are no objects: a missing one reads as missing objects, an empty one is
  invisible, and a delete takes the folders that it emptied with it.

Nothing is flushed to the platter: what survives is a killed process, not a power cut.
Plain ``put`` and ``delete`` take no lock, so an object that is under compare-and-swap
must be written by conditional calls only.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import blake2b

from sweep.errors import AccessError, DeclarationError
from sweep.store._files import (
    FOLDER_TRIES,
    LOCK,
    NO_FILE,
    PRIVATE,
    TEMP,
    fill,
    host_token,
    is_file,
    is_orphan,
    leads_to,
    make_folder,
    open_lock,
    or_unlink,
    read_all,
)
from sweep.store._local_errors import translate
from sweep.store.base import (
    DELETED,
    Capabilities,
    Deleted,
    Listing,
    ObjectInfo,
    Refused,
    Versioned,
    Written,
    check_key,
    check_prefix,
)

__all__ = ["LocalStore", "open_local"]

_counter = itertools.count()


class LocalStore:
    """Objects as files below one folder.

    Parameters
    ----------
    root : str
        The folder. It need not exist: it is made by the first write.

    Notes
    -----
    An etag is a hash of the content. Names that start with ``.sweep-tmp-`` or
    ``.sweep-lock-`` are private to the adapter: never listed, refused as keys.
    """

    concurrency = 1
    capabilities = Capabilities(conditional_delete=True, shared=True)

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self._base = self.root.rstrip("/") + "/"
        self._stood = os.path.isdir(self.root)

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r})"

    def get(self, key: str) -> bytes | None:
        return self._reading("read", key, read_all)

    def get_versioned(self, key: str) -> Versioned | None:
        data = self.get(key)
        return None if data is None else Versioned(data, _etag(data))

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        return self._reading("read", key, lambda fd: os.pread(fd, max(length, 0), start))

    def get_suffix(self, key: str, length: int) -> bytes | None:
        def tail(fd: int) -> bytes:
            size = os.fstat(fd).st_size
            wanted = min(max(length, 0), size)
            return os.pread(fd, wanted, size - wanted)

        return self._reading("read", key, tail)

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        try:
            temporary = self._write_temporary(path, data)
            or_unlink(temporary, lambda: os.replace(temporary, path))
        except OSError as error:
            raise translate(error, "write", self.root, key) from error

    def put_if_absent(self, key: str, data: bytes) -> Written | Refused:
        path = self._path(key)
        try:
            if is_file(path):
                return Refused.EXISTS
            temporary = self._write_temporary(path, data)
            created = or_unlink(temporary, lambda: self._link(temporary, path))
        except OSError as error:
            raise translate(error, "create", self.root, key) from error
        return Written(_etag(data)) if created else Refused.EXISTS

    def put_if_match(self, key: str, data: bytes, etag: str) -> Written | Refused:
        def swap(path: str) -> Written:
            temporary = self._write_temporary(path, data)
            or_unlink(temporary, lambda: os.replace(temporary, path))
            return Written(_etag(data))

        return self._compared("replace", key, etag, swap)

    def _make(self, folder: str) -> None:
        """Make a folder; but a store that stood and is gone (moved, unmounted) is not begun anew."""
        if self._stood and not os.path.isdir(self.root):
            raise AccessError(
                f"the folder {self.root} is gone since it was opened: bring it back (is a disk unmounted?), "
                "then run again",
                kind="store-gone",
                root=self.root,
            )
        make_folder(folder)
        self._stood = True

    def _check_inside(self, path: str, key: str) -> None:
        """Refuse to delete what a symbolic link brings in from outside the store."""
        real, root = os.path.realpath(os.path.dirname(path)), os.path.realpath(self.root)
        if os.path.commonpath([real, root]) != root:
            raise AccessError(
                f"{key} lies outside of {self.root}, in {real}, by a symbolic link: nothing is deleted; "
                "put the folder itself in the place of the link",
                kind="store-link",
                key=key,
            )

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            if os.path.lexists(path):
                self._check_inside(path, key)
            os.unlink(path)
        except OSError as error:
            # macOS and POSIX say EPERM for a folder, Linux says EISDIR.
            if error.errno in NO_FILE or (error.errno == errno.EPERM and os.path.isdir(path)):
                return
            raise translate(error, "delete", self.root, key) from error
        self._prune(path)

    def delete_if_match(self, key: str, etag: str) -> Deleted | Refused:
        def remove(path: str) -> Deleted:
            self._check_inside(path, key)
            os.unlink(path)
            return DELETED

        outcome = self._compared("delete", key, etag, remove)
        if outcome is DELETED:
            self._prune(self._path(key))
        return outcome

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        below = check_prefix(prefix)
        return self._walk(below + "/" if below else "", start_after or "")

    def list_dir(self, prefix: str = "") -> Listing:
        below = check_prefix(prefix)
        folder = below + "/" if below else ""
        objects: list[ObjectInfo] = []
        prefixes: list[str] = []
        for name, is_folder in self._entries(folder):
            if not is_folder:
                objects.extend(self._info(folder + name))
            elif next(self._walk(folder + name, ""), None) is not None:
                prefixes.append(folder + name.removesuffix("/"))
        return Listing(tuple(objects), tuple(sorted(prefixes)))

    def touch(self, key: str) -> bool:
        path = self._path(key)
        try:
            if not is_file(path):
                return False
            os.utime(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise translate(error, "touch", self.root, key) from error
        return True

    def sibling(self, suffix: str) -> LocalStore:
        if self.root == "/":
            raise DeclarationError(
                f"the folder / has no sibling ending in {suffix!r}: use a folder below it", kind="store-root"
            )
        return LocalStore(self.root + suffix)

    def reap(self, prefix: str = "") -> int:
        """Remove temporary files below ``prefix`` whose writer on this machine is dead.

        Returns
        -------
        int
            How many were removed. Never raises for a file that cannot be removed.
        """
        below = check_prefix(prefix)
        count = 0
        for folder, _, names in os.walk(self._base + below):
            for name in names:
                if name.startswith(TEMP) and is_orphan(name):
                    with suppress(OSError):
                        os.unlink(os.path.join(folder, name))
                        count += 1
        return count

    def _path(self, key: str) -> str:
        path = self._base + check_key(key)
        if key.rpartition("/")[2].startswith(PRIVATE):
            raise DeclarationError(
                f"the object key {key!r} starts with a name that the local store keeps for itself",
                kind="store-key",
                key=key,
            )
        return path

    def _reading(self, action: str, key: str, read: Callable[[int], bytes]) -> bytes | None:
        try:
            fd = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC)
            try:
                return read(fd)
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno in NO_FILE:
                return None
            raise translate(error, action, self.root, key) from error

    def _write_temporary(self, path: str, data: bytes) -> str:
        folder = path.rpartition("/")[0]
        for _ in range(FOLDER_TRIES):
            temporary = f"{folder}/{TEMP}{host_token()}-{os.getpid()}-{next(_counter)}"
            try:
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                self._make(folder)
                continue
            except FileExistsError:
                continue
            or_unlink(temporary, lambda fd=fd: fill(fd, data))  # type: ignore[misc]
            return temporary
        raise OSError(errno.EAGAIN, "the folder vanished each time that it was made")

    def _link(self, temporary: str, path: str) -> bool:
        """Give ``temporary`` its final name unless that is taken; the temporary name goes."""
        try:
            os.link(temporary, path)
        except FileExistsError:
            if not is_file(path) and os.path.isdir(path):
                raise
            created = False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
            return self._rename_if_absent(temporary, path)
        else:
            created = True
        os.unlink(temporary)
        return created

    def _rename_if_absent(self, temporary: str, path: str) -> bool:
        """As :meth:`_link`, where the file system has no hard links."""
        with self._locked(path):
            if is_file(path):
                os.unlink(temporary)
                return False
            os.replace(temporary, path)
            return True

    def _compared[T](self, action: str, key: str, etag: str, act: Callable[[str], T]) -> T | Refused:
        """Run ``act`` under the lock of ``key`` where the content is the one named by ``etag``."""
        path = self._path(key)
        try:
            if not is_file(path):
                return Refused.MISSING
            with self._locked(path):
                seen = self.get(key)
                if seen is None:
                    return Refused.MISSING
                if _etag(seen) != etag:
                    return Refused.MISMATCH
                return act(path)
        except OSError as error:
            raise translate(error, action, self.root, key) from error

    @contextmanager
    def _locked(self, path: str) -> Iterator[None]:
        folder, _, name = path.rpartition("/")
        lock = f"{folder}/{LOCK}{blake2b(name.encode(), digest_size=8).hexdigest()}"
        while True:
            fd = open_lock(lock, folder)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if leads_to(lock, fd):
                    break
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                os.unlink(lock)
            os.close(fd)

    def _prune(self, path: str) -> None:
        """Remove the folders that the delete of ``path`` emptied; a writer makes them again."""
        folder = path.rpartition("/")[0]
        while len(folder) > len(self.root):
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = folder.rpartition("/")[0]

    def _entries(self, folder: str) -> Sequence[tuple[str, bool]]:
        """Names in ``folder`` in key order, folders with their slash."""
        try:
            with os.scandir(self._base + folder) as entries:
                found = [
                    (entry.name + "/", True) if entry.is_dir() else (entry.name, False)
                    for entry in entries
                    if not entry.name.startswith(PRIVATE)
                ]
        except OSError as error:
            if error.errno in NO_FILE:
                return []
            raise translate(error, "list", self.root, folder) from error
        found.sort()
        return found

    def _walk(self, folder: str, after: str) -> Iterator[ObjectInfo]:
        for name, is_folder in self._entries(folder):
            key = folder + name
            if is_folder:
                if key > after or after.startswith(key):
                    yield from self._walk(key, after)
            elif key > after:
                yield from self._info(key)

    def _info(self, key: str) -> tuple[ObjectInfo, ...]:
        try:
            status = os.stat(self._base + key)
        except OSError as error:
            if error.errno in NO_FILE:
                return ()
            raise translate(error, "list", self.root, key) from error
        if not stat.S_ISREG(status.st_mode):
            return ()
        return (ObjectInfo(key, status.st_size, None, datetime.fromtimestamp(status.st_mtime, UTC)),)


def open_local(path: str) -> LocalStore:
    """The store in the folder ``path``.

    Raises
    ------
    DeclarationError
        Where ``path`` is a file.
    AccessError, StoreUnavailableError
        Where the folder cannot be looked at.
    """
    root = os.path.abspath(path)
    try:
        if not stat.S_ISDIR(os.stat(root).st_mode):
            raise DeclarationError(f"{root} is a file: a store is a folder", kind="store-root", root=root)
    except FileNotFoundError:
        pass
    except NotADirectoryError as error:
        raise DeclarationError(f"{root} lies below a file", kind="store-root", root=root) from error
    except OSError as error:
        raise translate(error, "open", root, "") from error
    return LocalStore(root)


def _etag(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
