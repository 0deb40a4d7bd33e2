"""From an address to a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import S3Store

from sweep.errors import AccessError, DeclarationError
from sweep.store._obstore_errors import translate
from sweep.store.base import ObjectStore, check_key
from sweep.store.local import LocalStore, open_local
from sweep.store.remote import RemoteStore, memory_client

__all__ = ["StoreLike", "StoreOptions", "as_store", "open_store"]

type StoreLike = str | os.PathLike[str] | ObjectStore

_S3_CONCURRENCY = 32
_FORMS = "a folder, file:///folder, s3://bucket/prefix or memory://name"
_TRUE = ("1", "true", "yes", "on")
# Any of these says where credentials come from, so that no profile need be looked for.
_KEYS_FROM = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How to reach a store on S3; what is not given comes from the AWS_* environment.

    Attributes
    ----------
    region : str or None
        As in AWS_REGION.
    endpoint : str or None
        Address of an S3-compatible server, as in AWS_ENDPOINT_URL. An ``http://`` one is
        taken as it is.
    anonymous : bool
        Send unsigned requests.
    retries : int
        How often a request is sent again after a passing fault.
    timeout_s : float
        For one request from connect to the end of its answer.
    access_key_id, secret_access_key, session_token : str or None
        Keys to sign with in place of those of the environment; never shown.

    Raises
    ------
    DeclarationError
        For one half of a key, a token without a key, or keys on unsigned requests.
    """

    region: str | None = None
    endpoint: str | None = None
    anonymous: bool = False
    retries: int = 8
    timeout_s: float = 60.0
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        given = bool(self.access_key_id)
        problems = []
        if given != bool(self.secret_access_key) or (self.session_token and not given):
            problems.append("access_key_id and secret_access_key go together, with or without session_token")
        if given and self.anonymous:
            problems.append("keys are given, but anonymous asks for unsigned requests")
        if problems:
            raise DeclarationError.of("store options", problems, kind="store-credentials")


_DEFAULTS = StoreOptions()


def open_store(address: str | os.PathLike[str], options: StoreOptions = _DEFAULTS) -> ObjectStore:
    """Open the store at ``address``. Nothing is read or written yet.

    Parameters
    ----------
    address : str or path
        A folder, ``file:///folder``, ``s3://bucket/prefix``, or ``memory://name`` (objects
        of this process: two opens of one name see the same ones).
    options : StoreOptions
        How to reach S3; without effect on the others.

    Raises
    ------
    DeclarationError
        For an address of another form, or a folder that is a file.
    AccessError
        Where a folder cannot be looked at, the working folder is gone, or a profile gives no credentials.
    """
    text = os.fspath(address)
    scheme, divider, rest = text.partition("://")
    if not divider:
        return _folder(text, text)
    match scheme.lower():
        case "file":
            parts = urlsplit(text)
            if parts.netloc not in ("", "localhost"):
                raise _malformed(text, "a file:// address names no host: write file:///folder")
            return _folder(unquote(parts.path), text)
        case "memory":
            name, prefix = _split(rest, text)
            return RemoteStore(
                memory_client(f"memory://{name}"), f"memory://{name}", prefix, concurrency=1, signed=False
            )
        case "s3" | "s3a":
            bucket, prefix = _split(rest, text)
            return _s3(bucket, prefix, options)
    raise _malformed(text, f"the scheme {scheme!r} is not offered")


def as_store(store: StoreLike, options: StoreOptions | None = None) -> ObjectStore:
    """``store`` itself, or the store at that address. Raises as :func:`open_store`."""
    if isinstance(store, str | os.PathLike):
        return open_store(store, options or _DEFAULTS)
    return store


def _malformed(address: str, problem: str) -> DeclarationError:
    return DeclarationError(
        f"{address!r} is no store address: {problem}; expected {_FORMS}",
        kind="store-address",
        address=address,
    )


def _folder(path: str, address: str) -> LocalStore:
    if not path:
        raise _malformed(address, "it is empty")
    try:
        return open_local(path)
    except FileNotFoundError as error:
        raise AccessError(
            f"cannot open {address!r}: it is relative to the working folder, which has been deleted; change "
            "to a folder that stands, or give the whole path",
            kind="working-folder",
            address=address,
        ) from error


def _split(rest: str, address: str) -> tuple[str, str]:
    name, _, prefix = rest.partition("/")
    if not name:
        raise _malformed(address, "it names nothing after ://")
    if any(mark in rest for mark in "?#"):
        raise _malformed(address, "it carries a query or a fragment")
    prefix = prefix.strip("/")
    return name, check_key(prefix) if prefix else ""


def _s3(bucket: str, prefix: str, options: StoreOptions) -> RemoteStore:
    provider = _given_keys(options)
    anonymous = provider is None and (
        options.anonymous or _is_set("AWS_SKIP_SIGNATURE") or _is_set("AWS_NO_SIGN_REQUEST")
    )
    address = f"s3://{bucket}"
    if provider is None and not anonymous:
        provider = _profile_provider(address)
    endpoint = options.endpoint or next(
        filter(None, map(os.environ.get, ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"))), None
    )
    if endpoint:
        _check_endpoint(endpoint)
    try:
        client = S3Store(
            bucket,
            config=_config(options, endpoint, anonymous),  # type: ignore[arg-type]
            client_options={
                "allow_http": bool(endpoint and endpoint.lower().startswith("http://")),
                "connect_timeout": timedelta(seconds=5),
                "timeout": timedelta(seconds=options.timeout_s),
            },
            retry_config={
                "max_retries": options.retries,
                "retry_timeout": timedelta(seconds=2 * options.timeout_s),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=100),
                    "max_backoff": timedelta(seconds=8),
                    "base": 2,
                },
            },
            credential_provider=provider,
        )
    except (BaseError, OSError, ValueError) as error:
        raise translate(error, "open", address, "") from error
    return RemoteStore(client, address, prefix, concurrency=_S3_CONCURRENCY, signed=not anonymous)


def _check_endpoint(endpoint: str) -> None:
    """Refuse what is no address of a server: obstore would panic over it."""
    try:
        parts = urlsplit(endpoint)
        is_address = parts.scheme.lower() in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_address = False
    if not is_address or any(letter.isspace() for letter in endpoint):
        raise DeclarationError(
            f"the endpoint {endpoint!r} is no address: expected http://host[:port] or https://host[:port] "
            "(--endpoint, AWS_ENDPOINT_URL)",
            kind="endpoint",
        )


def _config(options: StoreOptions, endpoint: str | None, anonymous: bool) -> Mapping[str, Any]:
    config: dict[str, Any] = {"skip_signature": anonymous}
    if options.region:
        config["region"] = options.region
    if endpoint:
        # Both, because the environment may hold either, and the first would win over the second.
        config["aws_endpoint_url_s3"] = config["endpoint"] = endpoint
    return config


def _given_keys(options: StoreOptions) -> Any | None:
    """A provider of the keys that the options give.

    As configuration they would be joined by the environment's AWS_SESSION_TOKEN, which
    belongs to other keys; on Lambda there always is one.
    """
    if not options.access_key_id or not options.secret_access_key:
        return None
    keys: dict[str, Any] = {
        "access_key_id": options.access_key_id,
        "secret_access_key": options.secret_access_key,
        "token": options.session_token,
        "expires_at": None,
    }
    return lambda: keys


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in _TRUE


def _profile_provider(address: str) -> Any | None:
    """Credentials of the shared AWS files through boto3, where nothing nearer gives them."""
    named = os.environ.get("AWS_PROFILE")
    if any(map(os.environ.get, _KEYS_FROM)) and not named:
        return None
    folder = Path.home() / ".aws"
    if not named and not (folder / "credentials").exists() and not (folder / "config").exists():
        return None
    if find_spec("boto3") is None:
        if named is None:
            return None
        raise DeclarationError(
            f"AWS_PROFILE={named} is set, and reading profiles needs boto3: "
            "install sweep[aws], or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY and unset AWS_PROFILE",
            kind="store-credentials",
        )
    # An optional extra, and slow to load.
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider()
    except Exception as error:
        # A file without keys is no fault unless it was asked for: a role may be attached.
        if named is None and isinstance(error, ValueError):
            return None
        raise AccessError(
            f"cannot open {address}: the AWS profile {named or 'default'} gives no credentials "
            f"({type(error).__name__}): check ~/.aws/config and ~/.aws/credentials",
            kind="store-credentials",
        ) from error
