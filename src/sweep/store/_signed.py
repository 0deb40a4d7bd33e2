"""A conditional DELETE, which obstore does not offer: a signed one, sent with ``If-Match``."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from sweep.errors import AccessError, DeclarationError, StoreUnavailableError
from sweep.store._obstore_errors import translate
from sweep.store.base import DELETED, Deleted, Refused

_LIFETIME = timedelta(seconds=60)
_TIMEOUT_S = 30.0


def signed_delete(client: S3Store, path: str, etag: str, root: str, key: str) -> Deleted | Refused:
    """Delete ``path`` where its version is ``etag``; a server that has no such object may say either.

    Raises
    ------
    DeclarationError
        With kind ``unsupported`` where the server does not know the condition.
    AccessError
        Where the server denies it.
    StoreUnavailableError
        With kind ``answer-lost`` where it may have taken place.
    """
    try:
        address = obstore.sign(client, "DELETE", path, _LIFETIME)
    except (BaseError, OSError, ValueError) as error:
        raise translate(error, "delete", root, key) from error
    status = _send(address, etag, root, key)
    if status in (HTTPStatus.OK, HTTPStatus.NO_CONTENT):
        return DELETED
    if status == HTTPStatus.NOT_FOUND:
        return Refused.MISSING
    # 409: another conditional request on the key is under way, so its version is moving.
    if status in (HTTPStatus.PRECONDITION_FAILED, HTTPStatus.CONFLICT):
        return Refused.MISMATCH
    if status in (HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.BAD_REQUEST, HTTPStatus.METHOD_NOT_ALLOWED):
        raise DeclarationError(
            f"{root} answered {status} to a conditional delete: it does not offer one", kind="unsupported"
        )
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise AccessError(
            f"cannot delete {root}/{key}: access denied: the credentials in use need s3:DeleteObject",
            kind="store-denied",
            key=key,
            root=root,
        )
    raise _lost(f"it answered {status}", root, key)


def _send(address: str, etag: str, root: str, key: str) -> int:
    request = Request(address, method="DELETE", headers={"If-Match": etag})
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as answer:
            return int(answer.status)
    except HTTPError as error:
        # An answer, though not a friendly one. The object carries the signed address: drop it.
        error.close()
        return error.code
    except (OSError, HTTPException) as error:
        # `from None`: the address is signed, and some of these texts repeat it.
        raise _lost(type(error).__name__, root, key) from None


def _lost(seen: str, root: str, key: str) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"cannot tell whether {root}/{key} was deleted: {seen}; read it back",
        kind="answer-lost",
        key=key,
        root=root,
    )
