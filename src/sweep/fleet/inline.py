"""The worker in this process: for tests, notebooks and small stores."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sweep.fleet._handling import Handler, handler_of, refusal
from sweep.fleet.transport import KIB, Delivery, Envelope, Limits, Lost, Submission
from sweep.stage.worker import Worker

__all__ = ["InlineTransport"]

log = logging.getLogger(__name__)


class InlineTransport:
    """Runs each event before ``submit`` returns, through its JSON text.

    Parameters
    ----------
    worker : Worker
        Its ``open_store`` may hand out ``memory://`` stores of this process.
    payload_bytes : int
        The largest event; as on the wire, so that packing is the same.
    handler : callable, optional
        Takes the text of an event in place of ``worker``.
    """

    name = "inline"

    def __init__(
        self, worker: Worker, *, payload_bytes: int = 250 * KIB, handler: Handler | None = None
    ) -> None:
        self.limits = Limits(payload_bytes=payload_bytes, in_flight=1, workers=1)
        self._handle = handler or handler_of(worker)
        self._lost: list[Lost] = []
        self._is_closed = False

    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        """Run the events one after another; one outcome each, in their order."""
        return [self._run(envelope) for envelope in envelopes]

    def _run(self, envelope: Envelope) -> Submission:
        refused = refusal(
            envelope,
            payload_bytes=self.limits.payload_bytes,
            is_closed=self._is_closed,
            crosses_processes=False,
        )
        if refused is not None:
            return refused
        try:
            self._handle(envelope.payload)
        except Exception as error:
            log.exception("worker fell over", extra={"event": "worker-lost", "key": envelope.key})
            self._lost.append(
                Lost(key=envelope.key, cause="killed", detail=f"{type(error).__name__}: {error}")
            )
        return Submission(key=envelope.key, delivery=Delivery.ACCEPTED)

    def lost(self) -> list[Lost]:
        """Events whose worker fell over since the last call."""
        found, self._lost = self._lost, []
        return found

    def pending(self) -> int:
        """Nothing is ever left: 0."""
        return 0

    def close(self, *, cancel: bool = False) -> None:
        """Refuse whatever comes from now on."""
        self._is_closed = True
