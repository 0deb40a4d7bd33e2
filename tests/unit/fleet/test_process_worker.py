"""What a worker process tells the sweep's worker of its time, its keys and itself."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import sweep.fold.kernels
import sweep.stage.worker
from sweep.errors import DeclarationError
from sweep.fleet._process_worker import Seat, WorkerSettings, sweep_handler
from sweep.stage.batch import STOP_MARGIN_S, Worker
from sweep.store.open import StoreOptions


class Caught:
    """Stands for the worker's door and keeps what came through it."""

    def __init__(self) -> None:
        self.event: object = None
        self.worker: Worker | None = None

    def __call__(self, event: object, worker: Worker) -> None:
        self.event, self.worker = event, worker


def seat(run_s: float | None = None) -> Seat:
    options = pickle.dumps(StoreOptions(region="eu-west-1"))
    return Seat(WorkerSettings(handler="", options=options, run_s=run_s, log_level=0))


def worker_on(place: Seat, monkeypatch: pytest.MonkeyPatch) -> Worker:
    caught = Caught()
    monkeypatch.setattr(sweep.stage.worker, "handle_event", caught)
    monkeypatch.setattr(sweep.fold.kernels, "warm", lambda: None)
    handle = sweep_handler(place)
    place.begin()
    handle(b'{"mode": "sweep"}')
    assert caught.event == {"mode": "sweep"}
    assert caught.worker is not None
    return caught.worker


def remaining(worker: Worker) -> float:
    assert worker.remaining_s is not None
    return worker.remaining_s()


def test_without_a_limit_there_is_always_time(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = worker_on(seat(), monkeypatch)
    assert remaining(worker) == float("inf")
    assert not worker.is_out_of_time()


def test_a_long_limit_keeps_the_whole_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remaining(worker_on(seat(900), monkeypatch)) == pytest.approx(900, abs=5)


def test_a_short_limit_gives_a_quarter_of_itself_to_the_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of 20 s, the last 5 are for a clean stop: out of time is when STOP_MARGIN_S seem to be left.
    worker = worker_on(seat(20), monkeypatch)
    assert remaining(worker) - STOP_MARGIN_S == pytest.approx(15, abs=3)
    assert not worker.is_out_of_time()


def test_a_worker_that_is_told_to_stop_is_out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for run_s in (None, 20, 900):
        place = seat(run_s)
        worker = worker_on(place, monkeypatch)
        place.stopping.set()
        assert worker.is_out_of_time()


def test_a_worker_names_itself_and_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = worker_on(seat(), monkeypatch)
    assert worker.request_id == f"process-{os.getpid()}-1"
    assert worker.rss_mb is not None
    assert worker.rss_mb() > 10


def test_a_worker_opens_no_store_of_another_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worker = worker_on(seat(), monkeypatch)
    assert worker.open_store(str(tmp_path), None).root
    with pytest.raises(DeclarationError, match="inline transport"):
        worker.open_store("memory://elsewhere", None)
