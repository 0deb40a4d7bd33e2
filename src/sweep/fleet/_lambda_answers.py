"""What an answer of Lambda's Invoke means for a dispatcher.

The one question is whether the service may have taken the event. Only where it said that
it did not is the event sent again here; what is in doubt goes back as ``MAYBE``.

Takes plain values (codes, headers), so that it belongs to no AWS library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep.errors import AccessError
from sweep.fleet.transport import Delivery

__all__ = ["Place", "Verdict", "of_error_answer", "of_status", "region_in", "unreachable"]

_ACCEPTED = 202
# It did nothing, and may do it later: throttles, and a function that is being made or changed.
_NOT_NOW = frozenset(
    {
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "ResourceConflictException",
        "ResourceNotReadyException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
_UNKNOWN_KEYS = frozenset(
    {
        "AuthFailure",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_ARN = re.compile(r"arn:[^:]+:lambda:(?P<region>[^:]+):")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The function that events go to, and the region whose endpoint is asked."""

    function: str
    region: str


def region_in(function: str) -> str | None:
    """The region in a function's ARN; None where it is given by name."""
    found = _ARN.match(function)
    return found["region"] if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one request.

    Attributes
    ----------
    did_nothing : bool
        The service did not take the event and may take it later.
    retry_after_s : float or None
        When it asked for it to be sent again.
    was_reached : bool
        Something answered at the other end.
    """

    delivery: Delivery
    reason: str = ""
    did_nothing: bool = False
    retry_after_s: float | None = None
    was_reached: bool = True


def of_status(status: object) -> Verdict:
    """The verdict on an answer without an error."""
    if status == _ACCEPTED:
        return Verdict(delivery=Delivery.ACCEPTED)
    return Verdict(delivery=Delivery.MAYBE, reason=f"Lambda answered {status}, expected {_ACCEPTED}")


def unreachable(reason: str) -> Verdict:
    """The verdict where no connection came about: nothing was sent."""
    return Verdict(delivery=Delivery.REFUSED, reason=reason, did_nothing=True, was_reached=False)


def of_error_answer(answer: Mapping[str, Any], place: Place) -> Verdict | AccessError:
    """The verdict on an error answer, in botocore's reading of it.

    An error to raise where it will be the same for every event until somebody repairs
    the access.
    """
    error = answer.get("Error", {})
    meta = answer.get("ResponseMetadata", {})
    code, status = str(error.get("Code", "")), int(meta.get("HTTPStatusCode", 0))
    reason = f"Lambda answered {status} {code}: {error.get('Message') or 'no message'}"
    if code in _NOT_NOW or status == 429:
        after_s = _seconds(meta.get("HTTPHeaders", {}).get("retry-after"))
        return Verdict(delivery=Delivery.REFUSED, reason=reason, did_nothing=True, retry_after_s=after_s)
    if status >= 500 or status < 400:
        return Verdict(delivery=Delivery.MAYBE, reason=reason)
    denied = _denied(code, status, reason, place)
    return denied or Verdict(delivery=Delivery.REFUSED, reason=reason)


def _denied(code: str, status: int, reason: str, place: Place) -> AccessError | None:
    function, region = place.function, place.region
    if code in _EXPIRED:
        kind, text = "credentials-expired", "the AWS credentials in use have expired: renew them"
    elif code in _UNKNOWN_KEYS or status == 401:
        kind, text = (
            "credentials-unknown",
            f"AWS does not know the credentials in use in {region}: "
            "check the keys, their session token and this machine's clock",
        )
    elif status == 403:
        kind, text = (
            "lambda-denied",
            f"the AWS credentials in use may not invoke {function} in {region}: "
            f"they need lambda:InvokeFunction on {function}",
        )
    elif status == 404:
        kind, text = (
            "no-function",
            f"there is no Lambda function {function} (or no such version or alias) in {region}: "
            "check its name, the region and the account",
        )
    else:
        return None
    return AccessError(f"{text} ({reason})", kind=kind, function=function, region=region)


def _seconds(header: object) -> float | None:
    try:
        return max(float(str(header)), 0.0)
    except ValueError:
        # Absent, or a date, which Lambda does not send.
        return None
