"""One worker process, as the pool holds it: started, spoken to, watched, ended by its own handle."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Pipe
from typing import Any

from sweep.errors import DeclarationError
from sweep.fleet._memory import resident_mb
from sweep.fleet._process_worker import WorkerSettings
from sweep.fleet.transport import Envelope

__all__ = ["Child"]

# The caller's main module is not run again, as multiprocessing's own spawn would: notebooks
# and scripts without a guard work. "-P" keeps the working folder out of the first imports.
_BODY = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from sweep.fleet._process_worker import main; main()"
)
_EXIT_S = 2.0


class Child:
    """A worker process and what it is doing."""

    def __init__(self, settings: WorkerSettings) -> None:
        if not sys.executable:
            raise DeclarationError(
                "this interpreter does not know its own program (sys.executable), "
                "so it can start no worker processes: use the inline transport",
                kind="no-interpreter",
            )
        self.link, theirs = Pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BODY, json.dumps(sys.path), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # Whatever a library prints must not land in the output of the dispatcher.
                stdout=2,
                # Out of reach of the terminal's Ctrl-C, also before the worker can ignore it.
                process_group=0,
            )
        except BaseException:
            self.link.close()
            raise
        finally:
            # The child's end lives in the child alone, so that its death closes it.
            theirs.close()
        self.is_ready = False
        self.is_stopping = False
        self.envelope: Envelope | None = None
        self.doom: tuple[str, str] | None = None
        self.complaint = ""
        self._since = time.monotonic()
        self._say("settings", settings)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_idle(self) -> bool:
        return self.is_ready and self.envelope is None and self.doom is None and not self.is_stopping

    def age_s(self) -> float:
        """Seconds since it began what it does: its start, or the event in hand."""
        return time.monotonic() - self._since

    def resident_mb(self) -> float:
        return resident_mb(self.pid) or 0.0

    def hand(self, envelope: Envelope) -> bool:
        """Give it an event; False where it turns out to be dead."""
        self._since = time.monotonic()
        if not self._say("event", envelope.payload):
            return False
        self.envelope = envelope
        return True

    def messages(self) -> list[tuple[str, Any]]:
        """What it has said; the last is ``("ended", None)`` where it has died."""
        found: list[tuple[str, Any]] = []
        try:
            while self.link.poll():
                found.append(self.link.recv())
        except (EOFError, OSError):
            found.append(("ended", None))
        return found

    def stop(self) -> None:
        """Ask it to end after the node in hand."""
        if not self.is_stopping:
            self.is_stopping = True
            self._say("stop", None)

    def kill(self, cause: str, detail: str) -> None:
        """End it at once; ``cause`` is what its event is lost to."""
        if self.doom is None:
            self.doom = cause, detail
            self._process.kill()

    def bury(self) -> tuple[str, str]:
        """Wait for its end and say why it came: ``(cause, detail)``."""
        try:
            code = self._process.wait(timeout=_EXIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self.link.close()
        if self.doom is not None:
            return self.doom
        how = f"ended with exit code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
        what = f": {self.complaint}" if self.complaint else ""
        return "killed", f"worker process {self.pid} {how}{what}"

    def _say(self, kind: str, body: Any) -> bool:
        # Its death is noticed where it is listened to.
        with contextlib.suppress(OSError):
            self.link.send((kind, body))
            return True
        return False


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
