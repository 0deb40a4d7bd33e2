"""Times whole sweeps of the reference stores: this program and the peer in turn, on fresh copies.

    python benchmarks/sweep_local.py [--peer PYTHON] [--pairs N] [--tuple-width N] [STORE ...]

Every run is a process of its own, and its CPU time (user and system, with that of its children) is
what the kernel counted for it. The two programs take turns, so that a slow moment of the machine
falls on both; what is printed are medians and the ratio of the medians. The first pair of a store
is compared object by object, so that a program cannot be quick by leaving something out. Before
anything is timed each program sweeps the smallest store once, which fills the caches of compiled
code and of the disk.

Start-up is the same command on a store without leaves: interpreter, imports, finding no leaf.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STORES = ("kitchen_sink_windowed", "scale_tiny", "airports")
NO_LEAVES = "kitchen_sink_windowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one process took."""

    cpu_s: float
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The commands of the two programs, short of the store they sweep."""

    peer: Path
    tuple_width: int

    def ours(self, store: Path) -> list[str]:
        """Return this program's command."""
        return [sys.executable, "-m", "sweep", "local", str(store), *self._common()]

    def theirs(self, store: Path) -> list[str]:
        """Return the peer's command."""
        return [str(self.peer), "-W", "ignore", "-m", "zagg.sweep", str(store), "--stages", *self._common()]

    def _common(self) -> list[str]:
        return ["--scope", "all", "--tuple-width", str(self.tuple_width)]


def environment() -> dict[str, str]:
    """Return ours, in which both programs keep their bytecode: else each run compiles its libraries."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def run(command: Sequence[str]) -> Cost:
    """Run a command to its end and return what it took; leave if it failed."""
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment())
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            said = output.read().decode(errors="replace")
            sys.exit(f"{' '.join(command)} left with {process.returncode}:\n{said}")
    return Cost(cpu_s=usage.ru_utime + usage.ru_stime, wall_s=wall_s)


def median(costs: Sequence[Cost]) -> Cost:
    """Return the median of each quantity."""
    return Cost(
        cpu_s=statistics.median(cost.cpu_s for cost in costs),
        wall_s=statistics.median(cost.wall_s for cost in costs),
    )


def unpack(archive: Path, target: Path) -> Path:
    """Unpack one store."""
    target.mkdir(parents=True)
    subprocess.run(["tar", "--zstd", "-xf", str(archive), "-C", str(target)], check=True)
    return target


def sweep_copy(source: Path, folder: Path, command: Sequence[str]) -> Cost:
    """Copy a store to where the command expects it, and time the command."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder, copy_function=shutil.copyfile)
    return run(command)


def time_store(name: str, source: Path, work: Path, programs: Programs, args: argparse.Namespace) -> Cost:
    """Time both programs on a store, print the row, and return our own median."""
    ours, theirs = work / "ours", work / "theirs"
    mine: list[Cost] = []
    peers: list[Cost] = []
    for pair in range(args.pairs):
        mine.append(sweep_copy(source, ours, programs.ours(ours)))
        peers.append(sweep_copy(source, theirs, programs.theirs(theirs)))
        if pair == 0:
            compare(theirs, ours, args.shared)
    own, other = median(mine), median(peers)
    print(
        f"{name:22} {own.cpu_s:8.2f} {other.cpu_s:8.2f} {other.cpu_s / own.cpu_s:7.1f}x"
        f" {own.wall_s:8.2f} {other.wall_s:8.2f} {other.wall_s / own.wall_s:7.1f}x",
        flush=True,
    )
    return own


def compare(expected: Path, actual: Path, shared: Path) -> None:
    """Leave if the two programs did not write the same objects."""
    tool = shared / "tools" / "compare_stores.py"
    done = subprocess.run(
        [sys.executable, str(tool), str(expected), str(actual)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"the programs wrote different stores:\n{done.stdout}{done.stderr}")


def time_start(source: Path, work: Path, programs: Programs, pairs: int) -> Cost:
    """Time our command on a store whose manifest is all there is."""
    empty = work / "empty"
    empty.mkdir()
    shutil.copyfile(source / "morton_hive.json", empty / "morton_hive.json")
    return median([run(programs.ours(empty)) for _ in range(pairs)])


def measure(work: Path, programs: Programs, args: argparse.Namespace) -> None:
    """Time every store that was asked for and print the table."""
    archives = args.shared / "stores"
    small = unpack(archives / f"{NO_LEAVES}.pre.tar.zst", work / "warm")
    for command in (programs.ours, programs.theirs):
        sweep_copy(small, work / "ours", command(work / "ours"))
    start = time_start(small, work, programs, args.pairs)
    print(f"{args.pairs} pairs, medians in seconds; ratio = peer / ours")
    print(
        f"{'store':22} {'our cpu':>8} {'peer cpu':>8} {'ratio':>8} {'our wall':>8} {'peer':>8} {'ratio':>8}"
    )
    totals: dict[str, Cost] = {}
    for name in args.stores:
        source = unpack(archives / f"{name}.pre.tar.zst", work / name)
        totals[name] = time_store(name, source, work, programs, args)
        shutil.rmtree(source)
    print(f"our start-up: {start.cpu_s:.2f} s of cpu, {start.wall_s:.2f} s of wall; its share of a sweep:")
    for name, total in totals.items():
        print(
            f"  {name:20} {start.cpu_s / total.cpu_s:5.0%} of cpu, {start.wall_s / total.wall_s:5.0%} of wall"
        )


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="time whole sweeps against the peer program")
    default = os.environ.get("SWEEP_PEER_PYTHON") or ROOT / ".venv-interop" / "bin" / "python"
    shared = os.environ.get("SWEEP_SHARED") or ROOT.parent / "shared"
    parser.add_argument("stores", nargs="*", metavar="STORE", help=f"default: {' '.join(STORES)}")
    parser.add_argument("--peer", type=Path, default=Path(default), help="the peer's interpreter")
    parser.add_argument("--shared", type=Path, default=Path(shared), help="the folder of reference stores")
    parser.add_argument("--pairs", type=int, default=3, help="sweeps by each program (default 3)")
    parser.add_argument("--tuple-width", type=int, default=3)
    args = parser.parse_args(argv)
    args.stores = args.stores or list(STORES)
    if not args.peer.exists():
        parser.error(f"no interpreter at {args.peer}: run `make interop` first, or give --peer")
    for name in args.stores:
        if not (args.shared / "stores" / f"{name}.pre.tar.zst").exists():
            parser.error(f"no store {name} in {args.shared / 'stores'}")
    return args


def main() -> None:
    """Measure and print."""
    args = parse()
    programs = Programs(peer=args.peer, tuple_width=args.tuple_width)
    with tempfile.TemporaryDirectory(prefix="sweep-bench-") as folder:
        measure(Path(folder), programs, args)


if __name__ == "__main__":
    main()
