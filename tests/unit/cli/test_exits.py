"""Exit codes: every error of the tree has one, chosen and not left over."""

from __future__ import annotations

import pytest
import typer

from sweep import errors
from sweep.cli.common import Hint, echo, exits, say
from sweep.cli.exits import Exit, exit_of
from sweep.errors import AccessError, DeclarationError, LeaseLostError, SweepError
from sweep.events import RunStarted, ignore

# What the command line promises for each class; a new class must be entered here.
CODES = {
    "SweepError": 1,
    "DeclarationError": 2,
    "AdmissionError": 3,
    "LeaseHeldError": 3,
    "LeaseLostError": 5,
    "ForeignWriteError": 5,
    "TransientError": 6,
    "StoreUnavailableError": 6,
    "TransportThrottledError": 6,
    "AccessError": 6,
    "FleetUnreachableError": 4,
    "CapacityError": 1,
    "ArtifactError": 1,
    "ColumnMovedError": 1,
}


def tree(root: type[SweepError] = SweepError) -> list[type[SweepError]]:
    found = [
        each for sub in root.__subclasses__() if sub.__module__.startswith("sweep") for each in tree(sub)
    ]
    return [root, *found]


def test_every_class_of_the_tree_is_entered() -> None:
    assert {cls.__name__ for cls in tree()} == set(CODES) == set(errors.__all__)


def begun() -> Hint:
    """The hint of a run that holds its store."""
    hint = Hint("how to go on")
    started = RunStarted(run_id="r", store_root="s", n_leaves=1, n_tuples=1, n_units=1)
    hint.watch(ignore)(started)
    return hint


@pytest.mark.parametrize("cls", tree(), ids=lambda cls: cls.__name__)
def test_codes(cls: type[SweepError]) -> None:
    assert exit_of(cls("text")) == CODES[cls.__name__]


def test_the_codes_of_the_help_text() -> None:
    assert {each.name: each.value for each in Exit} == {
        "DONE": 0,
        "FAILED_UNITS": 1,
        "REFUSED": 2,
        "HELD": 3,
        "NO_FLEET": 4,
        "LOST": 5,
        "UNREACHABLE": 6,
        "BUG": 70,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize("cls", tree(), ids=lambda cls: cls.__name__)
def test_an_error_is_a_message_and_a_code(cls: type[SweepError], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, exits(begun()):
        raise cls("what [is] wrong and what to do")
    assert caught.value.exit_code == CODES[cls.__name__]
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "sweep: what [is] wrong and what to do"
    if cls is LeaseLostError:
        assert lines[1:] == ["readers see only finished artifacts; `sweep info` says who holds the store now"]
    else:  # what was refused or is held by others is not resumed
        assert lines[1:] == ([] if exit_of(cls("x")) in (2, 3) else ["how to go on"])


def test_a_run_that_never_began_is_not_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), exits(Hint("how to go on")):
        raise AccessError("no such bucket")
    assert capsys.readouterr().err.splitlines() == ["sweep: no such bucket"]


def test_an_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, exits(begun()):
        raise KeyboardInterrupt
    assert caught.value.exit_code == 130
    assert capsys.readouterr().err.splitlines() == ["sweep: interrupted", "how to go on"]


def test_a_fault_of_our_own_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, exits(begun()):
        raise ZeroDivisionError("ours")
    assert caught.value.exit_code == 70
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "ZeroDivisionError: ours" in err
    assert "please report it" in err
    assert "how to go on" not in err


def test_an_exit_passes() -> None:
    with pytest.raises(typer.Exit) as caught, exits():
        raise typer.Exit(1)
    assert caught.value.exit_code == 1


def test_without_an_error_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with exits(begun()):
        pass
    assert capsys.readouterr() == ("", "")
    assert DeclarationError("x").message == "x"


def test_a_message_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    say("s3://b/:smile:/[red]x[/red]: \ud800")
    echo(":smile: \ud800")
    assert capsys.readouterr() == (":smile: \\ud800\n", "s3://b/:smile:/[red]x[/red]: \\ud800\n")
