"""The command line: ``sweep local``, ``unlock``, ``info``, ``show``.

Composition root: it builds the store and the runtime, calls the layers below, and turns
errors into messages and exit codes.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sweep._version import __version__
from sweep.cli.common import (
    EXIT_CODES,
    Anonymous,
    AsJson,
    Endpoint,
    Families,
    Hint,
    Icechunk,
    Region,
    Scope,
    Store,
    Verbose,
    echo,
    exits,
    progress_console,
    resume_command,
    say_warnings,
    store_options,
    under_coverage,
)
from sweep.cli.exits import Exit
from sweep.cli.fleet import fleet
from sweep.cli.logs import configure_logging
from sweep.cli.progress import progress
from sweep.errors import DeclarationError
from sweep.events import ignore
from sweep.store.base import ObjectStore
from sweep.store.open import open_store
from sweep.system import SystemClock, system_runtime

__all__ = ["app", "main"]

_INFO_WIDTH = 80

app = typer.Typer(
    name="sweep",
    help="Build the coarse levels of a HEALPix zarr store.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; the process ends with one of :class:`~sweep.cli.exits.Exit`."""
    signal.signal(signal.SIGTERM, _interrupt)
    app()


def _interrupt(_signal: int, _frame: Any) -> None:
    raise KeyboardInterrupt


def _open(store: str, region: str | None, endpoint: str | None, anonymous: bool) -> ObjectStore:
    return open_store(store, store_options(region, endpoint, anonymous))


def _version(value: bool) -> None:
    if value:
        typer.echo(f"sweep {__version__}")
        raise typer.Exit


app.command(epilog=EXIT_CODES)(fleet)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Build the coarse levels of a HEALPix zarr store."""


@app.command(epilog=EXIT_CODES)
def local(
    context: typer.Context,
    store: Store,
    scope: Scope = None,
    tuple_width: Annotated[int, typer.Option(help="Orders that one tuple climbs.")] = 3,
    target_nodes: Annotated[
        int | None, typer.Option(help="Size the tuples to about this many ladder nodes per dispatch node.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(help="Work in this many parts (a power of four), one after another.")
    ] = None,
    run_id: Annotated[
        str | None, typer.Option(help="Resume a dead run under its id.", show_default="a fresh one")
    ] = None,
    lease_ttl: Annotated[
        int, typer.Option(help="Seconds without a heartbeat after which others may take the store over.")
    ] = 900,
    touch_policy: Annotated[
        str, typer.Option(help="Renew aggregation.yaml: auto, always or never.")
    ] = "auto",
    pipeline_run_id: Annotated[
        str | None, typer.Option(help="Run id of the pipeline run that this sweep completes.")
    ] = None,
    families: Families = None,
    icechunk: Icechunk = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 when any artifact is under-covered.")
    ] = False,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    region: Region = None,
    endpoint: Endpoint = None,
    anonymous: Anonymous = False,
    verbose: Verbose = 0,
) -> None:
    """Sweep STORE in this process: build every level above its leaves. Safe to repeat."""
    from sweep.model.runs import new_run_id  # cold start of --help
    from sweep.stage.run import SweepOptions, sweep_store

    configure_logging(verbose)
    runtime = system_runtime(ignore)
    run_id = new_run_id(runtime.clock, runtime.new_id) if run_id is None else run_id
    hint = _hint(context, run_id)
    with exits(hint):
        if scope is None:
            raise DeclarationError(
                "'sweep local' needs --scope: 'all' for the whole store, or the decimals of nodes to sweep "
                "(for example --scope 3111,-2)",
                kind="scope",
            )
        opened = _open(store, region, endpoint, anonymous)
        with progress(progress_console(), quiet=quiet or as_json) as observer:
            summary = sweep_store(
                opened,
                SweepOptions(
                    scope=scope,
                    tuple_width=tuple_width,
                    target_nodes=target_nodes,
                    partitions=partitions,
                    lease_ttl_s=lease_ttl,
                    run_id=run_id,
                    pipeline_run_id=pipeline_run_id,
                    touch_policy=touch_policy,  # type: ignore[arg-type]  # checked by sweep_store
                    families=families.split(",") if families else (),
                    icechunk=icechunk,
                ),
                system_runtime(hint.watch(observer)),
            )
        _report(summary, store, scope, as_json=as_json)
    if summary.tally.failed or summary.skipped_records or (strict and summary.under_covered):
        raise typer.Exit(Exit.FAILED_UNITS)


def _hint(context: typer.Context, run_id: str) -> Hint:
    return Hint(
        "readers see only finished artifacts; until another run may start, this one holds the store. "
        f"Go on where it stopped: {resume_command(context, run_id)}"
    )


def _report(summary: Any, store: str, scope: str, *, as_json: bool) -> None:
    tally = summary.tally
    say_warnings([*summary.skipped_records, *tally.problems])
    if as_json:
        echo(json.dumps(summary.to_json(), indent=2))
        return
    if not summary.record:
        echo(f"no completed leaves found in the run records of {store}; nothing to sweep")
        return
    if not any(row["nodes"] for row in summary.record["stages"]):
        echo(f"no leaf of {store} lies under {scope}; nothing was swept")
        return
    echo(
        f"swept {store}: {tally.written} overviews and {tally.columns_written} stage columns written, "
        f"{tally.current + tally.columns_current} current, {tally.empty} empty, {tally.failed} failed "
        f"({summary.record['duration_s']:.1f} s)"
    )
    if summary.under_covered:
        echo(under_coverage(summary.under_covered))
    if tally.failed:
        echo(f"{tally.failed} failed; mend what the warnings name and sweep again")


@app.command()
def unlock(
    store: Store,
    run_id: Annotated[str, typer.Option(help="The run whose lease is to be removed.")],
    region: Region = None,
    endpoint: Endpoint = None,
    verbose: Verbose = 0,
) -> None:
    """Free the lease of a run that is gone for good, after showing who held it.

    Make sure that the run is dead: one that still works stops at its next heartbeat, and what
    it has in flight may land beside the next run's work.
    """
    from sweep.artifacts.manifest_io import read_manifest  # cold start of --help
    from sweep.control.lease import read_holder
    from sweep.control.lease import unlock as remove

    configure_logging(verbose)
    with exits():
        opened = _open(store, region, endpoint, False)
        read_manifest(opened)
        holder = read_holder(opened)
        if holder is None:
            echo(f"{store} is not held by any sweep; nothing to unlock")
            return
        clock = SystemClock()
        age_s = holder.heartbeat_age_s(clock.now())
        age = "unknown age" if age_s is None else f"{age_s:.0f} s ago"
        echo(
            f"{store} is held by run {holder.run_id}, acquired {holder.acquired_at}, last heartbeat "
            f"{holder.heartbeat_at} ({age}), ttl {holder.ttl_s:.0f} s"
        )
        remove(opened, run_id, clock=clock, new_id=system_runtime(ignore).new_id)
        echo(f"freed: the lease of run {run_id} is gone")


@app.command()
def info(
    store: Store,
    as_json: AsJson = False,
    region: Region = None,
    endpoint: Endpoint = None,
    anonymous: Anonymous = False,
    verbose: Verbose = 0,
) -> None:
    """Say what STORE is: orders, fields, windows, leaves, what is swept and what is stale."""
    from sweep.cli.render import render_info  # cold start of --help
    from sweep.read.info import store_info

    configure_logging(verbose)
    with exits():
        found = store_info(_open(store, region, endpoint, anonymous), clock=SystemClock())
        if as_json:
            echo(json.dumps(found.to_json(), indent=2))
        else:
            console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
            console.width = max(console.width, _INFO_WIDTH)
            with console.capture() as drawn:
                console.print(render_info(found))
            echo(drawn.get().rstrip("\n"))


@app.command()
def show(
    store: Store,
    level: Annotated[int, typer.Option(help="Node order of the level to draw.")],
    field: Annotated[str, typer.Option(help="Field to draw.")],
    out: Annotated[Path, typer.Option(help="Picture to write: .png, .svg or .pdf.")],
    window: Annotated[
        str | None, typer.Option(help="Window label on a windowed store, or all (the all-time fold).")
    ] = None,
    quantile: Annotated[
        float | None, typer.Option(help="Which quantile of a digest field.", show_default="0.5")
    ] = None,
    lane: Annotated[
        str | None,
        typer.Option(help="Which lane of a composition field, by name; the strongest where not given."),
    ] = None,
    whole_globe: Annotated[bool, typer.Option("--global", help="Draw the whole globe.")] = False,
    region: Region = None,
    endpoint: Endpoint = None,
    anonymous: Anonymous = False,
    verbose: Verbose = 0,
) -> None:
    """Draw one level of STORE as a map."""
    from sweep.read.show import draw_level  # matplotlib is heavy, and an extra

    configure_logging(verbose)
    with exits():
        drawn = draw_level(
            _open(store, region, endpoint, anonymous),
            level=level,
            field=field,
            window=window,
            quantile=quantile,
            lane=lane,
            whole_globe=whole_globe,
            out=out,
        )
        echo(f"{out}: {drawn.n_cells} cells of {drawn.n_nodes} nodes")
