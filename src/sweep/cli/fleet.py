"""``sweep fleet``: the dispatcher on the command line, also as ``python -m sweep.fleet``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweep.cli.common import (
    Anonymous,
    AsJson,
    Endpoint,
    Hint,
    Region,
    Scope,
    Store,
    Verbose,
    echo,
    exits,
    progress_console,
    resume_command,
    say,
    store_options,
    under_coverage,
)
from sweep.cli.exits import Exit
from sweep.cli.logs import configure_logging
from sweep.cli.progress import progress
from sweep.errors import DeclarationError
from sweep.model.json_text import loads
from sweep.system import system_runtime

if TYPE_CHECKING:
    from sweep.fleet.options import FleetSummary

__all__ = ["fleet", "read_leaves"]


def fleet(
    context: typer.Context,
    store: Store,
    scope: Scope = None,
    transport: Annotated[
        str, typer.Option(help="processes (this machine), lambda, dask, or inline (this process).")
    ] = "processes",
    function: Annotated[str | None, typer.Option(help="Lambda function, name or ARN.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a dask scheduler.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes.", show_default="one per core")
    ] = None,
    memory_mb: Annotated[int | None, typer.Option(help="Memory of one worker, in MiB.")] = None,
    payload_kb: Annotated[int, typer.Option(help="Largest event, in KiB (Lambda takes 1024).")] = 250,
    tuple_width: Annotated[int, typer.Option(help="Orders that one tuple climbs, at most.")] = 3,
    target_nodes: Annotated[
        int | None, typer.Option(help="Size the tuples to about this many ladder nodes per dispatch node.")
    ] = None,
    max_nodes: Annotated[
        int | None, typer.Option(help="Dispatch nodes of one event.", show_default="by transport")
    ] = None,
    attempts: Annotated[int, typer.Option(help="Times that one batch may be fired.")] = 3,
    barrier_timeout: Annotated[float, typer.Option(help="Seconds that one barrier may wait.")] = 2700.0,
    budget: Annotated[float, typer.Option(help="Seconds that all barriers may wait together.")] = 7200.0,
    poll: Annotated[float, typer.Option(help="Seconds between polls, once they have slowed down.")] = 5.0,
    lease_ttl: Annotated[
        int | None, typer.Option(help="Seconds without a heartbeat after which others may take over.")
    ] = None,
    run_id: Annotated[
        str | None, typer.Option(help="Resume a run under its id; what is complete is kept.")
    ] = None,
    redo: Annotated[bool, typer.Option("--redo", help="With --run-id: do again what is complete.")] = False,
    pipeline_run_id: Annotated[str | None, typer.Option(help="Pipeline run that this completes.")] = None,
    touch_policy: Annotated[str, typer.Option(help="Renew aggregation.yaml: auto, always, never.")] = "auto",
    leaves: Annotated[
        Path | None, typer.Option(help="Work set: Parquet (shard_key, window) or JSON lines [word, window].")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its price; fire nothing.")
    ] = False,
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
    """Sweep STORE with many workers.

    The dispatcher fires events, waits for the workers' records beside the store, and goes on
    from fine to coarse. It never writes to the store itself.
    """
    from sweep.fleet.dispatcher import Dispatcher  # cold start of --help
    from sweep.fleet.options import FleetOptions
    from sweep.fleet.plan_report import plan_report, render_plan
    from sweep.fleet.run import TransportChoice, open_transport, prepare
    from sweep.model.runs import new_run_id
    from sweep.store.open import open_store

    configure_logging(verbose)
    fresh = run_id is None
    runtime = system_runtime()
    run_id = run_id or new_run_id(runtime.clock, runtime.new_id)
    hint = _hint(context, run_id)
    with exits(hint):
        options = FleetOptions(
            scope=scope,
            leaves=None if leaves is None else read_leaves(leaves),
            tuple_width=tuple_width,
            target_nodes=target_nodes,
            max_nodes=max_nodes,
            attempts=attempts,
            barrier_timeout_s=barrier_timeout,
            budget_s=budget,
            poll_s=poll,
            lease_ttl_s=lease_ttl,
            run_id=run_id,
            pipeline_run_id=pipeline_run_id,
            keep_complete=not fresh and not redo,
            touch_policy=touch_policy,  # type: ignore[arg-type]  # checked by the dispatcher
        )
        choice = TransportChoice(
            name=transport,  # type: ignore[arg-type]  # checked by open_transport
            workers=workers,
            memory_mb=memory_mb,
            function=function,
            scheduler=scheduler,
            payload_bytes=payload_kb * 1024,
        )
        opened, reach = prepare(store, store_options(region, endpoint, anonymous))
        with (
            open_transport(choice, opened, reach) as transport_open,
            progress(progress_console(), quiet=quiet or as_json or dry_run) as observer,
        ):
            dispatcher = Dispatcher(
                opened,
                lambda prefix: open_store(prefix, reach),
                transport_open,
                options,
                system_runtime(hint.watch(observer)),
            )
            if dry_run:
                report = plan_report(dispatcher, memory_mb=memory_mb or 2048)
                echo(json.dumps(report, indent=2) if as_json else render_plan(report))
                return
            summary = dispatcher.run()
        code = _report(summary, store, as_json=as_json, strict=strict)
    if code:
        raise typer.Exit(code)


def _hint(context: typer.Context, run_id: str) -> Hint:
    return Hint(
        "what is queued or running on workers elsewhere ends by itself; readers see only finished artifacts. "
        f"Go on where it stopped: {resume_command(context, run_id)}"
    )


def _report(summary: FleetSummary, store: str, *, as_json: bool, strict: bool) -> int:
    document = summary.document
    for each in summary.unfinished:
        unit = each["window"] or each["unit"] or "whole nodes"
        say(
            f"warning: nodes {', '.join(each['nodes'][:5])} ({unit}) were not finished after "
            f"{each['attempts']} attempts: {each['error']}"
        )
    if as_json:
        echo(json.dumps(summary.to_json(), indent=2))
    else:
        _say_what_happened(summary, store)
    if document["skipped"] and document["run_started"] is None:
        return Exit.REFUSED
    if document["skipped"]:
        return Exit.DONE
    if not summary.is_complete or (strict and summary.under_covered):
        return Exit.FAILED_UNITS
    return Exit.DONE


def _say_what_happened(summary: FleetSummary, store: str) -> None:
    document, finisher = summary.document, summary.document["finisher"]
    if document["skipped"]:
        echo(f"{store}: nothing was fired: {document['skipped']}")
        return
    took = f"{document['invokes']} invokes ({document['duration_s']:.1f} s)"
    if not finisher["landed"]:
        seen = sum(row["records_seen"] + row.get("close_records_seen", 0) for row in document["stages"])
        echo(
            f"{seen} batches of {document['n_leaves']} leaves of {store} are done, {took}; the finisher did "
            f"not land ({finisher.get('error', 'unknown')}): resume the run with --run-id {summary.run_id}"
        )
        return
    echo(
        f"swept {document['n_leaves']} leaves of {store}: {summary.count('written')} overviews and "
        f"{summary.count('columns_written')} stage columns written, "
        f"{summary.count('current', 'columns_current')} current, {summary.n_failed} failed, {took}"
    )
    if summary.under_covered:
        echo(under_coverage(summary.under_covered))


def read_leaves(path: Path) -> list[tuple[int, str | None]]:
    """A work set from a file: a Parquet run record, or JSON lines of ``[word, window]``.

    Raises
    ------
    DeclarationError
        The file is neither; the message names the line.
    """
    from sweep.control.run_records import read_run_record  # cold start of --help
    from sweep.errors import ArtifactError

    try:
        data = path.read_bytes()
    except OSError as error:
        raise DeclarationError(f"--leaves {path}: {error.strerror or error}", kind="leaves-file") from error
    if data[:4] == b"PAR1":
        try:
            record = read_run_record(data)
        except ArtifactError as error:
            raise DeclarationError(f"--leaves {path}: {error.message}", kind="leaves-file") from error
        windows = record.windows or (None,) * len(record.words)
        return list(zip(record.words.tolist(), windows, strict=True))
    return [
        _leaf_line(path, place, line) for place, line in enumerate(data.splitlines(), start=1) if line.strip()
    ]


def _leaf_line(path: Path, place: int, line: bytes) -> tuple[int, str | None]:
    try:
        ref = loads(line)
    except ValueError:
        ref = None
    word, window = (*ref, None)[:2] if isinstance(ref, list) and 1 <= len(ref) <= 2 else (ref, None)
    if isinstance(word, int) and not isinstance(word, bool) and (window is None or isinstance(window, str)):
        return word, window
    raise DeclarationError(
        f"--leaves {path}, line {place}: {line[:60]!r} is no [word, window] pair", kind="leaves-file"
    )
