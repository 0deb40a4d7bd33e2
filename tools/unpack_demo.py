"""Unpack the example store:  python tools/unpack_demo.py ARCHIVE FOLDER"""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path


def main() -> None:
    """Unpack into a folder that does not exist yet."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    archive, folder = Path(sys.argv[1]), Path(sys.argv[2])
    if folder.exists():
        sys.exit(f"{folder} is already there; remove it first")
    folder.mkdir(parents=True)
    with tarfile.open(archive, "r:xz") as tar:
        tar.extractall(folder, filter="data")
    print(f"unpacked {archive.name} to {folder}")


if __name__ == "__main__":
    main()
