# SPDX-License-Identifier: Apache-2.0
"""What ``lagom doctor`` checks: one file for each question, each returns findings with their remedies.

Nothing here imports torch or needs a GPU: wheels are read from their metadata, and libraries are asked in a process of
their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lagom.doctor.machine_verdict import MachineVerdict
    from lagom.doctor.nodes import NodesTrial


class Level(Enum):
    """How bad it is. A PROBLEM makes ``lagom doctor`` exit with 1, as a verdict does that nothing can be tuned."""

    OK = "ok"
    NOTE = "note"  # works, but with less than could be had
    PROBLEM = "problem"  # lagom will not tune, or another NCCL runs than one would think


@dataclass(frozen=True, slots=True)
class Finding:
    """``area`` is the question, ``text`` the answer, ``remedy`` what to do about it (empty only where all is well)."""

    level: Level
    area: str
    text: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """For ``--json``."""
        return {"level": self.level.value, "area": self.area, "text": self.text, "remedy": self.remedy}


def examine(
    environ: Mapping[str, str] | None = None, *, clean: bool = False, trial: NodesTrial | None = None
) -> tuple[list[Finding], MachineVerdict]:
    """Every finding of this machine and environment, and what they amount to; ``clean`` also removes stale regions.
    ``trial``: with other nodes, which do the same."""
    from lagom.doctor import atlas, cache, libraries, memory, plugin, variables
    from lagom.doctor.machine_verdict import judge
    from lagom.environment import find_gpu

    here = os.environ if environ is None else environ
    ours, nccl, gpu = plugin.examine(here), libraries.find_installed(here), find_gpu()
    findings = [
        *ours,
        *libraries.examine(nccl),
        *variables.examine(here),
        *plugin.examine_cupti(here),
        *memory.examine(here, clean=clean),
        *cache.examine(here),
        *atlas.examine(here, gpu, nccl.code),
    ]
    if trial is not None:
        from lagom.doctor import nodes

        findings += nodes.examine(trial, here, nodes.facts_of_node((), {}, here))
    verdict = judge(
        plugin_loads=all(finding.level is not Level.PROBLEM for finding in ours),
        nccl_found=bool(nccl.candidates),
        nccl=nccl.code,
        gpu=gpu,
        problems=sum(finding.level is Level.PROBLEM for finding in findings),
    )
    return findings, verdict
