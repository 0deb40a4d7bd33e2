"""Worker processes that are killed, grow, hang, print, or lose their dispatcher."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.reference import ReferenceStore
from tests.support.compare import compare_objects, node_objects
from tests.support.waves import drained, run_waves

from sweep.control.lease import LEASE_KEY
from sweep.errors import AccessError, DeclarationError
from sweep.fleet._memory import resident_mb
from sweep.fleet.processes import ProcessesTransport
from sweep.fleet.transport import Delivery, Envelope
from sweep.model.invocation import status_prefix
from sweep.testing.recording import Notes
from sweep.testing.waiting import eventually

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
RECORDER = "sweep.testing.recording:recorder"

type Make = Callable[..., ProcessesTransport]


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[ProcessesTransport] = []

    def build(n_workers: int = 1, *, handler: str = RECORDER, **options: float) -> ProcessesTransport:
        transport = ProcessesTransport(n_workers, handler=handler, **options)  # type: ignore[arg-type]
        transport.stop_grace_s = 0.1
        made.append(transport)
        return transport

    yield build
    for transport in made:
        transport.close(cancel=True)


def send(transport: ProcessesTransport, notes: Notes, name: str, do: str | None = None) -> None:
    (outcome,) = transport.submit([Envelope(key=name, payload=notes.event(name, do))])
    assert outcome.delivery is Delivery.ACCEPTED


def pid_of(notes: Notes, name: str) -> int:
    """The process that an event reached."""
    return eventually(lambda: notes.pids(name))[0]


def test_a_worker_that_holds_too_much_memory_is_killed(make: Make, notes: Notes) -> None:
    transport = make(memory_mb=150)
    send(transport, notes, "grows", "grow")
    (lost,) = eventually(transport.lost)
    assert (lost.key, lost.cause) == ("grows", "memory")
    assert "150 MiB" in lost.detail
    send(transport, notes, "next")
    eventually(lambda: notes.is_done("next"))


def test_a_worker_that_runs_too_long_is_killed(make: Make, notes: Notes) -> None:
    transport = make(run_s=0.3)
    assert transport.limits.run_s == 0.3
    send(transport, notes, "hangs", "hold")
    (lost,) = eventually(transport.lost)
    assert (lost.key, lost.cause) == ("hangs", "time")
    assert "0.3 s" in lost.detail


def test_a_worker_that_ends_an_event_near_its_limit_makes_room(make: Make, notes: Notes) -> None:
    transport = make()
    send(transport, notes, "first")
    first = pid_of(notes, "first")
    held = resident_mb(first)
    assert held is not None
    eventually(lambda: transport.pending() == 0)
    send(transport, notes, "second")
    assert pid_of(notes, "second") == first

    tight = make(memory_mb=int(held * 1.2))
    send(tight, notes, "third")
    third = pid_of(notes, "third")
    eventually(lambda: tight.pending() == 0)
    send(tight, notes, "fourth")
    assert pid_of(notes, "fourth") != third
    assert tight.lost() == []


def test_workers_run_side_by_side(make: Make, notes: Notes) -> None:
    transport = make(2)
    for name in ("one", "two", "three"):
        send(transport, notes, name, "hold")
    eventually(lambda: notes.pids("one") and notes.pids("two"))
    assert pid_of(notes, "one") != pid_of(notes, "two")
    assert notes.seen("three") == []
    assert transport.pending() == 3
    notes.release("two")
    eventually(lambda: notes.seen("three"))
    notes.release("one")
    notes.release("three")
    eventually(lambda: transport.pending() == 0)


def test_a_killed_idle_worker_is_replaced_and_nothing_is_lost(make: Make, notes: Notes) -> None:
    transport = make()
    send(transport, notes, "before")
    first = pid_of(notes, "before")
    eventually(lambda: transport.pending() == 0)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: first not in transport.pids())
    send(transport, notes, "after")
    assert pid_of(notes, "after") != first
    eventually(lambda: transport.pending() == 0)
    assert transport.lost() == []


def test_workers_do_not_hear_ctrl_c(make: Make, notes: Notes) -> None:
    transport = make()
    send(transport, notes, "runs", "hold")
    pid = pid_of(notes, "runs")
    assert os.getpgid(pid) != os.getpgid(0)
    os.kill(pid, signal.SIGINT)
    notes.release("runs")
    eventually(lambda: notes.is_done("runs"))
    eventually(lambda: transport.pending() == 0)
    assert transport.lost() == []


def test_workers_that_cannot_start_are_given_up(make: Make, notes: Notes) -> None:
    transport = make(handler="sweep.testing.recording:no_such")
    send(transport, notes, "waits")
    (lost,) = eventually(transport.lost)
    assert (lost.key, lost.cause) == ("waits", "dropped")
    assert "no_such" in lost.detail
    assert transport.pending() == 0
    with pytest.raises(AccessError, match="no_such") as caught:
        send(transport, notes, "late")
    assert caught.value.kind == "workers-cannot-start"


@pytest.mark.parametrize(
    "options", [{"n_workers": 0}, {"memory_mb": -1}, {"run_s": 0.0}, {"n_workers": True}]
)
def test_limits_out_of_range_are_refused(options: dict[str, float]) -> None:
    (name,) = options
    with pytest.raises(DeclarationError, match=name):
        ProcessesTransport(**options)  # type: ignore[arg-type]


def test_what_workers_log_is_logged_here(make: Make, notes: Notes, caplog: pytest.LogCaptureFixture) -> None:
    transport = make()
    send(transport, notes, "talks", "speak")
    eventually(lambda: transport.pending() == 0)
    (record,) = [each for each in caplog.records if each.name == "sweep.testing.recording"]
    assert record.getMessage() == "logged by an event"
    assert record.levelno == logging.WARNING
    assert vars(record)["key"] == "talks"
    assert record.process == pid_of(notes, "talks")


# -- with a dispatcher of its own -----------------------------------------------------------

# No guard against a second run of the main module, as in a notebook.
_PROGRAM = """
import sys
sys.path.insert(0, {source!r})
from pathlib import Path
from sweep.fleet.processes import ProcessesTransport
from sweep.fleet.transport import Envelope
from sweep.testing.recording import Notes
from sweep.testing.waiting import eventually
notes = Notes(Path({folder!r}))
transport = ProcessesTransport(1, handler={handler!r})
transport.submit([Envelope(key="k", payload=notes.event("one", {do!r}))])
eventually(lambda: notes.seen("one"))
{rest}
"""


def program(notes: Notes, do: str, rest: str) -> str:
    return _PROGRAM.format(source=SOURCE, folder=str(notes.folder), handler=RECORDER, do=do, rest=rest)


def test_a_program_without_a_guard_keeps_its_standard_output_to_itself(notes: Notes) -> None:
    done = subprocess.run(
        [sys.executable, "-"],
        input=program(notes, "speak", "transport.close(); print('{}')"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}
    assert "printed by one" in done.stderr
    assert notes.is_done("one")


@pytest.mark.parametrize("do", ["speak", "hold"], ids=["idle", "in the middle of an event"])
def test_workers_do_not_outlive_a_killed_dispatcher(notes: Notes, do: str) -> None:
    rest = "sys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program(notes, do, rest)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as dispatcher:
        assert dispatcher.stdout is not None
        assert dispatcher.stdout.readline() == "ready\n"
        dispatcher.kill()
    worker = pid_of(notes, "one")
    # The handler ends its event; a sweep would end the node in hand.
    notes.release("one")
    eventually(lambda: resident_mb(worker) in (None, 0.0))


# -- with the sweep itself --------------------------------------------------------------------


def test_a_batch_whose_worker_was_killed_can_be_fired_again(reference_store: ReferenceStore) -> None:
    root = reference_store("kitchen_sink", "pre")
    with closing(ProcessesTransport(1)) as transport:
        resend = drained(transport)
        killed: list[str] = []

        def send(wave: list[Envelope]) -> None:
            transport.submit(wave)
            if not killed:
                lease = root / LEASE_KEY
                eventually(lease.exists, timeout_s=60, poll_s=0.0005)
                pid = transport.pids()[0]
                os.kill(pid, signal.SIGKILL)
                (lost,) = eventually(transport.lost)
                assert lost.cause == "killed"
                assert "SIGKILL" in lost.detail
                killed.append(lost.key)
                (again,) = [each for each in wave if each.key == lost.key]
                resend([again])
            eventually(lambda: transport.pending() == 0, timeout_s=60)
            assert transport.lost() == []

        run_waves(root, send)
    assert len(killed) == 1
    assert list(Path(status_prefix(str(root), "stage-by-hand")).glob("error-*")) == []
    expected = node_objects(reference_store("kitchen_sink", "post"))
    assert compare_objects(expected, node_objects(root), same_runs=True) == []
