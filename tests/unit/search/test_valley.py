# SPDX-License-Identifier: Apache-2.0
"""Growth may end where every step is uphill and the job is slower than before: the search does not go on from there."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from lagom.records import Assignment, CommConfig
from lagom.search import TuningSession
from lagom.search.base import Proposal
from lagom.search.landscape import LandscapeDriver, comm_bound
from lagom.search.measurements import Measurements, Trial
from lagom.search.strategies.lagom import Lagom


class EndsInAValley(Lagom):
    """Grows to two channels everywhere, which is far slower than stock, and tells where the search goes on."""

    explored: Trial | None = None

    def _grow(self, current: Trial) -> Generator[Proposal, Any, Trial]:
        slow = Assignment(tuple(CommConfig(channels=2) for _ in current.assignment))
        answer = yield Proposal(slow, "the end of growth", None, current.assignment, cautious=True)
        assert answer.new is not None
        return answer.new

    def _raise_together(self, measurements: Measurements, current: Trial) -> Generator[Proposal, Any, Trial]:
        yield from ()
        return current

    def _explore(self, current: Trial) -> Generator[Proposal, Any, Trial]:
        self.explored = current
        return (yield from super()._explore(current))


@pytest.mark.parametrize("seed", range(3))
def test_behind_the_incumbent_the_search_goes_on_from_the_incumbent(seed: int) -> None:
    landscape = comm_bound()
    problem = landscape.problem()
    strategy = EndsInAValley(problem, seed)
    session = TuningSession(strategy, problem, seed=seed)
    LandscapeDriver(landscape, seed=seed, noise=0.005).drive(session)
    assert strategy.explored is not None, "it was content with a config slower than the incumbent"
    assert strategy.explored.assignment.is_stock, "nothing had been confirmed yet, so stock is the incumbent"
