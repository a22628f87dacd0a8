# SPDX-License-Identifier: Apache-2.0
"""Every legal assignment: the oracle for small problems. Meant for the simulator; a live job would never finish."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import ClassVar

from lagom.errors import LagomError
from lagom.records import Assignment, CommConfig, Problem
from lagom.search.base import Answer, Moves, Proposal, Strategy, percent
from lagom.search.measurements import Measurements

LIMIT = 20_000


class TooMany(LagomError):
    """The space is too large to be tried whole; the message says how large."""


class Exhaustive(Strategy):
    """Try all, keep the fastest."""

    name: ClassVar[str] = "exhaustive"

    def __init__(
        self, problem: Problem, seed: int = 0, *, shared: bool = False, every: int = 1, limit: int = LIMIT
    ) -> None:
        """``every``: only each n-th rung of every ladder (NCCL's own always). Raises TooMany above ``limit``."""
        super().__init__(problem, seed, shared=shared)
        self.every = every
        self._choices = [
            [config for config in self.space.configs(unit[0]) if self._on_coarse_ladder(unit[0], config)]
            for unit in self.space.units
        ]
        count = math.prod(len(choices) for choices in self._choices)
        if count > limit:
            raise TooMany(
                f"{count} assignments are too many to try all (limit {limit}): use fewer sites or every={every + 1}"
            )

    def assignments(self) -> Iterator[Assignment]:
        """All of them, stock left out."""
        for configs in itertools.product(*self._choices):
            assignment = self.space.stock
            for unit, config in zip(self.space.units, configs, strict=True):
                for site in unit:
                    assignment = assignment.with_config(site, config)
            if not assignment.is_stock and self.space.why_illegal(assignment) is None:
                yield assignment

    def moves(self, measurements: Measurements) -> Moves:
        """Each assignment beside the fastest so far."""
        best = measurements.known(self.space.stock)
        for number, candidate in enumerate(self.assignments(), 1):
            why = f"assignment {number}"
            answer = yield Proposal(candidate, why, against=best.assignment, cautious=True)
            self.explain(f"{why}: Z {percent(answer.delta, 'the best before')}")
            if answer.new is not None and answer.new.z < best.z:
                best = answer.new
        return Answer(best.assignment, "every legal assignment was tried")

    def _on_coarse_ladder(self, site: int, config: CommConfig) -> bool:
        assignment = self.space.stock.with_config(site, config)
        rungs = [(self.space.rung(assignment, site, dim), self.space.ladder(site, dim)) for dim in self.space.dims]
        return all(rung % self.every == 0 or ladder[rung] is None for rung, ladder in rungs)
