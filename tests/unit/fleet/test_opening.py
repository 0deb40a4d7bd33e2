"""Roots that a worker opens: once each, with the event's own keys, and never across processes."""

from __future__ import annotations

import itertools
import json
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import obstore
import pytest
from obstore.store import S3Store

from sweep.errors import DeclarationError
from sweep.fleet.opening import Opener, options_for, unshared_root
from sweep.model.invocation import Credentials, FinisherInvocation, serialise
from sweep.store.open import StoreOptions, open_store
from sweep.store.remote import RemoteStore

_names = itertools.count()
KEYS = Credentials(access_key_id="AKIDEVENT", secret_access_key="hush-hush", region="eu-west-1")


def signed_query(store: object) -> dict[str, list[str]]:
    """What a request of the store would be signed with, as the query of a signed address."""
    assert isinstance(store, RemoteStore)
    client = store._client
    assert isinstance(client, S3Store)
    return parse_qs(urlsplit(obstore.sign(client, "GET", "key", timedelta(seconds=60))).query)


def test_a_root_is_opened_once_for_each_credentials(tmp_path: Path) -> None:
    opener = Opener(StoreOptions(region="us-east-1"))
    assert opener(str(tmp_path), None) is opener(str(tmp_path), None)
    plain = opener("s3://bucket/store", KEYS)
    assert opener("s3://bucket/store", KEYS) is plain
    other = Credentials(access_key_id="AKIDOTHER", secret_access_key="hush-hush", region="eu-west-1")
    assert opener("s3://bucket/store", other) is not plain
    assert opener("s3://bucket/other", KEYS) is not plain


def test_stores_used_last_are_kept(tmp_path: Path) -> None:
    opener = Opener()
    kept = opener(str(tmp_path / "kept"), None)
    gone = opener(str(tmp_path / "gone"), None)
    for number in range(15):
        opener(str(tmp_path / str(number)), None)
        assert opener(str(tmp_path / "kept"), None) is kept
    assert opener(str(tmp_path / "gone"), None) is not gone


def test_an_events_keys_sign_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # As on Lambda, where the environment holds the role's keys and their token.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDROLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the role")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token of the role")
    opener = Opener(StoreOptions(region="us-east-1"))
    query = signed_query(opener("s3://bucket/store", KEYS))
    assert query["X-Amz-Credential"][0].split("/")[0] == "AKIDEVENT"
    assert query["X-Amz-Credential"][0].split("/")[2] == "eu-west-1"
    assert "X-Amz-Security-Token" not in query
    with_token = Credentials(access_key_id="AKIDEVENT", secret_access_key="hush", session_token="its own")
    assert signed_query(opener("s3://bucket/store", with_token))["X-Amz-Security-Token"] == ["its own"]
    assert signed_query(opener("s3://bucket/store", None))["X-Amz-Security-Token"] == ["token of the role"]


def test_an_events_keys_win_over_unsigned_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "true")
    assert "X-Amz-Signature" in signed_query(Opener(StoreOptions(anonymous=True))("s3://bucket/store", KEYS))


def test_an_event_says_more_than_the_options() -> None:
    options = StoreOptions(region="us-east-1", endpoint="http://here:1", retries=3)
    merged = options_for(KEYS, options)
    assert (merged.region, merged.endpoint, merged.retries) == ("eu-west-1", "http://here:1", 3)
    elsewhere = Credentials(access_key_id="A", secret_access_key="s", endpoint_url="http://there:2")
    merged = options_for(elsewhere, options)
    assert (merged.region, merged.endpoint) == ("us-east-1", "http://there:2")
    assert options_for(None, options) is options


def test_keys_are_never_shown() -> None:
    shown = repr(options_for(KEYS, StoreOptions()))
    assert "hush-hush" not in shown
    assert "AKIDEVENT" not in shown


@pytest.mark.parametrize(
    "options",
    [
        {"access_key_id": "A"},
        {"secret_access_key": "s"},
        {"session_token": "t"},
        {"access_key_id": "A", "secret_access_key": "s", "anonymous": True},
    ],
)
def test_half_a_key_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(DeclarationError, match="key"):
        StoreOptions(**options)  # type: ignore[arg-type]


def test_memory_is_seen_in_this_process_alone() -> None:
    name = f"memory://opening-{next(_names)}"
    open_store(name).put("a", b"x")
    assert Opener()(name, None).get("a") == b"x"
    with pytest.raises(DeclarationError, match="inline transport") as caught:
        Opener(crosses_processes=True)(name, None)
    assert caught.value.kind == "store-unshared"


def event(store_path: str, records_from: str) -> bytes:
    return serialise(
        FinisherInvocation(
            store_path=store_path,
            run_id="stage-x",
            records_from=records_from,
            touch_policy="auto",
            barrier_timed_out=False,
            short_orders=(),
            leaves=((9223372036854775812, None),),
        )
    )


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (event("memory://a/b", "s3://c"), "memory://a/b"),
        (event("/folder", "memory://status"), "memory://status"),
        (event("MEMORY://a", "/folder"), "MEMORY://a"),
        (event("s3://memory/store", "s3://memory/store.status"), None),
        (event("/data/memory:", "/data/x"), None),
        (json.dumps({"note": "memory://a", "store_path": "/folder"}).encode(), None),
    ],
)
def test_a_root_that_nobody_else_can_open_is_found_in_the_text(payload: bytes, found: str | None) -> None:
    assert unshared_root(payload) == found
