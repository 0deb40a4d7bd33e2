"""Reads typed values out of an event and gathers everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep.model.nodes import is_decimal, order_of

__all__ = ["EventReader"]


class EventReader:
    """One event on its way to a value.

    Each method returns what stands under a key; where that is of no use it notes a problem
    and returns something of the right type, so that one reading finds all problems.

    Attributes
    ----------
    event, stage : mapping
        The event, and its ``stage`` block; empty where there is none.
    problems : list of str
    """

    def __init__(self, event: Mapping[str, Any]) -> None:
        stage = event.get("stage")
        self.event = event
        self.stage: Mapping[str, Any] = stage if isinstance(stage, Mapping) else {}
        self.problems: list[str] = []

    def where(self) -> str:
        """Run, dispatch order and batch, as far as the event says them."""
        stage = self.stage
        if stage.get("role") == "finisher":
            return f"finisher event of run {stage.get('run_id')!r}"
        return (
            f"stage event of run {stage.get('run_id')!r}, dispatch order {stage.get('dispatch')!r}, "
            f"batch {stage.get('batch')!r}"
        )

    def context(self) -> dict[str, Any]:
        """The same as values, for the error."""
        keys = ("role", "run_id", "dispatch", "batch", "attempt", "records_from")
        found = {key: self.stage[key] for key in keys if isinstance(self.stage.get(key), str | int)}
        root = self.event.get("store_path")
        return found | ({"store_path": root} if isinstance(root, str) else {})

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def root(self) -> str:
        """The top level's ``store_path``."""
        return self._text("store_path", self.event.get("store_path"))

    def text(self, key: str) -> str:
        """Text that has to stand in the stage block."""
        return self._text(key, self.stage.get(key))

    def optional_text(self, key: str) -> str | None:
        return None if self.stage.get(key) is None else self.text(key)

    def _text(self, key: str, value: Any) -> str:
        if isinstance(value, str) and value:
            return value
        self.problem(f"no {key} ({value!r}): expected text")
        return ""

    def whole(self, key: str, least: int, default: int | None = None) -> int:
        """A whole number of at least ``least``."""
        value = self.stage.get(key, default)
        if _is_whole(value, least):
            return int(value)
        self.problem(f"{key} {value!r}, expected a whole number of at least {least}")
        return least

    def optional_whole(self, key: str, least: int) -> int | None:
        return None if self.stage.get(key) is None else self.whole(key, least)

    def flag(self, key: str) -> bool:
        """True or false; false where it is not said."""
        value = self.stage.get(key, False)
        if not isinstance(value, bool):
            self.problem(f"{key} {value!r}, expected true or false")
        return value is True

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, empty where it is not said."""
        value = self.stage.get(key)
        if value is None:
            return ()
        if _is_list(value) and all(isinstance(each, str) for each in value):
            return tuple(value)
        self.problem(f"{key} {value!r}, expected a list of texts")
        return ()

    def orders(self, key: str) -> tuple[int, ...]:
        """A list of node orders, empty where it is not said."""
        value = self.stage.get(key)
        if value is None:
            return ()
        if _is_list(value) and all(_is_whole(each, 0) for each in value):
            return tuple(value)
        self.problem(f"{key} {value!r}, expected a list of orders")
        return ()

    def nodes(self, dispatch: int) -> tuple[str, ...]:
        """The decimals of ``nodes``, all of which are of the dispatch order."""
        value = self.stage.get("nodes")
        if not _is_list(value) or not value:
            self.problem(f"nodes is {value!r}: an empty node set has nothing to fold")
            return ()
        bad = [repr(node) for node in value if not is_decimal(node)]
        found = [node for node in value if is_decimal(node)]
        off = [f"{node} (order {order_of(node)})" for node in found if order_of(node) != dispatch]
        if bad:
            self.problem(f"nodes {', '.join(bad)} are no decimals")
        if off:
            self.problem(f"nodes off the dispatch order {dispatch}: {', '.join(off)}")
        return tuple(found)

    def partition(self) -> Mapping[str, int] | None:
        """``{"index": i, "of": n}``; whether the numbers make a partition is the worker's to say."""
        value = self.stage.get("partition")
        if value is None:
            return None
        if isinstance(value, Mapping) and _is_whole(value.get("index"), 0) and _is_whole(value.get("of"), 1):
            return {"index": value["index"], "of": value["of"]}
        self.problem(f"partition {value!r}, expected an object of whole numbers index and of")
        return None

    def refs(self, key: str) -> tuple[tuple[int, str | None], ...]:
        """A list of ``[word, window or null]`` at the top level; empty where it is null."""
        value = self.event.get(key)
        if value is None:
            return ()
        if not _is_list(value):
            self.problem(f"{key} is of type {type(value).__name__}, expected a list of [word, window]")
            return ()
        for ref in value:
            if not _is_ref(ref):
                self.problem(f"{key}: {ref!r} is no [word, window] pair")
                return ()
        return tuple((word, window) for word, window in value)


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_ref(ref: Any) -> bool:
    if not _is_list(ref) or len(ref) != 2:
        return False
    word, window = ref
    is_word = isinstance(word, int) and not isinstance(word, bool)
    return is_word and (window is None or isinstance(window, str))
