# SPDX-License-Identifier: Apache-2.0
"""Runs an experiment: the schedule's next process, its samples to disk; until all is done or the time is up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from lagom.experiment.arm import Task
from lagom.experiment.diagnosis import why_no_more
from lagom.experiment.request import Request
from lagom.experiment.store import ExperimentRecord, Record, RunRecord, Store
from lagom.experiment.trial import Say, run_task

RunOne = Callable[[Request, Task, Store[Any], float | None, Say], RunRecord]
Samples = TypeVar("Samples", bound=ExperimentRecord, contravariant=True)


@dataclass(frozen=True, slots=True)
class NextTask:
    """The process that comes next, with a ``request`` of its own. With less than ``least_seconds`` left it is not
    started. ``waiting``: how many are still wanted, this one among them. ``text``: is said as it starts. ``why_not``: a
    sentence where no more are to be started."""

    task: Task
    request: Request
    least_seconds: float
    waiting: int
    text: str = ""
    why_not: str = ""


class TaskSchedule(Protocol[Samples]):
    """Which process comes next, by the samples so far."""

    def next_task(self, record: Samples) -> NextTask | None:
        """None: nothing more is wanted."""

    def progress(self, record: Samples, ended: RunRecord | None, coming: NextTask | None) -> Iterable[str]:
        """Sentences between two processes, after :meth:`next_task`. ``ended``: None before the first one."""


@dataclass(slots=True)
class Clock:
    """The time limit of all processes, in seconds; None: there is none. ``used``: of it, before this clock began.
    ``simulated``: what each process counts of it, so that a simulated job's experiment does not depend on what else the
    machine does."""

    limit: float | None
    used: float = 0.0
    simulated: float | None = None
    processes: int = 0
    began: float = field(default_factory=lambda: time.monotonic())

    def left(self) -> float | None:
        """Seconds; below 0 where the limit was exceeded."""
        spent = self.used + time.monotonic() - self.began
        spent = spent if self.simulated is None else self.simulated * self.processes
        return None if self.limit is None else self.limit - spent

    def exceeded(self, coming: NextTask) -> str:
        """A sentence, if too little is left for a process. The same command helps only if the limit is enough for
        one."""
        left, needed = self.left(), coming.least_seconds
        if self.limit is None or left is None or left >= needed:
            return ""
        if not self.processes and not self.used and self.limit >= needed:  # moments after the start; as at each call
            return ""
        clock = "time" if self.simulated is None else "simulated time"
        what = f"{clock} limit reached, processes left: {coming.waiting}"
        if self.limit < needed:
            least = math.ceil(needed)
            return f"{what}; the next one needs at least {least} s: use --budget {least} or more."
        return f"{what}; the same command continues."


def run_schedule(
    schedule: TaskSchedule[Record], store: Store[Record], clock: Clock, say: Say, run_one: RunOne | None = None
) -> None:
    """Run what is left, and say how it goes. ``run_one``: runs a process otherwise than here alone."""
    ended: RunRecord | None = None
    while True:
        coming = schedule.next_task(store.record)
        for line in schedule.progress(store.record, ended, coming):
            say(line)
        if coming is None:
            return
        if why := why_no_more(store.record.runs) or coming.why_not or clock.exceeded(coming):
            say(why)
            return
        store.check_room()
        if coming.text:
            say(coming.text)
        seconds = clock.left() if clock.simulated is None else None
        ended = (run_one or run_task)(coming.request, coming.task, store, seconds, say)
        store.add(ended)
        clock.processes += 1
