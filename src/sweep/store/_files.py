"""File primitives of the local store: private names, whole reads, lock files."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import blake2b

TEMP = ".sweep-tmp-"
LOCK = ".sweep-lock-"
PRIVATE = (TEMP, LOCK)
NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
# A folder can vanish under a writer each time that somebody deletes its last object.
FOLDER_TRIES = 100

_FIRST_READ_BYTES = 64 * 1024


def read_all(fd: int) -> bytes:
    head = os.read(fd, _FIRST_READ_BYTES)
    if len(head) < _FIRST_READ_BYTES:
        return head
    parts = [head]
    # One byte more than the rest, so that the end of the file shows in the same call.
    while part := os.read(fd, max(os.fstat(fd).st_size - sum(map(len, parts)), 0) + 1):
        parts.append(part)
    return b"".join(parts)


def fill(fd: int, data: bytes) -> None:
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
    finally:
        os.close(fd)


def or_unlink[T](temporary: str, act: Callable[[], T]) -> T:
    try:
        return act()
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        if error.errno in NO_FILE:
            return False
        raise


def make_folder(folder: str) -> None:
    # Somebody who deletes the last object of a parent may remove it meanwhile: the caller tries again.
    with suppress(FileNotFoundError):
        os.makedirs(folder, exist_ok=True)


def open_lock(lock: str, folder: str) -> int:
    for _ in range(FOLDER_TRIES):
        try:
            return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            make_folder(folder)
    raise OSError(errno.EAGAIN, "the folder vanished each time that it was made")


def leads_to(path: str, fd: int) -> bool:
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    held = os.fstat(fd)
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


@cache
def host_token() -> str:
    """A short name for this machine and its process numbering (a container counts anew)."""
    try:
        numbering = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        numbering = 0
    return blake2b(f"{os.uname().nodename}/{numbering}".encode(), digest_size=4).hexdigest()


def is_orphan(name: str) -> bool:
    host, _, rest = name.removeprefix(TEMP).partition("-")
    pid = rest.partition("-")[0]
    if host != host_token() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
