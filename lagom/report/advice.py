# SPDX-License-Identifier: Apache-2.0
"""A proposal for the next start, and the set of all proposals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum


class Standing(Enum):
    """What is known of an advice."""

    GAIN = "measured gain"
    NO_GAIN = "measured, no gain"
    PROPOSAL = "not measured"


@dataclass(frozen=True, slots=True)
class Group:
    """A cap for one process group, as torch and Megatron set them when they make it."""

    name: str  # of the process group, as NCCL got it
    max_ctas: int
    alone: bool = False  # the job's only one: then the variable and the group's own cap are the same


@dataclass(frozen=True, slots=True)
class Advice:
    """``environment`` is what would be exported; ``evidence`` for it (or against it), in one sentence.
    ``arms`` of `lagom bench` that would measure it, or did; ``speedup`` that they showed."""

    what: str
    standing: Standing
    evidence: str
    environment: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    arms: tuple[str, ...] = ()
    speedup: float = 1.0

    @classmethod
    def of_variable(cls, what: str, evidence: str, name: str, value: object, groups: tuple[Group, ...] = ()) -> Advice:
        """A proposal of one variable, with the arm that would measure it."""
        return cls(what, Standing.PROPOSAL, evidence, {name: str(value)}, groups, (f"env={name}={value}",))

    @property
    def is_measured_gain(self) -> bool:
        """Only such an advice is exported."""
        return self.standing is Standing.GAIN


#: Of two judgements of one arm the more careful one holds.
_CAREFUL = (Standing.PROPOSAL, Standing.GAIN, Standing.NO_GAIN)


def join_advice(proposals: Iterable[Advice], measured: Iterable[Advice]) -> tuple[Advice, ...]:
    """Proposals with what became of them where their arm was measured, and the rest of what was measured."""
    ordered = sorted(measured, key=lambda advice: _CAREFUL.index(advice.standing))
    by_arm = {arm: advice for advice in ordered for arm in advice.arms}
    found, used = [], set()
    for advice in proposals:
        mine = next((by_arm[arm] for arm in advice.arms if arm in by_arm), advice)
        used |= set(mine.arms) & set(by_arm)
        found.append(replace(advice, standing=mine.standing, evidence=mine.evidence, speedup=mine.speedup))
    rest = [advice for arm, advice in by_arm.items() if arm not in used]
    return tuple(sorted([*rest, *found], key=lambda advice: (list(Standing).index(advice.standing), -advice.speedup)))


@dataclass(frozen=True, slots=True)
class Advices:
    """``remarks``: why something was not considered."""

    source: str
    all: tuple[Advice, ...] = ()
    remarks: tuple[str, ...] = ()

    def of(self, standing: Standing) -> tuple[Advice, ...]:
        return tuple(advice for advice in self.all if advice.standing is standing)

    @property
    def gains(self) -> tuple[Advice, ...]:
        """Those that were measured to be worth it."""
        return self.of(Standing.GAIN)

    @property
    def exported(self) -> Advice | None:
        """The greatest of them: each was measured alone; two together have not been measured."""
        return max((one for one in self.gains if one.environment), key=lambda one: one.speedup, default=None)

    def environment(self) -> dict[str, str]:
        """What the next job should be started with, exactly as it was measured."""
        return {} if self.exported is None else dict(self.exported.environment)

    def together(self) -> dict[str, str]:
        """All gains of variables at once, the greater one's word where they differ; empty where that is nothing new."""
        merged: dict[str, str] = {}
        for advice in sorted(self.gains, key=lambda one: -one.speedup):
            if all(arm.startswith("env=") for arm in advice.arms):
                merged = {**merged, **{name: text for name, text in advice.environment.items() if name not in merged}}
        known = [dict(advice.environment) for advice in self.all if advice.standing is not Standing.PROPOSAL]
        return {} if merged in known else merged
