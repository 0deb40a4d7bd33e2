"""What every command shares: arguments, messages, and the way from errors to exit codes."""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, TextIO

import typer
from rich.console import Console

from sweep.cli.exits import Exit, exit_of
from sweep.errors import LeaseLostError, SweepError
from sweep.events import Admitted, Event, Observer, RunStarted
from sweep.model.json_text import printable
from sweep.store.open import StoreOptions

__all__ = [
    "EXIT_CODES",
    "Anonymous",
    "AsJson",
    "Endpoint",
    "Families",
    "Hint",
    "Icechunk",
    "Region",
    "Scope",
    "Store",
    "Verbose",
    "echo",
    "exits",
    "progress_console",
    "resume_command",
    "say",
    "say_error",
    "say_warnings",
    "silence",
    "store_options",
    "under_coverage",
]

Store = Annotated[
    str, typer.Argument(help="The store: a folder, file://, or s3://bucket/prefix.", show_default=False)
]
Region = Annotated[str | None, typer.Option(help="AWS region of an s3:// store.")]
Endpoint = Annotated[str | None, typer.Option(help="Address of an S3-compatible server.")]
Anonymous = Annotated[bool, typer.Option("--anon", help="Send unsigned requests (reading public stores).")]
Scope = Annotated[
    str | None,
    typer.Option(
        help="Required. What to sweep: 'all', or decimals of nodes with commas, such as 3111,-2 (a base "
        "cell 1-6, '-' for the southern ones, then a digit 1-4 for each order).",
        show_default=False,
    ),
]
Families = Annotated[str | None, typer.Option("--families", hidden=True, help="Not offered.")]
Icechunk = Annotated[bool, typer.Option("--icechunk", hidden=True, help="Not offered.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, help="Log to standard error; -vv for more.")
]

EXIT_CODES = (
    "Exit codes: 0 done; 1 finished with failures; 2 refused; 3 another sweep holds the store; 4 the fleet "
    "cannot be reached; 5 the lease was lost or a foreign writer appeared; 6 the store cannot be reached or "
    "written; 130 interrupted; 70 a fault of sweep itself."
)

_SHOWN = 5
_WARNINGS = 20
_STANDARD = (1, 2)


class _Voice(Console):
    """A console whose reader may go away: then it falls silent, and the run goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Send a stream that takes no more to nowhere: what is left in its buffer would fail at the end."""
    with suppress(OSError, ValueError):
        if stream.fileno() in _STANDARD:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


_err = _Voice(stderr=True, highlight=False, emoji=False)
# How a command speaks is for the next one to choose; scope and run id are always said.
_SAID_OTHERWISE = frozenset({"scope", "run_id", "as_json", "quiet", "verbose"})


@dataclass(slots=True)
class Hint:
    """How to go on with a run that ended before its time; of no use until a run has begun."""

    resume: str
    is_begun: bool = False

    def watch(self, observer: Observer) -> Observer:
        """``observer``, through which this learns that the run holds the store."""

        def watched(event: Event, /) -> None:
            self.is_begun |= isinstance(event, Admitted | RunStarted)
            observer(event)

        return watched

    def say(self, code: Exit, *, is_lost: bool = False) -> None:
        if self.is_begun and is_lost:
            say("readers see only finished artifacts; `sweep info` says who holds the store now")
        elif self.is_begun and code not in (Exit.HELD, Exit.REFUSED):
            say(self.resume)


@contextmanager
def exits(hint: Hint | None = None) -> Iterator[None]:
    """Map what a command raises to a message and an exit code."""
    hint = hint or Hint("")
    try:
        yield
    except SweepError as error:
        code = exit_of(error)
        say_error(error.message)
        hint.say(code, is_lost=isinstance(error, LeaseLostError))
        raise typer.Exit(code) from error
    except KeyboardInterrupt as error:
        say_error("interrupted")
        hint.say(Exit.INTERRUPTED)
        raise typer.Exit(Exit.INTERRUPTED) from error
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:
        traceback.print_exc()
        say_error("this is a fault of sweep itself, please report it with the lines above")
        raise typer.Exit(Exit.BUG) from error


def say(text: str) -> None:
    """One line on standard error; a run does not end because nobody can read it."""
    try:
        _err.print(printable(text), soft_wrap=True, markup=False)
    except OSError:
        silence(sys.stderr)


def echo(text: str) -> None:
    """Text on standard output, which may be closed or full: that changes no exit code."""
    try:
        typer.echo(printable(text))
        sys.stdout.flush()
    except OSError as error:
        say_error(f"standard output does not take the answer ({error.strerror or error})")
        silence(sys.stdout)


def say_error(text: str) -> None:
    """One line on standard error, in the program's name."""
    say(f"sweep: {text}")


def say_warnings(lines: Sequence[str]) -> None:
    """What could not be used, one line each, as long as somebody would read them."""
    for line in lines[:_WARNINGS]:
        say(f"warning: {line}")
    if len(lines) > _WARNINGS:
        say(f"warning: {len(lines) - _WARNINGS} more like these (-v logs them all)")


def store_options(region: str | None, endpoint: str | None, anonymous: bool) -> StoreOptions:
    """How to reach the store, from the common options."""
    return StoreOptions(region=region, endpoint=endpoint, anonymous=anonymous)


def resume_command(context: typer.Context, run_id: str) -> str:
    """The command line that goes on under ``run_id``: every option that says what to do, and where."""
    given = context.params
    words = ["sweep", str(context.info_name), given["store"], "--scope", given["scope"] or "all"]
    for option in context.command.params:
        value = given.get(str(option.name))
        if option.param_type_name == "option" and option.name not in _SAID_OTHERWISE:
            if value is True:
                words.append(option.opts[0])
            elif value is not False and value != option.default:
                words += [option.opts[0], str(value)]
    return shlex.join([*words, "--run-id", run_id])


def under_coverage(under_covered: Mapping[str, int]) -> str:
    """Which overviews lack sources: normal where siblings hold different windows."""
    named = [
        f"{name.replace('|', ' ')} ({missing})" for name, missing in list(under_covered.items())[:_SHOWN]
    ]
    more = f", and {len(under_covered) - _SHOWN} more" if len(under_covered) > _SHOWN else ""
    return (
        f"{len(under_covered)} overviews are under-covered, as sources beneath them are not there (normal "
        f"where neighbours hold different windows): {', '.join(named)}{more}; they heal when those appear"
    )


def progress_console() -> Console:
    """Where progress is shown: standard error."""
    return _err
