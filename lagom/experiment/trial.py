# SPDX-License-Identifier: Apache-2.0
"""One process of the job, from how it is started to the record of what it showed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lagom import journal
from lagom.controller.arms import ArmsFile
from lagom.experiment.arm import Kind, Task
from lagom.experiment.diagnosis import NO_CALLS, diagnose
from lagom.experiment.iteration_time import is_enough, value_of
from lagom.experiment.job_regions import JobRegions
from lagom.experiment.log_extract import fill_record
from lagom.experiment.metric import ASKS_DIRECTION
from lagom.experiment.process import Ended, ProcessStart, Seen, grace_within, run_process
from lagom.experiment.request import Request
from lagom.experiment.store import RunRecord, Store, cannot_be_written
from lagom.files import write_whole
from lagom.format import format_version

Say = Callable[[str], None]
RunProcess = Callable[[ProcessStart], Ended]
#: No process is started with less time left than this, and no search ends sooner.
LEAST_SECONDS = 20.0
#: Nor with less than this share of what such processes took.
CLOSE = 0.9
#: Part of a time limit that is kept for the start and end of a job. The limit of a search includes its final A/B.
START_SECONDS = 30.0


def run_task(
    request: Request, task: Task, store: Store[Any], time_left: float | None, say: Say, run: RunProcess | None = None
) -> RunRecord:
    """One process of the job, and what it showed. ``run``: how, if not here alone."""
    limits = [(time_left, "budget"), (request.run_limit, "limit")]
    limits += [(request.search_limit, "limit")] if task.kind is Kind.TUNING else []
    limit, cut_by = min(((limit, by) for limit, by in limits if limit is not None), default=(None, "limit"))
    start = replace(_start(request, task, store, limit), grace=grace_within(request.budget), say=say)
    regions = JobRegions(start.environment(), is_new=True) if start.lagom is not None else None
    with regions or contextlib.nullcontext():
        ended = (run or run_process)(_until_enough(request, task, start, regions))
        return _record(request, task, start, ended, regions, cut_by)


def _record(
    request: Request, task: Task, start: ProcessStart, ended: Ended, regions: JobRegions | None, cut_by: str
) -> RunRecord:
    """``cut_by``: what has ended it if its time was up."""
    run = RunRecord(
        kind=task.kind.value, arm=task.arm_name, stage=task.stage, round=task.round, began=ended.began,
        seconds=round(ended.seconds, 2), exit=ended.exit, ended=cut_by if ended.ended == "limit" else ended.ended,
        settings={} if task.arm is None else task.arm.settings, log=start.name,
        cycles=task.cycles if task.kind is Kind.IN_JOB else None,
    )  # fmt: skip
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
        run.reason = run.unlike = regions.unlike(task.arm.environ)
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


def _start(request: Request, task: Task, store: Store[Any], limit: float | None) -> ProcessStart:
    """How the process of a task is started."""
    arm, name = task.arm, f"{len(store.record.runs):02d}-{task.name}"
    if task.kind is Kind.IN_JOB:
        seed = request.seed + len(store.record.runs_of(Kind.IN_JOB.value))  # another order than that of an earlier part
        arms = str(_arms_file(request, task, name))
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
    start = replace(start, enough=lambda seen: is_enough(request, seen, regions, arm))
    return start if regions is None else replace(start, while_it_runs=regions.look, sleep=regions.sleep)


def _arms_file(request: Request, task: Task, name: str) -> Path:
    """What the controller is to compare."""
    file = ArmsFile(arms=task.wishes, cycles=task.cycles)
    path = request.folder / f"{name}.arms.json"
    try:
        write_whole(path, file.model_dump_json(indent=1, exclude_defaults=True) + "\n")
    except OSError as error:
        raise cannot_be_written(path, error) from error
    return path.absolute()
