"""The course of a search: the next trial, a process for it, its sample on disk, until all is known or time is up."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lagom.bench.arm_words import BenchArm, Kind, parse_arms
from lagom.bench.iteration_time import SETTLING_SHARE
from lagom.bench.job_regions import SPAN_SECONDS
from lagom.bench.request import Request
from lagom.bench.runner import run_task
from lagom.bench.schedule import Task
from lagom.bench.store import RunRecord, Store
from lagom.environment import conf_files, read_conf
from lagom.start import StartGroup
from lagom.tune.result import PlainNccl, TuneResult, find_result, tried_of
from lagom.tune.trials import PLAIN, Plan, Trial, left, next_trial, plan_for

Say = Callable[[str], None]
#: In the job's command: the number of the process, for a folder of its own.
PLACEHOLDER = "{trial}"
#: What a process takes before one was run.
FIRST_GUESS_SECONDS = 30.0
#: A process is not started with less of the time left than it takes.
CLOSE = 0.9


def plain_nccl(environ: Mapping[str, str]) -> PlainNccl:
    """What is set already, by the caller and by NCCL's files."""
    variables = {name: environ[name] for name in sorted(environ) if name.startswith("NCCL_")}
    return PlainNccl(variables, {str(file): values for file in conf_files() if (values := read_conf(file))})


def leave_out_set(groups: Sequence[StartGroup], plain: PlainNccl) -> tuple[list[StartGroup], list[str]]:
    """The groups that set nothing the user has set, and a sentence for each other one."""
    kept, said = [], []
    for group in groups:
        taken = [name for name in group.settings if name in plain.settings]
        if taken:
            said.append(f"{group.name} is left out: {', '.join(taken)} is set by you, and stays.")
        else:
            kept.append(group)
    return kept, said


def shortest_text(request: Request) -> str:
    """How a process is measured, and how long it lasts at least."""
    if request.measure == "metric":
        return f"measured by --metric; a process is ended after {request.samples} steady samples of it."
    least = request.samples * SPAN_SECONDS / (1 - SETTLING_SHARE)
    return f"measured by the rate of NCCL calls (no --metric): a process lasts {least:.0f} s and its start at least."


def run_tune(
    request: Request, groups: Sequence[StartGroup], store: Store, say: Say = lambda text: None
) -> tuple[Plan, TuneResult]:
    """Run what is left; returns the plan that the time was enough for, and what the results say.

    ``request``: its arms are empty, since trials are chosen while it goes on.
    """
    clock = time.monotonic()
    while True:
        plan = _plan(request, groups, store.record.runs)
        tried = tried_of(store.record.runs, request.higher_is_better)
        trial = next_trial(plan, tried)
        time_left = None if request.budget is None else request.budget - (time.monotonic() - clock)
        if trial is None:
            break
        if any(run.is_without_nccl for run in store.record.runs):
            say("no rank called NCCL through the plugin: there is nothing to tune, and no more processes are started.")
            break
        if time_left is not None and time_left < CLOSE * _seconds(store.record.runs):
            say(f"the time is over with processes left: {len(list(left(plan, tried)))}; the same command goes on.")
            break
        store.check_room()
        run = _run(request, trial, store, time_left)
        store.add(run)
        say(_progress(plan, request, store.record.runs, trial, run))
    return plan, find_result(plan, tried_of(store.record.runs, request.higher_is_better))


def _plan(request: Request, groups: Sequence[StartGroup], runs: Sequence[RunRecord]) -> Plan:
    """By the first process that gave something, so that the same record always means the same plan."""
    first = next((run.seconds for run in runs if run.counted), FIRST_GUESS_SECONDS)
    return plan_for(groups, first, request.budget, request.seed)


def _seconds(runs: Sequence[RunRecord]) -> float:
    """What a process takes."""
    return statistics.median(run.seconds for run in runs) if runs else FIRST_GUESS_SECONDS


def _run(request: Request, trial: Trial, store: Store, time_left: float | None) -> RunRecord:
    number = len(store.record.runs)
    command = tuple(word.replace(PLACEHOLDER, str(number)) for word in request.command)
    environ = {**request.environ, "LAGOM_TRIAL": str(number)}
    task = Task(Kind.PROCESS, _arm(trial.group), trial.round)
    run = run_task(replace(request, command=command, environ=environ), task, store, time_left)
    run.stage, run.group, run.settings = trial.stage, trial.group.name, dict(trial.group.settings)
    return run


def _arm(group: StartGroup) -> BenchArm:
    """The group as an arm of `lagom bench`, which would run it again by that word."""
    arms = parse_arms(["own:stock" if group is PLAIN else f"env={','.join(group.text.split())}"])
    return next(arm for arm in arms if arm.kind is Kind.PROCESS and (arm.name == "own:stock") == (group is PLAIN))


# -- for the one who waits


def _progress(plan: Plan, request: Request, runs: Sequence[RunRecord], trial: Trial, run: RunRecord) -> str:
    """The process that has ended, the best so far, and the time that is left."""
    tried = tried_of(runs, request.higher_is_better)
    waiting = len(list(left(plan, tried)))
    rest = f"{waiting} left, about {waiting * _seconds(runs) / 60:.0f} min" if waiting else "that was the last one"
    gave = f"{run.value:.4g}" if run.counted and run.value else f"nothing: {run.reason or run.last_line}"
    return f"{trial.stage}, round {trial.round + 1}: {trial.group.name}: {gave} ({run.seconds:.0f} s); {rest}"
