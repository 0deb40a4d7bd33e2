"""A relay in front of a server, so that a test can cut the line and mend it."""

import contextlib
import socket
import threading
from collections.abc import Callable


class Relay:
    """Passes TCP connections on to a server; ``cut`` refuses new ones and drops those that stand.

    Parameters
    ----------
    target
        Host and port of the server.
    watch
        Called with the first bytes of each connection's requests, as they pass.
    """

    def __init__(self, target: tuple[str, int], watch: Callable[[bytes], None] = lambda _: None) -> None:
        self._target = target
        self._watch = watch
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = self._listen(0)
        self.port = int(self._listener.getsockname()[1])

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Close the port and every connection."""
        with self._lock:
            standing, self._open = self._open, set()
        for each in (self._listener, *standing):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def mend(self) -> None:
        """Listen on the same port again."""
        self._listener = self._listen(self.port)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), backlog=64)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._open |= {near, far}
            for source, sink, watch in ((near, far, self._watch), (far, near, lambda _: None)):
                threading.Thread(target=self._pump, args=(source, sink, watch), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, watch: Callable[[bytes], None]) -> None:
        try:
            while data := source.recv(65536):
                watch(data)
                sink.sendall(data)
        except OSError:
            pass
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
            with self._lock:
                self._open.discard(each)
