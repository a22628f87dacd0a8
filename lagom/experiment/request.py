# SPDX-License-Identifier: Apache-2.0
"""What an experiment was asked to do, whichever schedule chooses its processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lagom.config_cache import PLACEHOLDER
from lagom.environment import with_conf_files
from lagom.experiment.fingerprint import env_fingerprint
from lagom.nodes.node_facts import OF_A_NODE

#: The number of a process, for a folder of its own.
TRIAL = "LAGOM_TRIAL"
#: Measures of a whole process. Everything else is measured within one job.
MEASURES = {
    "metric": "the job's own metric", "calls": "time per NCCL call", "wall": "wall time of the job's command",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    """``command`` in processes that are each ended after ``samples`` steady samples. ``metric``: one group that matches
    a number in a line of the job's output, an iteration's time or (``higher_is_better``) its speed. ``budget``: of all
    processes; ``run_limit``: of one; ``search_limit``: of one that tunes, whose search then ends early enough for its
    final A/B. ``communicators``: of a process that compares or tunes, those that must have an outcome. ``environ``:
    variables of every process. ``by``: the measure, where it is neither the metric nor the call rate. ``nnodes``:
    nodes of which each starts ``command``; ``exchange``: where their launchers meet. ``is_lost``: given the steady
    samples so far, whether a process may be ended because it is clearly worse than others. Times in seconds.
    """

    command: tuple[str, ...]
    folder: Path
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

    @property
    def measure(self) -> str:
        """How an iteration of a process is measured: one way for all of them, or they could not be compared.

        ``metric``: what the job prints. ``calls``: how fast it makes NCCL calls, as the plugin counts them. ``wall``:
        the whole process, for want of anything better where one runs without the plugin, or makes too few calls.
        """
        return self.by or ("metric" if self.metric else "calls")

    def numbered(self, number: int) -> Request:
        """The request of one process, which finds its number in `{trial}` of its command and in LAGOM_TRIAL."""
        command = tuple(word.replace(PLACEHOLDER, str(number)) for word in self.command)
        return replace(self, command=command, environ={**self.environ, TRIAL: str(number)})

    def variables(self) -> dict[str, str]:
        """Those that make another job of the command. Of several nodes, which may take turns as the one that keeps the
        samples, without what is a node's own."""
        found = env_fingerprint(with_conf_files({**os.environ, **self.environ}))
        return found if self.nnodes == 1 else {name: found[name] for name in found if name not in OF_A_NODE}
