"""Reading JSON that others wrote."""

from __future__ import annotations

import json

import pytest

from sweep.model.json_text import loads, printable, root_json


@pytest.mark.parametrize("depth", [101, 2_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_text_is_a_value_error(depth: int, opening: str, closing: str) -> None:
    with pytest.raises(ValueError, match="nested"):
        loads((opening * depth + "1" + closing * depth).encode())


@pytest.mark.parametrize("raw", [b"", b"{", b"[" * 100_000, b"\xff\xfe\xfd", b"1" * 5_000, "\ud800"])
def test_other_damage_is_a_value_error(raw: bytes | str) -> None:
    with pytest.raises(ValueError, match=r"nested|column|utf-|integer string"):
        loads(raw)


def test_what_is_read_can_be_written() -> None:
    text = "[" * 100 + "1" + "]" * 100
    assert json.loads(root_json(loads(text))) == json.loads(text)
    assert loads(b'{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


def test_a_lone_surrogate_is_printed_escaped() -> None:
    assert printable(json.loads(r'"a\ud800b"')) == r"a\ud800b"
    assert printable("é𝄞") == "é𝄞"
