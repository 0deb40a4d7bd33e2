"""Units: names, stems, and the refusals of a named unit."""

from __future__ import annotations

from typing import Any

import pytest

from sweep.errors import DeclarationError
from sweep.plan.units import CLOSE, NODE, check_unit, window_unit

WHERE = "run stage-x, dispatch 3, batch 7"


def test_stems_and_labels() -> None:
    assert (NODE.stem, NODE.label) == ("all", "all")
    assert (CLOSE.stem, CLOSE.label) == ("all", "close")
    assert (window_unit("2019").stem, window_unit("2019").label) == ("2019", "2019")


def test_a_named_unit() -> None:
    assert check_unit(None, None, True) is None
    assert check_unit(None, None, False) is None
    assert check_unit("close", None, True) == CLOSE
    assert check_unit("window", "2019", True) == window_unit("2019")


@pytest.mark.parametrize(
    ("kind", "window", "is_windowed", "named"),
    [
        ("node", None, True, ["unknown unit 'node'", "'window'", "'close'"]),
        ("Window", "2019", True, ["unknown unit 'Window'", "'2019'"]),
        (None, "2019", True, ["unknown unit None", "'2019'"]),
        (3, None, True, ["unknown unit 3"]),
        ("window", None, True, ["'window'", "names no window"]),
        ("close", "2019", True, ["'close'", "takes no window", "'2019'"]),
        ("window", "all", True, ["'window'", "'all'", "labels no window"]),
        ("window", "a/b", True, ["'window'", "'a/b'"]),
        ("window", 2019, True, ["'window'", "2019"]),
        ("window", "2019", False, ["'window' '2019'", "no windows"]),
        ("close", None, False, ["'close'", "None", "no windows"]),
    ],
)
def test_refusals_name_unit_window_and_place(
    kind: Any, window: Any, is_windowed: bool, named: list[str]
) -> None:
    with pytest.raises(DeclarationError) as caught:
        check_unit(kind, window, is_windowed, where=WHERE)
    message = str(caught.value)
    assert message.startswith(WHERE)
    assert all(text in message for text in named)
    assert caught.value.kind == "unit"


def test_the_check_against_the_store_may_be_left_for_later() -> None:
    assert check_unit("close", None, None) == CLOSE
    with pytest.raises(DeclarationError, match="unknown unit"):
        check_unit("all", None, None)
