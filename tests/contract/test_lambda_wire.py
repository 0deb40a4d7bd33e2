"""What the Lambda transport puts on the wire, and what it makes of every kind of answer.

Real boto3 against an HTTP server on this machine; a clock that moves by hand, so that
pauses take no time.
"""

from __future__ import annotations

import random
import resource
import threading
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from tests.support.invoke_server import Answer, InvokeServer, invoke_server
from tests.support.servers import ACCESS

from sweep.errors import AccessError, DeclarationError
from sweep.fleet.aws_lambda import LambdaTransport, lambda_client, ping
from sweep.fleet.transport import KIB, Delivery, Envelope, Submission
from sweep.testing.clocks import FakeClock

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:sweep-worker:live"
THROTTLE = Answer(status=429, code="TooManyRequestsException", headers={"Retry-After": "3"})


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ACCESS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[InvokeServer, Any]]:
    """A server and a client of it: making a client takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch, invoke_server() as server:
        for name, value in ACCESS.items():
            patch.setenv(name, value)
        client = lambda_client(endpoint_url=server.endpoint, read_timeout_s=0.5)
        yield server, client
        client.close()


@pytest.fixture
def server(running: tuple[InvokeServer, Any]) -> InvokeServer:
    running[0].forget()
    return running[0]


@pytest.fixture
def client(running: tuple[InvokeServer, Any], server: InvokeServer) -> Any:
    return running[1]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def transport(client: Any, clock: FakeClock) -> Iterator[LambdaTransport]:
    made = LambdaTransport(FUNCTION, client=client, clock=clock, jitter=random.Random(7).random)
    yield made
    made.close()


def envelopes(number: int) -> list[Envelope]:
    return [Envelope(key=f"k{each}", payload=b'{"number": %d}' % each) for each in range(number)]


def submit_one(transport: LambdaTransport) -> Submission:
    (outcome,) = transport.submit(envelopes(1))
    return outcome


def test_one_event_is_one_asynchronous_request(server: InvokeServer, transport: LambdaTransport) -> None:
    assert submit_one(transport) == Submission(key="k0", delivery=Delivery.ACCEPTED)
    (asked,) = server.asked
    assert (asked.function, asked.kind, asked.payload) == (FUNCTION, "Event", b'{"number": 0}')


@pytest.mark.parametrize(
    "answer",
    [
        Answer(status=500, code="ServiceException"),
        Answer(status=502, code="BadGateway", body=b"<html>not JSON</html>"),
        Answer(status=503, code="ServiceUnavailableException"),
        Answer(status=504, code="GatewayTimeout"),
        Answer(status=200, body=b"null"),
        Answer(status=204),
        Answer(deed="hang"),
        Answer(deed="cut"),
        Answer(status=500, code="ServiceException", deed="half"),
    ],
    ids=lambda each: f"{each.status} {each.deed}",
)
def test_what_is_in_doubt_is_sent_once_and_said_to_be_in_doubt(
    server: InvokeServer, transport: LambdaTransport, answer: Answer
) -> None:
    server.script = [answer]
    outcome = submit_one(transport)
    assert outcome.delivery is Delivery.MAYBE
    assert outcome.reason
    assert outcome.retry_after_s is None
    assert len(server.asked) == 1
    assert submit_one(transport).delivery is Delivery.ACCEPTED


def test_an_answer_that_breaks_off_after_202_was_still_202(
    server: InvokeServer, transport: LambdaTransport
) -> None:
    server.script = [Answer(deed="half")]
    assert submit_one(transport).delivery is Delivery.ACCEPTED
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (413, "RequestTooLargeException"),
        (400, "InvalidParameterValueException"),
        (400, "InvalidRequestContentException"),
        (415, "UnsupportedMediaTypeException"),
    ],
)
def test_what_is_refused_is_sent_once(
    server: InvokeServer, transport: LambdaTransport, status: int, code: str
) -> None:
    server.script = [Answer(status=status, code=code)]
    outcome = submit_one(transport)
    assert outcome.delivery is Delivery.REFUSED
    assert str(status) in outcome.reason
    assert code in outcome.reason
    assert outcome.retry_after_s is None
    assert len(server.asked) == 1


def test_throttled_events_wait_as_long_as_asked_and_are_sent_again(
    server: InvokeServer, transport: LambdaTransport, clock: FakeClock
) -> None:
    server.script = [THROTTLE, THROTTLE]
    before = clock.monotonic()
    assert submit_one(transport).delivery is Delivery.ACCEPTED
    assert len(server.asked) == 3
    assert server.payloads == [b'{"number": 0}'] * 3
    # Two pauses of 3 s, and jitter of at most 0.25 s and 0.5 s on them.
    assert 6.0 <= clock.monotonic() - before <= 6.75


@pytest.mark.parametrize(
    ("status", "code"), [(409, "ResourceConflictException"), (502, "ResourceNotReadyException")]
)
def test_a_function_that_is_being_changed_is_waited_for(
    server: InvokeServer, transport: LambdaTransport, status: int, code: str
) -> None:
    server.script = [Answer(status=status, code=code)]
    assert submit_one(transport).delivery is Delivery.ACCEPTED
    assert len(server.asked) == 2


def test_pauses_grow_and_end_with_the_budget(server: InvokeServer, client: Any, clock: FakeClock) -> None:
    server.script = [Answer(status=429, code="TooManyRequestsException")] * 100
    transport = LambdaTransport(FUNCTION, client=client, clock=clock, jitter=lambda: 0.5, budget_s=10)
    before = clock.monotonic()
    outcome = submit_one(transport)
    # Half of 1/4, 1/2, 1, 2, 4, 8 s: the seventh would end after 11.9 s.
    assert clock.monotonic() - before == pytest.approx(0.5 * 15.75)
    assert len(server.asked) == 7
    assert outcome.delivery is Delivery.REFUSED
    assert outcome.retry_after_s == pytest.approx(4.0)
    assert "TooManyRequestsException" in outcome.reason
    transport.close()


def test_events_behind_a_throttle_longer_than_the_budget_are_not_sent(
    server: InvokeServer, transport: LambdaTransport
) -> None:
    server.script = [Answer(status=429, code="TooManyRequestsException", headers={"Retry-After": "900"})]
    outcomes = transport.submit(envelopes(5))
    assert {each.delivery for each in outcomes} == {Delivery.REFUSED}
    assert all(each.retry_after_s is not None and each.retry_after_s >= 899 for each in outcomes)
    assert len(server.asked) == 1


def test_payloads_over_the_limit_never_reach_the_wire(server: InvokeServer, client: Any) -> None:
    transport = LambdaTransport(FUNCTION, client=client, payload_bytes=1000)
    outcomes = transport.submit([Envelope(key="big", payload=b"x" * 1001), *envelopes(1)])
    assert [each.delivery for each in outcomes] == [Delivery.REFUSED, Delivery.ACCEPTED]
    assert server.payloads == [b'{"number": 0}']
    transport.close()


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            Answer(status=403, code="AccessDeniedException"),
            "lambda-denied",
            f"need lambda:InvokeFunction on {FUNCTION}",
        ),
        (Answer(status=404, code="ResourceNotFoundException"), "no-function", f"{FUNCTION}"),
        (Answer(status=403, code="ExpiredTokenException"), "credentials-expired", "renew"),
        (Answer(status=403, code="UnrecognizedClientException"), "credentials-unknown", "check the keys"),
        (Answer(status=403, code="InvalidSignatureException"), "credentials-unknown", "clock"),
    ],
    ids=lambda each: each.code if isinstance(each, Answer) else "",
)
def test_what_no_event_would_survive_is_raised_after_one_request(
    server: InvokeServer, transport: LambdaTransport, answer: Answer, kind: str, words: str
) -> None:
    server.script = [answer] * 20
    with pytest.raises(AccessError) as caught:
        transport.submit(envelopes(20))
    assert caught.value.kind == kind
    assert words in str(caught.value)
    assert "us-east-1" in str(caught.value) or kind == "credentials-expired"
    assert caught.value.context["accepted"] == ()
    assert len(server.asked) == 1


def test_what_was_accepted_before_access_ended_is_named(
    server: InvokeServer, client: Any, clock: FakeClock
) -> None:
    transport = LambdaTransport(FUNCTION, client=client, clock=clock, in_flight=1)
    server.script = [Answer(), Answer(), Answer(status=403, code="ExpiredTokenException")]
    with pytest.raises(AccessError) as caught:
        transport.submit(envelopes(20))
    assert caught.value.context["accepted"] == ("k0", "k1")
    assert len(server.asked) == 3
    transport.close()


def test_no_credentials_are_said_to_be_missing(server: InvokeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    client = lambda_client(endpoint_url=server.endpoint)
    transport = LambdaTransport(FUNCTION, client=client)
    with pytest.raises(AccessError, match="AWS_PROFILE"):
        transport.submit(envelopes(1))
    assert server.asked == []
    transport.close()
    client.close()


def test_an_endpoint_where_nobody_listens_cannot_be_reached(clock: FakeClock) -> None:
    with invoke_server() as server:
        gone = server.endpoint
    client = lambda_client(endpoint_url=gone)
    transport = LambdaTransport(FUNCTION, client=client, clock=clock)
    with pytest.raises(AccessError, match="cannot be reached in us-east-1") as caught:
        transport.submit(envelopes(3))
    assert caught.value.kind == "lambda-unreachable"
    transport.close()
    client.close()


def test_an_outage_of_a_service_that_was_reached_is_waited_out_by_the_dispatcher(clock: FakeClock) -> None:
    with invoke_server() as server:
        client = lambda_client(endpoint_url=server.endpoint)
        transport = LambdaTransport(FUNCTION, client=client, clock=clock)
        assert submit_one(transport).delivery is Delivery.ACCEPTED
        client.close()
    outcome = submit_one(transport)
    assert outcome.delivery is Delivery.REFUSED
    assert outcome.retry_after_s is not None
    transport.close()


def test_requests_fly_together_up_to_the_bound(server: InvokeServer, client: Any) -> None:
    transport = LambdaTransport(FUNCTION, client=client, in_flight=4)
    gate = threading.Barrier(4, timeout=10)
    assert submit_one(transport).delivery is Delivery.ACCEPTED
    server.before_answer = gate.wait
    outcomes = transport.submit(envelopes(8))
    assert [each.key for each in outcomes] == [f"k{number}" for number in range(8)]
    assert {each.delivery for each in outcomes} == {Delivery.ACCEPTED}
    assert server.peak_threads == 4
    transport.close()


def test_requests_in_flight_leave_files_for_others(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (256, 4096))
    transport = LambdaTransport(FUNCTION, client=client, in_flight=5000)
    assert transport.limits.in_flight == 128
    transport.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"payload_bytes": 1024 * KIB + 1}, "payload_bytes"),
        ({"payload_bytes": 0}, "payload_bytes"),
        ({"in_flight": 0}, "in_flight"),
    ],
)
def test_limits_out_of_range_are_refused(client: Any, options: dict[str, int], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        LambdaTransport(FUNCTION, client=client, **options)  # type: ignore[arg-type]


def test_a_mebibyte_may_be_opted_into(server: InvokeServer, client: Any) -> None:
    transport = LambdaTransport(FUNCTION, client=client, payload_bytes=1024 * KIB)
    payload = b'"' + b"x" * (1024 * KIB - 2) + b'"'
    (outcome,) = transport.submit([Envelope(key="k", payload=payload)])
    assert outcome.delivery is Delivery.ACCEPTED
    assert server.payloads == [payload]
    transport.close()


@pytest.mark.parametrize("retries", [{"max_attempts": 1}, {"mode": "adaptive"}, {"total_max_attempts": 5}])
def test_a_client_that_retries_is_refused(retries: dict[str, Any]) -> None:
    client = boto3.client("lambda", region_name="us-east-1", config=Config(retries=retries))
    with pytest.raises(DeclarationError, match="sends a request again"):
        LambdaTransport(FUNCTION, client=client)
    client.close()


def test_a_function_of_another_region_is_refused(client: Any) -> None:
    with pytest.raises(AccessError, match="is in eu-west-1, but the client is for us-east-1"):
        LambdaTransport(FUNCTION.replace("us-east-1", "eu-west-1"), client=client)


def test_a_function_given_by_arn_is_asked_in_its_own_region(
    server: InvokeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", server.endpoint)
    function = FUNCTION.replace("us-east-1", "eu-west-1")
    transport = LambdaTransport(function, region="us-west-2")
    assert submit_one(transport).delivery is Delivery.ACCEPTED
    transport.close()
    assert server.asked[0].function == function


def test_without_a_region_no_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(DeclarationError, match="AWS_REGION"):
        lambda_client()


# -- ping -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b'{"statusCode": 200, "body": "{\\"protocol\\": 3}"}', b'{"protocol": 3}'],
    ids=["enveloped", "bare"],
)
def test_a_ping_returns_what_the_worker_says(server: InvokeServer, client: Any, body: bytes) -> None:
    server.script = [Answer(status=200, body=body)]
    assert ping(FUNCTION, client=client) == {"protocol": 3}
    (asked,) = server.asked
    assert (asked.kind, asked.payload) == ("RequestResponse", b'{"mode": "ping"}')


@pytest.mark.parametrize("body", [b"", b"null", b'"pong"', b"[1]"])
def test_a_ping_of_something_else_is_refused(server: InvokeServer, client: Any, body: bytes) -> None:
    server.script = [Answer(status=200, body=body)]
    with pytest.raises(DeclarationError, match="no sweep worker"):
        ping(FUNCTION, client=client)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(status=200, headers={"X-Amz-Function-Error": "Unhandled"}, body=b"{}"), "function-fails"),
        (Answer(status=404, code="ResourceNotFoundException"), "no-function"),
        (Answer(status=500, code="ServiceException"), "ping-failed"),
        (Answer(deed="hang"), "ping-failed"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_ping_that_fails_says_why(server: InvokeServer, client: Any, answer: Answer, kind: str) -> None:
    server.script = [answer]
    with pytest.raises(AccessError) as caught:
        ping(FUNCTION, client=client)
    assert caught.value.kind == kind
    assert FUNCTION in str(caught.value)
