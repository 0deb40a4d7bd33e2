"""What tests share: the reference stores and how to compare with them.

The stores are not part of a clone. They stand in a folder ``shared`` beside the project on
developers' machines and in CI, or where ``SWEEP_SHARED`` says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Literal, Protocol

import zstandard
from filelock import FileLock

__all__ = [
    "ROOT",
    "CompareStores",
    "CopyMode",
    "Kind",
    "ReferenceStore",
    "copy_tree",
    "find_shared",
    "unpack",
]

ROOT = Path(__file__).resolve().parent.parent

type Kind = Literal["pre", "post"]
type CopyMode = Literal["copy", "link", "shared"]


class ReferenceStore(Protocol):
    """The fixture ``reference_store``."""

    def __call__(self, name: str, kind: Kind, *, mode: CopyMode | None = None) -> Path:
        """The root folder of one reference store.

        ``mode`` is ``"copy"`` (private, the default of a ``pre`` store), ``"link"`` (private
        tree of hard links: quick for the 70,000 files of airports, only for programs that
        replace whole files, never for a test that edits one in place) or ``"shared"``
        (everybody's, to be read only: the default of a ``post`` store).
        """
        ...


class CompareStores(Protocol):
    """The fixture ``compare_stores``."""

    def __call__(self, expected: Path, actual: Path, *args: str) -> str:
        """What the comparison said; an assertion fails where the stores differ."""
        ...


def find_shared() -> Path | None:
    """The folder of reference material, or None where there is none."""
    folder = Path(os.environ.get("SWEEP_SHARED") or ROOT.parent / "shared")
    return folder.resolve() if (folder / "stores").is_dir() and (folder / "spec").is_dir() else None


def roomy_folder() -> str | None:
    """Memory, where there is plenty of it: ten times quicker than a disk with 70,000 small files."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 6 << 30:
        return str(memory)
    return None


def unpack(archive: Path, target: Path) -> Path:
    """Unpack a ``.tar.zst`` into ``target`` once, whichever process asks first."""
    with FileLock(f"{target}.lock"):
        if not target.exists():
            partial = target.with_name(f"{target.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            with (
                archive.open("rb") as packed,
                zstandard.ZstdDecompressor().stream_reader(packed) as plain,
                tarfile.open(fileobj=plain, mode="r|") as tar,
            ):
                _extract(tar, partial)
            partial.rename(target)
    return target


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Write the members' bytes: the archives hold 70,000 small files, and no mode or clock matters."""
    made = set()
    for member in tar:
        body = tar.extractfile(member)
        if body is None:
            continue
        path = os.path.normpath(member.name)
        if path.startswith(("/", "..")):
            raise ValueError(f"{member.name} would leave the folder")
        parent = folder / os.path.dirname(path)
        if parent not in made:
            parent.mkdir(parents=True, exist_ok=True)
            made.add(parent)
        (folder / path).write_bytes(body.read())


def copy_tree(source: Path, target: Path, mode: CopyMode) -> Path:
    """``source`` itself, or a private copy of it in ``target``."""
    if mode == "shared":
        return source
    shutil.copytree(source, target, copy_function=os.link if mode == "link" else shutil.copyfile)
    return target


def compare(tool: Path, expected: Path, actual: Path, *args: str) -> str:
    """Run the comparison tool; fail on any difference."""
    done = subprocess.run(
        [sys.executable, str(tool), str(expected), str(actual), *args],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{expected.name} and {actual} differ:\n{done.stdout}{done.stderr}"
    return done.stdout
