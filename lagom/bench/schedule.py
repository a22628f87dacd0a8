# SPDX-License-Identifier: Apache-2.0
"""Which processes a benchmark takes, in which order: pure."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lagom.bench.results import OWN_STOCK, SWEEPS, TUNING, BenchRecord
from lagom.experiment.arm import Kind, Task, TrialArm
from lagom.experiment.log_extract import arms_of_search
from lagom.experiment.request import Request
from lagom.experiment.runner import NextTask
from lagom.experiment.store import RunRecord, Store
from lagom.experiment.trial import CLOSE, LEAST_SECONDS
from lagom.format import format_count
from lagom.search.statistics import fewest_pairs

#: Fewer pairs with stock give no 95 % interval.
LEAST_PAIRS = fewest_pairs(0.05 / 2)
PAIRS_A_CYCLE = 2
#: After so many failures of one thing it is not tried again.
ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class BenchSchedule:
    """``arms`` compared in a fixed order; numbers are minima of trust, not of time. ``cycles``: of the comparison
    within a job, two pairs an arm each. ``jobs``: how often that is done in a new job. ``rounds``: processes of each
    arm that needs its own."""

    request: Request
    arms: tuple[TrialArm, ...]
    cycles: int = 8
    jobs: int = 1
    rounds: int = 6

    def of(self, kind: Kind) -> tuple[TrialArm, ...]:
        """The arms of one kind."""
        return tuple(arm for arm in self.arms if arm.kind is kind)

    @property
    def compares_in_job(self) -> bool:
        """Whether there is anything to alternate with stock: an arm, or what a tuning run may find."""
        return len(self.of(Kind.IN_JOB)) > 1 or bool(self.of(Kind.TUNING)) or not self.of(Kind.PROCESS)

    @property
    def measure(self) -> str:
        """Of the processes of arms that need their own: by wall time where one has no plugin and there is no metric."""
        has_calls = all(arm.plugin for arm in self.of(Kind.PROCESS))
        return self.request.measure if self.request.metric or has_calls else "wall"

    def open_store(self) -> Store[BenchRecord]:
        """The samples so far; raises :class:`BadRecord`."""
        names = [arm.name for arm in self.arms]
        return Store(self.request, BenchRecord, arms=names, communicators=self.request.communicators)

    def next_task(self, record: BenchRecord) -> NextTask | None:
        """The first of what is left."""
        if not (waiting := left(self, record)):
            return None
        task = waiting[0]
        if task.kind is Kind.IN_JOB:  # the arms asked for, and those that tuning found
            asked = [arm.wish for arm in self.of(Kind.IN_JOB) if arm.wish is not None]
            found = [wish for run in record.runs_of(TUNING) for wish in arms_of_search(run)]
            task = replace(task, wishes=(*asked, *found))
        text = f"{_task_text(task)} (processes left: {len(waiting)})"
        return NextTask(task, replace(self.request, by=self.measure), _needs(task, record), len(waiting), text)

    def progress(self, record: BenchRecord, ended: RunRecord | None, coming: NextTask | None) -> Iterator[str]:
        """What the process has given that has ended."""
        if ended is not None:
            yield f"  {_result_text(ended)}"


def tasks(schedule: BenchSchedule) -> Iterator[Task]:
    """Everything, most informative first: what tuning finds, then the comparison that needs it, then processes."""
    for arm in schedule.of(Kind.TUNING):
        yield Task(Kind.TUNING, arm)
    if schedule.compares_in_job:
        for number in range(schedule.jobs):
            yield Task(Kind.IN_JOB, None, number, schedule.cycles)
    for number in range(schedule.rounds if schedule.of(Kind.PROCESS) else 0):
        arms = list(schedule.of(Kind.PROCESS))
        arms += [arm for arm in arms if arm.name == OWN_STOCK]
        random.Random(f"{schedule.request.seed} {number}").shuffle(arms)  # an order of this round's own
        yield from (Task(Kind.PROCESS, arm, number) for arm in arms)


def left(schedule: BenchSchedule, record: BenchRecord) -> list[Task]:
    """What is still wanted of :func:`tasks`. What failed :data:`ATTEMPTS` times is not tried again; what was cut off
    is, however often."""
    failed = Counter((run.kind, run.arm) for run in record.runs if run.failed)
    done = Counter((run.kind, run.arm, run.round) for run in record.runs if not run.failed and not run.is_partial)
    waiting = []
    for task in tasks(schedule):
        key = (task.kind.value, task.arm_name, task.round)
        if failed[key[:2]] >= ATTEMPTS:
            continue
        if task.kind is Kind.IN_JOB:
            missing = task.cycles - _cycles_done(schedule, record, task.round)
            waiting += [replace(task, cycles=missing)] if missing > 0 else []
        elif done[key] > 0:
            done[key] -= 1
        else:
            waiting.append(task)
    return waiting


def _cycles_done(schedule: BenchSchedule, record: BenchRecord, number: int) -> int:
    """Of the comparison within job ``number``, over all the processes that it took."""
    return sum(_cycles_of(run, schedule) for run in record.runs_of(Kind.IN_JOB.value) if run.round == number)


def _cycles_of(run: RunRecord, schedule: BenchSchedule) -> int:
    """One that came to its end stands for all it was asked for, or a short job would be run for ever; one that was cut
    off, or failed, for its windows of stock: every cycle holds one."""
    if run.failed or run.is_partial:
        return sum(window.arm == "stock" for window in run.windows) // schedule.request.communicators
    return schedule.cycles if run.cycles is None else run.cycles


def _needs(task: Task, record: BenchRecord) -> float:
    """What a process of this kind takes, as far as one was run."""
    like = [run.seconds for run in record.runs_of(task.kind.value) if not run.failed and not run.is_partial]
    return max(LEAST_SECONDS, CLOSE * statistics.median(like)) if like else LEAST_SECONDS


# -- for the one who waits


ENDS = {
    "metric": "each is ended after {samples} steady samples of the metric",
    "calls": "each is ended after {samples} steady samples of its NCCL call rate (with --metric, of the job's own "
    "number)",
    "wall": "each runs to its own end and is compared by the wall time of the job's command, its start-up included and "
    "lagom's not, since an arm runs without the plugin and there is no --metric. With --metric 'step time: ([0-9.]+)', "
    "or whatever the job prints, each would end after {samples} steady samples",
}


def _too_few(schedule: BenchSchedule) -> Iterator[str]:
    """What ends without an interval, however long it takes."""
    cycles, names = schedule.cycles * schedule.jobs, {arm.name for arm in schedule.arms}
    in_job = [("an arm within one job", 1)] if schedule.compares_in_job else []
    in_job += [(f"the best of {word}", 2) for word in SWEEPS if word in names]  # one half of its windows chooses it
    for what, share in in_job:
        if (pairs := PAIRS_A_CYCLE * (cycles // share)) < LEAST_PAIRS:
            enough = math.ceil(LEAST_PAIRS / PAIRS_A_CYCLE * share / schedule.jobs)
            yield _fewer("cycles", schedule.cycles, what, pairs, enough)
    if schedule.of(Kind.PROCESS) and schedule.rounds < LEAST_PAIRS:
        what = "an arm in processes of its own"
        yield _fewer("rounds", schedule.rounds, what, schedule.rounds, LEAST_PAIRS)


def _fewer(option: str, given: int, what: str, pairs: int, enough: int) -> str:
    have = f"--{option} {given} gives {what} {format_count(pairs, 'pair')} with stock"
    return f"warning: {have}, and {LEAST_PAIRS} are needed to compare them: use --{option} {enough} or more."


def preview(schedule: BenchSchedule) -> Iterator[str]:
    """A sentence on the processes that arms of their own take, and one on each arm that would come to nothing."""
    yield from _too_few(schedule)
    arms = schedule.of(Kind.PROCESS)
    if not arms:
        return
    number = sum(task.kind is Kind.PROCESS for task in tasks(schedule))
    named = ", ".join(arm.name for arm in arms)
    rounds = f"{format_count(schedule.rounds, 'round')}, stock twice in each"
    ends = ENDS[schedule.measure].format(samples=schedule.request.samples)
    yield f"{number} processes of the job for {named} ({rounds}): {ends}."
    for name in (arm.name for arm in arms if arm.tunes and schedule.measure == "wall"):
        yield f"{name} tunes, and its wall time would include the search: it gives no result without --metric."


def _task_text(task: Task) -> str:
    if task.kind is Kind.IN_JOB:
        return f"comparing the arms within one job, {format_count(task.cycles, 'cycle')}"
    assert task.arm is not None
    if task.kind is Kind.TUNING:
        return f"tuning with {task.arm.name}"
    return f"round {task.round + 1}: {task.arm.name}"


def _result_text(run: RunRecord) -> str:
    took = f"{run.seconds:.0f} s"
    if run.failed:
        why = "; ".join(filter(None, (run.last_line, run.reason)))
        return f"failed with {run.exit} after {took} ({run.ended}): {why}"
    if run.windows:
        return f"{len(run.windows)} windows in {took}"
    if run.outcome is not None and run.value is None:
        return f"{run.outcome['verdict'].replace('_', ' ')}: {run.outcome['configs']} configs in {took}"
    if run.value is None:
        why = next(filter(None, (run.reason, *run.notes)), "")
        return f"nothing could be measured in {took}" + (f": {why}" if why else "")
    return f"{run.value:.6g} by {run.measure} in {took}"
