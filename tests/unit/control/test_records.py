"""Stage records and failure records: which one counts, who may replace it, what an error asks for.

Source: format 12; semantics 12.2-12.3.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.sweeping import memory

from sweep.control.records import (
    Failure,
    counted,
    describe,
    is_better,
    json_object,
    nodes_of,
    parse_failure,
    parse_stage_record,
    put_stage_record,
    reaction_to,
    rows_of,
)
from sweep.errors import AccessError, DeclarationError, StoreUnavailableError, SweepError
from sweep.store.base import ObjectStore
from sweep.testing.stores import CountingStore, Fault, FaultyStore, answer_lost

Json = dict[str, Any]
NAME = "stage-03-0000.json"
T1, T2 = "2026-11-29T16:31:05+00:00", "2026-11-29T16:31:06+00:00"


def record(nodes: list[str] | None = None, failed: int = 0, under_covered: int = 0, **changes: Any) -> Json:
    plain: Json = {
        "spec": "zagg-sweep-stage-record/1",
        "role": "stage",
        "run_id": "stage-x",
        "run_started": T1,
        "dispatch": 3,
        "unit": "window",
        "window": "2019",
        "nodes": ["-2111", "-2112"] if nodes is None else nodes,
        "stages": [{"failed": failed, "under_covered": under_covered}],
    }
    return plain | changes


# -- which is better ------------------------------------------------------------------------

BETTER: list[tuple[str, Json, Json, bool]] = [
    ("the first of equals stays", record(), record(), False),
    ("fewer failures", record(), record(failed=1), True),
    ("more failures", record(failed=2), record(failed=1), False),
    ("under-coverage counts too", record(), record(under_covered=1), True),
    ("more nodes", record(), record(["-2111"]), True),
    ("fewer nodes", record(["-2111"]), record(), False),
    ("more nodes count before failures", record(failed=3), record(["-2111"]), True),
    ("as many, but others", record(["-2111"]), record(["-2112"]), False),
    ("the order of nodes is nothing", record(["-2112", "-2111"]), record(failed=1), True),
    ("an older drive gives way", record(["-2111"], failed=9, run_started=T2), record(), True),
    ("an older drive does not come back", record(), record(["-2111"], failed=9, run_started=T2), False),
    ("another run", record(), record(run_id="stage-y", run_started=T2), True),
    ("another window", record(), record(window="2020"), True),
    ("another unit", record(), record(unit="close", window=None), True),
    ("another dispatch order", record(), record(dispatch=2), True),
    ("no record at all", record(), {}, True),
    ("garbage inside", record(), record(nodes=[1, {}]), True),  # type: ignore[list-item]
    ("garbage rows", record(), record(stages=[7, None, {"failed": "x"}]), False),
    ("no rows", record(failed=1), record(stages="none"), False),
]


@pytest.mark.parametrize(("ours", "standing", "is_ours"), [b[1:] for b in BETTER], ids=[b[0] for b in BETTER])
def test_which_of_two_records_counts(ours: Json, standing: Json, is_ours: bool) -> None:
    assert is_better(ours, standing) is is_ours


@pytest.mark.parametrize(("ours", "standing"), [(b[1], b[2]) for b in BETTER], ids=[b[0] for b in BETTER])
def test_two_records_do_not_replace_each_other_in_turn(ours: Json, standing: Json) -> None:
    same_share = [ours.get(key) for key in ("run_id", "unit", "window", "dispatch")] == [
        standing.get(key) for key in ("run_id", "unit", "window", "dispatch")
    ]
    assert not (same_share and is_better(ours, standing) and is_better(standing, ours))


# -- putting --------------------------------------------------------------------------------


def standing(store: ObjectStore) -> Json:
    raw = store.get(NAME)
    assert raw is not None
    found: Json = json.loads(raw)
    assert raw == json.dumps(found, indent=1).encode()
    return found


def test_a_record_is_put_kept_and_replaced() -> None:
    store = memory()
    assert put_stage_record(store, NAME, record(failed=1))
    assert not put_stage_record(store, NAME, record(failed=2))
    assert standing(store) == record(failed=1)
    assert put_stage_record(store, NAME, record())
    assert standing(store) == record()
    for garbage in (b"{", b"[]", b"\xff", b""):
        store.put(NAME, garbage)
        assert put_stage_record(store, NAME, record())
        assert standing(store) == record()


def racing(
    store: ObjectStore, others: list[Json], methods: tuple[str, ...] = ("put_if_absent", "put_if_match")
) -> FaultyStore:
    """A store where the records of others land right before each of our conditional writes."""
    pending = list(others)

    def plan(_number: int, _method: str, key: str) -> Fault | None:
        if not pending:
            return None
        other = json.dumps(pending.pop(0), indent=1).encode()
        return Fault(hook=lambda: store.put(key, other))

    return FaultyStore(store, plan, methods=methods)


@pytest.mark.parametrize(
    ("others", "is_ours"),
    [
        ([record()], False),  # a twin was first
        ([record(failed=1)], True),
        ([record(failed=3), record(failed=2), record(failed=1)], True),
        ([record(failed=1), record(run_started=T2, failed=5)], False),
    ],
)
def test_records_that_land_between_our_read_and_our_write(others: list[Json], is_ours: bool) -> None:
    inner = memory()
    assert put_stage_record(racing(inner, others), NAME, record(rss_mb=1)) is is_ours
    assert standing(inner) == (record(rss_mb=1) if is_ours else others[-1])


def test_endless_races_are_an_error() -> None:
    others = [record(failed=99 - n) for n in range(50)]
    with pytest.raises(StoreUnavailableError, match=f"{NAME} was rewritten by others 8 times in a row"):
        put_stage_record(racing(memory(), others), NAME, record())


@pytest.mark.parametrize("stands", [True, False])
@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_answer_is_read_back(stands: bool, arrives: bool) -> None:
    inner = memory()
    if stands:
        put_stage_record(inner, NAME, record(failed=1))

    def plan(number: int, _method: str, _key: str) -> Fault | None:
        lost = answer_lost(NAME)
        return None if number > 1 else Fault(after=lost) if arrives else Fault(before=lost)

    store = FaultyStore(inner, plan, methods=("put_if_absent", "put_if_match"))
    assert put_stage_record(store, NAME, record())
    assert standing(inner) == record()
    assert store.numbered == (1 if arrives else 2)


@pytest.mark.parametrize("error", [AccessError("no"), StoreUnavailableError("gone")])
def test_a_record_that_cannot_be_put_is_an_error(error: SweepError) -> None:
    store = FaultyStore(memory(), lambda *_: Fault(before=error))
    with pytest.raises(type(error)):
        put_stage_record(store, NAME, record())


def test_one_read_and_one_write() -> None:
    store = CountingStore(memory())
    put_stage_record(store, NAME, record())
    assert dict(store.calls) == {"get_versioned": 1, "put_if_absent": 1}


# -- reading --------------------------------------------------------------------------------

FAILURE = Failure(
    run_id="stage-x",
    run_started=T1,
    dispatch=3,
    batch=0,
    attempt=2,
    unit="window",
    window="2019",
    nodes=("-2111", "-2112"),
    remaining=("-2112",),
    reaction="split",
    error_class="CapacityError",
    kind="out-of-time",
    error="stopped",
    request_id="req-1",
    at=T2,
)
FAILURE_KEYS = [
    "spec",
    "run_id",
    "run_started",
    "dispatch",
    "batch",
    "attempt",
    "unit",
    "window",
    "nodes",
    "remaining",
    "reaction",
    "error_class",
    "kind",
    "error",
    "request_id",
    "at",
]
GARBAGE = [b"", b"{", b"\xff\xfe", b"null", b"[]", b'"text"', b"{}", b'{"spec": "sweep-failure-record/1"}']


def test_a_failure_there_and_back() -> None:
    document = FAILURE.to_json()
    assert list(document) == FAILURE_KEYS
    assert document["spec"] == "sweep-failure-record/1"
    assert parse_failure(json.dumps(document).encode()) == FAILURE


@pytest.mark.parametrize("raw", GARBAGE)
def test_what_is_no_failure(raw: bytes) -> None:
    assert parse_failure(raw) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("attempt", "many"), ("attempt", None), ("batch", []), ("dispatch", float("inf")), ("nodes", 5)],
)
def test_a_damaged_failure_is_none(key: str, value: Any) -> None:
    assert parse_failure(json.dumps(FAILURE.to_json() | {key: value}).encode()) is None


def test_an_unknown_reaction_is_tried_again() -> None:
    found = parse_failure(json.dumps(FAILURE.to_json() | {"reaction": ["dance"]}).encode())
    assert found is not None
    assert found.reaction == "retry"


@pytest.mark.parametrize("raw", GARBAGE)
def test_what_is_no_stage_record(raw: bytes) -> None:
    assert parse_stage_record(raw, "stage-x") is None


def test_a_stage_record_is_of_this_run_and_role() -> None:
    assert parse_stage_record(json.dumps(record()).encode(), "stage-x") == record()
    for other in (record(run_id="stage-y"), record(role="finisher"), record(spec="zagg-sweep/1")):
        assert parse_stage_record(json.dumps(other).encode(), "stage-x") is None


def test_nodes_rows_and_counters_of_damaged_records() -> None:
    assert nodes_of(record()) == ("-2111", "-2112")
    for nodes in (None, "-2111", [], ["-2111", "7"], ["-2111", 5], [["-2111"]]):
        assert nodes_of({"nodes": nodes}) == ()
    assert rows_of({"stages": [{"failed": 1}, 3, None]}) == [{"failed": 1}]
    assert rows_of({"stages": {"failed": 1}}) == []
    assert [counted(row, "n") for row in ({"n": 3}, {"n": "3"}, {}, {"n": None})] == [3, 0, 0, 0]


# -- reactions ------------------------------------------------------------------------------

# What a dispatcher does about each class; a new class must be entered here.
REACTIONS = {
    "SweepError": "retry",
    "DeclarationError": "refused",
    "AdmissionError": "stop",
    "LeaseHeldError": "held",
    "LeaseLostError": "stop",
    "ForeignWriteError": "stop",
    "TransientError": "retry",
    "StoreUnavailableError": "retry",
    "TransportThrottledError": "retry",
    "AccessError": "stop",
    "FleetUnreachableError": "stop",
    "CapacityError": "split",
    "ArtifactError": "retry",
    "ColumnMovedError": "retry",
}


def tree(root: type[SweepError] = SweepError) -> list[type[SweepError]]:
    below = [sub for sub in root.__subclasses__() if sub.__module__.startswith("sweep")]
    return [root, *(each for sub in below for each in tree(sub))]


def test_every_class_of_the_tree_has_a_reaction() -> None:
    assert {cls.__name__ for cls in tree()} == set(REACTIONS)


@pytest.mark.parametrize("cls", tree(), ids=lambda cls: cls.__name__)
def test_reactions(cls: type[SweepError]) -> None:
    assert reaction_to(cls("text")) == REACTIONS[cls.__name__]


@pytest.mark.parametrize(
    ("make", "reaction", "described"),
    [
        (MemoryError, "split", ("MemoryError", "unexpected", "MemoryError")),
        (lambda: ZeroDivisionError("ours"), "retry", ("ZeroDivisionError", "unexpected", "ours")),
        (
            lambda: DeclarationError("bad", kind="unit"),
            "refused",
            ("DeclarationError", "unit", "bad"),
        ),
    ],
)
def test_other_errors(
    make: Callable[[], BaseException], reaction: str, described: tuple[str, str, str]
) -> None:
    assert reaction_to(make()) == reaction
    assert describe(make()) == described


def test_a_deep_object_is_no_record() -> None:
    deep = b"[" * 100_000
    assert json_object(deep) == {}
    assert parse_failure(deep) is None
    assert parse_stage_record(deep, "r") is None
