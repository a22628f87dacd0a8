# SPDX-License-Identifier: Apache-2.0
"""What one ``lagom bench`` or ``lagom tune`` was asked to do."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lagom.environment import with_conf_files
from lagom.experiment.arm import Kind, TrialArm
from lagom.experiment.fingerprint import env_fingerprint
from lagom.nodes.enrolment import OF_A_NODE

#: Measures of a whole process. Everything else is measured within one job.
MEASURES = {
    "metric": "the job's own metric", "calls": "time per NCCL call", "wall": "wall time of the job's command",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    """``command`` compared under ``arms``. Numbers are minima of trust, not of time: see README.md.

    ``cycles``: of the in-job comparison, two pairs an arm each. ``jobs``: how often that is done in a new job.
    ``rounds``: processes of each process arm, each ended after ``samples`` steady samples. ``metric``: one group that
    matches a number in a line of the job's output, an iteration's time or (``higher_is_better``) its speed.
    ``search_limit``: of a process that tunes, whose search then ends early enough for its final A/B.
    ``environ``: variables of every process. ``by``: the measure, where it is not to be chosen from the arms.
    ``nnodes``: nodes of which each starts ``command``; ``exchange``: where their launchers meet. ``is_lost``: given the
    steady samples so far, whether a process may be ended because it is clearly worse than others. Times in seconds.
    """

    command: tuple[str, ...]
    arms: tuple[TrialArm, ...]
    folder: Path
    cycles: int = 8
    jobs: int = 1
    rounds: int = 6
    samples: int = 30
    metric: str = ""
    higher_is_better: bool = False
    budget: float | None = None
    run_limit: float | None = None
    search_limit: float | None = None
    communicators: int = 1
    seed: int = 0
    environ: Mapping[str, str] = field(default_factory=dict)
    by: str = ""
    nnodes: int = 1
    exchange: str = ""
    is_lost: Callable[[Sequence[float]], bool] = lambda samples: False

    def of(self, kind: Kind) -> tuple[TrialArm, ...]:
        """The arms of one kind."""
        return tuple(arm for arm in self.arms if arm.kind is kind)

    @property
    def compares_in_job(self) -> bool:
        """Whether there is anything to alternate with stock: an arm, or what a tuning run may find."""
        return len(self.of(Kind.IN_JOB)) > 1 or bool(self.of(Kind.TUNING)) or not self.of(Kind.PROCESS)

    @property
    def measure(self) -> str:
        """How an iteration of a process arm is measured: one way for all of them, or they could not be compared.

        ``metric``: what the job prints. ``calls``: how fast it makes NCCL calls, as the plugin counts them. ``wall``:
        the whole process, for want of anything better where an arm runs without the plugin.
        """
        if self.by or self.metric:
            return self.by or "metric"
        return "calls" if all(arm.plugin for arm in self.of(Kind.PROCESS)) else "wall"

    def out_of_time(self, left: float | None, needed: float, waiting: Iterable[object], clock: str = "time") -> str:
        """A sentence, if so many seconds are ``left`` of the budget and one more process of those ``waiting`` needs
        more. The same command helps only if the budget is enough for one."""
        if self.budget is None or left is None or left >= needed:
            return ""
        what = f"{clock} limit reached, processes left: {len(list(waiting))}"
        if self.budget < needed:
            least = math.ceil(needed)
            return f"{what}; the next one needs at least {least} s: use --budget {least} or more."
        return f"{what}; the same command continues."

    def variables(self) -> dict[str, str]:
        """Those that make another job of the command. Of several nodes, which may take turns as the one that keeps the
        samples, without what is a node's own."""
        found = env_fingerprint(with_conf_files({**os.environ, **self.environ}))
        return found if self.nnodes == 1 else {name: found[name] for name in found if name not in OF_A_NODE}
