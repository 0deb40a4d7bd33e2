"""What every transport does alike: refuse before sending, and hand an event's text to the worker."""

from __future__ import annotations

import json
from collections.abc import Callable

from sweep.fleet.opening import unshared_root
from sweep.fleet.transport import Delivery, Envelope, Submission
from sweep.stage.worker import Worker, handle_event

__all__ = ["Handler", "handler_of", "refusal"]

type Handler = Callable[[bytes], object]
"""Takes the JSON text of one event; its answer is read by nobody."""


def handler_of(worker: Worker) -> Handler:
    """The worker's one door, for the text of an event."""

    def handle(payload: bytes) -> object:
        return handle_event(json.loads(payload), worker)

    return handle


def refusal(
    envelope: Envelope, *, payload_bytes: int, is_closed: bool, crosses_processes: bool
) -> Submission | None:
    """Why an event cannot be sent at all, or None where it can."""
    size = len(envelope.payload)
    root = unshared_root(envelope.payload) if crosses_processes else None
    if is_closed:
        reason = "the transport is closed"
    elif size > payload_bytes:
        reason = f"the payload is {size:,} bytes, the limit {payload_bytes:,}"
    elif root is not None:
        reason = f"{root} lives in this process's memory and no other process can open it"
    else:
        return None
    return Submission(key=envelope.key, delivery=Delivery.REFUSED, reason=reason)
