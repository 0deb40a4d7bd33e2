"""Rewrite the pinned versions in pyproject.toml.

    python tools/refresh_constraints.py [--upgrade] [--uv PATH]

Resolves every extra and every dependency group at once and writes what came out as
``[tool.uv] constraint-dependencies``; the build backend and what it needs goes to
``build-constraint-dependencies``. Without ``--upgrade``, versions stay where they are and
only what is new is added. Run it after any change of a dependency.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT / "pyproject.toml"
LISTS = ("constraint-dependencies", "build-constraint-dependencies")


def find_uv() -> str:
    """The uv that the bootstrap brought, or the one on the path."""
    own = ROOT / ".tools" / "bin" / "uv"
    return str(own) if own.exists() else "uv"


def run(uv: str, *args: str, stdin: str | None = None) -> str:
    """Standard output of one uv command, run in the project."""
    environ = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    done = subprocess.run(
        [uv, *args], cwd=ROOT, env=environ, input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"uv {' '.join(args)} failed:\n{done.stderr}")
    return done.stdout


def pins_of(listing: str) -> list[str]:
    """The ``name==version`` lines of ``listing``.

    An environment marker is kept only where one name has several versions: elsewhere a
    constraint on a package that is not installed does nothing.
    """
    found = []
    for line in listing.splitlines():
        text = line.split("#")[0].strip()
        if not text or "==" not in text or text.startswith("-"):
            continue
        requirement, _, marker = (part.strip() for part in text.partition(";"))
        name, _, version = requirement.partition("==")
        found.append((f"{name.split('[')[0].strip()}=={version}", marker))
    versions = Counter(pin.split("==")[0] for pin, _ in set(found))
    return sorted(
        {f"{pin} ; {marker}" if marker and versions[pin.split("==")[0]] > 1 else pin for pin, marker in found}
    )


def with_list(text: str, key: str, pins: list[str]) -> str:
    """``text`` of a pyproject.toml with the array ``key`` replaced."""
    body = "".join(f'\n    "{pin}",' for pin in pins)
    replaced, count = re.subn(
        rf"^{key} = \[[^\]]*\]", f"{key} = [{body}\n]" if pins else f"{key} = []", text, flags=re.MULTILINE
    )
    if count != 1:
        sys.exit(f"pyproject.toml: expected one {key} list, found {count}")
    return replaced


def resolve(uv: str, *, upgrade: bool) -> dict[str, list[str]]:
    """Both lists, resolved with the pins out of the way."""
    lock = ("lock", "--quiet", *(("--upgrade",) if upgrade else ()))
    run(uv, *lock)
    everything = run(
        uv,
        "export",
        "--quiet",
        "--frozen",
        "--all-extras",
        "--all-groups",
        "--no-hashes",
        "--no-emit-project",
    )
    build = tomllib.loads(PYPROJECT.read_text())["build-system"]["requires"]
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "build.in"
        wanted.write_text("\n".join([*build, "editables"]) + "\n")
        built = run(uv, "pip", "compile", "--quiet", "--universal", "--no-header", str(wanted))
    return {LISTS[0]: pins_of(everything), LISTS[1]: pins_of(built)}


def main() -> None:
    """Rewrite the lists, or leave the file as it was."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that fit together")
    parser.add_argument("--uv", default=find_uv(), help="the uv to use")
    args = parser.parse_args()
    before = PYPROJECT.read_text()
    if not args.upgrade:
        run(args.uv, "lock", "--quiet")  # uv.lock then holds the pinned versions as preferences
    free = before
    for key in LISTS:
        free = with_list(free, key, [])
    after = before
    try:
        PYPROJECT.write_text(free)
        for key, pins in resolve(args.uv, upgrade=args.upgrade).items():
            after = with_list(after, key, pins)
            print(f"{key}: {len(pins)} versions")
    finally:
        PYPROJECT.write_text(after)
    run(args.uv, "lock", "--quiet")


if __name__ == "__main__":
    main()
