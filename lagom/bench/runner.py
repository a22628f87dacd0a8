# SPDX-License-Identifier: Apache-2.0
"""Runs a benchmark: next task, a process for it, its samples to disk; until all is done or the time is up."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from lagom import journal
from lagom.bench.arm_words import Kind
from lagom.bench.diagnosis import NO_CALLS, diagnose
from lagom.bench.iteration_time import is_enough, value_of
from lagom.bench.job_regions import JobRegions
from lagom.bench.log_extract import arms_of_search, fill_record
from lagom.bench.metric import ASKS_DIRECTION
from lagom.bench.process import Ended, ProcessStart, Seen, grace_within, run_process
from lagom.bench.request import Request
from lagom.bench.schedule import Task, left
from lagom.bench.store import RunRecord, Store, cannot_be_written
from lagom.controller.arms import ArmsFile
from lagom.files import write_whole
from lagom.format import format_version

Say = Callable[[str], None]
#: No process is started with less time left than this.
LEAST_SECONDS = 20.0
#: Nor if the time left is less than this share of what such processes took.
CLOSE = 0.9
#: Part of a time limit that is kept for the start and end of a job. The limit of a search includes its final A/B.
START_SECONDS = 30.0


def run_bench(request: Request, say: Say = lambda text: None, store: Store | None = None) -> Store:
    """Do what is left of a benchmark; returns its store, with all samples of this and earlier calls. ``store``: that of
    the request, where it was opened already."""
    store, clock = store or Store(request), time.monotonic()
    while waiting := left(request, store.record):
        task = waiting[0]
        if any(run.is_without_nccl for run in store.record.runs):
            say(f"{NO_CALLS}: there is nothing to compare, and no more processes are started.")
            break
        store.check_room()
        time_left = None if request.budget is None else request.budget - (time.monotonic() - clock)
        if time_left is not None and time_left < (needs := _needs(task, store)):
            say(_out_of_time(request, task, needs, len(waiting)))
            break
        say(f"{_task_text(task)} (processes left: {len(waiting)})")
        run = run_task(request, task, store, time_left, say)
        store.add(run)
        say(f"  {_result_text(run)}")
    return store


def _out_of_time(request: Request, task: Task, needs: float, waiting: int) -> str:
    """Repeating the command helps only if its time limit is enough for one more process."""
    what = f"time limit reached, processes left: {waiting}"
    if request.budget is not None and request.budget < needs:
        return (
            f"{what}; the next one ({_task_text(task)}) needs at least {needs:.0f} s: use --budget {needs:.0f} or more."
        )
    return f"{what}; run the same command again to continue."


def _needs(task: Task, store: Store) -> float:
    """What a process of this kind takes, as far as one was run."""
    like = [run.seconds for run in store.record.runs_of(task.kind.value) if not run.failed and not run.is_partial]
    return max(LEAST_SECONDS, CLOSE * statistics.median(like)) if like else LEAST_SECONDS


def run_task(request: Request, task: Task, store: Store, time_left: float | None, say: Say) -> RunRecord:
    """One process of the job, and what it showed."""
    limits = [(time_left, "budget"), (request.run_limit, "limit")]
    limits += [(request.search_limit, "limit")] if task.kind is Kind.TUNING else []
    limit, cut_by = min(((limit, by) for limit, by in limits if limit is not None), default=(None, "limit"))
    start = replace(_start(request, task, store, limit), grace=grace_within(request.budget), say=say)
    regions = JobRegions(start.environment(), is_new=True) if start.lagom is not None else None
    with regions or contextlib.nullcontext():
        ended = run_process(_until_enough(request, task, start, regions))
        return _record(request, task, start, ended, regions, cut_by)


def _record(
    request: Request, task: Task, start: ProcessStart, ended: Ended, regions: JobRegions | None, cut_by: str
) -> RunRecord:
    """``cut_by``: what has ended it if its time was up."""
    run = RunRecord(
        kind=task.kind.value,
        arm=task.arm_name,
        round=task.round,
        began=ended.began,
        seconds=round(ended.seconds, 2),
        exit=ended.exit,
        ended=cut_by if ended.ended == "limit" else ended.ended,
        cycles=task.cycles if task.kind is Kind.IN_JOB else None,
        log=start.name,
    )
    fill_record(run, ended.seen.events)
    run.notes += ended.seen.notes
    if regions is not None:
        region_was_made = regions.was_made()
        run.called_nccl = bool(regions.starts) or _called_nccl(ended.seen, region_was_made)
        fill_machine(run, regions)
    fill_result(run, request, task, ended, regions)
    if run.failed or not run.is_useful:
        run.output = ended.seen.last_lines()
    return run


def fill_machine(run: RunRecord, regions: JobRegions) -> None:
    """Ranks, NCCL and GPU from the regions, if no controller has recorded them."""
    run.ranks, run.nodes, run.ranks_seen = regions.ranks, regions.nodes, len(regions.starts)
    if (first := next(iter(regions.starts.values()), None)) is not None:
        run.peer_access, run.simulated = first.peer_access, first.simulated
        if not run.nccl:
            run.nccl, run.gpu = format_version(first.nccl_version), first.gpu


def fill_result(run: RunRecord, request: Request, task: Task, ended: Ended, regions: JobRegions | None) -> None:
    """The value of an arm's own process; or why the process gave nothing that counts."""
    if run.is_without_nccl:
        run.reason = NO_CALLS
    elif regions is not None and task.arm is not None:
        run.reason = regions.unlike(task.arm.environ)
    if task.kind is Kind.PROCESS:
        assert task.arm is not None
        run.measure, run.unit = request.measure, ended.seen.metric.unit
        if ended.seen.metric.looks_like_throughput and not request.higher_is_better:
            run.notes.append(ASKS_DIRECTION)
        if not run.reason:
            run.value, run.samples = value_of(request.measure, ended, regions, task.arm)
    if not run.reason and run.gave_nothing and not run.broke_down:
        run.reason = diagnose(request, task, ended.seen, regions)


def _called_nccl(seen: Seen, region_was_made: bool | None) -> bool | None:
    """Whether a rank called NCCL through the plugin; None if unknown. Shared memory is made by the
    first rank, or by the controller: then its log says whether a rank came, or that it ran too late to see one."""
    if not region_was_made:
        return region_was_made
    if any(isinstance(event, journal.RankJoined) for event in seen.events):
        return True
    has_controller = any(isinstance(event, journal.JobStart) for event in seen.events)
    return not has_controller


def _start(request: Request, task: Task, store: Store, limit: float | None) -> ProcessStart:
    """How the process of a task is started."""
    arm, name = task.arm, f"{len(store.record.runs):02d}-{task.name}"
    if task.kind is Kind.IN_JOB:
        seed = request.seed + len(store.record.runs_of(Kind.IN_JOB.value))  # another order than that of an earlier part
        arms = str(_arms_file(request, task.cycles, store, name))
        lagom: list[str] | None = ["--mode", "tune", "--seed", str(seed), "--arms", arms]
        environ: Mapping[str, str] = request.environ
    else:
        assert arm is not None
        environ = {**request.environ, **arm.environ}
        if task.kind is Kind.TUNING:
            lagom = ["--mode", "tune", "--strategy", arm.strategy, "--seed", str(request.seed), *arm.options]
            if limit is not None:  # the search ends, its final A/B included, before the job is ended
                lagom += ["--search-seconds", f"{max(LEAST_SECONDS, limit - START_SECONDS):.0f}"]
        else:
            strategy = ["--strategy", arm.strategy] if arm.strategy else []
            lagom = [*strategy, *arm.options] if arm.plugin else None
    metric = request.metric if task.kind is Kind.PROCESS else ""
    unit = next((run.unit for run in store.record.runs if run.unit is not None), None)
    return ProcessStart(
        request.command, request.folder, name, lagom, environ, limit, metric, unit, request.higher_is_better
    )


def _until_enough(request: Request, task: Task, start: ProcessStart, regions: JobRegions | None) -> ProcessStart:
    """A process arm runs until it has shown enough samples; one that is measured as a whole, to its own end."""
    arm = task.arm
    if task.kind is not Kind.PROCESS or arm is None:  # once so many communicators have an outcome, or none will have
        return replace(
            start, enough=lambda seen: len(seen.outcomes()) >= request.communicators or seen.is_passthrough()
        )

    def enough(seen: Seen) -> bool:
        return is_enough(request.measure, seen, regions, request.samples, arm, request.is_lost)

    return replace(start, enough=enough, while_it_runs=regions.look if regions else start.while_it_runs)


def _arms_file(request: Request, cycles: int, store: Store, name: str) -> Path:
    """What the controller is to compare: the arms asked for and those that tuning found."""
    arms = [arm.wish for arm in request.of(Kind.IN_JOB) if arm.wish is not None]
    tuned = [wish for run in store.record.runs_of(Kind.TUNING.value) for wish in arms_of_search(run)]
    file = ArmsFile(arms=(*arms, *tuned), cycles=cycles)
    path = request.folder / f"{name}.arms.json"
    try:
        write_whole(path, file.model_dump_json(indent=1, exclude_defaults=True) + "\n")
    except OSError as error:
        raise cannot_be_written(path, error) from error
    return path.absolute()


# -- progress


def _task_text(task: Task) -> str:
    if task.kind is Kind.IN_JOB:
        return f"comparing the arms within one job, {task.cycles} cycle{'' if task.cycles == 1 else 's'}"
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
