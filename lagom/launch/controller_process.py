# SPDX-License-Identifier: Apache-2.0
"""Starts the controller process of a job, watches it, and stops it when the job ends."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from lagom.errors import UsageError
from lagom.files import FOLDER_MODE, not_ours, open_append
from lagom.journal import LOG_NAME, JobStart
from lagom.journal.log_status import write_death, write_end
from lagom.launch.job_plan import JobPlan
from lagom.launch.supervise import Mask
from lagom.settings import is_simulated, read, split_rules
from lagom.version import __version__
from lagom.wire.job_key import job_key, region_path
from lagom.wire.library import controller_environment, controller_program
from lagom.wire.region import unlink_if_unheld

LOG = "controller.log"
REFUSED = 2  # the exit code with which the controller says why it does not run
STARTED = "lagom controller "  # how its first line begins, before its pid
STOP_SECONDS = 10.0


class NoLog(UsageError):
    """The log cannot be written. Only a job that was started with --dir needs it; any other runs without tuning."""


class ControllerProcess:
    """One ``lagom.controller`` in a session of its own, so that the terminal's Ctrl-C reaches only the job."""

    def __init__(self, plan: JobPlan, mask: Mask, log: BinaryIO) -> None:
        self.folder = plan.folder
        self._start = JobStart(job=plan.job, mode=plan.mode, lagom=__version__, simulated_clock=is_simulated())
        self._log_bytes = _size(plan.folder / LOG_NAME)
        key = find_job_key()
        self.region = region_path(key)
        self._complained = False
        self._began = time.monotonic()
        with log:
            self._process = subprocess.Popen(
                build_command_line(plan, key),
                env=controller_environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),  # touches no lock
            )

    def check(self) -> None:
        """Print once that the controller has ended while the job still runs."""
        code = self._process.poll()
        if code and not self._complained:
            self._complained = True
            reason = read_end_reason(self.folder / LOG)
            if code != REFUSED:  # a controller that refuses to run writes that to the log itself
                death = f"(pid {self._process.pid}) {describe_end(code)}{reason}"
                write_death(self.folder, death, was_killed=code < 0)
            text = f"lagom: the controller ended with {code}{reason}; the job goes on with what was agreed so far."
            print(text, file=sys.stderr, flush=True)

    def end(self, job_code: int | None) -> None:
        """Stop the controller. If it was killed, remove its shared memory and write the end of its log for it.

        ``job_code``: exit code of the job's command; None = it could not be started.
        """
        asked = self._process.poll() is None
        if asked:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        unlink_if_unheld(self.region)  # which a killed controller leaves behind
        code = self._process.wait()
        if code:
            job = "cannot be started" if job_code is None else f"ended with {job_code}"
            unready = asked and code == -signal.SIGTERM  # it handles this signal only once it runs
            reason = (
                f"the job's command {job}; its controller {'had not started yet' if unready else describe_end(code)}"
            )
            wrote = _size(self.folder / LOG_NAME) != self._log_bytes
            write_end(self.folder, reason, time.monotonic() - self._began, unsaid=None if wrote else self._start)


def _size(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def describe_end(code: int) -> str:
    """How a process ended, in words: its exit code as :mod:`subprocess` reports it."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def build_command_line(plan: JobPlan, key: str) -> list[str]:
    """The controller's command line. ``--launcher``: it waits for the ranks without a time limit."""
    line = [*controller_program(), "--job-key", key, "--job", plan.job]
    line += ["--launcher", str(os.getpid())]
    line += ["--dir", str(plan.folder), "--mode", "tune", "--strategy", read("LAGOM_STRATEGY")]
    if is_simulated():
        line += ["--clock", "simulated"]
    for rule in split_rules(read("LAGOM_SET")):
        line += ["--set", rule]
    return [*line, *plan.controller_options]


def find_job_key() -> str:
    """The name of this job's shared memory, derived from the environment as the ranks will derive it."""
    key = job_key()
    if key is None:
        raise UsageError("no variable names this job; set LAGOM_JOB_ID to the same word for every rank.")
    return key


def open_log(folder: Path) -> BinaryIO:
    """Open and lock controller.log. The controller inherits the lock, so two jobs cannot use one folder at the same
    time; the lock ends with the last process that holds the file open. Raises :class:`NoLog`."""
    try:
        log = os.fdopen(open_append(folder / LOG), "ab")
    except OSError as error:
        raise NoLog(f"the log folder {folder} cannot be written to ({error.strerror}); use --dir.") from error
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        log.close()
        raise NoLog(f"another job writes to {folder} right now; name another folder with --dir.") from error
    return log


def prepare_log(plan: JobPlan) -> tuple[JobPlan, BinaryIO | None]:
    """Make the log folder, and open controller.log if this plan starts a controller. If that fails, it is an error for
    a folder named with --dir; otherwise the job runs without a log, as the returned plan says. Mode off needs none."""
    if plan.variables["LAGOM_MODE"] == "off" and not plan.insists:
        return replace(plan, logs=False), None
    try:
        make_folder(plan.folder)
        check_journal(plan.folder)
        log = open_log(plan.folder) if plan.starts_controller else None
    except NoLog as error:
        if plan.insists:
            raise
        return plan.without_log(str(error)), None
    return plan, log


def make_folder(folder: Path) -> None:
    """Raises :class:`NoLog` if it cannot be made, or if others could write to it."""
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        wrong = not_ours(folder)
    except OSError as error:
        raise NoLog(f"the log folder {folder} cannot be made ({error.strerror}); name another with --dir.") from error
    if wrong:
        raise NoLog(f"the log folder {folder} {wrong}; name one of your own with --dir.")


def check_journal(folder: Path) -> None:
    """Raises :class:`NoLog` if there is a decision log that cannot be appended to."""
    log = folder / LOG_NAME
    if os.path.lexists(log):
        try:
            os.close(open_append(log))
        except OSError as error:
            raise NoLog(f"the log {log} cannot be written ({error.strerror}); name a folder with --dir.") from error


def read_end_reason(log: Path) -> str:
    """``: `` and the last line of controller.log, which says why it ended; empty if there is only the first line."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return f": {lines[-1].rstrip('.')}" if lines and not lines[-1].startswith(STARTED) else ""
