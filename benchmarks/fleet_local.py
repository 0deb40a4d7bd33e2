"""Times `sweep fleet --transport processes` against `sweep local` on the reference stores, in turn.

    python benchmarks/fleet_local.py [--pairs N] [--workers N] [STORE ...]

Prints the ratio of wall times (in-process / fleet) on this machine's cores, and which share of the
fleet's CPU time is the dispatcher's own. Both are whole commands, start-up included; the first pair of
a store is compared object by object.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sweep_local import ROOT, Cost, median, run, sweep_copy, unpack

STORES = ("scale_tiny", "airports")


def local(store: Path) -> list[str]:
    """The in-process command."""
    return [sys.executable, "-m", "sweep", "local", str(store), "--scope", "all"]


def fleet(store: Path, workers: int) -> list[str]:
    """The fleet's command."""
    command = [sys.executable, "-m", "sweep", "fleet", str(store), "--scope", "all"]
    return [*command, "--transport", "processes", "--workers", str(workers), "--json"]


def dispatcher_share(store: Path, workers: int) -> float:
    """The dispatcher's own share of the CPU time of a fleet on a copy that is swept already."""
    code = (
        "import resource, sys\n"
        "from sweep.fleet.run import run_fleet\n"
        f"run_fleet(sys.argv[1], scope='all', workers={workers})\n"
        "own = resource.getrusage(resource.RUSAGE_SELF)\n"
        "all_of_it = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(own.ru_utime + own.ru_stime, all_of_it.ru_utime + all_of_it.ru_stime)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(store)], capture_output=True, text=True, check=True
    )
    own_s, workers_s = map(float, done.stdout.split()[-2:])
    return own_s / (own_s + workers_s)


def reset(folder: Path) -> None:
    """Remove a store's status prefix, which a fleet leaves beside it."""
    shutil.rmtree(folder.with_name(folder.name + ".status"), ignore_errors=True)


def compare(expected: Path, actual: Path, shared: Path) -> None:
    """Leave if the two ways did not write the same objects, run records aside."""
    tool = shared / "tools" / "compare_stores.py"
    done = subprocess.run(
        [sys.executable, str(tool), str(expected), str(actual), "--ignore", "sweep_stats_*"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"the two ways wrote different stores:\n{done.stdout}{done.stderr}")


def time_store(name: str, source: Path, work: Path, args: argparse.Namespace) -> None:
    """Time both ways on a store and print the row."""
    alone, many = work / "local", work / "fleet"
    ours: list[Cost] = []
    theirs: list[Cost] = []
    for pair in range(args.pairs):
        ours.append(sweep_copy(source, alone, local(alone)))
        reset(many)
        theirs.append(sweep_copy(source, many, fleet(many, args.workers)))
        if pair == 0:
            compare(alone, many, args.shared)
    reset(many)
    shutil.rmtree(many)
    shutil.copytree(source, many)
    share = dispatcher_share(many, args.workers)
    one, fleet_cost = median(ours), median(theirs)
    print(
        f"{name:14} {one.wall_s:9.2f} {fleet_cost.wall_s:9.2f} {one.wall_s / fleet_cost.wall_s:7.2f}x"
        f" {one.cpu_s:9.2f} {fleet_cost.cpu_s:9.2f} {share:11.0%}",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="time the processes transport against one process")
    shared = os.environ.get("SWEEP_SHARED") or ROOT.parent / "shared"
    parser.add_argument("stores", nargs="*", metavar="STORE", help=f"default: {' '.join(STORES)}")
    parser.add_argument("--shared", type=Path, default=Path(shared))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    args = parser.parse_args()
    print(f"{args.pairs} pairs, {args.workers} workers, medians in seconds; ratio = local wall / fleet wall")
    print(
        f"{'store':14} {'local':>9} {'fleet':>9} {'ratio':>8} {'cpu':>9} {'fleet cpu':>9} {'dispatcher':>11}"
    )
    with tempfile.TemporaryDirectory(prefix="sweep-bench-") as folder:
        work = Path(folder)
        run([sys.executable, "-c", "import sweep.fold.kernels as k; k.warm()"])
        for name in args.stores or STORES:
            source = unpack(args.shared / "stores" / f"{name}.pre.tar.zst", work / name)
            time_store(name, source, work, args)
            shutil.rmtree(source)


if __name__ == "__main__":
    main()
