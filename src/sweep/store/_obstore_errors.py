"""Errors of obstore and of S3, as the errors of this package.

An S3 answer can repeat what was signed, so no foreign text is passed on: a message
carries the S3 error code alone.
"""

from __future__ import annotations

import re

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from sweep.errors import AccessError, StoreUnavailableError, SweepError

_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_STATUS = re.compile(r"\bstatus(?: code)?:? (\d{3})\b|\bstatus (\d{3})\b")
_PERMISSION = {
    "read": "s3:GetObject (and s3:ListBucket, without which S3 says 403 for a missing object)",
    "write": "s3:PutObject",
    "create": "s3:PutObject",
    "replace": "s3:PutObject and s3:GetObject",
    "touch": "s3:GetObject and s3:PutObject",
    "delete": "s3:DeleteObject",
    "list": "s3:ListBucket",
}
_CREDENTIALS = {
    "ExpiredToken": "the session token has expired: fetch new credentials and run again",
    "InvalidAccessKeyId": "the access key is not known there: check AWS_ACCESS_KEY_ID and the endpoint",
    "InvalidToken": "the session token is not accepted: check AWS_SESSION_TOKEN",
    "RequestTimeTooSkewed": "this machine's clock differs too much from the server's: set the clock",
    "SignatureDoesNotMatch": "the signature is not accepted: check AWS_SECRET_ACCESS_KEY and the region",
    "TokenRefreshRequired": "the session token has expired: fetch new credentials and run again",
}
_NO_CREDENTIALS = (
    "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile in "
    "AWS_PROFILE, run where a role is attached, or ask for anonymous access (--anon)"
)
_REGION = "the bucket is in another region: set AWS_REGION or --region"


def names_no_bucket(error: BaseException) -> bool:
    """Whether ``error`` says that the bucket itself is missing."""
    return "NoSuchBucket" in str(error)


def translate(
    error: BaseException, action: str, root: str, key: str, *, conditional: bool = False
) -> SweepError:
    """The error to raise for ``error``, met while ``action`` was done to ``key``.

    ``conditional`` marks a conditional write: where it did not fail for certain, the kind
    is ``answer-lost``.
    """
    text = str(error)
    place = f"{root}/{key}" if key else root
    found = _CODE.search(text)
    code = found[1] if found else ""
    access = _access(error, text, code, action)
    if access is not None:
        kind, advice = access
        return AccessError(f"cannot {action} {place}: {advice}", kind=kind, key=key, root=root)
    seen = f"the store answered {code}" if code else f"the store did not answer ({_short(error, text)})"
    return StoreUnavailableError(
        f"cannot {action} {place}: {seen}; check the network and the endpoint, then run again",
        kind="answer-lost" if conditional else None,
        key=key,
        root=root,
    )


def _access(error: BaseException, text: str, code: str, action: str) -> tuple[str, str] | None:
    if names_no_bucket(error):
        return "store-no-bucket", "the bucket does not exist: check the name and the endpoint"
    if code in _CREDENTIALS:
        return "store-credentials", _CREDENTIALS[code]
    if "PermanentRedirect" in text or "AuthorizationHeaderMalformed" in text or "without LOCATION" in text:
        return "store-region", _REGION
    if "169.254.169.254" in text or "fd00:ec2::254" in text:
        return "store-credentials", _NO_CREDENTIALS
    if isinstance(error, UnauthenticatedError):
        return "store-credentials", "the store wants credentials that it accepts: " + _NO_CREDENTIALS
    if isinstance(error, PermissionDeniedError) or code == "AccessDenied":
        wanted = _PERMISSION.get(action, "the permission for it")
        return "store-denied", f"access denied: the credentials in use need {wanted}"
    return None


def _short(error: BaseException, text: str) -> str:
    """A few safe words on what happened below HTTP."""
    lowered = text.lower()
    for words in ("connection refused", "timed out", "dns error", "connection reset", "certificate"):
        if words in lowered:
            return words
    return type(error).__name__
