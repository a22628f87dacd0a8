"""Runs a planned job to its end: the command, its controller process, and what is printed about both."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import BinaryIO

from lagom import journal
from lagom.errors import JournalError, UsageError
from lagom.journal import RunState
from lagom.journal.log_status import NO_RANK_JOINED
from lagom.launch.controller_process import ControllerProcess, prepare_log
from lagom.launch.job_plan import JobPlan, say
from lagom.launch.progress_text import show_progress
from lagom.launch.replay_log import replay_log
from lagom.launch.supervise import run_command, signals_held


def run_job(command: list[str], plan: JobPlan, *, quiet: bool = False) -> int:
    """Run a planned job to its end with its controller and log; returns its exit code. ``quiet``: no progress lines."""
    plan, log = prepare_log(plan)
    os.environ.update(plan.variables)
    for remark in plan.remarks:
        say(remark)
    where = f"; log in {plan.folder}" if plan.logs else ""
    say(f"job {plan.job}, mode {plan.variables['LAGOM_MODE']}{where}")
    started = time.time()
    code = _run_with_controller(command, plan, log, None if quiet else started)
    took = f"after {time.time() - started:.0f} s"
    events = state_since(plan.folder, started) if plan.logs else RunState()
    if plan.starts_controller and (missing := describe_broken_log(plan.folder, events)):
        say(missing)
    say(f"job {plan.job} ended with {code} {took}{run_summary(events)}{where}")
    return code


def _run_with_controller(command: list[str], plan: JobPlan, log: BinaryIO | None, progress_since: float | None) -> int:
    """``progress_since``: print what the log gains from then on (wall clock, s); None = print nothing."""
    with signals_held() as mask:
        controller = ControllerProcess(plan, mask, log) if log else None
        progress = (
            show_progress(plan.folder, progress_since) if controller and progress_since else contextlib.nullcontext()
        )
        replay = replay_log(plan) if plan.logs else None
        code = None
        try:
            with progress:
                code = run_command(command, os.environ, mask, controller.check if controller else lambda: None)
                return code
        except OSError as error:
            raise UsageError(f"'{command[0]}' cannot be started: {error.strerror}.") from error
        finally:
            if controller:
                controller.end(code)
            if replay:
                replay.end(code)


def check_command(name: str) -> None:
    """Refuse a command that cannot be started, before anything is created for it."""
    if shutil.which(name) is not None:
        return
    if shutil.which(name, os.F_OK) is not None:
        raise UsageError(f"'{name}' may not be executed; give it the permission (chmod +x), or name its interpreter.")
    raise UsageError(f"the command '{name}' is not found; give the job's command line after `--`.")


# -- the last lines


def state_since(folder: Path, since: float) -> RunState:
    """The state of the job that began at ``since`` (wall clock, s); empty if there is no readable log."""
    try:
        return RunState(event for event in journal.read(journal.find_log(folder)) if event.t >= since)
    except JournalError:
        return RunState()


def run_summary(run: RunState) -> str:
    """The result of the search for the last line, empty if there is none."""
    outcomes = [comm.outcome for comm in run.comms.values() if comm.outcome is not None]
    gains = [f"{outcome.speedup:.3f}x" for outcome in outcomes if outcome.verdict == "improved" and outcome.speedup]
    if gains:
        return f"; tuned: {', '.join(gains)} stock"
    stopped = [text for comm in run.comms.values() if (text := journal.describe_stopped(comm))]
    if stopped:
        return f"; search {stopped[-1]}"
    if outcomes:
        return f"; search: {outcomes[-1].verdict.replace('_', ' ')}"
    return f"; {NO_RANK_JOINED}" if run.no_rank_joined else ""


def describe_broken_log(folder: Path, run: RunState) -> str:
    """A sentence if the controller has ended and its log has no end; else empty. The controller can report that only in
    controller.log, which may be on the same full disk."""
    if run.end is not None:
        return ""
    return (
        f"the log {folder / journal.LOG_NAME} is incomplete: its end could not be written (a full disk?); "
        "what happened after its last line is not recorded."
    )
