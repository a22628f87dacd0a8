"""Which communication ``lagom`` grows next, and which knobs it may trade against each other."""

from __future__ import annotations

import pytest

from lagom.search import Policy, SearchMove, TuningSession, make_strategy
from lagom.search.landscape import Communication, Landscape, LandscapeDriver

MS = 1e6
NO_LIMIT = Policy(max_iterations=None, max_configs=10_000)


def moves_of(landscape: Landscape) -> tuple[SearchMove, ...]:
    problem = landscape.problem()
    session = TuningSession(make_strategy("lagom", problem), problem, NO_LIMIT)
    return LandscapeDriver(landscape, noise=0.0).drive(session).moves


@pytest.mark.parametrize("see_kernels", [True, False])
def test_a_communication_whose_first_growth_fails_waits_for_the_others(see_kernels: bool) -> None:
    """No config makes site 0 faster; site 1 gains with every step. Without an H of its own after
    a failure, site 0 would have been tried until no knob of it was left."""
    stubborn, gaining = Communication(100 * MS, 1e-9), Communication(8 * MS, 4.0)
    landscape = Landscape((stubborn, gaining), 5 * MS, ceiling=8, half_chunk=64 << 10, see_kernels=see_kernels)
    grown = [move for move in moves_of(landscape) if move.phase == "grow"]
    failed = next(number for number, move in enumerate(grown) if move.site == 0)
    assert not grown[failed].kept
    gained = [number for number, move in enumerate(grown) if move.kept]
    again = [number for number, move in enumerate(grown) if move.site == 0 and number > failed]
    assert failed < max(gained) < min(again), "site 0 was tried again before site 1 had all its gain"
