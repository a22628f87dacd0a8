# SPDX-License-Identifier: Apache-2.0
"""Runs a planned job to its end: the command, its controller process, and what is printed about both."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from lagom import journal
from lagom.doctor.libraries import has_nccl
from lagom.errors import JournalError, UsageError
from lagom.files import write_named
from lagom.journal import RunState
from lagom.journal.log_status import describe_broken_log
from lagom.launch.cached_config import NO_CACHE, CacheUse
from lagom.launch.controller_process import ControllerProcess, open_log, prepare_log
from lagom.launch.job_plan import JobPlan, local_rank, say
from lagom.launch.progress_text import show_progress
from lagom.launch.replay_log import replay_log
from lagom.launch.status_text import describe_end, describe_next, describe_plan
from lagom.launch.supervise import Mask, run_command, signals_held
from lagom.settings import is_simulated


def run_job(
    command: list[str],
    plan: JobPlan,
    *,
    quiet: bool = False,
    seconds_file: Path | None = None,
    cache: CacheUse = NO_CACHE,
) -> int:
    """Run a planned job to its end with its controller and log; returns its exit code. ``quiet``: no progress lines.
    ``seconds_file``: how long the command itself ran, without anything of ours before and after it. ``cache``: where
    what the job finds is kept."""
    plan, log = prepare_log(plan)
    if plan.logs:
        plan = plan.with_variables({"LAGOM_LAUNCHER": "1"}, ())
    os.environ.update(plan.variables)
    speaks = local_rank(os.environ) in (None, 0)  # one `lagom run` of a node
    plan = _with_nccl(plan, speaks=speaks)
    for line in (*plan.remarks, *describe_plan(plan)) if speaks else ():
        say(line)
    started = time.time()
    code = _run_with_controller(command, plan, log, None if quiet or not speaks else started, seconds_file)
    if speaks:
        run = state_since(plan.folder, started) if plan.logs else RunState()
        if plan.starts_controller and (missing := describe_broken_log(plan.folder, run)):
            say(missing)
        for line in filter(None, cache.at_end(run)):
            say(line)
        say(describe_end(plan, run, code, time.time() - started))
        if not plan.recorded:
            say(describe_next(plan, run, command, code))
    return code


def _with_nccl(plan: JobPlan, *, speaks: bool) -> JobPlan:
    """With whether there is an NCCL to tune, as far as that can be seen before the job starts, for who says it."""
    return replace(plan, has_nccl=has_nccl(os.environ)) if speaks and plan.tunes and not is_simulated() else plan


def run_bare(command: list[str], seconds_file: Path | None) -> int:
    """Run a command as :func:`run_job` does, without plugin, controller and log: nothing of it is ours but the time."""
    with signals_held() as mask:
        return _run_timed(command, mask, lambda: None, seconds_file)


def _run_timed(command: list[str], mask: Mask, on_other_child: Callable[[], None], seconds_file: Path | None) -> int:
    began = time.monotonic()
    try:
        code = run_command(command, os.environ, mask, on_other_child)
    except OSError as error:
        raise UsageError(f"'{command[0]}' cannot be started: {error.strerror}.") from error
    if seconds_file is not None:
        write_named(seconds_file, f"{time.monotonic() - began:.6f}\n")
    return code


def _run_with_controller(
    command: list[str],
    plan: JobPlan,
    log: BinaryIO | None,
    progress_since: float | None,
    seconds_file: Path | None,
) -> int:
    """``progress_since``: print what the log gains from then on (wall clock, s); None = print nothing."""
    with signals_held() as mask:
        controllers = [ControllerProcess(plan, mask, log)] if log else []

        def search() -> None:
            try:
                controllers.append(ControllerProcess(plan, mask, open_log(plan.folder)))
            except (OSError, UsageError) as error:
                say(f"the saved config is of another program, and the job cannot be tuned instead: {error}")

        def check() -> None:
            for controller in controllers:
                controller.check()

        progress = (
            show_progress(plan.folder, progress_since) if plan.logs and progress_since else contextlib.nullcontext()
        )
        replay = replay_log(plan, search) if plan.logs else None
        code = None
        try:
            with progress:
                code = _run_timed(command, mask, check, seconds_file)
                return code
        finally:
            if replay:
                replay.end(code)  # from now on it starts no controller
            for controller in controllers:
                controller.end(code)


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
