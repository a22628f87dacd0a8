# SPDX-License-Identifier: Apache-2.0
"""``given``: no search at all. Each of the assignments it was handed is measured once; how one tests a hypothesis.

Used by ``lagom run --compare RULE``: stock and the named configs alternate within one job, with an A/A window first.
"""

from __future__ import annotations

from collections.abc import Sequence

from lagom.records import Assignment, Problem
from lagom.search.base import Answer, Moves, Proposal, Strategy, percent
from lagom.search.measurements import Measurements


class Given(Strategy):
    """Measures ``assignments`` in order and answers with the fastest; the final A/B is the test."""

    name = "given"
    proves_early = False  # all its configs are compared with stock
    checked = False

    def __init__(self, problem: Problem, seed: int = 0, *, assignments: Sequence[Assignment] = ()) -> None:
        super().__init__(problem, seed)
        self.assignments = tuple(assignments)

    def moves(self, measurements: Measurements) -> Moves:
        """One proposal an assignment."""
        for number, assignment in enumerate(self.assignments, start=1):
            answer = yield Proposal(assignment, f"config {number} of {len(self.assignments)}, as given by hand")
            self.explain(f"config {number} as given by hand: {percent(answer.delta, 'the incumbent')}")
        fastest = min(measurements.trials(), key=lambda trial: trial.z, default=None)
        best = measurements.stock if fastest is None else fastest.assignment
        return Answer(best, f"all {len(self.assignments)} configs given by hand were measured")
