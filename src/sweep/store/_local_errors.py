"""Operating-system errors, as the errors of this package."""

from __future__ import annotations

import errno
import os

from sweep.errors import AccessError, StoreUnavailableError, SweepError

_ACCESS = {
    errno.ENOSPC: ("store-full", "the disk is full: free some space and run again"),
    errno.EDQUOT: ("store-full", "the disk quota is used up: free some space and run again"),
    errno.EROFS: ("store-read-only", "the file system is mounted read-only: remount it for writing"),
    errno.EACCES: ("store-denied", "permission denied: check owner and mode of the file and its folder"),
    errno.EPERM: ("store-denied", "not permitted: check the owner, the mode and the attributes of the file"),
    errno.ENOTDIR: ("store-key", "a part of the key is a file where a folder is needed: move that file away"),
    errno.EISDIR: ("store-key", "the key names a folder: move that folder away"),
    errno.EEXIST: ("store-key", "the key needs a place that another kind of thing takes: move that away"),
    errno.ENAMETOOLONG: ("store-key", "a part of the key is longer than the file system allows"),
}
_PASSING = {
    errno.EMFILE: "this process has too many open files: raise `ulimit -n` or lower the number of workers",
    errno.ENFILE: "the machine has too many open files: wait or close some programs",
    errno.ENOLCK: "the file system gives no lock: use a file system with flock, or a store on S3",
}


def translate(error: OSError, action: str, root: str, key: str) -> SweepError:
    """The error to raise for ``error``, met while ``action`` was done to ``key``."""
    place = os.path.join(root, key) if key else root
    number = error.errno or 0
    if number in _ACCESS:
        kind, advice = _ACCESS[number]
        return AccessError(f"cannot {action} {place}: {advice}", kind=kind, key=key, root=root)
    advice = _PASSING.get(number, f"{error.strerror or error}; run again, and check the disk if it stays")
    return StoreUnavailableError(f"cannot {action} {place}: {advice}", key=key, root=root)
