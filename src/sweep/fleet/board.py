"""What a dispatcher knows of every batch that it fired, and what to do next about each.

Pure but for its own state: it is told what was seen, and answers with actions. The thin
caller fires, lists and waits.

Source: semantics 12.5-12.6, and the second chances beyond it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sweep.control.records import Failure
from sweep.model.invocation import failure_name, record_name
from sweep.plan.packing import Batch

__all__ = ["Board", "Task"]

type Status = Literal["queued", "fired", "done", "given-up"]


@dataclass(slots=True, kw_only=True, eq=False)
class Task:
    """One batch and its tries.

    ``number`` is the batch number of its record; ``due_at`` the monotonic moment at which an
    attempt without a word counts as lost; ``not_before`` the earliest next try; ``heard`` the
    last attempt whose failure was taken note of.
    """

    number: int
    batch: Batch
    attempt: int = 1
    status: Status = "queued"
    due_at: float | None = None
    not_before: float = 0.0
    error: str = ""
    heard: int = 0

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
        self._in_key_order = sorted(self._by_record)
        self._n_passed = 0
        self.retries = 0
        self.next_number = first_number + len(self.tasks)

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

    def first_missing(self) -> str | None:
        """The first record name, in key order, of a batch that is not done.

        Key order is that of text: the record of batch 10,000 comes before that of 1,001.
        """
        names = self._in_key_order
        while self._n_passed < len(names) and self._by_record[names[self._n_passed]].status == "done":
            self._n_passed += 1
        return names[self._n_passed] if self._n_passed < len(names) else None

    def see_records(self, names: Iterable[str]) -> None:
        """Records that stand: their batches are done, whatever else was heard of them."""
        for name in names:
            task = self._by_record.get(name)
            if task is not None:
                task.status = "done"

    def hear(self, failure: Failure, now: float) -> None:
        """A worker's word on an attempt that failed."""
        task = self._by_record.get(record_name(failure.dispatch, failure.batch))
        if task is None or not task.is_open or not task.is_meant(failure) or task.heard >= task.attempt:
            return
        task.heard = task.attempt
        task.error = f"{failure.error_class}: {failure.error}"
        if failure.reaction == "refused":
            task.status = "given-up"
        elif failure.reaction == "split":
            self.shrink(task, now, left=failure.remaining)
        else:
            self.try_again(task, now, task.error)

    def lose(self, task: Task, now: float, why: str, *, is_too_big: bool) -> None:
        """A worker that is known to be dead; smaller next time, where size was what killed it."""
        task.error = why
        if is_too_big:
            self.shrink(task, now, left=task.batch.nodes())
        else:
            self.try_again(task, now, why)

    def shrink(self, task: Task, now: float, *, left: Collection[str]) -> None:
        """Fire the nodes that are left in smaller batches, under new numbers.

        What an attempt did of its batch stands in a record of another name (see
        :func:`~sweep.model.invocation.partial_name`), so the batch counts as done in part.
        """
        if task.batch.n_nodes == 1:
            self.try_again(task, now, task.error)
            return
        # A word that names none of its nodes says nothing of what is done.
        pieces = _pieces(task.batch, left) or task.batch.halves()
        n_left = sum(piece.n_nodes for piece in pieces)
        is_last = task.attempt >= self._attempts
        for piece in pieces:
            self._add(
                Task(
                    number=self.next_number,
                    batch=piece,
                    attempt=task.attempt if is_last else task.attempt + 1,
                    status="given-up" if is_last else "queued",
                    not_before=now,
                    error=task.error,
                )
            )
            self.retries += not is_last
        if n_left < task.batch.n_nodes:
            task.status = "done"
        else:
            self._remove(task)

    def _add(self, task: Task) -> None:
        self.tasks.append(task)
        self.next_number += 1
        self._by_record[task.record] = task
        self._in_key_order, self._n_passed = sorted(self._by_record), 0

    def _remove(self, task: Task) -> None:
        self.tasks.remove(task)
        del self._by_record[task.record]
        self._in_key_order, self._n_passed = sorted(self._by_record), 0

    def try_again(self, task: Task, now: float, why: str, *, wait_s: float = 0.0) -> None:
        """Fire a batch once more, unless it has had its tries."""
        task.error = why
        if task.attempt >= self._attempts:
            task.status = "given-up"
            return
        task.attempt += 1
        self.retries += 1
        self.put_off(task, now, why, wait_s=wait_s)

    def put_off(self, task: Task, now: float, why: str, *, wait_s: float) -> None:
        """Queue the same attempt for later: nobody has begun it."""
        task.error = why
        task.status = "queued"
        task.not_before = now + wait_s

    def doubt(self, task: Task, now: float, why: str, *, due_at: float | None, wait_s: float) -> None:
        """An attempt that may have been taken: fire again, or wait for it where it was the last."""
        if task.attempt < self._attempts:
            self.try_again(task, now, why, wait_s=wait_s)
        else:
            task.error, task.status, task.due_at = why, "fired", due_at

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


def _pieces(batch: Batch, left: Collection[str]) -> tuple[Batch, ...]:
    """The nodes of a batch that are left, cut in two batches of the same fan-out."""
    wanted = frozenset(left)
    keep = np.zeros(batch.fan_out.n_nodes, dtype=np.bool_)
    keep[batch.start : batch.stop] = [node in wanted for node in batch.nodes()]
    rest = batch.fan_out.subset(keep)
    whole = Batch(fan_out=rest, start=0, stop=rest.n_nodes, discover=batch.discover)
    if whole.n_nodes < 2:
        return (whole,) if whole.n_nodes else ()
    return whole.halves()
