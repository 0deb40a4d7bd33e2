"""Counters that add up."""

from __future__ import annotations

from dataclasses import fields

from sweep.stage.tally import Tally, UnitError

# format 11, the counters of a stage row in their order
COUNTERS = [
    *("written", "current", "empty", "failed", "under_covered", "columns_written", "columns_current"),
    *("revalidated", "fold_blocks", "fold_cells_read", "fold_peak_cells"),
]


def numbered(first: int) -> Tally:
    return Tally(**{name: first + place for place, name in enumerate(COUNTERS)})  # type: ignore[arg-type]


def test_every_counter_adds_and_the_peak_is_the_larger() -> None:
    total = numbered(100) + numbered(1)
    expected = {name: 101 + 2 * place for place, name in enumerate(COUNTERS)}
    expected["fold_peak_cells"] = 100 + COUNTERS.index("fold_peak_cells")
    assert total.counters() == expected
    assert (numbered(1) + numbered(100)).counters() == expected


def test_counters_stand_in_the_order_of_a_row() -> None:
    assert list(Tally().counters()) == COUNTERS
    assert set(COUNTERS) | {"unit_errors", "problems"} == {each.name for each in fields(Tally)}


def test_lines_and_errors_are_kept_in_order() -> None:
    first = Tally(problems=("a",), unit_errors=(UnitError(node="1", unit="2019", error="E: x"),))
    second = Tally(problems=("b",), unit_errors=(UnitError(node="2", unit="close", error="E: y"),))
    total = sum([first, second], Tally())
    assert total.problems == ("a", "b")
    assert [each.to_json() for each in total.unit_errors] == [
        {"node": "1", "unit": "2019", "error": "E: x"},
        {"node": "2", "unit": "close", "error": "E: y"},
    ]
    assert Tally() + Tally() == Tally()
