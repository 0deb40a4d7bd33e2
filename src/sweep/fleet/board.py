"""What a dispatcher knows of every batch that it fired, and what to do next about each.

Pure but for its own state: it is told what was seen, and answers with actions. The thin
caller fires, lists and waits.

Source: semantics 12.5-12.6, and the second chances beyond it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from sweep.control.records import Failure
from sweep.model.invocation import failure_name, record_name
from sweep.model.nodes import words_of
from sweep.plan.packing import Batch

__all__ = ["Board", "Task"]

type Status = Literal["queued", "fired", "done", "given-up"]


@dataclass(slots=True, kw_only=True)
class Task:
    """One batch and its tries.

    ``number`` is the batch number of its record; ``due_at`` the monotonic moment at which an
    attempt without a word counts as lost; ``not_before`` the earliest next try.
    """

    number: int
    batch: Batch
    attempt: int = 1
    status: Status = "queued"
    due_at: float | None = None
    not_before: float = 0.0
    error: str = ""
    heard: set[str] = field(default_factory=set)

    @property
    def dispatch(self) -> int:
        return self.batch.fan_out.order_tuple.dispatch_order

    @property
    def record(self) -> str:
        return record_name(self.dispatch, self.number)

    @property
    def failure(self) -> str:
        return failure_name(self.dispatch, self.number, self.attempt)

    @property
    def key(self) -> str:
        """The envelope's name of the present attempt."""
        return f"{self.dispatch:02d}-{self.number:04d}-{self.attempt}"

    def is_meant(self, failure: Failure) -> bool:
        """Whether a failure speaks of the present attempt at this very share."""
        fan_out = self.batch.fan_out
        return (failure.attempt, failure.unit, failure.window) == (self.attempt, fan_out.unit, fan_out.window)

    @property
    def is_open(self) -> bool:
        return self.status in ("queued", "fired")


class Board:
    """The batches of one tuple's units, or of its closes.

    Parameters
    ----------
    batches : iterable of Batch
    first_number : int
        The batch number of the first; the others follow.
    attempts : int
        Times that one batch may be fired.
    """

    def __init__(self, batches: Iterable[Batch], *, first_number: int, attempts: int) -> None:
        self._attempts = attempts
        self.tasks = [Task(number=first_number + place, batch=batch) for place, batch in enumerate(batches)]
        self._by_record = {task.record: task for task in self.tasks}
        self.retries = 0

    @property
    def next_number(self) -> int:
        return max((task.number + 1 for task in self.tasks), default=0)

    def open_tasks(self) -> Iterator[Task]:
        return (task for task in self.tasks if task.is_open)

    def ready(self, now: float) -> list[Task]:
        """Tasks to be fired now."""
        return [task for task in self.tasks if task.status == "queued" and task.not_before <= now]

    def n_done(self) -> int:
        return sum(task.status == "done" for task in self.tasks)

    def given_up(self) -> list[Task]:
        return [task for task in self.tasks if task.status == "given-up"]

    def find(self, key: str) -> Task | None:
        """The task whose present attempt an envelope's name means."""
        return next((task for task in self.tasks if task.key == key), None)

    def see_records(self, names: Iterable[str]) -> None:
        """Records that stand: their batches are done, whatever else was heard of them."""
        for name in names:
            task = self._by_record.get(name)
            if task is not None:
                task.status = "done"

    def hear(self, failure: Failure, now: float) -> None:
        """A worker's word on an attempt that failed."""
        task = self._by_record.get(record_name(failure.dispatch, failure.batch))
        if task is None or not task.is_meant(failure) or not self._is_news(task, failure):
            return
        task.error = f"{failure.error_class}: {failure.error}"
        left = set(failure.remaining)
        if failure.reaction == "refused":
            task.status = "given-up"
        elif failure.reaction == "split" and task.batch.n_nodes > 1:
            self._split(task, left, now)
        elif task.is_open:
            self.try_again(task, now, task.error)

    def _is_news(self, task: Task, failure: Failure) -> bool:
        if task.failure in task.heard or task.status == "given-up":
            return False
        task.heard.add(task.failure)
        # A batch whose record stands is done, unless its worker says what it left.
        return task.status != "done" or (failure.reaction == "split" and bool(failure.remaining))

    def _split(self, task: Task, left: set[str], now: float) -> None:
        """Fire what is left in smaller batches under new numbers; the record holds the rest."""
        done = task.batch.n_nodes - len(left)
        if task.attempt >= self._attempts:
            task.status = "given-up"
            return
        task.status = "done" if done else "given-up"
        for piece in _pieces(task.batch, left):
            fresh = Task(number=self.next_number, batch=piece, attempt=task.attempt + 1, not_before=now)
            fresh.error = task.error
            self.tasks.append(fresh)
            self._by_record[fresh.record] = fresh
            self.retries += 1
        if not done:
            self.tasks.remove(task)
            del self._by_record[task.record]

    def try_again(self, task: Task, now: float, why: str, *, wait_s: float = 0.0) -> None:
        """Fire a batch once more, unless it has had its tries."""
        task.error = why
        if task.attempt >= self._attempts:
            task.status = "given-up"
            return
        task.attempt += 1
        task.status = "queued"
        task.not_before = now + wait_s
        self.retries += 1

    def expire(self, now: float) -> None:
        """Attempts whose own deadline passed without a word count as lost."""
        for task in self.tasks:
            if task.status == "fired" and task.due_at is not None and now > task.due_at:
                self.try_again(task, now, "no record and no word within its time")

    def give_up_open(self, why: str) -> None:
        """End every open batch; the barrier is over."""
        for task in self.open_tasks():
            task.status = "given-up"
            task.error = task.error or why


def _pieces(batch: Batch, left: set[str]) -> Sequence[Batch]:
    """The nodes that are left, cut in two batches of the same fan-out."""
    words = words_of(sorted(left))
    keep = np.zeros(batch.fan_out.n_nodes, dtype=np.bool_)
    keep[batch.start : batch.stop] = [bool((words == word).any()) for word in batch.node_words()]
    rest = batch.fan_out.subset(keep)
    whole = Batch(fan_out=rest, start=0, stop=rest.n_nodes, discover=batch.discover)
    if whole.n_nodes < 2:
        return [whole] if whole.n_nodes else []
    return whole.halves()
