# SPDX-License-Identifier: Apache-2.0
"""Which processes a benchmark takes, in which order: pure."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from lagom.bench.results import SWEEPS, BenchRecord
from lagom.experiment.arm import Kind, Task
from lagom.experiment.request import Request
from lagom.experiment.store import RunRecord, Store, begin_record
from lagom.format import format_count
from lagom.search.statistics import fewest_pairs

#: Fewer pairs with stock give no 95 % interval.
LEAST_PAIRS = fewest_pairs(0.05 / 2)
PAIRS_A_CYCLE = 2
#: After so many failures of one thing it is not tried again.
ATTEMPTS = 2


def open_store(request: Request) -> Store[BenchRecord]:
    """The samples so far; raises :class:`BadRecord`."""
    arms = [arm.name for arm in request.arms]
    return Store(request.folder, begin_record(BenchRecord, request, arms=arms, communicators=request.communicators))


def tasks(request: Request) -> Iterator[Task]:
    """Everything, most informative first: what tuning finds, then the comparison that needs it, then processes."""
    for arm in request.of(Kind.TUNING):
        yield Task(Kind.TUNING, arm)
    if request.compares_in_job:
        for number in range(request.jobs):
            yield Task(Kind.IN_JOB, None, number, request.cycles)
    for number in range(request.rounds if request.of(Kind.PROCESS) else 0):
        yield from _round(request, number)


def _round(request: Request, number: int) -> Iterator[Task]:
    """Every process arm once, stock twice, in an order of this round's own."""
    arms = list(request.of(Kind.PROCESS))
    arms += [arm for arm in arms if arm.name == "own:stock"]
    random.Random(f"{request.seed} {number}").shuffle(arms)
    yield from (Task(Kind.PROCESS, arm, number) for arm in arms)


def left(request: Request, record: BenchRecord) -> list[Task]:
    """What is still wanted of :func:`tasks`. What failed :data:`ATTEMPTS` times is not tried again; what was cut off
    is, however often."""
    failed = Counter((run.kind, run.arm) for run in record.runs if run.failed)
    done = Counter((run.kind, run.arm, run.round) for run in record.runs if not run.failed and not run.is_partial)
    waiting = []
    for task in tasks(request):
        key = (task.kind.value, task.arm_name, task.round)
        if failed[key[:2]] >= ATTEMPTS:
            continue
        if task.kind is Kind.IN_JOB:
            missing = task.cycles - _cycles_done(request, record, task.round)
            waiting += [replace(task, cycles=missing)] if missing > 0 else []
        elif done[key] > 0:
            done[key] -= 1
        else:
            waiting.append(task)
    return waiting


def _cycles_done(request: Request, record: BenchRecord, number: int) -> int:
    """Of the comparison within job ``number``, over all the processes that it took."""
    return sum(_cycles_of(run, request) for run in record.runs_of(Kind.IN_JOB.value) if run.round == number)


def _cycles_of(run: RunRecord, request: Request) -> int:
    """One that came to its end stands for all it was asked for, or a short job would be run for ever; one that was cut
    off, or failed, for its windows of stock: every cycle holds one."""
    if run.failed or run.is_partial:
        return sum(window.arm == "stock" for window in run.windows) // request.communicators
    return request.cycles if run.cycles is None else run.cycles


ENDS = {
    "metric": "each is ended after {samples} steady samples of the metric",
    "calls": "each is ended after {samples} steady samples of its NCCL call rate (with --metric, of the job's own "
    "number)",
    "wall": "each runs to its own end and is compared by the wall time of the job's command, its start-up included and "
    "lagom's not, since an arm runs without the plugin and there is no --metric. With --metric 'step time: ([0-9.]+)', "
    "or whatever the job prints, each would end after {samples} steady samples",
}


def _too_few(request: Request) -> Iterator[str]:
    """What ends without an interval, however long it takes."""
    cycles, names = request.cycles * request.jobs, {arm.name for arm in request.arms}
    in_job = [("an arm within one job", 1)] if request.compares_in_job else []
    in_job += [(f"the best of {word}", 2) for word in SWEEPS if word in names]  # one half of its windows chooses it
    for what, share in in_job:
        if (pairs := PAIRS_A_CYCLE * (cycles // share)) < LEAST_PAIRS:
            enough = math.ceil(LEAST_PAIRS / PAIRS_A_CYCLE * share / request.jobs)
            yield _fewer("cycles", request.cycles, what, pairs, enough)
    if request.of(Kind.PROCESS) and request.rounds < LEAST_PAIRS:
        what = "an arm in processes of its own"
        yield _fewer("rounds", request.rounds, what, request.rounds, LEAST_PAIRS)


def _fewer(option: str, given: int, what: str, pairs: int, enough: int) -> str:
    have = f"--{option} {given} gives {what} {format_count(pairs, 'pair')} with stock"
    return f"warning: {have}, and {LEAST_PAIRS} are needed to compare them: use --{option} {enough} or more."


def preview(request: Request) -> Iterator[str]:
    """A sentence on the processes that arms of their own take, and one on each arm that would come to nothing."""
    yield from _too_few(request)
    arms = request.of(Kind.PROCESS)
    if not arms:
        return
    number = sum(task.kind is Kind.PROCESS for task in tasks(request))
    named = ", ".join(arm.name for arm in arms)
    rounds = f"{format_count(request.rounds, 'round')}, stock twice in each"
    ends = ENDS[request.measure].format(samples=request.samples)
    yield f"{number} processes of the job for {named} ({rounds}): {ends}."
    for name in (arm.name for arm in arms if arm.tunes and request.measure == "wall"):
        yield f"{name} tunes, and its wall time would include the search: it gives no result without --metric."
