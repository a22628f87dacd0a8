"""Which processes a benchmark takes, in which order: pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from lagom.bench.arms import BenchArm, Kind
from lagom.bench.request import Request
from lagom.bench.store import BenchRecord

#: After so many failures of one thing it is not tried again.
ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Task:
    """One process to run: a tuning run of an arm, the in-job comparison of all, or one process of an arm in a round."""

    kind: Kind
    arm: BenchArm | None = None
    round: int = 0

    @property
    def name(self) -> str:
        """For the log folder's name."""
        arm = "" if self.arm is None else "".join(c if c.isalnum() else "-" for c in self.arm.name)[:40]
        return "-".join(filter(None, (self.kind.value.replace(" ", "-"), arm, f"{self.round:02d}")))


def tasks(request: Request) -> Iterator[Task]:
    """Everything, most telling first: what tuning finds, then the comparison that needs it, then processes."""
    for arm in request.of(Kind.TUNING):
        yield Task(Kind.TUNING, arm)
    if request.compares_in_job:
        for number in range(request.jobs):
            yield Task(Kind.IN_JOB, None, number)
    for number in range(request.rounds if request.of(Kind.PROCESS) else 0):
        yield from _round(request, number)


def _round(request: Request, number: int) -> Iterator[Task]:
    """Every process arm once, stock twice, in an order of this round's own."""
    arms = list(request.of(Kind.PROCESS))
    arms += [arm for arm in arms if arm.name == "own:stock"]
    random.Random(f"{request.seed} {number}").shuffle(arms)
    yield from (Task(Kind.PROCESS, arm, number) for arm in arms)


def left(request: Request, record: BenchRecord) -> list[Task]:
    """The tasks that the record has no run for. What failed :data:`ATTEMPTS` times is not tried again."""
    done: dict[tuple[str, str, int], int] = {}
    failed: dict[tuple[str, str], int] = {}
    for run in record.runs:
        if run.failed or run.is_partial:
            failed[run.kind, run.arm] = failed.get((run.kind, run.arm), 0) + 1
        else:
            key = (run.kind, run.arm, run.round)
            done[key] = done.get(key, 0) + 1
    waiting = []
    for task in tasks(request):
        name = "" if task.arm is None else task.arm.name
        key = (task.kind.value, name, task.round)
        if done.get(key, 0) > 0:
            done[key] -= 1
        elif failed.get((task.kind.value, name), 0) < ATTEMPTS:
            waiting.append(task)
    return waiting
