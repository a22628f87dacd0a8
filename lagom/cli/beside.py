"""The controller process beside a job: started, watched, and gone when the job is, in every case."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from lagom.cli.job import JobPlan
from lagom.cli.supervise import Mask
from lagom.errors import UsageError
from lagom.files import open_append
from lagom.settings import controller_program, read, split_rules
from lagom.wire.inspect import unlink_if_unheld
from lagom.wire.region import job_key, region_path

LOG = "controller.log"
STARTED = "lagom controller "  # how its first line begins, before its pid
STOP_SECONDS = 10.0
#: The controller shall not load what the job preloads, nor look like a rank. NCCL_HOSTID is part of the job's name.
SCRUBBED = ("LD_PRELOAD", "CUDA_", "NCCL_", "OMP_", "MKL_")
KEPT = ("NCCL_HOSTID",)


class Controller:
    """One ``lagom.controller``, in a session of its own: the terminal's Ctrl-C is for the job alone."""

    def __init__(self, plan: JobPlan, mask: Mask, log: BinaryIO) -> None:
        self.folder = plan.folder
        key = key_of_this_job()
        self.region = region_path(key)
        self._complained = False
        with log:
            self._process = subprocess.Popen(
                command_line(plan, key),
                env=scrubbed(os.environ),
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
            reason = last_words(self.folder / LOG)
            text = f"lagom: the controller ended with {code}{reason}; the job goes on with what was agreed so far."
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Stop the controller and leave no shared memory behind. It removes the region itself unless it was killed."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        unlink_if_unheld(self.region)  # a killed controller leaves it


def command_line(plan: JobPlan, key: str) -> list[str]:
    """How the controller of a job is started. ``--launcher``: the ranks may take as long as they like to come."""
    line = [*controller_program(), "--job-key", key, "--job", plan.job]
    line += ["--launcher", str(os.getpid())]
    line += ["--dir", str(plan.folder), "--mode", "tune", "--strategy", read("LAGOM_STRATEGY")]
    if read("LAGOM_CLOCK") == "simulated":  # a job of virtual ranks
        line += ["--clock", "simulated"]
    for rule in split_rules(read("LAGOM_SET")):
        line += ["--set", rule]
    return [*line, *plan.controller_options]


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what concerns GPUs and preloading."""
    return {name: value for name, value in environ.items() if name in KEPT or not name.startswith(SCRUBBED)}


def key_of_this_job() -> str:
    """The name of this job's shared memory, as the ranks will derive it from the variables now in the environment."""
    key = job_key()
    if key is None:
        raise UsageError("no variable names this job; set LAGOM_JOB_ID to the same word for every rank.")
    return key


def open_log(folder: Path) -> BinaryIO:
    """controller.log, locked: the controller inherits the lock, so two jobs at once cannot share a folder. The lock
    goes with the last process that holds the file open."""
    try:
        log = os.fdopen(open_append(folder / LOG), "ab")
    except OSError as error:
        raise UsageError(f"the log folder {folder} cannot be written to ({error.strerror}); use --dir.") from error
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        log.close()
        raise UsageError(f"another job writes to {folder} right now; name another folder with --dir.") from error
    return log


def last_words(log: Path) -> str:
    """``: `` and why the controller ended, if it said; its first line only says where it is."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return f": {lines[-1].rstrip('.')}" if lines and not lines[-1].startswith(STARTED) else ""
