"""One advice, and all of them."""

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

    name: str  # of the process group, as NCCL was told
    max_ctas: int


@dataclass(frozen=True, slots=True)
class Advice:
    """``environment`` is what would be exported; ``evidence`` what speaks for it (or against it), in one sentence.
    ``arms`` of `lagom bench` that would measure it, or did."""

    what: str
    standing: Standing
    evidence: str
    environment: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    arms: tuple[str, ...] = ()

    @property
    def is_measured_gain(self) -> bool:
        """Only such an advice is exported."""
        return self.standing is Standing.GAIN


def joined(proposals: Iterable[Advice], measured: Iterable[Advice]) -> tuple[Advice, ...]:
    """Proposals with what became of them where their arm was measured, and the rest of what was measured."""
    by_arm = {arm: advice for advice in measured for arm in advice.arms}
    found = []
    for advice in proposals:
        mine = [by_arm.pop(arm) for arm in advice.arms if arm in by_arm]
        found.append(replace(advice, standing=mine[0].standing, evidence=mine[0].evidence) if mine else advice)
    return tuple(sorted([*by_arm.values(), *found], key=lambda advice: list(Standing).index(advice.standing)))


@dataclass(frozen=True, slots=True)
class Advices:
    """``remarks``: why something was not looked at."""

    source: str
    all: tuple[Advice, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def gains(self) -> tuple[Advice, ...]:
        """Those that were measured to be worth it."""
        return tuple(advice for advice in self.all if advice.is_measured_gain)

    def environment(self) -> dict[str, str]:
        """What the next job should be started with: of measured gains only. Two that set one variable differently
        cannot both be had; the first, which gained more, wins."""
        merged: dict[str, str] = {}
        for advice in self.gains:
            if all(merged.get(name, value) == value for name, value in advice.environment.items()):
                merged.update(advice.environment)
        return merged
