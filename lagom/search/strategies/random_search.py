# SPDX-License-Identifier: Apache-2.0
"""Random search: so many legal assignments, drawn independently. What any other strategy has to beat."""

from __future__ import annotations

from typing import ClassVar

from lagom.records import Assignment, Problem
from lagom.search.base import Answer, Moves, Proposal, Strategy, percent
from lagom.search.measurements import Measurements, Trial

DRAWS_A_SITE = 12


class RandomSearch(Strategy):
    """Draw, measure, keep the fastest."""

    name: ClassVar[str] = "random"

    def __init__(self, problem: Problem, seed: int = 0, *, shared: bool = False, draws: int | None = None) -> None:
        """``draws``: how many assignments; 12 a site if not said."""
        super().__init__(problem, seed, shared=shared)
        self.draws = draws if draws is not None else DRAWS_A_SITE * len(self.space.units)

    def moves(self, measurements: Measurements) -> Moves:
        """Each draw is compared with the fastest so far."""
        best: Trial = measurements.known(self.space.stock)
        for number in range(1, self.draws + 1):
            candidate = self._draw()
            why = f"draw {number} of {self.draws}"
            answer = yield Proposal(candidate, why, against=best.assignment, cautious=True)
            taken = answer.better and answer.new is not None
            made = f"{why}: Z {percent(answer.delta, 'the best before')}; {'taken' if taken else 'left'}"
            self.explain(made, kept=taken)
            if taken and answer.new is not None:
                best = answer.new
        return Answer(best.assignment, f"best of {self.draws} draws")

    def _draw(self) -> Assignment:
        """One legal assignment, each rung of each knob as likely as any other."""
        assignment = self.space.stock
        for unit in self.space.units:
            assignment = self.space.in_subspace(
                assignment, unit, self.random.choice((None, *self.space.subspaces(unit)))
            )
            for dim in self.space.dims:
                if not self.space.movable(assignment, unit, dim):
                    continue
                share = self.random.random()
                for site in unit:
                    rungs = len(self.space.ladder(site, dim))
                    assignment = self.space.at(assignment, site, dim, int(share * rungs))
        return assignment
