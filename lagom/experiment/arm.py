# SPDX-License-Identifier: Apache-2.0
"""What one process of an experiment is started with, and as what it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from lagom.controller.arms import ArmWish

NO_CONTROLLER = {"LAGOM_CONTROLLER": "none"}  # the plugin counts calls and changes nothing


class Kind(Enum):
    """How an arm can be compared with stock, best first."""

    IN_JOB = "in job"  # alternates with stock within one job
    TUNING = "tuning"  # tunes in a process of its own; what it found becomes an in-job arm
    PROCESS = "process"  # a process of its own each time, in shuffled order


@dataclass(frozen=True, slots=True)
class TrialArm:
    """One arm: its name in every table, how it is compared, and what that takes."""

    name: str
    kind: Kind
    wish: ArmWish | None = None  # in job: what the controller is asked for
    strategy: str = ""  # tuning
    options: tuple[str, ...] = ()  # of `lagom run`
    environ: dict[str, str] = field(default_factory=dict)
    plugin: bool = True

    @property
    def tunes(self) -> bool:
        """Whether it changes while the job runs, so that only what comes after the search counts."""
        return bool(self.strategy)

    @property
    def settings(self) -> dict[str, str]:
        """The variables that other arms are started without."""
        return {name: value for name, value in self.environ.items() if name not in NO_CONTROLLER}

    @property
    def pins(self) -> bool:
        """Whether it is stock until its rules are agreed on."""
        return "--set" in self.options


@dataclass(frozen=True, slots=True)
class Task:
    """One process to run: a tuning run of an arm, ``cycles`` of the comparison of ``wishes`` within one job, or one
    process of an arm in a round. ``stage``: why, where the schedule has stages."""

    kind: Kind
    arm: TrialArm | None = None
    round: int = 0
    cycles: int = 0
    wishes: tuple[ArmWish, ...] = ()
    stage: str = ""

    @property
    def arm_name(self) -> str:
        """Empty of the in-job comparison, which has all arms."""
        return "" if self.arm is None else self.arm.name

    @property
    def name(self) -> str:
        """For the log folder's name."""
        arm = "".join(c if c.isalnum() else "-" for c in self.arm_name.replace(", ", " "))[:40]
        return "-".join(filter(None, (self.kind.value.replace(" ", "-"), arm, f"{self.round:02d}")))


def arm_with(name: str, settings: Mapping[str, str]) -> TrialArm:
    """Plain NCCL in a process of its own, started with these variables."""
    return TrialArm(name, Kind.PROCESS, environ={**NO_CONTROLLER, **settings})
