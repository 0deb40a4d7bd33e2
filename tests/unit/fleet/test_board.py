"""The board: what is known of each batch, and what is done about it.

Source: semantics 12.5-12.6.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fleets import Json, batches_of, board_of

from sweep.control.records import Failure
from sweep.fleet.board import Board, Task


def failure(task: Task, reaction: str, **changes: Any) -> Failure:
    fan_out = task.batch.fan_out
    fields: Json = {
        "run_id": "stage-x",
        "run_started": "",
        "dispatch": task.dispatch,
        "batch": task.number,
        "attempt": task.attempt,
        "unit": fan_out.unit,
        "window": fan_out.window,
        "nodes": task.batch.nodes(),
        "remaining": task.batch.nodes(),
        "reaction": reaction,
        "error_class": "SomeError",
        "kind": "k",
        "error": "why",
        "request_id": None,
        "at": "",
    }
    return Failure(**(fields | changes))


def fired(board: Board) -> Board:
    for task in board.tasks:
        task.status = "fired"
    return board


def statuses(board: Board) -> list[tuple[int, str, int]]:
    return [(task.number, task.status, task.attempt) for task in board.tasks]


def test_names() -> None:
    board = board_of(2, first=12)
    task = board.tasks[1]
    assert (task.record, task.failure, task.key) == (
        "stage-02-0013.json",
        "error-02-0013-1.json",
        "02-0013-1",
    )
    assert board.find("02-0013-1") is task
    assert board.find("02-0013-2") is None
    assert board.next_number == 14
    assert board_of(0, first=7).next_number == 7


def test_what_is_ready() -> None:
    board = board_of(3)
    assert [task.number for task in board.ready(0.0)] == [0, 1, 2]
    board.put_off(board.tasks[1], 100.0, "later", wait_s=5.0)
    assert [task.number for task in board.ready(104.9)] == [0, 2]
    assert [task.number for task in board.ready(105.0)] == [0, 1, 2]
    assert board.tasks[1].attempt == 1


def test_records_end_tasks_and_strangers_are_nothing() -> None:
    board = fired(board_of(3))
    board.see_records(
        ["stage-02-0001.json", "stage-02-0009.json", "stage-01-0000.json", "stage-02-0002-part1.json"]
    )
    assert [status for _, status, _ in statuses(board)] == ["fired", "done", "fired"]
    assert board.n_done() == 1
    assert [task.number for task in board.open_tasks()] == [0, 2]


def test_a_record_that_comes_after_all_counts() -> None:
    board = fired(board_of(1))
    board.give_up_open("the end")
    assert [task.error for task in board.given_up()] == ["the end"]
    board.see_records(["stage-02-0000.json"])
    assert (board.n_done(), board.given_up()) == (1, [])


def test_first_missing_is_first_as_text() -> None:
    """Past 9,999 the numbers get longer: 10000 comes before 1001 among keys."""
    board = fired(board_of(12, first=9_995, order=3))
    assert board.first_missing() == "stage-03-10000.json"
    board.see_records(f"stage-03-{number}.json" for number in (9_995, 9_996, 10_000, 10_001))
    assert board.first_missing() == "stage-03-10002.json"
    board.see_records(f"stage-03-{number}.json" for number in range(10_002, 10_007))
    assert board.first_missing() == "stage-03-9997.json"
    board.see_records(f"stage-03-{number}.json" for number in range(9_997, 10_000))
    assert board.first_missing() is None


def test_first_missing_comes_back_to_new_tasks() -> None:
    board = fired(board_of(2, size=2, first=9_999))
    board.see_records(["stage-02-10000.json"])
    assert board.first_missing() == "stage-02-9999.json"
    task = board.tasks[0]
    board.shrink(task, 0.0, left=task.batch.nodes()[:1])
    assert board.first_missing() == "stage-02-10001.json"


# -- failures -------------------------------------------------------------------------------


@pytest.mark.parametrize("reaction", ["retry", "split"])
def test_one_node_is_tried_again_and_not_for_ever(reaction: str) -> None:
    board = fired(board_of(1, attempts=3))
    (task,) = board.tasks
    for attempt in (1, 2):
        board.hear(failure(task, reaction), 10.0)
        assert (task.status, task.attempt, board.retries) == ("queued", attempt + 1, attempt)
        task.status = "fired"
    board.hear(failure(task, reaction), 10.0)
    assert (task.status, task.attempt, board.retries) == ("given-up", 3, 2)
    assert task.error == "SomeError: why"


def test_a_refusal_is_never_tried_again() -> None:
    board = fired(board_of(2))
    board.hear(failure(board.tasks[0], "refused"), 0.0)
    assert statuses(board) == [(0, "given-up", 1), (1, "fired", 1)]
    assert board.retries == 0


def test_a_failure_heard_twice_counts_once() -> None:
    board = fired(board_of(1))
    said = failure(board.tasks[0], "retry")
    board.hear(said, 0.0)
    board.hear(said, 0.0)
    board.tasks[0].status = "fired"
    board.hear(said, 0.0)
    assert statuses(board) == [(0, "fired", 2)]


@pytest.mark.parametrize(
    "changes",
    [{"attempt": 3}, {"attempt": 1}, {"unit": "close"}, {"window": "2019"}, {"batch": 5}, {"dispatch": 1}],
)
def test_words_about_something_else_are_nothing(changes: Json) -> None:
    board = fired(board_of(1))
    board.tasks[0].attempt = 2
    board.hear(failure(board.tasks[0], "refused", **changes), 0.0)
    assert statuses(board) == [(0, "fired", 2)]


@pytest.mark.parametrize("reaction", ["retry", "split", "refused"])
def test_a_failure_after_the_record_is_nothing(reaction: str) -> None:
    board = fired(board_of(1, size=4))
    board.see_records(["stage-02-0000.json"])
    board.hear(failure(board.tasks[0], reaction), 0.0)
    assert statuses(board) == [(0, "done", 1)]


# -- splits ---------------------------------------------------------------------------------


def nodes_by_number(board: Board) -> dict[int, tuple[str, ...]]:
    return {task.number: task.batch.nodes() for task in board.tasks}


def test_a_batch_that_did_nothing_is_cut_in_two_under_new_numbers() -> None:
    board = fired(board_of(3, size=4))
    nodes = board.tasks[1].batch.nodes()
    board.hear(failure(board.tasks[1], "split"), 5.0)
    assert statuses(board) == [(0, "fired", 1), (2, "fired", 1), (3, "queued", 2), (4, "queued", 2)]
    assert nodes_by_number(board)[3] + nodes_by_number(board)[4] == nodes
    assert (board.next_number, board.retries) == (5, 2)
    # the batch that was cut is forgotten, its record with it
    board.see_records(["stage-02-0001.json"])
    assert board.n_done() == 0


def test_a_batch_that_did_a_part_counts_and_the_rest_is_fired() -> None:
    board = fired(board_of(1, size=5))
    nodes = board.tasks[0].batch.nodes()
    left = [nodes[4], nodes[1], nodes[2]]
    board.hear(failure(board.tasks[0], "split", remaining=tuple(left)), 5.0)
    assert statuses(board) == [(0, "done", 1), (1, "queued", 2), (2, "queued", 2)]
    assert nodes_by_number(board)[1] + nodes_by_number(board)[2] == (nodes[1], nodes[2], nodes[4])
    assert [task.error for task in board.tasks[1:]] == ["SomeError: why"] * 2


def test_leaves_go_with_their_nodes() -> None:
    board = fired(board_of(1, size=4))
    batch = board.tasks[0].batch
    leaves = dict(zip(batch.nodes(), batch.leaves() or (), strict=True))
    left = batch.nodes()[1::2]
    board.shrink(board.tasks[0], 0.0, left=left)
    found = {
        node: ref
        for task in board.tasks[1:]
        for node, ref in zip(task.batch.nodes(), task.batch.leaves() or (), strict=True)
    }
    assert found == {node: leaves[node] for node in left}


def test_one_node_left_is_one_batch() -> None:
    board = fired(board_of(1, size=2))
    nodes = board.tasks[0].batch.nodes()
    board.hear(failure(board.tasks[0], "split", remaining=(nodes[1],)), 0.0)
    assert nodes_by_number(board) == {0: nodes, 1: (nodes[1],)}


def test_what_is_left_after_the_last_try_is_named() -> None:
    board = fired(board_of(1, size=4, attempts=1))
    nodes = board.tasks[0].batch.nodes()
    board.hear(failure(board.tasks[0], "split", remaining=nodes[2:]), 0.0)
    assert board.n_done() == 1
    assert [task.batch.nodes() for task in board.given_up()] == [(nodes[2],), (nodes[3],)]
    assert board.retries == 0


@pytest.mark.parametrize("remaining", [(), ("nonsense", "7"), ("11111",)])
def test_a_split_that_names_none_of_its_nodes_leaves_all(remaining: tuple[str, ...]) -> None:
    board = fired(board_of(1, size=3))
    nodes = board.tasks[0].batch.nodes()
    board.hear(failure(board.tasks[0], "split", remaining=remaining), 0.0)
    assert sum((task.batch.nodes() for task in board.tasks), ()) == nodes
    assert [status for _, status, _ in statuses(board)] == ["queued", "queued"]


def test_a_part_of_a_part() -> None:
    board = fired(board_of(1, size=4, attempts=3))
    nodes = board.tasks[0].batch.nodes()
    board.hear(failure(board.tasks[0], "split"), 0.0)
    fired(board)
    board.hear(failure(board.tasks[1], "split", remaining=(nodes[3],)), 0.0)
    assert statuses(board) == [(1, "fired", 2), (2, "done", 2), (3, "queued", 3)]
    assert nodes_by_number(board)[3] == (nodes[3],)


@pytest.mark.parametrize(("too_big", "numbers"), [(True, [1, 2]), (False, [0])])
def test_a_dead_worker(too_big: bool, numbers: list[int]) -> None:
    board = fired(board_of(1, size=4))
    board.lose(board.tasks[0], 0.0, "memory: 2 GB", is_too_big=too_big)
    assert statuses(board) == [(number, "queued", 2) for number in numbers]
    assert {task.error for task in board.tasks} == {"memory: 2 GB"}


def test_discover_stays_with_the_pieces() -> None:
    (batch,) = batches_of(1, size=2)
    whole = type(batch)(fan_out=batch.fan_out, start=0, stop=2, discover=True)
    board = fired(Board([whole], first_number=0, attempts=3))
    board.shrink(board.tasks[0], 0.0, left=whole.nodes())
    assert [task.batch.leaves() for task in board.tasks] == [None, None]


# -- time -----------------------------------------------------------------------------------


def test_attempts_expire_after_their_time() -> None:
    board = fired(board_of(3, attempts=2))
    for task, due_at in zip(board.tasks, (10.0, 20.0, None), strict=True):
        task.due_at = due_at
    board.expire(10.0)
    assert statuses(board) == [(0, "fired", 1), (1, "fired", 1), (2, "fired", 1)]
    board.expire(10.1)
    assert statuses(board) == [(0, "queued", 2), (1, "fired", 1), (2, "fired", 1)]
    fired(board)
    board.expire(99.0)
    assert statuses(board) == [(0, "given-up", 2), (1, "queued", 2), (2, "fired", 1)]
    assert board.tasks[0].error == "no record and no word within its time"


def test_a_doubtful_attempt_is_repeated_but_the_last_is_waited_for() -> None:
    board = board_of(1, attempts=2)
    (task,) = board.tasks
    board.doubt(task, 10.0, "reset", due_at=50.0, wait_s=1.0)
    assert (task.status, task.attempt, task.not_before) == ("queued", 2, 11.0)
    board.doubt(task, 11.0, "reset", due_at=50.0, wait_s=1.0)
    assert (task.status, task.attempt, task.due_at) == ("fired", 2, 50.0)
