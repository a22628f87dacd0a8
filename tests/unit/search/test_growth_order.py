# SPDX-License-Identifier: Apache-2.0
"""Which communication ``lagom`` grows next, and which knobs it may trade against each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.second_family import STEP_NS, SecondLandscape, Valley
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


def ridge() -> SecondLandscape:
    """One communication with its valley across NC and C: from its bottom a change of either knob alone is a loss."""
    valley = Valley(
        time=0.8 * STEP_NS, exposed=False, top=4.0, knee=0.0, climb=0.0, best_v=6.0, bend=0.05, tilt=-1.0,
        tax=0.3, power=1.0, chunk_tax=0.0, ripple=0.0, phase=0.0, steep=0.0, few=0.0,
    )  # fmt: skip
    return SecondLandscape("ridge", (valley, replace(valley, time=1.0)), 0.75 * STEP_NS, 0.0, 16, False, 0.05)


def test_channels_and_chunk_of_one_communication_are_traded() -> None:
    landscape = ridge()
    problem = landscape.problem()
    session = TuningSession(make_strategy("lagom", problem), problem, NO_LIMIT)
    driver = LandscapeDriver(landscape, noise=0.0)  # type: ignore[arg-type]  # it only asks for truth()
    outcome = driver.drive(session).outcome
    assert outcome is not None
    traded = [move for move in session.moves if move.phase == "trade"]
    assert any(move.kept for move in traded), [move.reason for move in traded]
    assert all("channels" in move.reason and "chunk" in move.reason for move in traded)
    assert driver.truth(outcome.assignment).z < 1.005 * landscape.best
