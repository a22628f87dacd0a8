# SPDX-License-Identifier: Apache-2.0
"""Communications as ``lagom`` moves them: which go together, which weigh most, and how far each has grown."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from lagom.records import Assignment, Problem
from lagom.search.base import KnobChange
from lagom.search.measurements import Trial
from lagom.search.space import Space, Unit


@dataclass(frozen=True, slots=True)
class SiteGroups:
    problem: Problem
    space: Space

    def together(self, units: list[Unit]) -> list[Unit]:
        """The communications of one context as one; of unknown context, each by itself."""
        groups: dict[str | Unit, list[int]] = {}
        for unit in units:
            groups.setdefault(self.problem.sites[unit[0]].context or unit, []).extend(unit)
        return [tuple(sites) for sites in groups.values()]

    def matters(self, unit: Unit, stock: Trial, epsilon: float) -> bool:
        """A communication shorter than epsilon of the iteration is left to NCCL: it can neither win nor cost more."""
        seen = stock.x_of(unit)
        if seen is not None:
            return seen >= epsilon * stock.z
        total = sum(self.weight(each, stock) for each in self.space.units)
        return self.weight(unit, stock) >= epsilon * total

    def weight(self, unit: Unit, trial: Trial) -> float:
        """x_j, or where it was not seen, the bytes moved."""
        seen = trial.x_of(unit)
        sites = self.problem.sites
        return seen if seen is not None else float(sum(sites[s].bytes * sites[s].calls_per_iteration for s in unit))

    def longest_first(self, units: list[Unit], trial: Trial) -> list[Unit]:
        return sorted(units, key=lambda unit: -self.weight(unit, trial))

    def name(self, unit: Unit) -> str:
        if len(unit) > 1:
            return f"{len(unit)} {self.problem.sites[unit[0]].context} sites together".replace("  ", " ")
        return f"site {unit[0]} ({self.problem.sites[unit[0]]})"

    def change(self, before: Assignment, after: Assignment, unit: Unit, knob: str) -> KnobChange:
        """One knob's move, at the first site of a unit."""
        old, new = (self.space.magnitude(assignment, unit[0], knob) for assignment in (before, after))
        return KnobChange(knob, old, new)


@dataclass
class GrowthState:
    """How far one communication has grown (the paper's s_j)."""

    unit: Unit
    h: float = -math.inf  # -inf: not probed yet, so it comes first
    steps: dict[str, int] = field(default_factory=dict)  # rungs of the next move, per knob; 0 = no further change
    turn: str = ""  # the knob to move next

    @property
    def done(self) -> bool:
        return not any(self.steps.values())

    def open_knobs(self) -> list[str]:
        """The knobs that may still move, the one whose turn it is first."""
        knobs = [knob for knob, step in self.steps.items() if step]
        return sorted(knobs, key=lambda knob: knob != self.turn)

    def alternate(self, moved: str) -> None:
        """After a success the other knob has its turn."""
        self.turn = next((knob for knob in self.steps if knob != moved and self.steps[knob]), moved)

    def shorten(self, knob: str) -> None:
        """After a failure the step shrinks; at 0 the knob does not move any more."""
        self.steps[knob] -= 1
