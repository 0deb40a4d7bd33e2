"""Hands fleet events from one program's dispatcher to the other program's worker.

Both bridges keep one process of the other program alive, and speak JSON lines with it.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sweep.fleet.transport import Delivery, Envelope, Limits, Lost, Submission

# The peer's worker behind one event a line, by the keyword arguments that its functions take.
_PEER_WORKER = """
import json, sys
from zagg.sweep_stages import run_stage_finisher, run_stage_worker
STAGE = ("run_id", "run_started", "dispatch", "nodes", "batch", "tuple_width", "child_order",
         "partition", "records_from", "lease_ttl_s", "unit", "window", "pipeline_run_id")
FINISHER = ("run_id", "records_from", "touch_policy", "barrier_timed_out", "short_orders",
            "lease_ttl_s", "pipeline_run_id")
for line in sys.stdin:
    event = json.loads(line)
    stage = event["stage"]
    leaves = [(word, window) for word, window in event["leaves"]]
    names = STAGE if stage["role"] == "stage" else FINISHER
    run = run_stage_worker if stage["role"] == "stage" else run_stage_finisher
    try:
        run(event["store_path"], leaves, **{name: stage[name] for name in names if name in stage})
        answer = {"ok": True}
    except Exception as error:
        answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    print("ANSWER " + json.dumps(answer), flush=True)
"""

# Our worker behind one event a line.
_OUR_WORKER = """
import json, sys
from sweep.fleet.opening import Opener
from sweep.stage.batch import Worker
from sweep.stage.worker import handle_event
from sweep.system import system_runtime
worker = Worker(runtime=system_runtime(), open_store=Opener())
for line in sys.stdin:
    answer = handle_event(json.loads(line), worker)
    print("ANSWER " + json.dumps(dict(answer.body)), flush=True)
"""

# The peer's dispatcher with a client that hands each payload to our worker.
_PEER_DISPATCHER = """
import io, json, subprocess, sys
from zagg.sweep import discover_leaves
from zagg.sweep_fleet import run_stage_sweep_fleet
root, python, worker, options = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
child = subprocess.Popen([python, "-c", worker], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
answers = []
class Client:
    def invoke(self, **request):
        payload = request["Payload"]
        text = payload.decode() if isinstance(payload, bytes) else payload
        child.stdin.write(json.dumps(json.loads(text)) + "\\n")
        child.stdin.flush()
        line = child.stdout.readline()
        while not line.startswith("ANSWER "):
            assert line, "our worker ended"
            line = child.stdout.readline()
        answers.append(json.loads(line[7:]))
        return {"StatusCode": 202, "Payload": io.BytesIO(b""), "ResponseMetadata": {"HTTPStatusCode": 202}}
leaves = [tuple(ref) for ref in options.pop("leaves")]
summary = run_stage_sweep_fleet(
    Client(), "worker", root, leaves, store_kwargs={}, poll_interval_s=0.05, **options
)
child.stdin.close()
child.wait(60)
print(json.dumps({"summary": summary, "answers": answers}, default=str))
"""


class PeerWorkerTransport:
    """A transport whose worker is the peer's: events run one after another, in its process."""

    name = "peer"

    def __init__(self, python: Path) -> None:
        self.limits = Limits(workers=1)
        self.errors: list[str] = []
        self._child = subprocess.Popen(
            [str(python), "-W", "ignore", "-c", _PEER_WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, envelopes: Sequence[Envelope]) -> list[Submission]:
        return [self._run(envelope) for envelope in envelopes]

    def _run(self, envelope: Envelope) -> Submission:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(envelope.payload.decode() + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        while line and not line.startswith("ANSWER "):
            line = self._child.stdout.readline()
        answer = json.loads(line.removeprefix("ANSWER ") or '{"ok": false, "error": "the peer ended"}')
        if not answer["ok"]:
            self.errors.append(answer["error"])
        return Submission(key=envelope.key, delivery=Delivery.ACCEPTED)

    def lost(self) -> list[Lost]:
        return []

    def pending(self) -> int:
        return 0

    def close(self, *, cancel: bool = False) -> None:
        if self._child.stdin is not None:
            self._child.stdin.close()
        self._child.wait(60)
        if self._child.stdout is not None:
            self._child.stdout.close()


def peer_dispatches(python: Path, root: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Let the peer's dispatcher drive our worker over a store; its summary and our answers."""
    done = subprocess.run(
        [
            str(python),
            "-W",
            "ignore",
            "-c",
            _PEER_DISPATCHER,
            str(root),
            sys.executable,
            _OUR_WORKER,
            json.dumps(options),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
