"""The Invoke call of Lambda on loopback: answers as it is told to, and keeps what it was asked."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

__all__ = ["Answer", "Asked", "InvokeServer", "invoke_server"]

_PATH = re.compile(r"^/2015-03-31/functions/(?P<function>[^/]+)/invocations$")
_HANG_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one request is answered with.

    ``deed`` is ``answer``, ``hang`` (no word until the server ends or forgets), ``cut`` (the connection
    is closed after the request was read) or ``half`` (closed in the middle of the answer).
    """

    status: int = 202
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    deed: str = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as it came over the wire."""

    function: str
    kind: str
    payload: bytes


class InvokeServer:
    """Answers with ``script`` in its order, and with 202 once that is spent."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.script: list[Answer] = []
        self.asked: list[Asked] = []
        self.work: Callable[[bytes], object] | None = None
        self.before_answer: Callable[[], object] = lambda: None
        self.n_threads = 0
        self.peak_threads = 0
        self.ending = threading.Event()
        self._lock = threading.Lock()

    @property
    def payloads(self) -> list[bytes]:
        return [each.payload for each in self.asked]

    def forget(self) -> None:
        """Be as new."""
        with self._lock:
            self.script, self.asked, self.work = [], [], None
            self.before_answer = lambda: None
            self.peak_threads = self.n_threads
            self.ending.set()
            self.ending = threading.Event()

    def take(self, asked: Asked) -> Answer:
        """Note a request and say how it is answered."""
        with self._lock:
            self.asked.append(asked)
            return self.script.pop(0) if self.script else Answer()

    def start_work(self, payload: bytes) -> None:
        """Do what the function would, after the answer."""
        if self.work is not None:
            threading.Thread(target=_quietly, args=(self.work, payload), daemon=True).start()

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self.n_threads += 1
            self.peak_threads = max(self.peak_threads, self.n_threads)
        try:
            yield
        finally:
            with self._lock:
                self.n_threads -= 1


def _quietly(work: Callable[[bytes], object], payload: bytes) -> None:
    try:
        work(payload)
    except Exception:  # noqa: BLE001  a function that raises does so far from here
        return


@contextmanager
def invoke_server() -> Iterator[InvokeServer]:
    """A server on a free port."""
    state = InvokeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            _serve(self, state)

        def log_message(self, *_args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    state.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        state.ending.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _serve(request: BaseHTTPRequestHandler, state: InvokeServer) -> None:
    found = _PATH.match(request.path)
    payload = request.rfile.read(int(request.headers["Content-Length"]))
    if found is None:
        request.send_error(404)
        return
    kind = request.headers.get("X-Amz-Invocation-Type", "RequestResponse")
    with state.counted():
        state.before_answer()
    answer = state.take(Asked(function=unquote(found["function"]), kind=kind, payload=payload))
    if answer.deed == "hang":
        state.ending.wait(_HANG_S)
        request.close_connection = True
    elif answer.deed == "cut":
        _cut(request)
    else:
        _answer(request, answer)
        if answer.status == 202:
            state.start_work(payload)


def _answer(request: BaseHTTPRequestHandler, answer: Answer) -> None:
    body = answer.body
    request.send_response(answer.status)
    if answer.status >= 400:
        request.send_header("x-amzn-ErrorType", answer.code)
        body = body or json.dumps({"Type": "User", "message": f"because of {answer.code}"}).encode()
    for name, value in answer.headers.items():
        request.send_header(name, value)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(body) + (9 if answer.deed == "half" else 0)))
    request.end_headers()
    request.wfile.write(body)
    if answer.deed == "half":
        _cut(request)


def _cut(request: BaseHTTPRequestHandler) -> None:
    request.close_connection = True
    request.wfile.flush()
    request.connection.shutdown(socket.SHUT_RDWR)
