"""A handler that writes down what reached it, and misbehaves on cue: what transports are tested with.

An event for it is an object with these keys, and any others:

``folder``
    Where it keeps its notes; each delivery leaves one file there.
``id``
    The name under which they are found.
``do``
    ``hold`` waits for :meth:`Notes.release`, ``die`` kills the process, ``raise`` raises,
    ``grow`` takes memory until it is stopped, ``speak`` prints and logs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Notes", "record", "recorder"]

log = logging.getLogger("sweep.testing.recording")

_POLL_S = 0.005
_HOLD_S = 60.0
_CHUNK_BYTES = 8 * 1024 * 1024


def recorder(_seat: object) -> Callable[[bytes], None]:
    """The factory that a pool of processes asks for: ``sweep.testing.recording:recorder``."""
    return record


def record(payload: bytes) -> None:
    """Note the event, then do what it says."""
    event = json.loads(payload)
    folder = Path(event["folder"])
    note = f"{event['id']}.{os.getpid()}.{uuid.uuid4().hex}"
    (folder / f"{note}.tmp").write_bytes(payload)
    (folder / f"{note}.tmp").replace(folder / f"{note}.seen")
    match event.get("do"):
        case "hold":
            _wait_for(folder / f"{event['id']}.release")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise RuntimeError(f"event {event['id']} asked for it")
        case "grow":
            _grow()
        case "speak":
            print(f"printed by {event['id']}")  # noqa: T201  what libraries do
            sys.stdout.flush()
            log.warning("logged by an event", extra={"event": "spoken", "key": event["id"]})
    # The folder goes with the test, which need not wait for an event that it cancelled.
    with contextlib.suppress(FileNotFoundError):
        (folder / f"{event['id']}.done").touch()


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + _HOLD_S
    while path.parent.exists() and not path.exists() and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _grow() -> None:
    held = []
    deadline = time.monotonic() + _HOLD_S
    while time.monotonic() < deadline:
        held.append(b"x" * _CHUNK_BYTES)
        time.sleep(_POLL_S)


class Notes:
    """Events for the recorder, and what it wrote down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def event(self, name: str, do: str | None = None, **more: Any) -> bytes:
        """The text of an event that is noted under ``name``."""
        return json.dumps({"folder": str(self.folder), "id": name, "do": do, **more}).encode()

    def seen(self, name: str) -> list[bytes]:
        """The payloads that arrived under ``name``."""
        return [path.read_bytes() for path in self.folder.glob(f"{name}.*.seen")]

    def pids(self, name: str) -> list[int]:
        """The processes that the event reached."""
        return [int(path.name.split(".")[1]) for path in self.folder.glob(f"{name}.*.seen")]

    def is_done(self, name: str) -> bool:
        """Whether an event was handled to its end."""
        return (self.folder / f"{name}.done").exists()

    def release(self, name: str) -> None:
        """Let the event that holds go on."""
        (self.folder / f"{name}.release").touch()
