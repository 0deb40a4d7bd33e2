"""Events as futures on a running Dask cluster, for users whose engine is one.

Needs the extra ``dask``, here and, with the rest of the package, on the cluster's workers.

Source: semantics 12.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from distributed import Client, Future
from distributed.scheduler import KilledWorker

from sweep.errors import AccessError
from sweep.fleet._handling import refusal
from sweep.fleet._memory import resident_mb
from sweep.fleet.opening import Opener
from sweep.fleet.transport import KIB, Delivery, Envelope, Limits, Lost, Submission
from sweep.stage.batch import Worker
from sweep.stage.worker import handle_event
from sweep.store.open import StoreOptions
from sweep.system import system_runtime

__all__ = ["DaskTransport"]

log = logging.getLogger(__name__)

SWEEP_HANDLER = f"{__name__}:sweep_handler"
_CONNECT_S = 10.0


class DaskTransport:
    """Runs events as tasks of a Dask cluster.

    Parameters
    ----------
    scheduler_address : str
        ``tcp://host:port``.
    store_options : StoreOptions, optional
        How workers reach S3 where an event does not say.
    payload_bytes : int
        The largest event.
    connect_s : float
        How long to try to reach the scheduler.
    handler : str, optional
        ``module:function`` that makes what takes the events, in place of the sweep's worker.

    Raises
    ------
    AccessError
        Nobody answers at the address.

    Notes
    -----
    Dask gives the task of a dead worker to another one, a few times (its setting
    ``distributed.scheduler.allowed-failures``), before it calls the task lost. That does no
    harm: an event may run twice.
    """

    name = "dask"

    def __init__(
        self,
        scheduler_address: str,
        *,
        store_options: StoreOptions | None = None,
        payload_bytes: int = 250 * KIB,
        connect_s: float = _CONNECT_S,
        handler: str = SWEEP_HANDLER,
    ) -> None:
        self._address = scheduler_address
        try:
            self._client = Client(scheduler_address, timeout=connect_s, set_as_default=False)
            n_threads = sum(self._client.nthreads().values())
        except (OSError, TimeoutError, ValueError) as error:
            raise self._unreachable(error) from error
        self.limits = Limits(
            payload_bytes=payload_bytes, in_flight=max(1, n_threads), workers=max(1, n_threads)
        )
        self._task = handler, store_options
        self._futures: dict[str, tuple[Envelope, Future]] = {}
        self._lost: list[Lost] = []
        self._is_closed = False

    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        """Hand events to the scheduler; one outcome each, in their order.

        Raises
        ------
        AccessError
            The scheduler has gone.
        """
        outcomes = []
        for envelope in envelopes:
            refused = refusal(
                envelope,
                payload_bytes=self.limits.payload_bytes,
                is_closed=self._is_closed,
                crosses_processes=True,
            )
            if refused is None:
                self._send(envelope)
            outcomes.append(refused or Submission(key=envelope.key, delivery=Delivery.ACCEPTED))
        return outcomes

    def _send(self, envelope: Envelope) -> None:
        if self._client.status != "running":
            raise self._unreachable(self._client.status)
        name = f"sweep-{envelope.key}-{uuid.uuid4().hex}"
        future = self._client.submit(_run, envelope.payload, *self._task, key=name, pure=False)
        self._futures[name] = envelope, future

    def lost(self) -> list[Lost]:
        """Events whose task has failed since the last call."""
        self._look()
        found, self._lost = self._lost, []
        return found

    def pending(self) -> int:
        """Events whose task is queued or running."""
        self._look()
        return len(self._futures)

    def close(self, *, cancel: bool = False) -> None:
        """Leave the cluster, which is not ours to end.

        Without ``cancel``, accepted events are done first. With it, those that wait are
        dropped; Dask cannot stop one that runs.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if cancel:
            self._cancel()
        else:
            self._wait()
        self._client.close()

    def _wait(self) -> None:
        finished = threading.Event()
        while self.pending() and self._client.status == "running":
            finished.wait(0.02)

    def _cancel(self) -> None:
        self._look()
        self._client.cancel([future for _, future in self._futures.values()], force=True)
        self._lost += [
            Lost(key=envelope.key, cause="dropped", detail="cancelled")
            for envelope, _ in self._futures.values()
        ]
        self._futures.clear()

    def _look(self) -> None:
        """Take out the futures that have come to an end; what is done leaves no word here."""
        for name in [name for name, (_, future) in self._futures.items() if future.status != "pending"]:
            envelope, future = self._futures.pop(name)
            if future.status == "finished":
                continue
            lost = _obituary(envelope, future)
            log.warning(
                "task lost",
                extra={"event": "worker-lost", "key": lost.key, "cause": lost.cause, "why": lost.detail},
            )
            self._lost.append(lost)

    def _unreachable(self, why: object) -> AccessError:
        return AccessError(
            f"the Dask scheduler at {self._address} cannot be reached ({why}): "
            "check that it runs, and that this machine may connect to it",
            kind="dask-unreachable",
            address=self._address,
        )


def _obituary(envelope: Envelope, future: Future) -> Lost:
    """What became of a task that did not finish."""
    if future.status != "error":
        return Lost(key=envelope.key, cause="dropped", detail=f"the scheduler says: {future.status}")
    error = future.exception()
    if isinstance(error, KilledWorker):
        return Lost(key=envelope.key, cause="killed", detail=f"its workers died: {error}")
    return Lost(key=envelope.key, cause="killed", detail=f"{type(error).__name__}: {error}")


# -- on the cluster's workers ---------------------------------------------------------------


def _run(payload: bytes, handler: str, options: StoreOptions | None) -> None:
    """One task: an event through the worker of this process. Its answer is read by nobody."""
    _handler(handler, options)(payload)


@lru_cache(maxsize=8)
def _handler(name: str, options: StoreOptions | None) -> Callable[[bytes], object]:
    """One worker for all tasks of a process, so that stores are opened once."""
    module, _, function = name.partition(":")
    made: Callable[[bytes], object] = getattr(importlib.import_module(module), function)(options)
    return made


def sweep_handler(options: StoreOptions | None) -> Callable[[bytes], Any]:
    """The sweep's worker, for threads of a Dask worker."""
    pid = os.getpid()
    worker = Worker(
        runtime=system_runtime(),
        open_store=Opener(options, crosses_processes=True),
        request_id=f"dask-{pid}",
        rss_mb=lambda: resident_mb(pid) or 0.0,
    )
    return lambda payload: handle_event(json.loads(payload), worker)
