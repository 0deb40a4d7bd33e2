"""The body of a worker process: events in, one at a time; log lines and words of progress out.

Light to import: what a handler needs is loaded by its factory. Standard output is not
used, so nothing that a library prints can be taken for a message.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["SWEEP_HANDLER", "Seat", "WorkerSettings", "main", "sweep_handler"]

log = logging.getLogger(__name__)

SWEEP_HANDLER = "sweep.fleet._process_worker:sweep_handler"
# How long a worker whose dispatcher has gone may take to come to the end of a node.
_ORPHAN_GRACE_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What the dispatcher's process tells a new worker.

    Attributes
    ----------
    handler : str
        ``module:function``; called once with a :class:`Seat`, returns what takes each event.
    options : bytes
        Pickled store options, kept closed so that only a handler that wants them loads them.
    run_s : float or None
        How long one event may run before the worker is killed.
    log_level : int
        Records of the package below it are not sent.
    """

    handler: str
    options: bytes
    run_s: float | None
    log_level: int


class Seat:
    """What a handler may know of the process that it runs in."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._deadline = math.inf
        self.number = 0
        self.stopping = threading.Event()

    @property
    def options(self) -> Any:
        """Store options of the dispatcher."""
        return pickle.loads(self._settings.options)

    def begin(self) -> None:
        """Start the time of one event."""
        self.number += 1
        limit = self._settings.run_s
        self._deadline = math.inf if limit is None else time.monotonic() + limit

    def remaining_s(self) -> float:
        """Seconds until this process is killed; none once it was asked to stop."""
        return 0.0 if self.stopping.is_set() else self._deadline - time.monotonic()

    @property
    def run_s(self) -> float:
        return math.inf if self._settings.run_s is None else self._settings.run_s


def sweep_handler(seat: Seat) -> Callable[[bytes], object]:
    """The sweep's worker, with everything loaded and compiled before the first event."""
    # Loaded here and not above: other handlers start without it.
    import json

    from sweep.fleet._memory import resident_mb
    from sweep.fleet.opening import Opener
    from sweep.fold.kernels import warm
    from sweep.stage.batch import STOP_MARGIN_S, Worker
    from sweep.stage.worker import handle_event
    from sweep.system import system_runtime

    warm()
    pid = os.getpid()
    runtime = system_runtime()
    opener = Opener(seat.options, crosses_processes=True)
    # Where the limit is short, the margin for a clean stop must be a small part of it.
    spare_s = STOP_MARGIN_S - min(STOP_MARGIN_S, seat.run_s / 4)

    def remaining_s() -> float:
        left_s = seat.remaining_s()
        return left_s + spare_s if left_s > 0 else left_s

    def handle(payload: bytes) -> object:
        worker = Worker(
            runtime=runtime,
            open_store=opener,
            remaining_s=remaining_s,
            request_id=f"process-{pid}-{seat.number}",
            rss_mb=lambda: resident_mb(pid) or 0.0,
        )
        return handle_event(json.loads(payload), worker)

    return handle


class _Line:
    """The connection to the dispatcher's process, shared by the threads of this one."""

    def __init__(self, link: Connection) -> None:
        self._link = link
        self._lock = threading.Lock()

    def say(self, kind: str, body: Any = None) -> None:
        """Send a message; one that nobody can hear any more is dropped."""
        try:
            with self._lock:
                self._link.send((kind, body))
        except OSError:
            pass

    def hear(self) -> tuple[str, Any]:
        """The next message; ``stop`` once the dispatcher has gone."""
        try:
            kind, body = self._link.recv()
        except (EOFError, OSError):
            return "stop", None
        return str(kind), body


class _Forwarder(logging.Handler):
    """Sends log records to the dispatcher's process, where somebody has configured logging."""

    def __init__(self, line: _Line) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        fields = {
            key: value if isinstance(value, str | int | float | None) else str(value)
            for key, value in vars(record).items()
            if key not in ("args", "exc_info", "msg", "stack_info")
        }
        fields["msg"] = record.getMessage()
        if record.exc_info:
            fields["exc_text"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        fields["processName"] = f"sweep-worker-{os.getpid()}"
        self._line.say("log", fields)


def main() -> None:
    """Serve the dispatcher at the other end of the inherited socket until it says stop or goes."""
    # Ctrl-C at a terminal is for the dispatcher, which tells its workers what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # In a group of its own it is in the background, where a terminal may stop those that write.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    line = _Line(Connection(int(sys.argv[1])))
    kind, settings = line.hear()
    if kind != "settings":
        return
    logging.getLogger().addHandler(_Forwarder(line))
    logging.getLogger("sweep").setLevel(settings.log_level)
    seat = Seat(settings)
    try:
        module, _, function = settings.handler.partition(":")
        handle = getattr(importlib.import_module(module), function)(seat)
        line.say("ready")
        _serve(handle, seat, line)
    except Exception as error:  # a composition root: the dispatcher's process tells what happened
        log.exception("worker process fell over", extra={"event": "worker-fell-over"})
        line.say("failed", "".join(traceback.format_exception_only(error)).strip())
        sys.exit(1)


def _serve(handle: Callable[[bytes], object], seat: Seat, line: _Line) -> None:
    inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(line, inbox, seat), name="listen", daemon=True).start()
    while (payload := inbox.get()) is not None:
        seat.begin()
        handle(payload)
        line.say("done")


def _listen(line: _Line, inbox: queue.SimpleQueue[bytes | None], seat: Seat) -> None:
    while True:
        kind, body = line.hear()
        if kind == "event":
            inbox.put(body)
            continue
        seat.stopping.set()
        inbox.put(None)
        # The main thread ends the process, unless what it runs hangs.
        time.sleep(_ORPHAN_GRACE_S)
        os._exit(1)
