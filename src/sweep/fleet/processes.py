"""A pool of worker processes on this machine: the embedded default.

Workers are programs of their own rather than children of ``multiprocessing``: nothing of
the caller's main module is run again (notebooks, scripts without a guard, macOS), they
share no locks and no tracker process, and each is ended by its own handle. They speak
frames over a socket pair; the kernel closes it when either side dies, so that neither
outlives the other unnoticed.

Source: semantics 12.
"""

from __future__ import annotations

import logging
import math
import pickle
import threading
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Pipe, wait
from typing import Any, Literal

from sweep.errors import AccessError, DeclarationError
from sweep.fleet._handling import refusal
from sweep.fleet._memory import HAS_PROC, cores, machine_mb
from sweep.fleet._process_child import Child
from sweep.fleet._process_worker import SWEEP_HANDLER, WorkerSettings
from sweep.fleet.transport import KIB, Delivery, Envelope, Limits, Lost, Submission
from sweep.store.open import StoreOptions

__all__ = ["ProcessesTransport"]

log = logging.getLogger(__name__)

# Where a look at a worker's memory costs the start of a program, it is taken less often.
_WATCH_S = 0.1 if HAS_PROC else 1.0
_START_S = 300.0
_STARTS = 3
# Of the machine's memory, what the workers may hold together.
_SHARE = 0.8
# A worker that ends an event with more than this much of its limit makes room for a fresh one.
_RECYCLE = 0.75


class ProcessesTransport:
    """Runs events in worker processes of this machine, one at a time in each.

    Parameters
    ----------
    n_workers : int, optional
        As many as there are cores where None.
    memory_mb : int, optional
        Resident memory of one worker [MiB]; a worker above it is killed and its event
        reported lost to ``memory``. An equal share of four fifths of the machine where None.
    run_s : float, optional
        How long one event may run [s]; its worker is then killed and the event reported
        lost to ``time``. A worker stops itself a little earlier, between two nodes.
    store_options : StoreOptions, optional
        How workers reach S3 where an event does not say.
    payload_bytes : int
        The largest event.
    handler : str, optional
        ``module:function`` that makes what takes the events, in place of the sweep's worker.

    Raises
    ------
    DeclarationError
        For a limit that is no positive number.

    Notes
    -----
    Workers start at once and load while the dispatcher plans. The queue lives here and has
    no bound. One thread owns the processes; the public methods may be called from others.
    """

    name = "processes"
    stop_grace_s = 10.0
    """How long a cancelled worker may take to come to the end of a node before it is killed."""

    def __init__(
        self,
        n_workers: int | None = None,
        *,
        memory_mb: int | None = None,
        run_s: float | None = None,
        store_options: StoreOptions | None = None,
        payload_bytes: int = 250 * KIB,
        handler: str = SWEEP_HANDLER,
    ) -> None:
        _check(n_workers=n_workers, memory_mb=memory_mb, run_s=run_s, payload_bytes=payload_bytes)
        self._n_workers = n_workers or cores()
        self.memory_mb = memory_mb or _SHARE * machine_mb() / self._n_workers
        self.limits = Limits(
            payload_bytes=payload_bytes, in_flight=self._n_workers, run_s=run_s, workers=self._n_workers
        )
        self._settings = WorkerSettings(
            handler=handler,
            options=pickle.dumps(store_options),
            run_s=run_s,
            log_level=logging.getLogger("sweep").getEffectiveLevel(),
        )
        self._lock = threading.Lock()
        self._queue: deque[Envelope] = deque()
        self._n_running = 0
        self._lost: list[Lost] = []
        self._closing: Literal["drain", "cancel"] | None = None
        self._broken = ""
        # Of the supervising thread alone.
        self._children: list[Child] = []
        self._failed_starts = 0
        self._n_wanted = self._n_workers
        self._wake_reader, self._wake_writer = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._supervise, name="sweep-processes", daemon=True)
        self._thread.start()

    # -- the dispatcher's side ----------------------------------------------------------

    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        """Queue events; one outcome each, in their order.

        Raises
        ------
        AccessError
            Worker processes cannot be started.
        """
        outcomes = []
        with self._lock:
            if self._broken:
                raise AccessError(self._broken, kind="workers-cannot-start")
            for envelope in envelopes:
                refused = refusal(
                    envelope,
                    payload_bytes=self.limits.payload_bytes,
                    is_closed=self._closing is not None,
                    crosses_processes=True,
                )
                if refused is None:
                    self._queue.append(envelope)
                outcomes.append(refused or Submission(key=envelope.key, delivery=Delivery.ACCEPTED))
        self._wake()
        return outcomes

    def lost(self) -> list[Lost]:
        """Events whose worker died since the last call."""
        with self._lock:
            found, self._lost = self._lost, []
            return found

    def pending(self) -> int:
        """Events queued or running."""
        with self._lock:
            return len(self._queue) + self._n_running

    def pids(self) -> list[int]:
        """The worker processes that there are now."""
        return [child.pid for child in list(self._children)]

    def close(self, *, cancel: bool = False) -> None:
        """End the workers.

        Without ``cancel``, accepted events are done first. With it, those that wait are
        dropped, and those that run are ended after the node in hand, or killed ``stop_grace_s`` later;
        ``lost`` names both.
        """
        with self._lock:
            if cancel or self._closing is None:
                self._closing = "cancel" if cancel else "drain"
        self._wake()
        self._thread.join()

    def _wake(self) -> None:
        # The thread has ended where this fails.
        try:
            self._wake_writer.send_bytes(b"")
        except OSError:
            log.debug("pool has ended", extra={"event": "pool-ended"})

    # -- the supervising thread -----------------------------------------------------------

    def _supervise(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as error:
            log.exception("worker pool fell over", extra={"event": "pool-failed"})
            self._break(f"the pool of worker processes fell over: {type(error).__name__}: {error}")
        finally:
            self._end_children()
            self._wake_reader.close()
            self._wake_writer.close()

    def _turn(self) -> bool:
        """Do what is to be done, then wait for something to happen; False at the end."""
        with self._lock:
            closing, broken = self._closing, bool(self._broken)
            is_done = closing is not None and not self._queue and not self._n_running
        if closing == "cancel" or is_done or broken:
            return False
        self._staff(is_closing=closing is not None)
        self._hand_out()
        links: list[Any] = [self._wake_reader, *(child.link for child in self._children)]
        needs_watching = any(not child.is_idle for child in self._children)
        ready = wait(links, timeout=_WATCH_S if needs_watching else None)
        if self._wake_reader in ready:
            while self._wake_reader.poll():
                self._wake_reader.recv_bytes()
        for child in [child for child in self._children if child.link in ready]:
            self._hear(child)
        self._watch()
        return True

    def _staff(self, *, is_closing: bool) -> None:
        """Start workers up to the number wanted; at the end, only what the queue still needs."""
        wanted = self._n_wanted
        if is_closing:
            with self._lock:
                wanted = min(wanted, len(self._queue) + self._n_running)
        while len(self._children) < wanted:
            self._children.append(Child(self._settings))

    def _hand_out(self) -> None:
        for child in [child for child in self._children if child.is_idle]:
            with self._lock:
                if not self._queue:
                    return
                envelope = self._queue.popleft()
                self._n_running += 1
            if not child.hand(envelope):
                # It never had the event: the next worker takes it.
                with self._lock:
                    self._queue.appendleft(envelope)
                    self._n_running -= 1

    def _hear(self, child: Child) -> None:
        for kind, body in child.messages():
            if kind == "ready":
                child.is_ready, self._failed_starts = True, 0
            elif kind == "done":
                self._done(child)
            elif kind == "failed":
                child.complaint = str(body)
            elif kind == "log":
                _relay(body)
            elif kind == "ended":
                self._ended(child)

    def _done(self, child: Child) -> None:
        child.envelope = None
        with self._lock:
            self._n_running -= 1
        held_mb = child.resident_mb()
        if held_mb > _RECYCLE * self.memory_mb:
            log.info(
                "worker recycled",
                extra={"event": "worker-recycled", "pid": child.pid, "rss_mb": round(held_mb)},
            )
            child.stop()

    def _ended(self, child: Child) -> None:
        self._children.remove(child)
        cause, detail = child.bury()
        if child.envelope is not None:
            self._lose(child.envelope, cause, detail)
        elif not child.is_ready and not child.is_stopping:
            self._failed_starts += 1
            log.warning("worker did not start", extra={"event": "worker-not-started", "why": detail})
            if self._failed_starts >= _STARTS:
                self._cannot_start(detail)

    def _cannot_start(self, detail: str) -> None:
        """Go on with the workers that there are, or with none at all."""
        self._n_wanted = sum(child.is_ready for child in self._children)
        self._failed_starts = 0
        if not self._n_wanted:
            self._break(f"worker processes cannot be started: {detail}")

    def _lose(self, envelope: Envelope, cause: str, detail: str) -> None:
        log.warning(
            "worker lost", extra={"event": "worker-lost", "key": envelope.key, "cause": cause, "why": detail}
        )
        with self._lock:
            self._n_running -= 1
            self._lost.append(Lost(key=envelope.key, cause=cause, detail=detail))

    def _watch(self) -> None:
        """Kill what has gone past a limit."""
        for child in self._children:
            age_s, limit_s = child.age_s(), self.limits.run_s
            if not child.is_ready:
                if age_s > _START_S:
                    child.kill("time", f"worker process {child.pid} was not ready after {_START_S:g} s")
                continue
            if child.envelope is None:
                continue
            if limit_s is not None and age_s > limit_s:
                child.kill("time", f"worker process {child.pid} ran for more than {limit_s:g} s")
            elif (held_mb := child.resident_mb()) > self.memory_mb:
                limit = f"{self.memory_mb:,.0f} MiB"
                child.kill(
                    "memory", f"worker process {child.pid} held {held_mb:,.0f} MiB, the limit is {limit}"
                )

    def _break(self, reason: str) -> None:
        """Take no more events, and report those that wait."""
        with self._lock:
            self._broken = reason
            self._lost += [Lost(key=each.key, cause="dropped", detail=reason) for each in self._queue]
            self._queue.clear()

    def _end_children(self) -> None:
        """Drop what waits, let each worker come to the end of its node, and see them all out."""
        with self._lock:
            self._lost += [
                Lost(key=each.key, cause="dropped", detail="cancelled before it started")
                for each in self._queue
            ]
            self._queue.clear()
        for child in self._children:
            child.stop()
            if not child.is_ready:
                child.kill("killed", "ended while it was starting")
        deadline = time.monotonic() + self.stop_grace_s
        while self._children:
            for child in self._children if time.monotonic() > deadline else ():
                child.kill("killed", "cancelled while it ran")
            ready = wait([child.link for child in self._children], timeout=_WATCH_S)
            for child in [child for child in self._children if child.link in ready]:
                self._hear(child)


def _relay(fields: dict[str, Any]) -> None:
    """Log a worker's record here, where logging is configured."""
    record = logging.makeLogRecord(fields)
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def _check(*, run_s: float | None, **counts: int | None) -> None:
    problems = [
        f"{name} is {value!r}, expected a whole number above 0"
        for name, value in counts.items()
        if value is not None and (type(value) is not int or value < 1)
    ]
    if run_s is not None and not 0 < run_s < math.inf:
        problems.append(f"run_s is {run_s!r}, expected seconds above 0")
    if problems:
        raise DeclarationError.of("processes transport", problems, kind="transport-limits")
