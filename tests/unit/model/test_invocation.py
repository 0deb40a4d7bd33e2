"""The wire event: its bytes, its way there and back, and what is refused by name.

Source: semantics 12.1-12.3, 12.8, 13.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.errors import DeclarationError
from sweep.model.invocation import (
    Credentials,
    FinisherInvocation,
    Invocation,
    StageInvocation,
    credentials_of,
    failure_name,
    finisher_failure_name,
    finisher_name,
    parse_event,
    partial_name,
    record_name,
    serialise,
    status_prefix,
)

# The event that semantics 12.1 shows, as json.dumps writes it.
CAPTURED = (
    b'{"mode": "sweep", "store_path": "ROOT", '
    b'"stage": {"role": "stage", "run_id": "stage-x", "run_started": "2026-11-29T16:39:58+00:00", '
    b'"dispatch": 3, "tuple_width": 3, "child_order": 4, "records_from": "ROOT.status/run-stage-x", '
    b'"unit": "window", "window": "2019", "nodes": ["-2111"], "batch": 0}, '
    b'"leaves": [[9223372036854775812, "2019"], [9227875636482146308, "2019"]]}'
)
WINDOW = StageInvocation(
    store_path="ROOT",
    run_id="stage-x",
    run_started="2026-11-29T16:39:58+00:00",
    dispatch=3,
    tuple_width=3,
    child_order=4,
    records_from="ROOT.status/run-stage-x",
    unit="window",
    window="2019",
    nodes=("-2111",),
    batch=0,
    leaves=((9223372036854775812, "2019"), (9227875636482146308, "2019")),
)
KEYS = Credentials(access_key_id="AKIA", secret_access_key="s3cr3t", session_token="t0k3n")


def stage(**changes: Any) -> StageInvocation:
    plain: dict[str, Any] = {
        "store_path": "ROOT",
        "run_id": "stage-x",
        "run_started": "2026-11-29T16:39:58+00:00",
        "dispatch": 1,
        "tuple_width": 3,
        "child_order": 4,
        "records_from": "ROOT.status/run-stage-x",
        "nodes": ("-11", "11"),
        "batch": 7,
        "leaves": (),
    }
    return StageInvocation(**(plain | changes))


def finisher(**changes: Any) -> FinisherInvocation:
    plain: dict[str, Any] = {
        "store_path": "ROOT",
        "run_id": "stage-x",
        "records_from": "ROOT.status/run-stage-x",
        "touch_policy": "auto",
        "barrier_timed_out": False,
        "short_orders": (),
        "leaves": ((9223372036854775812, None),),
    }
    return FinisherInvocation(**(plain | changes))


HEAD = b'{"mode": "sweep", "store_path": "ROOT", "stage": {"role": "stage", "run_id": "stage-x", '
STARTED = HEAD + b'"run_started": "2026-11-29T16:39:58+00:00", "dispatch": 1, "tuple_width": 3, '
FINISH = (
    b'{"mode": "sweep", "store_path": "ROOT", "stage": {"role": "finisher", "run_id": "stage-x", '
    b'"records_from": "ROOT.status/run-stage-x", "touch_policy": "auto", "barrier_timed_out": false, '
)
FROM = b'"records_from": "ROOT.status/run-stage-x", '
NODES = b'"nodes": ["-11", "11"], "batch": 7'
WIRE: list[tuple[Invocation, bytes]] = [
    (WINDOW, CAPTURED),
    (stage(), STARTED + b'"child_order": 4, ' + FROM + NODES + b'}, "leaves": []}'),
    (stage(leaves=None), STARTED + b'"child_order": 4, ' + FROM + NODES + b'}, "discover": true}'),
    (stage(child_order=None), STARTED + FROM + NODES + b'}, "leaves": []}'),
    (
        stage(
            unit="close", pipeline_run_id="run-1", lease_ttl_s=60, attempt=2, partition={"index": 3, "of": 4}
        ),
        STARTED
        + b'"child_order": 4, '
        + FROM
        + b'"pipeline_run_id": "run-1", "lease_ttl_s": 60, "unit": "close", '
        + NODES
        + b', "partition": {"index": 3, "of": 4}, "attempt": 2}, "leaves": []}',
    ),
    (
        stage(families=("a", "b"), leaves=((1 << 60, None),), dirt_only=((2 << 60, None),), credentials=KEYS),
        STARTED
        + b'"child_order": 4, '
        + FROM
        + b'"families": ["a", "b"], '
        + NODES
        + b'}, "output_credentials": {"accessKeyId": "AKIA", "secretAccessKey": "s3cr3t", '
        + b'"sessionToken": "t0k3n"}, "leaves": [[1152921504606846976, null]], '
        + b'"dirt_only": [[2305843009213693952, null]]}',
    ),
    (finisher(), FINISH + b'"short_orders": []}, "leaves": [[9223372036854775812, null]]}'),
    (
        finisher(
            barrier_timed_out=True,
            short_orders=(2, 1),
            pipeline_run_id="r",
            lease_ttl_s=9,
            attempt=3,
            leaves=None,
        ),
        FINISH.replace(b"false", b"true")
        + b'"short_orders": [2, 1], "pipeline_run_id": "r", "lease_ttl_s": 9, "attempt": 3}, '
        + b'"discover": true}',
    ),
]


@pytest.mark.parametrize(("invocation", "wire"), WIRE)
def test_bytes_on_the_wire(invocation: Invocation, wire: bytes) -> None:
    assert serialise(invocation) == wire


@pytest.mark.parametrize(("invocation", "wire"), WIRE)
def test_and_back(invocation: Invocation, wire: bytes) -> None:
    assert parse_event(json.loads(wire)) == invocation


def test_names_of_records() -> None:
    assert status_prefix("s3://b/store/", "stage-x") == "s3://b/store.status/run-stage-x"
    assert record_name(3, 12) == "stage-03-0012.json"
    assert record_name(0, 49_151) == "stage-00-49151.json"
    assert failure_name(3, 12, 2) == "error-03-0012-2.json"
    assert (finisher_name(), finisher_failure_name(2)) == ("finisher.json", "error-finisher-2.json")
    # read by every finisher (stage-*.json), and no batch's own name
    assert partial_name(3, 12, 2) == "stage-03-0012-part2.json"


# -- there and back -------------------------------------------------------------------------

words = st.integers(1 << 60, (13 << 60) - 1)
labels = st.none() | st.text(max_size=8)
refs = st.lists(st.tuples(words, labels), max_size=4).map(tuple)
texts = st.text(min_size=1, max_size=12)
tails = st.text("1234", min_size=2, max_size=2)
bases = st.sampled_from([f"{sign}{base}" for sign in ("", "-") for base in range(1, 7)])
nodes = st.lists(st.builds(str.__add__, bases, tails), min_size=1, max_size=4).map(tuple)
some_keys = st.none() | st.builds(
    Credentials,
    access_key_id=texts,
    secret_access_key=texts,
    session_token=st.none() | texts,
    endpoint_url=st.none() | texts,
    region=st.none() | texts,
)
shared = {
    "store_path": texts,
    "run_id": texts,
    "records_from": texts,
    "leaves": st.none() | refs,
    "pipeline_run_id": st.none() | texts,
    "lease_ttl_s": st.none() | st.integers(1, 10**6),
    "dirt_only": refs,
    "attempt": st.integers(1, 9),
    "credentials": some_keys,
}
units = st.sampled_from([(None, None), ("close", None), ("window", "2019"), ("window", "")])
stages = units.flatmap(
    lambda unit: st.builds(
        StageInvocation,
        run_started=texts,
        dispatch=st.just(2),
        tuple_width=st.integers(1, 9),
        child_order=st.none() | st.integers(0, 29),
        nodes=nodes,
        batch=st.integers(0, 10**7),
        unit=st.just(unit[0]),
        window=st.just(unit[1]),
        families=st.lists(texts, max_size=2).map(tuple),
        partition=st.none() | st.fixed_dictionaries({"index": st.integers(0, 3), "of": st.just(4)}),
        **shared,
    )
)
finishers = st.builds(
    FinisherInvocation,
    touch_policy=texts,
    barrier_timed_out=st.booleans(),
    short_orders=st.lists(st.integers(0, 28), max_size=4).map(tuple),
    **shared,
)


@settings(max_examples=150, deadline=None)
@given(stages | finishers)
def test_what_is_built_is_what_is_parsed(invocation: Invocation) -> None:
    assert parse_event(json.loads(serialise(invocation))) == invocation
    assert serialise(invocation) == json.dumps(invocation.to_json()).encode()


# -- what a worker takes, and what not --------------------------------------------------------


def event(top: dict[str, Any] | None = None, /, **changes: Any) -> dict[str, Any]:
    """The captured event, with keys of the stage block changed or (``...``) left out."""
    made: dict[str, Any] = json.loads(CAPTURED)
    made["stage"] |= changes
    made["stage"] = {key: value for key, value in made["stage"].items() if value is not ...}
    made |= top or {}
    return {key: value for key, value in made.items() if value is not ...}


def test_unknown_keys_are_passed_over() -> None:
    assert parse_event(event({"trace": {"id": 1}}, colour="red")) == WINDOW


def test_what_may_be_left_out() -> None:
    found = parse_event(event(batch=..., tuple_width=..., child_order=...))
    assert isinstance(found, StageInvocation)
    assert (found.batch, found.tuple_width, found.child_order, found.attempt) == (0, 3, None, 1)
    bare = {
        "mode": "sweep",
        "store_path": "R",
        "stage": {"role": "finisher", "run_id": "r", "records_from": "p"},
    }
    assert parse_event(bare) == FinisherInvocation(
        store_path="R",
        run_id="r",
        records_from="p",
        touch_policy="auto",
        barrier_timed_out=False,
        short_orders=(),
        leaves=None,
    )


@pytest.mark.parametrize("top", [{"leaves": ...}, {"leaves": ..., "discover": True}, {"leaves": None}])
def test_without_leaves_the_worker_discovers(top: dict[str, Any]) -> None:
    assert parse_event(event(top)).leaves is None


def test_an_empty_work_set_is_one() -> None:
    assert parse_event(event({"leaves": []})).leaves == ()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (event(records_from=...), "no records_from (None)"),
        (event(records_from=""), "no records_from ('')"),
        (event(run_id=...), "no run_id"),
        (event(run_started=...), "no run_started"),
        (event({"store_path": 7}), "no store_path (7)"),
        (event(nodes=[]), "nodes is []: an empty node set"),
        (event(nodes=...), "nodes is None: an empty node set"),
        (event(nodes="-2111"), "nodes is '-2111'"),
        (event(nodes=["-2111", "-21", "3"]), "off the dispatch order 3: -21 (order 1), 3 (order 0)"),
        (event(nodes=["-2111", "7", 5, None]), "nodes '7', 5, None are no decimals"),
        (event(dispatch=...), "dispatch None, expected a whole number of at least 0"),
        (event(dispatch=True), "dispatch True"),
        (event(dispatch=3.0), "dispatch 3.0"),
        (event(tuple_width=0), "tuple_width 0, expected a whole number of at least 1"),
        (event(batch=-1), "batch -1"),
        (event(attempt=0), "attempt 0"),
        (event(lease_ttl_s=0), "lease_ttl_s 0"),
        (event(child_order="4"), "child_order '4'"),
        (event(unit="month"), "unknown unit 'month' (window '2019')"),
        (event(window=...), "unit 'window' names no window (None)"),
        (event(unit=...), "window '2019' is given, but the unit is None"),
        (event(unit="close"), "window '2019' is given, but the unit is 'close'"),
        (event(families="abc"), "families 'abc', expected a list of texts"),
        (event(families=3), "families 3"),
        (event(pipeline_run_id=5), "no pipeline_run_id (5)"),
        (event(partition=[1, 4]), "partition [1, 4], expected an object"),
        (event(partition={"index": 1}), "partition {'index': 1}"),
        (event({"leaves": {}}), "leaves is of type dict"),
        (event({"leaves": 0}), "leaves is of type int"),
        (event({"leaves": [[1]]}), "leaves: [1] is no [word, window] pair"),
        (event({"leaves": [["1", None]]}), "leaves: ['1', None] is no"),
        (event({"leaves": [[True, None]]}), "leaves: [True, None] is no"),
        (event({"leaves": [[1, 2019]]}), "leaves: [1, 2019] is no"),
        (event({"dirt_only": [5]}), "dirt_only: 5 is no"),
        (event({"output_credentials": "x"}), "output_credentials is no object"),
        (event({"output_credentials": {"accessKeyId": "AKIA"}}), "lacks secretAccessKey"),
        (event(role=...), "stage.role None, expected 'stage' or 'finisher'"),
        (event({"mode": "process"}), "mode 'process', expected 'sweep'"),
    ],
)
def test_refusals_name_run_dispatch_and_batch(broken: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_event(broken)
    assert said in caught.value.message
    run, dispatch = broken["stage"].get("run_id"), broken["stage"].get("dispatch")
    batch = broken["stage"].get("batch")
    head = f"stage event of run {run!r}, dispatch order {dispatch!r}, batch {batch!r}: "
    assert caught.value.message.startswith(head)
    assert caught.value.kind == "event"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"records_from": None}, "no records_from (None)"),
        ({"short_orders": "2"}, "short_orders '2', expected a list of orders"),
        ({"short_orders": [2, -1]}, "short_orders [2, -1]"),
        ({"short_orders": [True]}, "short_orders [True]"),
        ({"barrier_timed_out": "false"}, "barrier_timed_out 'false', expected true or false"),
    ],
)
def test_refusals_of_a_finisher_name_the_run(changes: dict[str, Any], said: str) -> None:
    broken = json.loads(serialise(finisher()))
    broken["stage"] |= changes
    with pytest.raises(DeclarationError) as caught:
        parse_event(broken)
    assert said in caught.value.message
    assert caught.value.message.startswith("finisher event of run 'stage-x': ")


@pytest.mark.parametrize("nothing", [None, [], "x", 3])
def test_what_is_no_object(nothing: Any) -> None:
    with pytest.raises(DeclarationError, match=f"event is of type {type(nothing).__name__}"):
        parse_event(nothing)
    assert credentials_of(nothing) is None


def test_all_problems_are_named_and_say_where() -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_event(event(records_from=..., nodes=[], window=..., batch=4, attempt=2))
    assert len(caught.value.problems) == 3
    assert caught.value.context | {"problems": ()} == {
        "role": "stage",
        "run_id": "stage-x",
        "dispatch": 3,
        "batch": 4,
        "attempt": 2,
        "store_path": "ROOT",
        "problems": (),
    }


# -- credentials ------------------------------------------------------------------------------


def test_credentials_are_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    invocation = stage(credentials=KEYS)
    logging.getLogger("sweep").warning("%s %r", invocation, KEYS, extra={"invocation": invocation})
    shown = [repr(KEYS), str(KEYS), f"{KEYS}", repr(invocation), str(invocation), caplog.text]
    broken = event({"output_credentials": KEYS.to_json() | {"sessionToken": ["t0k3n"]}})
    with pytest.raises(DeclarationError, match="sessionToken is no text") as caught:
        parse_event(broken)
    shown += [caught.value.message, repr(caught.value.context)]
    with pytest.raises(DeclarationError) as caught:
        parse_event(event({"output_credentials": {"secretAccessKey": "s3cr3t"}}))
    shown += [caught.value.message, repr(caught.value.context)]
    for secret in ("AKIA", "s3cr3t", "t0k3n"):
        assert not [text for text in shown if secret in text]


def test_credentials_of_an_event_that_is_refused() -> None:
    broken = event({"output_credentials": KEYS.to_json()}, nodes=[])
    assert credentials_of(broken) == KEYS
    assert credentials_of(event()) is None


def test_all_keys_of_credentials() -> None:
    every = Credentials(
        access_key_id="a", secret_access_key="b", session_token="c", endpoint_url="d", region="e"
    )
    assert json.dumps(every.to_json()) == (
        '{"accessKeyId": "a", "secretAccessKey": "b", "sessionToken": "c", "endpointUrl": "d", "region": "e"}'
    )
