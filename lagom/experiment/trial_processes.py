# SPDX-License-Identifier: Apache-2.0
"""Processes of a trial that outlive its launcher: ranks are ended, our controller is waited for, daemons are left.

A launcher that is killed ends no rank. Those of torchrun have a session each, so that no signal to a process group
reaches them, and the next trial would meet a full GPU. They are found in two ways: by the name of the job in their
environment; and as children that this process did not start, since orphans of a trial come to it as long as it is a
child subreaper (prctl(2)). The second way finds those that have overwritten their environment, as setproctitle does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lagom.environment import PROC, read_process_command, read_process_environment

LIBC = ctypes.CDLL(None)
PR_SET_CHILD_SUBREAPER = 36
JOB = "LAGOM_JOB_ID"
#: What launchers set for each process that they start. SLURM_TASK_PID is of this task alone, where rank 0 has the
#: SLURM_PROCID of the batch script.
RANK_VARIABLES = (
    "RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
    "SLURM_PROCID", "SLURM_TASK_PID",
)  # fmt: skip
#: Whatever has opened this has a CUDA context, and memory of a GPU.
CUDA_DEVICE = "/dev/nvidia-uvm"
CONTROLLER = "lagom.controller"
LOOK_SECONDS = 0.1
#: From SIGTERM to SIGKILL for ranks without a launcher: nobody is left for whom they could end in order.
RANK_SECONDS = 5.0
#: What a process killed together with its launcher takes to be gone. Whoever is there afterwards means to stay.
SETTLE_SECONDS = 0.5
#: A controller without ranks and launcher ends by itself, within a second or two.
CONTROLLER_SECONDS = 10.0
NAMED, COMMAND_COLUMNS = 3, 60
#: Children that this process did not start and that went on: they are reaped once they have ended.
_ADOPTED: set[int] = set()


@dataclass(frozen=True, slots=True)
class TrialProcess:
    """A process of a trial. ``is_rank``: it has a rank of its own, or memory of a GPU."""

    pid: int
    command: str
    is_rank: bool
    is_controller: bool


class TrialProcesses:
    """All processes of a trial but its launcher; to be made before that is started with ``environ``."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._started = {pid for pid, _, parent in list_processes() if parent == os.getpid()}
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def add_launcher(self, pid: int) -> None:
        """The one that this process has started, and will wait for."""
        self._started.add(pid)

    def alive(self) -> list[TrialProcess]:
        """Those that run now. Orphans that have ended are reaped, and nothing that this process has started is: that is
        waited for by whoever has started it."""
        found = []
        for pid, state, parent in list_processes():
            is_adopted = parent == os.getpid() and (pid in _ADOPTED or pid not in self._started)
            if state == "Z" and is_adopted:
                _ADOPTED.discard(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            elif state not in "ZX" and pid not in self._started:
                if is_adopted:
                    _ADOPTED.add(pid)
                environ = read_process_environment(pid)
                if environ.get(JOB, self._environ[JOB] if is_adopted else "") == self._environ[JOB]:
                    found.append(self._describe(pid, environ))
        return found

    def _describe(self, pid: int, environ: Mapping[str, str]) -> TrialProcess:
        words = read_process_command(pid) or _name(pid)
        # What the launcher was given says nothing: a batch script has SLURM_PROCID=0, and so has every daemon of it.
        has_rank = any(environ.get(name) not in (None, self._environ.get(name)) for name in RANK_VARIABLES)
        is_controller = any(CONTROLLER in word for word in words)
        command = " ".join((os.path.basename(words[0]), *words[1:]))[:COMMAND_COLUMNS].strip() if words else "ended"
        return TrialProcess(pid, command, not is_controller and (has_rank or _uses_gpu(pid)), is_controller)

    def end(self, say: Callable[[str], None], *, ended_well: bool) -> None:
        """What the launcher has left. ``ended_well``: it ended by itself, with 0. Then it has waited for its ranks, and
        what still runs is meant to. After any other end what has a rank or a GPU is a rank that nobody ends; the rest
        are daemons, and other trials may use them. From now on orphans do not come to this process any more."""
        try:
            if not ended_well:
                self._end_all(lambda one: one.is_rank, say)
            self._alive_after(CONTROLLER_SECONDS, lambda one: one.is_controller)
        finally:
            self._end_all(lambda one: one.is_controller, say)
            LIBC.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if daemons := self._alive_after(SETTLE_SECONDS):
            how = " ".join(str(one.pid) for one in daemons)
            say(f"the job has ended and left {describe(daemons)}, a daemon that goes on; to end it: kill {how}")

    def _end_all(self, which: Callable[[TrialProcess], bool], say: Callable[[str], None]) -> None:
        """Ask, wait, insist. A Ctrl-C ends the waiting."""
        if not (left := [one for one in self.alive() if which(one)]):
            return
        say(f"{describe(left)} outlived the launcher: SIGTERM now, SIGKILL after {RANK_SECONDS:.0f} s.")
        try:
            _send(left, signal.SIGTERM)
            self._alive_after(RANK_SECONDS, which)
        finally:
            left = self._alive_after(RANK_SECONDS, which, signal.SIGKILL)
        if left:
            say(f"{describe(left)} does not end by SIGKILL either: the next process may find its GPU in use.")

    def _alive_after(
        self,
        seconds: float,
        which: Callable[[TrialProcess], bool] = lambda one: True,
        sending: signal.Signals | None = None,
    ) -> list[TrialProcess]:
        """Those of them that are there after so many seconds; returns as soon as none is. ``sending``: again and again,
        also to those that they have started meanwhile."""
        end = time.monotonic() + seconds
        while (left := [one for one in self.alive() if which(one)]) and time.monotonic() < end:
            if sending is not None:
                _send(left, sending)
            time.sleep(LOOK_SECONDS)
        return left


def describe(processes: Sequence[TrialProcess]) -> str:
    """``pid 7 (python train.py)``, of the first ones."""
    named = ", ".join(f"pid {one.pid} ({one.command})" for one in processes[:NAMED])
    return named + (f" and {len(processes) - NAMED} more" if len(processes) > NAMED else "")


def _send(processes: Sequence[TrialProcess], number: signal.Signals) -> None:
    for one in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one.pid, number)


def list_processes() -> Iterator[tuple[int, str, int]]:
    """(pid, state, parent) of every process that is not this one."""
    for name in os.listdir(PROC):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                state, parent = (PROC / name / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                yield int(name), state, int(parent)


def _name(pid: int) -> list[str]:
    """Of a process that has cleared its command line."""
    try:
        return [(PROC / str(pid) / "comm").read_text(errors="replace").strip()]
    except OSError:
        return []


def _uses_gpu(pid: int) -> bool:
    """Also a rank that its launcher told its number in another way than by a variable."""
    try:
        files = list((PROC / str(pid) / "fd").iterdir())
    except OSError:
        return False
    for file in files:
        with contextlib.suppress(OSError):
            if os.readlink(file) == CUDA_DEVICE:
                return True
    return False
