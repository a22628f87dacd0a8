# SPDX-License-Identifier: Apache-2.0
"""A job of virtual ranks as its parent sees it: start, watch, pause, stop, collect."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lagom.errors import LagomError
from lagom.sim.virtual.call_log import Difference, compare_folder
from lagom.sim.virtual.pacing import Rendezvous
from lagom.sim.virtual.spec import JobSpec

#: Real time without a finished iteration after which a job is taken to hang: a busy machine may well need a minute.
STUCK_SECONDS = 180.0


class RankFailed(LagomError):
    """A virtual rank ended with an error; the text quotes the end of what it said."""


@dataclass(frozen=True, slots=True)
class RankSummary:
    """What one rank reported: calls made, how many the tuner left wholly alone, whether its process joined a region and
    with how many of its communicators, iteration lengths (ns), NCCL's log."""

    rank: int
    calls: int
    untouched: int
    joined: bool
    slots: int
    lengths: tuple[int, ...]
    log: tuple[str, ...]

    @property
    def was_stock(self) -> bool:
        """True if every call was as NCCL alone would have made it."""
        return self.calls == self.untouched


class Process(Protocol):
    """What a job asks of the process of a rank: :class:`subprocess.Popen`, or something like it."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...
    def send_signal(self, number: int, /) -> None: ...


Beginning = Callable[[Sequence[str], Mapping[str, str], Path, int], Process]


def spawned(
    arguments: Sequence[str], environ: Mapping[str, str], said: Path, fd: int, *, aloud: bool = False
) -> Process:
    """A rank as a fresh Python; what it says goes to a file, or its stderr to ours (``aloud``). ``fd`` is passed on."""
    command = [sys.executable, "-m", "lagom.sim.virtual.rank", *arguments]
    with said.open("wb") as errors:
        # Its own process group: Ctrl-C is for the parent, which then stops the ranks in order.
        return subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=None if aloud else errors,
            pass_fds=[fd],
            start_new_session=True,
        )


class VirtualJob:
    """Use as a context manager: whatever happens inside, no rank is left behind.

    ``environ`` is added to the ranks' environment: LAGOM_MODE, LAGOM_JOB_ID and the like. Nothing of the caller's
    LAGOM_*, NCCL_* or torchelastic variables is passed on. ``begin``: another way to start a rank than :func:`spawned`.
    """

    def __init__(self, spec: JobSpec, folder: Path, environ: Mapping[str, str], begin: Beginning | None = None) -> None:
        self.spec, self.folder = spec, folder
        self.meeting = Rendezvous.make(spec.ranks)
        self.processes: list[Process] = []
        self._begin = begin or spawned
        self._environ = {**neutral_environment(), "LAGOM_CLOCK": "simulated", **environ}

    def __enter__(self) -> VirtualJob:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.spec.save(self.folder / "spec.json")
        try:
            for rank in range(self.spec.ranks):
                arguments = [str(self.folder), str(rank), str(self.meeting.fd)]
                said = self.folder / f"rank{rank}.err"
                self.processes.append(self._begin(arguments, self._environ, said, self.meeting.fd))
        except BaseException:  # Ctrl-C, while only some have been started
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in self.processes:
            process.wait()
        os.close(self.meeting.fd)

    @property
    def iteration(self) -> int:
        """What the slowest rank has enqueued."""
        return min(self.meeting.counts())

    def running(self) -> bool:
        """Whether all ranks are at work; raises :class:`RankFailed` if one ended badly."""
        codes = [process.poll() for process in self.processes]
        for rank, code in enumerate(codes):
            if code not in (None, 0):
                raise RankFailed(f"virtual rank {rank} ended with status {code}: {self._last_words(rank)}")
        return all(code is None for code in codes)

    def _last_words(self, rank: int) -> str:
        lines = (self.folder / f"rank{rank}.err").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing."

    def wait_iteration(self, iteration: int) -> bool:
        """Until every rank has enqueued ``iteration`` iterations; False when they are done before or hang."""
        progress = _Progress(self.meeting)
        while not progress.is_stuck():
            if self.iteration >= iteration:
                return True
            if not self.running():
                return self.iteration >= iteration
            time.sleep(0.01)
        return False

    def pause(self, rank: int) -> None:
        """SIGSTOP."""
        self.processes[rank].send_signal(signal.SIGSTOP)

    def go_on(self, rank: int) -> None:
        """SIGCONT."""
        self.processes[rank].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ends the job, at the same iteration on every rank."""
        self.meeting.stop_soon()

    def finish(self) -> list[RankSummary]:
        """Waits for the ranks to end by themselves; raises :class:`RankFailed` if one hangs or ends badly."""
        progress = _Progress(self.meeting)
        for rank, process in enumerate(self.processes):
            while process.poll() is None:
                if progress.is_stuck():
                    raise RankFailed(f"virtual rank {rank} made no iteration and did not end in {STUCK_SECONDS:.0f} s.")
                time.sleep(0.005)
        self.running()
        return self.summaries()

    def summaries(self) -> list[RankSummary]:
        """What the ranks wrote at their end."""
        return [_summary(self.folder / f"rank{rank}.json") for rank in range(self.spec.ranks)]

    def differences(self) -> list[Difference]:
        """The first call, on each communicator, on which two ranks ran different configs."""
        return compare_folder(self.folder, self.spec.ranks)


class _Progress:
    """Whether any rank of a job still gets on."""

    def __init__(self, meeting: Rendezvous) -> None:
        self._meeting, self._counts, self._since = meeting, meeting.counts(), time.monotonic()

    def is_stuck(self) -> bool:
        """No rank has finished an iteration for :data:`STUCK_SECONDS`."""
        counts, now = self._meeting.counts(), time.monotonic()
        if counts != self._counts:
            self._counts, self._since = counts, now
        return now - self._since > STUCK_SECONDS


def _summary(path: Path) -> RankSummary:
    fields: dict[str, Any] = json.loads(path.read_text())
    return RankSummary(**{**fields, "lengths": tuple(fields["lengths"]), "log": tuple(fields["log"])})


def neutral_environment() -> dict[str, str]:
    """Ours without what would name another job or change NCCL or a plugin."""
    unwanted = ("LAGOM_", "NCCL_", "TORCHELASTIC_", "MASTER_", "SLURM_", "PMI")
    return {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}


def every_word(logs: Sequence[tuple[str, ...]]) -> str:
    """All log lines of all ranks as one text, for messages of failed tests."""
    return "\n".join(f"[{rank}] {line}" for rank, lines in enumerate(logs) for line in lines)
