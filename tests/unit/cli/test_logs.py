"""The package's log: silent by default, one line a record where it is asked for."""

from __future__ import annotations

import logging

import pytest

from sweep.cli.logs import configure_logging

log = logging.getLogger("sweep.stage.unit")


def say_all() -> None:
    log.debug("object", extra={"event": "get", "key": "2/1/all.zarr"})
    log.info("tuple done", extra={"event": "tuple-done", "run_id": "stage-x", "batch": 3})
    log.warning("artifact not usable", extra={"event": "artifact-failed", "problem": "torn"})


@pytest.mark.parametrize(
    ("verbosity", "lines"),
    [
        (0, []),
        (
            1,
            [
                "info: tuple done run_id=stage-x batch=3",
                "warning: artifact not usable problem=torn",
            ],
        ),
        (
            2,
            [
                "debug: object key=2/1/all.zarr",
                "info: tuple done run_id=stage-x batch=3",
                "warning: artifact not usable problem=torn",
            ],
        ),
    ],
)
def test_verbosity(capsys: pytest.CaptureFixture[str], verbosity: int, lines: list[str]) -> None:
    configure_logging(verbosity)
    say_all()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == lines


def test_a_second_call_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    for verbosity in (2, 1, 1):
        configure_logging(verbosity)
    say_all()
    assert len(capsys.readouterr().err.splitlines()) == 2
    configure_logging(0)
    say_all()
    assert capsys.readouterr().err == ""


def test_other_handlers_are_left_alone() -> None:
    handler = logging.NullHandler()
    logging.getLogger("sweep").addHandler(handler)
    configure_logging(1)
    configure_logging(0)
    assert handler in logging.getLogger("sweep").handlers


def test_a_message_is_formatted_and_a_traceback_follows(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(1)
    log.warning("%d of %d", 1, 2)
    try:
        raise ZeroDivisionError("ours")
    except ZeroDivisionError:
        log.exception("fell over", extra={"event": "x", "node": "-21"})
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == ["warning: 1 of 2", "error: fell over node=-21", "Traceback (most recent call last):"]
    assert lines[-1] == "ZeroDivisionError: ours"
