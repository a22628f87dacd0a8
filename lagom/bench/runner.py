# SPDX-License-Identifier: Apache-2.0
"""Runs a benchmark: next task, a process for it, its samples to disk; until all is done or the time is up."""

from __future__ import annotations

import statistics
import time

from lagom.bench.results import BenchRecord
from lagom.bench.schedule import left, open_store
from lagom.experiment.arm import Kind, Task
from lagom.experiment.diagnosis import why_no_more
from lagom.experiment.request import Request
from lagom.experiment.store import RunRecord, Store
from lagom.experiment.trial import CLOSE, LEAST_SECONDS, Say, run_task
from lagom.format import format_count


def run_bench(
    request: Request, say: Say = lambda text: None, store: Store[BenchRecord] | None = None
) -> Store[BenchRecord]:
    """Do what is left of a benchmark; returns its store, with all samples of this and earlier calls. ``store``: that of
    the request, where it was opened already."""
    store, clock = store or open_store(request), time.monotonic()
    while waiting := left(request, store.record):
        task = waiting[0]
        time_left = None if request.budget is None else request.budget - (time.monotonic() - clock)
        if why := why_no_more(store.record.runs) or request.out_of_time(time_left, _needs(task, store), waiting):
            say(why)
            break
        store.check_room()
        say(f"{_task_text(task)} (processes left: {len(waiting)})")
        run = run_task(request, task, store, time_left, say)
        store.add(run)
        say(f"  {_result_text(run)}")
    return store


def _needs(task: Task, store: Store[BenchRecord]) -> float:
    """What a process of this kind takes, as far as one was run."""
    like = [run.seconds for run in store.record.runs_of(task.kind.value) if not run.failed and not run.is_partial]
    return max(LEAST_SECONDS, CLOSE * statistics.median(like)) if like else LEAST_SECONDS


# -- progress


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
