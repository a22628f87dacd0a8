# SPDX-License-Identifier: Apache-2.0
"""One generation of ranks: a job of virtual ranks from its start to its end, as an elastic launcher sees it."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lagom.demo.stage import ENDLESS, Scene
from lagom.sim.virtual.rank import main as rank_main
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec, fsdp_like_calls
from lagom.sim.virtual.virtual_job import VirtualJob
from tests.soak.forked import Forked
from tests.soak.judge import Judge, Verdict

FIRST_COMM_ID = 0x50A4_0000
VERSIONS = ("2.27", "2.28", "2.29", "2.30", "2.30", "2.31")


def forked_rank(arguments: Sequence[str], environ: Mapping[str, str], said: Path, fd: int) -> Forked:
    """A virtual rank, in milliseconds; ``fd`` is inherited."""
    return Forked(rank_main, [*arguments], environ, said)


def some_job(dice: random.Random, number: int, ranks: int, small: bool) -> JobSpec:
    """A training job of its own kind: another NCCL, other calls, other ranks that dawdle."""
    # Without pace ranks do not wait for the controller's reading: records are dropped, more plans come too late.
    common = {"skew_us": dice.choice([0.0, 300.0, 3000.0]), "pace": dice.random() < 0.8, "keep_plans": True}
    version, seed = dice.choice(VERSIONS), dice.randrange(1 << 30)
    if dice.random() < 0.6:
        layers = 2 if small else dice.choice([2, 3, 4])
        spec = Scene(ranks=ranks, layers=layers, tokens=dice.choice([2048, 4096]), version=version, seed=seed).spec()
        timeline = dice.choice(["spans", "spans", "profiler", "none"])
        return replace(spec, communicators=(_communicator(number, 0),), timeline=timeline, **common)
    sizes = dice.sample([8, 16, 32, 64], dice.choice([1, 2]))
    calls = [fsdp_like_calls(dice.choice([2, 3]), megabytes << 20) for megabytes in sizes]
    return JobSpec(
        ranks=ranks,
        communicators=tuple(_communicator(number, index, made) for index, made in enumerate(calls)),
        iterations=ENDLESS,
        version=version,
        profiler=True,
        threads=dice.random() < 0.5,
        seed=seed,
        logging_every=10,
        **common,
    )


def _communicator(number: int, index: int, calls: tuple[tuple[int, int], ...] = ()) -> CommunicatorSpec:
    return CommunicatorSpec(FIRST_COMM_ID + 16 * number + index, f"pg{index}", calls)


class Generation:
    """Its ranks, running; afterwards its files, to be judged."""

    def __init__(self, spec: JobSpec, folder: Path, environ: Mapping[str, str], number: int) -> None:
        self.spec, self.folder, self.number = spec, folder, number
        self.job = VirtualJob(spec, folder, environ, begin=forked_rank)
        self.paused_until = [0.0] * spec.ranks
        self.dying = False  # a rank has been killed
        self._seen, self._since = -1, time.monotonic()

    def __enter__(self) -> Generation:
        self.job.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.job.__exit__()

    def pause(self, rank: int, seconds: float) -> None:
        """SIGSTOP for so long."""
        self.job.pause(rank)
        self.paused_until[rank] = max(self.paused_until[rank], time.monotonic() + seconds)

    def kill(self, rank: int) -> None:
        """SIGKILL: the end of this generation."""
        self.dying = True
        self.job.processes[rank].kill()

    def wake(self, everybody: bool = False) -> None:
        """SIGCONT to those whose time is over."""
        now = time.monotonic()
        for rank, until in enumerate(self.paused_until):
            if until and (everybody or now >= until):
                self.job.go_on(rank)
                self.paused_until[rank] = 0.0

    def stuck_for(self) -> float:
        """Seconds without a finished iteration although no rank is paused or dead."""
        iteration, now = self.job.iteration, time.monotonic()
        if iteration != self._seen or any(self.paused_until) or self.dying:
            self._seen, self._since = iteration, now
        return now - self._since

    def end(self) -> None:
        """In order, all at the same iteration; or, if a rank is dead, as a launcher ends the others."""
        self.wake(everybody=True)
        if self.dying:
            for process in self.job.processes:
                process.kill()
                process.wait()
            return
        self.job.stop()
        self.job.finish()

    def judged(self, judge: Judge) -> Verdict:
        """What its files say; kept only if something is wrong."""
        verdict = judge.generation(self.folder, self.spec)
        verdict.counts["iterations"] += self.job.iteration
        if not verdict.faults:
            shutil.rmtree(self.folder)
        return verdict
