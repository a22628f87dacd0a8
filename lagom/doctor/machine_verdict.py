# SPDX-License-Identifier: Apache-2.0
"""The last line of ``lagom doctor``: can a job be tuned on this machine, and if not, why not?

The NCCL that a job would load here decides, not the GPU: a login node has none, and its jobs run elsewhere. A missing
GPU is printed but does not change the verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from lagom.doctor.nccl_versions import TABLE, Capabilities, capabilities, version_from_code
from lagom.format import format_version


class Reach(Enum):
    """How much lagom can do here."""

    TUNE = "tune"  # search while the job runs
    SIZE_RULES = "size rules"  # replay of rules by message size, and nothing else
    NOTHING = "nothing"


class Obstacle(Enum):
    """Why nothing can be tuned."""

    PLUGIN = "lagom's own libraries do not load"
    NO_NCCL = "no NCCL found"
    BROKEN_NCCL = "the NCCL found does not load or does not say its version"
    OLD_NCCL = "NCCL {version} does not load lagom's tuner plugin ({needed} or later is needed)"


@dataclass(frozen=True, slots=True)
class MachineVerdict:
    """``nccl``: version code of the NCCL that a job would load; 0 = not known. ``gpu``: its name; empty = none is
    visible. ``problems``: how many findings must be solved first."""

    obstacle: Obstacle | None
    nccl: int
    gpu: str
    problems: int

    @property
    def reach(self) -> Reach:
        """The verdict if nothing prevents tuning: what this NCCL release allows."""
        if self.obstacle:
            return Reach.NOTHING
        return Reach.TUNE if self._able.online else Reach.SIZE_RULES

    @property
    def _able(self) -> Capabilities:
        return capabilities(version_from_code(self.nccl))

    @property
    def exit_code(self) -> int:
        """1 where nothing can be tuned, or not before a problem is solved."""
        return 1 if self.problems or self.reach is Reach.NOTHING else 0

    @property
    def sentence(self) -> str:
        """The last line of the doctor."""
        version = format_version(self.nccl)
        if self.obstacle:
            needed = _first_release(lambda able: able.tuner > 0)
            return f"nothing can be tuned here: {self.obstacle.value.format(version=version, needed=needed)}"
        clauses = [self._what_is_possible(version)]
        if not self.gpu:
            clauses.append("no GPU is visible on this machine, so this is about jobs that load the same NCCL elsewhere")
        if self.problems:
            count = "1 problem" if self.problems == 1 else f"{self.problems} problems"
            clauses.append(f"{count} above must be solved first")
        return "; ".join(clauses)

    def _what_is_possible(self, version: str) -> str:
        if self.reach is Reach.SIZE_RULES:
            needed = _first_release(lambda able: able.online != "")
            return (
                f"only replay of size rules: NCCL {version} cannot be tuned while the job runs "
                f"({needed} or later is needed)"
            )
        how = "while the job runs"
        if self._able.online == "both":
            how += ", with both plugin variables, which `lagom run` and `lagom env` set"
        return f"this machine can be tuned: NCCL {version}, {how} ({', '.join(self._able.knobs)})"

    def as_dict(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "reach": self.reach.value,
            "obstacle": self.obstacle.name.lower() if self.obstacle else "",
            "nccl": format_version(self.nccl),
            "gpu": self.gpu,
            "text": self.sentence,
        }


def judge(*, plugin_loads: bool, nccl_found: bool, nccl: int, gpu: str, problems: int) -> MachineVerdict:
    """``nccl_found``: there is a libnccl; ``nccl``: the version code that it says, 0 if it does not."""
    obstacle = None
    if not plugin_loads:
        obstacle = Obstacle.PLUGIN
    elif not nccl:
        obstacle = Obstacle.BROKEN_NCCL if nccl_found else Obstacle.NO_NCCL
    elif not capabilities(version_from_code(nccl)).tuner:
        obstacle = Obstacle.OLD_NCCL
    return MachineVerdict(obstacle, nccl, gpu, problems)


def _first_release(suits: Callable[[Capabilities], bool]) -> str:
    return format_version(next(able.since for able in TABLE if suits(able))).removesuffix(".0")
