# SPDX-License-Identifier: Apache-2.0
"""A search as a schedule of processes, and what is said of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lagom.environment import conf_files, read_conf
from lagom.experiment.arm import Kind, Task, arm_with
from lagom.experiment.diagnosis import why_no_more
from lagom.experiment.fingerprint import env_fingerprint
from lagom.experiment.iteration_time import SETTLING_SHARE
from lagom.experiment.job_regions import SPAN_SECONDS
from lagom.experiment.request import Request
from lagom.experiment.runner import Clock, NextTask, RunOne, run_schedule
from lagom.experiment.store import RunRecord, Store
from lagom.experiment.trial import CLOSE, Say
from lagom.format import format_count
from lagom.start import StartGroup, decided_by
from lagom.tune.compare import ATTEMPTS, deciding_runs, is_lost
from lagom.tune.live_search import search_while_running
from lagom.tune.stages import PLAIN, SearchAim, Tried, TunePlan, TuneRecord, plan_for, plans
from lagom.tune.trials import best_so_far, most_left, next_trial, rounds
from lagom.tune.tune_result import PlainNccl, TuneResult, find_result, tried_of

#: How the variables begin that a search over start settings sets: what the user has set of them stays.
SETTINGS = ("NCCL_", "TORCH_NCCL_", "CUDA_DEVICE_MAX_CONNECTIONS")
#: What a process takes before one was run.
FIRST_GUESS_SECONDS = 30.0
#: A process is ended as hanging after so many times what others take, and so many seconds at least.
HANGING, LEAST_LIMIT = 5.0, 60.0
BY_WALL = "too few NCCL calls to count in one process: the wall time of the command is compared."


def plain_nccl(environ: Mapping[str, str]) -> PlainNccl:
    """The NCCL variables that are set already, in the environment, but for those that change nothing, and in NCCL's
    configuration files."""
    variables = {name: value for name, value in env_fingerprint(environ).items() if name.startswith(SETTINGS)}
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


class SearchSchedule:
    """The processes of a search, of which each depends on what those before it have shown. ``simulated``: what each
    counts of the time limit, in seconds, if not what it took."""

    def __init__(self, request: Request, earlier: int, simulated: float | None) -> None:
        """``request``: by wall time from the moment on that its calls prove too few. ``earlier``: processes of calls
        before this one."""
        self.request, self.plan, self.tried = request, TunePlan(()), list[Tried]()
        self._earlier, self._simulated, self._said = earlier, simulated, ""
        self._best: StartGroup | None = None
        self._best_before: StartGroup | None = None  # the process that ended last

    def next_task(self, record: TuneRecord) -> NextTask | None:
        """By the plan that the time is enough for, which the record keeps."""
        runs, aim, request = record.runs, record.aim, _measured(self.request, record.runs)
        assert aim is not None
        self._said = "" if request is self.request else BY_WALL
        compared = None if request.budget is None else request.budget - aim.look_seconds  # whichever call has looked
        plan = plan_for(aim.groups, seconds_each(runs, self._simulated), compared, request.seed, aim.factors)
        self.request, self.plan, self.tried = request, plan, tried_of(runs, request.higher_is_better)
        aim.plan = plan
        self._best_before, self._best = self._best, best_so_far(plan, self.tried)
        if (trial := next_trial(plan, self.tried)) is None:
            return None
        needs = self._simulated or CLOSE * _seconds(runs)
        arm = arm_with(trial.group.name, trial.group.settings)
        lost = partial(is_lost, self.tried, is_speed=request.higher_is_better)
        request = replace(request.numbered(len(runs) + 1), is_lost=lost, run_limit=_run_limit(request, runs))
        task = Task(Kind.PROCESS, arm, trial.round, stage=trial.stage)
        return NextTask(task, request, needs, most_left(plan, self.tried), why_not=_plain_fails(runs[self._earlier :]))

    def progress(self, record: TuneRecord, ended: RunRecord | None, coming: NextTask | None) -> Iterator[str]:
        """The process that has ended, if any, and how many are left; the best so far, where that is another one than
        before or is known better."""
        if self._said:
            yield self._said
        if ended is None:
            return
        yield from _unseen(record.runs)
        gave = f"{ended.value:.4g}" if ended.counted and ended.value else f"nothing: {ended.reason or ended.last_line}"
        which = f"{ended.stage} {ended.round + 1}/{rounds(self.plan, self.tried, ended.stage)}: {ended.arm}"
        most = most_left(self.plan, self.tried)
        yield f"{which}: {gave} ({'the last one' if coming is None else f'at most {most} left'})"
        if (best := self._best) is not None and (best != self._best_before or ended.arm == best.name):
            speedup = deciding_runs(self.tried, best).speedup
            yield f"  best so far: {best.name}{'' if speedup is None else f', {speedup.text} over plain NCCL'}"


def _unseen(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Where the newest process is the first of which not all ranks were seen."""
    *earlier, run = runs
    if run.ranks_seen < run.ranks and not any(one.ranks_seen < one.ranks for one in earlier):
        yield f"{run.ranks_seen} of {run.ranks} ranks were seen here; the settings of the others are not checked."


def run_tune(
    request: Request,
    store: Store[TuneRecord],
    say: Say = lambda text: None,
    simulated_seconds: float | None = None,
    used_seconds: float = 0.0,
    run_one: RunOne | None = None,
) -> tuple[TunePlan, TuneResult]:
    """Run what is left of the record's aim; returns the plan that the time was enough for, and what the results say.

    ``simulated_seconds``: what each process counts of the time limit, instead of the time that it took.
    ``used_seconds``: of the limit, what this call has used before, for the process that is not compared. ``run_one``:
    runs a process otherwise than here alone.
    """
    schedule = SearchSchedule(request, len(store.record.runs), simulated_seconds)
    clock = Clock(request.budget, used_seconds, simulated_seconds)
    run_schedule(schedule, store, clock, say, run_one)
    result = find_result(schedule.plan, schedule.tried)
    if result.verdict != "unfinished":
        start = result.group if result.verdict == "improved" else None
        search_while_running(schedule.request, start, store, clock.left(), say)
    elif store.record.aim and store.record.aim.transport:
        store.save()  # where no process has been run yet: the next call need not find out again what to try
    return schedule.plan, result


@dataclass(frozen=True, slots=True)
class MoreTime:
    """``budget``: the time limit, in seconds, with which the same command comes to an end; ``missing`` processes then,
    which take ``seconds`` each."""

    budget: int
    missing: int
    seconds: float

    @property
    def text(self) -> str:
        """For `next:`."""
        limit = f"{self.budget // 60}m" if self.budget % 60 == 0 else f"{self.budget}s"
        missing = format_count(self.missing, "more process", "more processes")
        return f"the same command with --budget {limit}: {missing} of about {self.seconds:.3g} s each"


def needs_more_time(
    request: Request, plan: TunePlan, record: TuneRecord, result: TuneResult, simulated: float | None = None
) -> MoreTime | None:
    """Of a search that ended without an answer: the least budget, of what was given at least, that is enough for what
    is missing of ``plan``, or of the next larger one where nothing is; None where the largest is done, or more
    processes would show nothing. A budget chooses the plan, so that it must be one that chooses this one.
    ``simulated``: seconds, as for :func:`run_tune`."""
    runs, aim, budget = record.runs, record.aim, request.budget
    is_open = result.verdict in ("unfinished", "nothing_resolved") and not (why_no_more(runs) or _plain_fails(runs))
    if aim is None or budget is None or not is_open:
        return None
    chooses, each = seconds_each(runs, simulated), simulated or _seconds(runs)
    tried, found = tried_of(runs, request.higher_is_better), None
    for one in (plan, *_larger(plan, aim)):
        if missing := most_left(one, tried):
            whole = 0.0 if one == plan else aim.look_seconds + one.most_processes * chooses
            needed = max(budget, whole, missing * each)
            step = 60 if needed > 180 else 1  # whole minutes
            found = MoreTime(step * math.ceil(needed / step), missing, each)
            if plan_for(aim.groups, chooses, found.budget - aim.look_seconds, plan.seed, aim.factors) == one:
                break
    return found


def _larger(plan: TunePlan, aim: SearchAim) -> list[TunePlan]:
    """The smallest first."""
    known = reversed(list(plans(aim.groups, plan.seed, aim.factors)))
    return [one for one in known if one.most_processes > plan.most_processes]


def kept_text(runs: Sequence[RunRecord]) -> str:
    """What an earlier call has measured; empty where that is nothing."""
    kept = [run for run in runs if run.stage]
    groups = {run.arm for run in kept if run.stage != "design"}
    designed = sum(run.stage == "design" and run.arm not in groups for run in kept)
    clauses = [f"{format_count(len(kept) - designed, 'process', 'processes')} of {format_count(len(groups), 'group')}"]
    clauses += [f"{designed} that screen other variables"] if designed else []
    alone = ", plain NCCL among them" if PLAIN.name in groups else ""
    return f"continued: kept {' and '.join(clauses if groups else clauses[1:])}{alone}." if kept else ""


def _plain_fails(runs: Sequence[RunRecord]) -> str:
    """Why more processes would show nothing, by those of plain NCCL; empty if they may."""
    last = [run for run in runs if run.arm == PLAIN.name and run.ended != "budget"][-ATTEMPTS:]
    if len(last) < ATTEMPTS or any(run.counted for run in last):
        return ""
    failed = last[-1].reason or last[-1].last_line
    return f"plain NCCL gave nothing {ATTEMPTS} times in a row, so that there is nothing to compare with: {failed}"


def _measured(request: Request, runs: Sequence[RunRecord]) -> Request:
    """By wall time, if the first process that called NCCL and did not fail came to its own end and gave no other value:
    a job whose calls are too few to count. Values by the one and by the other cannot be compared, so that it stays."""
    first = next((run for run in runs if run.called_nccl and not run.failed), None)
    is_short = first is not None and first.value is None and first.ended == "itself"
    return replace(request, by="wall") if request.measure == "calls" and is_short else request


def seconds_each(runs: Sequence[RunRecord], simulated: float | None) -> float:
    """Of the first process with a result, so that the same record always gives the same plan."""
    return simulated or next((run.seconds for run in runs if run.counted), FIRST_GUESS_SECONDS)


def _seconds(runs: Sequence[RunRecord]) -> float:
    """What a process takes."""
    return statistics.median(run.seconds for run in runs) if runs else FIRST_GUESS_SECONDS


def _run_limit(request: Request, runs: Sequence[RunRecord]) -> float | None:
    """What a process may take: a setting with which the job hangs is not waited for much longer than for others."""
    known = [run.seconds for run in runs if run.counted]
    if not known or request.run_limit is None:
        return request.run_limit
    return min(request.run_limit, max(LEAST_LIMIT, HANGING * statistics.median(known)))
