"""The controller process beside a job: started, watched, and gone when the job is, in every case."""

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
from lagom.journal import LOG_NAME
from lagom.journal.log_status import write_death, write_end
from lagom.launch.job_plan import JobPlan
from lagom.launch.supervise import Mask
from lagom.settings import read, split_rules
from lagom.wire.job_key import job_key, region_path
from lagom.wire.library import controller_environment, controller_program
from lagom.wire.region import unlink_if_unheld

LOG = "controller.log"
REFUSED = 2  # the exit code with which the controller says why it does not run
STARTED = "lagom controller "  # how its first line begins, before its pid
STOP_SECONDS = 10.0


class NoLog(UsageError):
    """The log cannot be written: a job that did not ask for it in so many words can do without."""


class ControllerProcess:
    """One ``lagom.controller``, in a session of its own: the terminal's Ctrl-C is for the job alone."""

    def __init__(self, plan: JobPlan, mask: Mask, log: BinaryIO) -> None:
        self.folder = plan.folder
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
        """Say so, once, if the controller has ended while the job still runs."""
        code = self._process.poll()
        if code and not self._complained:
            self._complained = True
            reason = read_end_reason(self.folder / LOG)
            if code != REFUSED:  # then it has said so in the log itself
                write_death(self.folder, f"(pid {self._process.pid}) {describe_end(code)}{reason}")
            text = f"lagom: the controller ended with {code}{reason}; the job goes on with what was agreed so far."
            print(text, file=sys.stderr, flush=True)

    def end(self, job_code: int | None) -> None:
        """Stop the controller and leave no shared memory behind. It removes the region and ends its log itself unless
        it was killed. ``job_code``: what the job's command ended with; None = it could not be started."""
        asked = self._process.poll() is None
        if asked:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        unlink_if_unheld(self.region)  # a killed controller leaves it
        code = self._process.wait()
        if code:
            job = "cannot be started" if job_code is None else f"ended with {job_code}"
            unready = asked and code == -signal.SIGTERM  # it listens to that once it has begun
            reason = f"the job's command {job}; its controller {'had not begun yet' if unready else describe_end(code)}"
            write_end(self.folder, reason, time.monotonic() - self._began)


def describe_end(code: int) -> str:
    """How a process ended, in words: its exit code as :mod:`subprocess` tells it."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def build_command_line(plan: JobPlan, key: str) -> list[str]:
    """How the controller of a job is started. ``--launcher``: the ranks may take as long as they like to come."""
    line = [*controller_program(), "--job-key", key, "--job", plan.job]
    line += ["--launcher", str(os.getpid())]
    line += ["--dir", str(plan.folder), "--mode", "tune", "--strategy", read("LAGOM_STRATEGY")]
    if read("LAGOM_CLOCK") == "simulated":  # a job of virtual ranks
        line += ["--clock", "simulated"]
    for rule in split_rules(read("LAGOM_SET")):
        line += ["--set", rule]
    return [*line, *plan.controller_options]


def find_job_key() -> str:
    """The name of this job's shared memory, as the ranks will derive it from the variables now in the environment."""
    key = job_key()
    if key is None:
        raise UsageError("no variable names this job; set LAGOM_JOB_ID to the same word for every rank.")
    return key


def open_log(folder: Path) -> BinaryIO:
    """controller.log, locked: the controller inherits the lock, so two jobs at once cannot share a folder. The lock
    goes with the last process that holds the file open. Raises :class:`NoLog`."""
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
    """The log folder made and controller.log opened, if this plan has a controller. Where that cannot be: refused if
    the user named the folder with --dir, else the job goes without, and its plan says so. Mode off needs no folder."""
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
    """Raises :class:`NoLog` where it cannot be made, or others could write to it."""
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        wrong = not_ours(folder)
    except OSError as error:
        raise NoLog(f"the log folder {folder} cannot be made ({error.strerror}); name another with --dir.") from error
    if wrong:
        raise NoLog(f"the log folder {folder} {wrong}; name one of your own with --dir.")


def check_journal(folder: Path) -> None:
    """Raises :class:`NoLog` where something lies in the decision log's place that cannot be appended to."""
    log = folder / LOG_NAME
    if os.path.lexists(log):
        try:
            os.close(open_append(log))
        except OSError as error:
            raise NoLog(f"the log {log} cannot be written ({error.strerror}); name a folder with --dir.") from error


def read_end_reason(log: Path) -> str:
    """``: `` and why the controller ended, if it said; its first line only says where it is."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return f": {lines[-1].rstrip('.')}" if lines and not lines[-1].startswith(STARTED) else ""
