"""How answers of a server become outcomes and errors, without a server."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from sweep.errors import AccessError, DeclarationError, StoreUnavailableError, SweepError
from sweep.store import _signed
from sweep.store._obstore_errors import translate
from sweep.store.base import DELETED, Deleted, Refused, Written
from sweep.store.open import StoreOptions, open_store
from sweep.store.remote import RemoteStore

SECRET = "wJalrXUtnFEMI"
_names = itertools.count()


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> RemoteStore:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    store = open_store("s3://bucket/x", StoreOptions(region="us-east-1", endpoint="http://127.0.0.1:9"))
    assert isinstance(store, RemoteStore)
    return store


def _answers(monkeypatch: pytest.MonkeyPatch, *statuses: int) -> list[tuple[str, str]]:
    """Let the signed delete meet these answers; hands back what was sent."""
    sent: list[tuple[str, str]] = []
    rest = iter(statuses)

    def send(address: str, etag: str, root: str, key: str) -> int:
        sent.append((address, etag))
        return next(rest)

    monkeypatch.setattr(_signed, "_send", send)
    return sent


@pytest.mark.parametrize(("status", "honours"), [(412, True), (404, True), (204, False), (200, False)])
def test_whether_a_delete_may_be_conditional_is_asked_of_the_server(
    s3: RemoteStore, monkeypatch: pytest.MonkeyPatch, status: int, honours: bool
) -> None:
    sent = _answers(monkeypatch, status)
    assert s3.capabilities.conditional_delete is honours
    assert s3.capabilities.shared is True
    ((address, etag),) = sent
    assert "/bucket/x/.sweep-probe-" in address
    assert len(etag) == 34


@pytest.mark.parametrize("status", [501, 400, 403])
def test_a_refused_question_means_no(s3: RemoteStore, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    _answers(monkeypatch, status)
    assert s3.capabilities.conditional_delete is False
    with pytest.raises(DeclarationError, match="no conditional delete"):
        s3.delete_if_match("a", '"1"')


@pytest.mark.parametrize(
    ("status", "size", "expected"),
    [
        (204, None, DELETED),
        (412, 5, Refused.MISMATCH),
        (409, 5, Refused.MISMATCH),
        (412, None, Refused.MISSING),
        (404, None, Refused.MISSING),
    ],
)
def test_answers_to_a_conditional_delete(
    s3: RemoteStore,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    size: int | None,
    expected: Deleted | Refused,
) -> None:
    _answers(monkeypatch, 412, status)
    monkeypatch.setattr(RemoteStore, "_size", lambda self, key: size)
    assert s3.delete_if_match("a", '"1"') is expected


def test_an_answer_that_does_not_tell_is_lost(s3: RemoteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, 412, 500)
    with pytest.raises(StoreUnavailableError) as caught:
        s3.delete_if_match("a", '"1"')
    assert caught.value.kind == "answer-lost"


def test_no_signature_in_any_text(s3: RemoteStore, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing listens there: the error of the signed request names neither keys nor signature."""
    caplog.set_level("DEBUG")
    assert isinstance(s3._client, S3Store)
    with pytest.raises(StoreUnavailableError) as caught:
        _signed.signed_delete(s3._client, "x/a", '"1"', s3.root, "a")
    assert caught.value.kind == "answer-lost"
    assert caught.value.__suppress_context__
    for text in (str(caught.value), repr(caught.value.context), caplog.text):
        assert "Signature" not in text
        assert "AKIAEXAMPLE" not in text
        assert SECRET not in text


def test_the_signed_address_is_for_this_object_and_short(s3: RemoteStore) -> None:
    assert isinstance(s3._client, S3Store)
    address = obstore.sign(s3._client, "DELETE", "x/a", timedelta(seconds=60))
    assert address.startswith("http://127.0.0.1:9/bucket/x/a?")
    assert "X-Amz-Expires=60" in address


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (PermissionDeniedError("<Code>AccessDenied</Code>"), "store-denied", "s3:PutObject"),
        (UnauthenticatedError("401"), "store-credentials", "AWS_ACCESS_KEY_ID"),
        (PermissionDeniedError("<Code>SignatureDoesNotMatch</Code>"), "store-credentials", "SECRET"),
        (GenericError("400 <Code>ExpiredToken</Code>"), "store-credentials", "expired"),
        (GenericError("Error performing PUT http://169.254.169.254/latest"), "store-credentials", "--anon"),
        (GenericError("Received redirect without LOCATION"), "store-region", "AWS_REGION"),
        (FileNotFoundError("<Code>NoSuchBucket</Code>"), "store-no-bucket", "does not exist"),
        (GenericError("503 <Code>SlowDown</Code>"), "store-unavailable", "SlowDown"),
        (GenericError("tcp connect error: Connection refused"), "store-unavailable", "refused"),
        (OSError("operation timed out"), "store-unavailable", "timed out"),
    ],
)
def test_errors_say_what_to_check(error: Exception, kind: str, said: str) -> None:
    found = translate(error, "write", "s3://bucket/x", "2/all.zarr/zarr.json")
    assert isinstance(found, SweepError)
    assert found.kind == kind
    assert isinstance(found, StoreUnavailableError if kind == "store-unavailable" else AccessError)
    assert said in str(found)
    assert "s3://bucket/x/2/all.zarr/zarr.json" in str(found)


def test_what_a_server_repeats_is_not_passed_on() -> None:
    body = f"<Code>InternalError</Code><StringToSign>{SECRET}</StringToSign>"
    assert SECRET not in str(translate(GenericError(body), "write", "s3://bucket", "a"))


def test_a_conditional_write_that_may_have_happened_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = open_store(f"memory://remote-{next(_names)}")

    def fail(*_: object, **__: object) -> None:
        raise GenericError("operation timed out")

    monkeypatch.setattr(obstore, "put", fail)
    calls: list[Callable[[], object]] = [
        lambda: store.put_if_absent("a", b""),
        lambda: store.put_if_match("a", b"", '"0"'),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailableError) as caught:
            call()
        assert caught.value.kind == "answer-lost"


@pytest.mark.parametrize("phantoms", [1, 3])
def test_exists_with_nothing_there_is_tried_again(monkeypatch: pytest.MonkeyPatch, phantoms: int) -> None:
    store = open_store(f"memory://remote-{next(_names)}")
    put = obstore.put
    rest = iter(range(phantoms))

    def flaky(*args: Any, **more: Any) -> Any:
        if next(rest, None) is not None:
            raise AlreadyExistsError("a conflicting operation is under way")
        return put(*args, **more)

    monkeypatch.setattr(obstore, "put", flaky)
    assert isinstance(store.put_if_absent("a", b"1"), Written)


def test_exists_with_nothing_there_does_not_go_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"memory://remote-{next(_names)}")

    def phantom(*_: object, **__: object) -> None:
        raise AlreadyExistsError("there, they say")

    monkeypatch.setattr(obstore, "put", phantom)
    with pytest.raises(StoreUnavailableError) as caught:
        store.put_if_absent("a", b"1")
    assert caught.value.kind == "answer-lost"
