"""Events as asynchronous invokes of a Lambda function.

One event in ``submit`` is one request on the wire, unless the service said that it did
nothing with it. Needs the extra ``aws``.

Fan-outs are wide by threads over one client. What bounds them is the processor time of
signing, about 1 ms a request: 64 threads against a server that takes 30 ms sent 750 a
second, an asyncio client (aiobotocore) 790.

Source: semantics 12.5.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import resource
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ProxyConnectionError,
    SSLError,
    SSOError,
    TokenRetrievalError,
)
from urllib3.exceptions import HTTPError

from sweep._version import __version__
from sweep.errors import AccessError, DeclarationError, SweepError
from sweep.fleet._handling import refusal
from sweep.fleet._lambda_answers import Place, Verdict, of_error_answer, of_status, region_in, unreachable
from sweep.fleet.transport import KIB, Delivery, Envelope, Limits, Lost, Submission
from sweep.model.clock import Clock
from sweep.model.json_text import loads
from sweep.system import SystemClock

__all__ = ["LambdaTransport", "lambda_client", "ping"]

log = logging.getLogger(__name__)

IN_FLIGHT = 64
_MOST_BYTES = 1024 * KIB
_CONNECT_S = 5.0
_READ_S = 20.0
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 8.0
# A pause is slept in pieces, so that Ctrl-C is heard.
_NAP_S = 1.0
# Open files that the rest of the process needs.
_SPARE_FILES = 128
# botocore lets urllib3's own through where the body of an answer breaks off.
_FOREIGN = (BotoCoreError, ClientError, HTTPError, ConnectionError, TimeoutError)
_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    SSOError,
)
_NOTHING_SENT = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)


def lambda_client(
    *,
    region: str | None = None,
    endpoint_url: str | None = None,
    in_flight: int = IN_FLIGHT,
    read_timeout_s: float = _READ_S,
) -> Any:
    """A boto3 client for Lambda that sends each request once.

    Parameters
    ----------
    region, endpoint_url : str, optional
        What is not given comes from the AWS_* environment or the shared AWS files.
    in_flight : int
        Connections that it keeps.
    read_timeout_s : float
        For the answer to one request.

    Raises
    ------
    DeclarationError
        No region is known, or the profile asked for does not exist.
    """
    try:
        return boto3.session.Session().client(
            "lambda",
            # boto3 itself looks at AWS_DEFAULT_REGION alone; stores take AWS_REGION too.
            region_name=region or os.environ.get("AWS_REGION"),
            endpoint_url=endpoint_url,
            config=Config(
                retries={"total_max_attempts": 1, "mode": "standard"},
                max_pool_connections=in_flight,
                connect_timeout=_CONNECT_S,
                read_timeout=read_timeout_s,
                tcp_keepalive=True,
                user_agent_extra=f"sweep/{__version__}",
            ),
        )
    except NoRegionError as error:
        raise DeclarationError(
            "no AWS region is known: name one, or set AWS_REGION", kind="no-region"
        ) from error
    except (ProfileNotFound, ValueError) as error:
        raise DeclarationError(f"no client for Lambda can be made: {error}", kind="lambda-client") from error


class LambdaTransport:
    """Invokes a Lambda function asynchronously, once for each event.

    Parameters
    ----------
    function : str
        Name, name with alias or version, or ARN.
    client : boto3 Lambda client, optional
        As :func:`lambda_client` makes it; one that retries by itself is refused. Made here,
        and closed at the end, where None.
    region : str, optional
        For the client that is made here. A function given by ARN is asked in its own.
    payload_bytes : int
        The largest event; Lambda takes up to 1 MiB of an asynchronous one.
    in_flight : int
        Requests at once; clamped to what the limit of open files leaves.
    budget_s : float
        How long one ``submit`` goes on offering events that Lambda throttles.
    clock : Clock
    jitter : callable
        Uniform in [0, 1).

    Raises
    ------
    DeclarationError
        For limits out of range, or a client that retries.
    AccessError
        The function's ARN names another region than the client's.

    Notes
    -----
    What becomes of an event after ``202`` is not known here: its record tells, or the
    dispatcher's deadline.
    """

    name = "lambda"

    def __init__(
        self,
        function: str,
        *,
        client: Any = None,
        region: str | None = None,
        payload_bytes: int = 250 * KIB,
        in_flight: int = IN_FLIGHT,
        budget_s: float = 30.0,
        clock: Clock | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        _check(payload_bytes, in_flight)
        self.limits = Limits(payload_bytes=payload_bytes, in_flight=_affordable(in_flight))
        self._owns_client = client is None
        if client is None:
            client = lambda_client(region=region_in(function) or region, in_flight=self.limits.in_flight)
        _check_client(client)
        self._place = Place(function=function, region=client.meta.region_name)
        _check_region(self._place)
        self._client = client
        self._budget_s = budget_s
        self._pace = _Pace(clock or SystemClock(), jitter)
        self._pool = ThreadPoolExecutor(self.limits.in_flight, thread_name_prefix="sweep-lambda")
        self._was_reached = False
        self._is_closed = False

    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        """Offer events to Lambda; one outcome each, in their order.

        Raises
        ------
        AccessError
            No such function, no permission, no credentials, or nothing answers. The keys of
            what had been accepted by then stand in ``context["accepted"]``.
        """
        refused = [
            refusal(
                envelope,
                payload_bytes=self.limits.payload_bytes,
                is_closed=self._is_closed,
                crosses_processes=True,
            )
            for envelope in envelopes
        ]
        sending = [each for each, answer in zip(envelopes, refused, strict=True) if answer is None]
        sent = iter(self._send_all(sending))
        return [answer or next(sent) for answer in refused]

    def lost(self) -> list[Lost]:
        """Nothing is known here of events after they were accepted."""
        return []

    def pending(self) -> int:
        """Nothing is known here of events after they were accepted: 0."""
        return 0

    def close(self, *, cancel: bool = False) -> None:
        """Send nothing more. What Lambda has accepted runs on."""
        self._is_closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._owns_client:
            self._client.close()

    # -- sending ----------------------------------------------------------------------------

    def _send_all(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        call = _Call(self._pace.now() + self._budget_s)
        # The first request ever goes alone: where it is denied, so would all the others be.
        n_alone = 0 if self._was_reached else 1
        outcomes: list[Submission] = []
        try:
            outcomes += [self._send(envelope, call) for envelope in envelopes[:n_alone]]
            outcomes += self._send_widely(envelopes[n_alone:], call)
        except AccessError as error:
            error.context["accepted"] = (*_accepted(outcomes), *call.accepted)
            raise
        return outcomes

    def _send_widely(self, envelopes: Sequence[Envelope], call: _Call) -> list[Submission]:
        futures = [self._pool.submit(self._send_or_stop, envelope, call) for envelope in envelopes]
        try:
            return [future.result() for future in futures]
        except BaseException:
            # Ctrl-C, or denied: nothing that has not been sent yet is sent.
            call.stop.set()
            for future in futures:
                future.cancel()
            done = [future for future in futures if not future.cancelled()]
            call.accepted += _accepted(each.result() for each in done if each.exception() is None)
            raise

    def _send(self, envelope: Envelope, call: _Call) -> Submission:
        """Offer one event until Lambda has taken it, has refused it, or may have taken it."""
        offer = _Offer(envelope, call, self._pace)
        while not call.stop.is_set():
            left_s = self._pace.left_s()
            if left_s > 0 and self._pace.now() + left_s > call.deadline:
                return _later(envelope, "Lambda throttles", left_s)
            if left_s > 0:
                self._pace.sleep(min(left_s, _NAP_S))
                continue
            verdict = self._invoke(envelope)
            self._was_reached = self._was_reached or verdict.was_reached
            outcome = offer.after(verdict)
            if outcome is not None:
                if verdict.did_nothing:
                    self._raise_if_never_reached(verdict)
                return outcome
        return Submission(key=envelope.key, delivery=Delivery.REFUSED, reason="not sent")

    def _send_or_stop(self, envelope: Envelope, call: _Call) -> Submission:
        try:
            return self._send(envelope, call)
        except SweepError:
            # Before anybody has looked at this outcome, the other threads must not send on.
            call.stop.set()
            raise

    def _raise_if_never_reached(self, verdict: Verdict) -> None:
        if not self._was_reached:
            raise AccessError(
                f"Lambda cannot be reached in {self._place.region}: {verdict.reason}; "
                "check the region, the endpoint and this machine's network",
                kind="lambda-unreachable",
                region=self._place.region,
            )

    def _invoke(self, envelope: Envelope) -> Verdict:
        """One request on the wire, or none."""
        try:
            answer = self._client.invoke(
                FunctionName=self._place.function, InvocationType="Event", Payload=envelope.payload
            )
        except _FOREIGN as error:
            return _judge(error, self._place)
        # Read, so that the connection serves the next event; the event has been accepted.
        with contextlib.suppress(*_FOREIGN):
            answer["Payload"].read()
        return of_status(answer["StatusCode"])


class _Call:
    """One call of ``submit``, as its threads share it."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.stop = threading.Event()
        self.accepted: tuple[str, ...] = ()


class _Pace:
    """When the next request may go: a throttle slows every thread, not only the one that met it."""

    def __init__(self, clock: Clock, jitter: Callable[[], float]) -> None:
        self._clock = clock
        self._jitter = jitter
        self._lock = threading.Lock()
        self._not_before = clock.monotonic()

    def now(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def pause_s(self, attempt: int, asked_s: float | None) -> float:
        """Seconds to wait after a throttle: doubling, with full jitter, and never less than was asked for."""
        longest_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(attempt, 16))
        return (asked_s or 0.0) + self._jitter() * longest_s

    def hold(self, seconds: float) -> None:
        with self._lock:
            self._not_before = max(self._not_before, self.now() + seconds)

    def left_s(self) -> float:
        with self._lock:
            return self._not_before - self.now()


class _Offer:
    """One event that is offered until something is certain or the budget is spent."""

    def __init__(self, envelope: Envelope, call: _Call, pace: _Pace) -> None:
        self._envelope = envelope
        self._call = call
        self._pace = pace
        self._attempt = 0

    def after(self, verdict: Verdict) -> Submission | None:
        """The outcome, or None where the event is to be offered again after a pause."""
        if not verdict.did_nothing:
            return Submission(key=self._envelope.key, delivery=verdict.delivery, reason=verdict.reason)
        pause_s = self._pace.pause_s(self._attempt, verdict.retry_after_s)
        self._attempt += 1
        self._pace.hold(pause_s)
        if self._pace.now() + pause_s <= self._call.deadline:
            return None
        return _later(self._envelope, verdict.reason, pause_s)


def _later(envelope: Envelope, reason: str, after_s: float) -> Submission:
    return Submission(key=envelope.key, delivery=Delivery.REFUSED, reason=reason, retry_after_s=after_s)


def ping(function: str, *, client: Any) -> Mapping[str, Any]:
    """Ask a function for its versions, synchronously.

    Returns
    -------
    mapping
        The body of the worker's answer to ``{"mode": "ping"}``.

    Raises
    ------
    AccessError
        No such function, no permission, no credentials, nothing answers, or the function
        does not start.
    DeclarationError
        What answers is no worker of this kind.
    """
    place = Place(function=function, region=client.meta.region_name)
    _check_region(place)
    try:
        answer = client.invoke(
            FunctionName=function, InvocationType="RequestResponse", Payload=b'{"mode": "ping"}'
        )
        text = answer["Payload"].read()
    except _FOREIGN as error:
        verdict = _judge(error, place)
        raise AccessError(
            f"{function} in {place.region} gives no answer to a ping: {verdict.reason}",
            kind="ping-failed",
            function=function,
        ) from error
    if answer.get("FunctionError"):
        raise AccessError(
            f"{function} in {place.region} does not start: {_excerpt(text)}; see its logs",
            kind="function-fails",
            function=function,
        )
    return _pong(text, function)


def _pong(text: bytes, function: str) -> Mapping[str, Any]:
    try:
        answer = loads(text)
        body = answer["body"] if isinstance(answer, Mapping) and "body" in answer else answer
        body = loads(body) if isinstance(body, str) else body
    except ValueError:
        body = None
    if not isinstance(body, Mapping):
        raise DeclarationError(
            f"{function} answers a ping with {_excerpt(text)}, expected versions: it is no sweep worker",
            kind="no-worker",
            function=function,
        )
    return body


def _excerpt(text: bytes) -> str:
    return repr(text[:300].decode(errors="replace"))


# -- judging and checking -------------------------------------------------------------------


def _judge(error: Exception, place: Place) -> Verdict:
    """What an exception of the client says of the event."""
    if isinstance(error, ClientError):
        verdict = of_error_answer(error.response, place)
        if isinstance(verdict, AccessError):
            raise verdict from error
        return verdict
    if isinstance(error, _NO_CREDENTIALS):
        raise AccessError(
            f"there are no AWS credentials to invoke {place.function} with ({error}): "
            "log in, or set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            kind="no-credentials",
            function=place.function,
        ) from error
    if isinstance(error, SSLError):
        raise AccessError(
            f"the connection to Lambda in {place.region} is not trusted: {error}; "
            "check AWS_CA_BUNDLE and proxies",
            kind="lambda-unreachable",
            region=place.region,
        ) from error
    if isinstance(error, ParamValidationError):
        raise DeclarationError(
            f"{place.function!r} cannot be invoked: {error}", kind="function-name", function=place.function
        ) from error
    if isinstance(error, _NOTHING_SENT):
        return unreachable(str(error))
    reason = f"the event was sent, but the answer did not come through: {error}"
    return Verdict(delivery=Delivery.MAYBE, reason=reason)


def _accepted(outcomes: Iterable[Submission]) -> tuple[str, ...]:
    return tuple(each.key for each in outcomes if each.delivery is Delivery.ACCEPTED)


def _affordable(in_flight: int) -> int:
    """Requests at once that the limit of open files allows: each has a connection."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return in_flight
    affordable = max(1, soft - _SPARE_FILES)
    if affordable < in_flight:
        log.warning(
            "fewer requests at once",
            extra={
                "event": "in-flight-clamped",
                "asked": in_flight,
                "in_flight": affordable,
                "open_files": soft,
            },
        )
    return min(in_flight, affordable)


def _check(payload_bytes: int, in_flight: int) -> None:
    problems = []
    if type(payload_bytes) is not int or not 0 < payload_bytes <= _MOST_BYTES:
        problems.append(f"payload_bytes is {payload_bytes!r}, expected 1 to {_MOST_BYTES:,}")
    if type(in_flight) is not int or in_flight < 1:
        problems.append(f"in_flight is {in_flight!r}, expected a whole number above 0")
    if problems:
        raise DeclarationError.of("lambda transport", problems, kind="transport-limits")


def _check_client(client: Any) -> None:
    retries = client.meta.config.retries or {}
    if retries.get("total_max_attempts") != 1:
        raise DeclarationError(
            "lambda transport: the client sends a request again by itself, so that one event could become "
            "several: make it with sweep.fleet.aws_lambda.lambda_client",
            kind="lambda-client",
        )


def _check_region(place: Place) -> None:
    named = region_in(place.function)
    if named is not None and named != place.region:
        raise AccessError(
            f"{place.function} is in {named}, but the client is for {place.region}: use one for {named}",
            kind="wrong-region",
            function=place.function,
            region=place.region,
        )
