# SPDX-License-Identifier: Apache-2.0
"""Runs a search: next trial, a process for it, its sample to disk; until all is measured or the time is up."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lagom.environment import conf_files, read_conf
from lagom.experiment.arm import Kind, Task, arm_with
from lagom.experiment.diagnosis import why_no_more
from lagom.experiment.iteration_time import SETTLING_SHARE
from lagom.experiment.job_regions import SPAN_SECONDS
from lagom.experiment.request import Request
from lagom.experiment.store import RunRecord, Store
from lagom.experiment.trial import CLOSE, Say, run_task
from lagom.format import format_count
from lagom.start import StartGroup, decided_by
from lagom.tune.compare import ATTEMPTS, deciding_runs, is_lost
from lagom.tune.live_search import search_while_running
from lagom.tune.more_time import MoreTime, more_time
from lagom.tune.numbering import numbered
from lagom.tune.stages import PLAIN, STAGES, SearchAim, Tried, TunePlan, TuneRecord, TuneTrial, plan_for
from lagom.tune.trials import best_so_far, left, next_trial, rounds
from lagom.tune.tune_result import PlainNccl, TuneResult, find_result, tried_of

RunOne = Callable[[Request, Task, Store[TuneRecord], float | None, Say], RunRecord]
#: How the variables begin that a search over start settings sets: what the user has set of them stays.
SETTINGS = ("NCCL_", "TORCH_NCCL_", "CUDA_DEVICE_MAX_CONNECTIONS")
#: What a process takes before one was run.
FIRST_GUESS_SECONDS = 30.0
#: A process is ended as hanging after so many times what others take, and so many seconds at least.
HANGING, LEAST_LIMIT = 5.0, 60.0


def plain_nccl(environ: Mapping[str, str]) -> PlainNccl:
    """The NCCL variables that are set already, in the environment and in NCCL's configuration files."""
    variables = {name: environ[name] for name in sorted(environ) if name.startswith(SETTINGS)}
    return PlainNccl(variables, {str(file): values for file in conf_files(environ) if (values := read_conf(file))})


def leave_out_set(groups: Sequence[StartGroup], plain: PlainNccl) -> tuple[list[StartGroup], list[str]]:
    """The groups that neither set nor undo what the user has set, and a sentence for each other one."""
    kept, said = [], []
    for group in groups:
        taken = list(dict.fromkeys(one for name in group.settings for one in decided_by(name, plain.settings)))
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


@dataclass(frozen=True, slots=True)
class _Clock:
    """The time limit. ``simulated``: what each process counts of it, so that a simulated job's search does not depend
    on what else the machine does; ``earlier``: processes of earlier calls; ``used``: seconds of the limit that were
    over when this clock began."""

    limit: float | None
    simulated: float | None
    earlier: int
    used: float
    began: float = field(default_factory=time.monotonic)

    def seconds_each(self, runs: Sequence[RunRecord]) -> float:
        """Of the first process with a result, so that the same record always gives the same plan."""
        return self.simulated or next((run.seconds for run in runs if run.counted), FIRST_GUESS_SECONDS)

    def left(self, runs: Sequence[RunRecord]) -> float | None:
        real = self.used + time.monotonic() - self.began
        spent = real if self.simulated is None else self.simulated * (len(runs) - self.earlier)
        return None if self.limit is None else self.limit - spent

    def real_seconds(self, left: float | None) -> float | None:
        """Of ``left``, what a process may take: no limit where the time is simulated."""
        return left if self.simulated is None else None

    def exceeded(self, request: Request, runs: Sequence[RunRecord], waiting: Iterator[TuneTrial]) -> str:
        """A sentence, if one more process has too little time."""
        name = "time" if self.simulated is None else "simulated time"
        return request.out_of_time(self.left(runs), self.simulated or CLOSE * _seconds(runs), waiting, name)


def run_tune(
    request: Request,
    aim: SearchAim,
    store: Store[TuneRecord],
    say: Say = lambda text: None,
    simulated_seconds: float | None = None,
    used_seconds: float = 0.0,
    run_one: RunOne | None = None,
) -> tuple[TunePlan, TuneResult]:
    """Run what is left; returns the plan that the time was enough for, and what the results say.

    ``request``: its arms are empty, since trials are chosen while it goes on. ``aim``: what is to be tried.
    ``simulated_seconds``: what each process counts of the time limit, instead of the time that it took.
    ``used_seconds``: of the limit, what this call has used before, for the process that is not compared. ``run_one``:
    runs a process otherwise than here alone.
    """
    runs = store.record.runs
    clock = _Clock(request.budget, simulated_seconds, len(runs), used_seconds)
    compared = None if request.budget is None else request.budget - aim.look_seconds  # whichever call has looked
    ended: tuple[TuneTrial, StartGroup | None] | None = None  # the process before, and what was best before it
    while True:
        request = _measured(request, runs, say)
        plan = plan_for(aim.groups, clock.seconds_each(runs), compared, request.seed, aim.factors)
        aim.rounds, aim.count = {stage: plan.rounds(stage) for stage in STAGES}, len(plan.groups)
        tried = tried_of(runs, request.higher_is_better)
        trial, time_left = next_trial(plan, tried), clock.left(runs)
        for line in _progress(plan, tried, runs, ended, trial):
            say(line)
        if trial is None:
            break
        if why := _why_not(runs, runs[clock.earlier :]) or clock.exceeded(request, runs, left(plan, tried)):
            say(why)
            if aim.transport:
                store.save()  # where no process has been run yet: the next call need not find out again what to try
            break
        store.check_room()
        ended = trial, best_so_far(plan, tried)
        run = _run(request, trial, store, tried, clock.real_seconds(time_left), say, run_one)
        store.add(run)
    result = find_result(plan, tried)
    if result.verdict != "unfinished":
        start = result.group if result.verdict == "improved" else None
        search_while_running(request, start, store, time_left, say)
    return plan, result


def needs_more_time(
    request: Request, plan: TunePlan, record: TuneRecord, result: TuneResult, simulated: float | None = None
) -> MoreTime | None:
    """Of a search that ended without an answer, where more processes may give one. ``simulated``: seconds, as for
    :func:`run_tune`."""
    runs, aim = record.runs, record.aim
    is_open = result.verdict in ("unfinished", "nothing_resolved") and not _why_not(runs, runs)
    if aim is None or request.budget is None or not is_open:
        return None
    seconds = _Clock(request.budget, simulated, len(runs), 0.0).seconds_each(runs), simulated or _seconds(runs)
    tried = tried_of(runs, request.higher_is_better)
    return more_time(plan, tried, aim.groups, aim.factors, seconds, request.budget, aim.look_seconds)


def kept_text(runs: Sequence[RunRecord]) -> str:
    """What an earlier call has measured; empty where that is nothing."""
    kept = [run for run in runs if run.stage]
    groups = {run.arm for run in kept if run.stage != "design"}
    designed = sum(run.stage == "design" and run.arm not in groups for run in kept)
    clauses = [f"{format_count(len(kept) - designed, 'process', 'processes')} of {format_count(len(groups), 'group')}"]
    clauses += [f"{designed} that screen other variables"] if designed else []
    alone = ", plain NCCL among them" if PLAIN.name in groups else ""
    return f"continued: kept {' and '.join(clauses if groups else clauses[1:])}{alone}." if kept else ""


def _why_not(runs: Sequence[RunRecord], own: Sequence[RunRecord]) -> str:
    """Why more processes would show nothing, by all so far and by those of this call alone; empty if they may."""
    if why := why_no_more(runs):
        return why
    last = [run for run in own if run.arm == PLAIN.name and run.ended != "budget"][-ATTEMPTS:]
    if len(last) < ATTEMPTS or any(run.counted for run in last):
        return ""
    failed = last[-1].reason or last[-1].last_line
    return f"plain NCCL gave nothing {ATTEMPTS} times in a row, so that there is nothing to compare with: {failed}"


def _measured(request: Request, runs: Sequence[RunRecord], say: Say) -> Request:
    """By wall time, if the first process that called NCCL and did not fail came to its own end and gave no other value:
    a job whose calls are too few to count. Values by the one and by the other cannot be compared, so that it stays."""
    first = next((run for run in runs if run.called_nccl and not run.failed), None)
    is_short = first is not None and first.value is None and first.ended == "itself"
    if request.measure != "calls" or not is_short:
        return request
    say("too few NCCL calls to count in one process: the wall time of the command is compared.")
    return replace(request, by="wall")


def _seconds(runs: Sequence[RunRecord]) -> float:
    """What a process takes."""
    return statistics.median(run.seconds for run in runs) if runs else FIRST_GUESS_SECONDS


def _run(
    request: Request,
    trial: TuneTrial,
    store: Store[TuneRecord],
    tried: Sequence[Tried],
    time_left: float | None,
    say: Say,
    run_one: RunOne | None,
) -> RunRecord:
    def lost(samples: Sequence[float]) -> bool:
        return is_lost(tried, [1.0 / one for one in samples] if request.higher_is_better else samples)

    limit = _run_limit(request, store.record.runs)
    request = replace(numbered(request, len(store.record.runs) + 1), is_lost=lost, run_limit=limit)
    arm = arm_with(trial.group.name, trial.group.settings)
    task = Task(Kind.PROCESS, arm, trial.round, stage=trial.stage)
    return (run_one or run_task)(request, task, store, time_left, say)


def _run_limit(request: Request, runs: Sequence[RunRecord]) -> float | None:
    """What a process may take: a setting with which the job hangs is not waited for much longer than for others."""
    known = [run.seconds for run in runs if run.counted]
    if not known or request.run_limit is None:
        return request.run_limit
    return min(request.run_limit, max(LEAST_LIMIT, HANGING * statistics.median(known)))


# -- for the one who waits


def _progress(
    plan: TunePlan,
    tried: Sequence[Tried],
    runs: Sequence[RunRecord],
    ended: tuple[TuneTrial, StartGroup | None] | None,
    coming: TuneTrial | None,
) -> Iterator[str]:
    """The process that has ended, if any, and the time that is left; the best so far, where that is another one than
    before or is known better."""
    if ended is None:
        return
    trial, before = ended
    *earlier, run = runs
    if run.ranks_seen < run.ranks and not any(one.ranks_seen < one.ranks for one in earlier):
        yield f"{run.ranks_seen} of {run.ranks} ranks were seen here; the settings of the others are not checked."
    gave = f"{run.value:.4g}" if run.counted and run.value else f"nothing: {run.reason or run.last_line}"
    which = f"{trial.stage} {trial.round + 1}/{rounds(plan, tried, trial.stage)}: {trial.group.name}"
    most = plan.most_processes - sum(one.time is not None for one in tried)  # by the results so far it may be fewer
    yield f"{which}: {gave} ({'the last one' if coming is None else f'at most {most} left'})"
    yield from _best(plan, tried, trial, before)


def _best(plan: TunePlan, tried: Sequence[Tried], trial: TuneTrial, before: StartGroup | None) -> Iterator[str]:
    best = best_so_far(plan, tried)
    if best is not None and (best != before or trial.group == best):
        speedup = deciding_runs(tried, best).speedup
        yield f"  best so far: {best.name}{'' if speedup is None else f', {speedup.text} over plain NCCL'}"
