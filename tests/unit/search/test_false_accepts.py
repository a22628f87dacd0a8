# SPDX-License-Identifier: Apache-2.0
"""Family-wise error of whole tuning runs at zero true difference, under noise and drift; and the power that is left.

Every run here searches a landscape on which nothing matters, so any outcome but "stock is best" is a false accept. The
quick version makes 20 runs a case, 6 where kernels are seen; LAGOM_TEST_FULL=1 makes 2,000 and 400.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from lagom.cost import FittedModel
from lagom.search import BLOCKS, LIVE, Policy, TuningSession, make_strategy, statistics
from lagom.search.landscape import MS, Communication, Landscape, LandscapeDriver, flat
from tests.tiers import amount

RUNS, RUNS_SEEN, RUNS_GAINING = amount(20, 2000), amount(6, 400), amount(20, 60)
ALPHA = 0.05


def steady(iteration: int) -> float:
    return 1.0


def wandering(iteration: int) -> float:
    """15 % to and fro in some 400 iterations: two minutes at 300 ms each."""
    return 1.0 + 0.15 * math.sin(2.0 * math.pi * iteration / 400.0)


def throttling(iteration: int) -> float:
    """15 % slower within 200 iterations, then suddenly well again; once a cycle."""
    return 1.0 + 0.15 * (iteration % 250) / 200.0


def run_on_nothing(
    strategy: str, noise: float, drift: Callable[[int], float], seed: int, policy: Policy = LIVE
) -> tuple[bool, bool]:
    """(falsely accepted in the end, anything falsely confirmed on the way)."""
    landscape = flat(2, ceiling=16, see_kernels=False)
    problem = landscape.problem()
    options = {"start": "stock"} if strategy == "lagom" else {"draws": 12}
    session = TuningSession(make_strategy(strategy, problem, seed, model=FittedModel, **options), problem, policy)
    LandscapeDriver(landscape, seed=seed, noise=noise, drift=drift).drive(session)
    assert session.outcome is not None
    return session.outcome.verdict == "improved", any(move.verdict == "confirmed" for move in session.moves)


@pytest.mark.parametrize(
    ("noise", "drift"),
    [(0.01, steady), (0.03, steady), (0.05, steady), (0.01, wandering), (0.03, wandering), (0.02, throttling)],
    ids=lambda value: value.__name__ if callable(value) else f"{value:.0%}",
)
def test_false_accepts_per_run_stay_below_alpha(noise: float, drift: Callable[[int], float]) -> None:
    """Half of the runs draw at random (most candidates, most luck to select from), half descend from stock."""
    results = [run_on_nothing(("random", "lagom")[seed % 2], noise, drift, seed) for seed in range(RUNS)]
    assert np.mean([accepted for accepted, _ in results]) <= ALPHA
    assert np.mean([confirmed for _, confirmed in results]) <= ALPHA


def nothing_but_seen() -> Landscape:
    """Long communication whose time no knob changes, and which costs compute nothing. X, Y and x_j are seen, so that
    it matters to the search, growth is tried (X > Y) and a model has something to be fitted to."""
    return Landscape((Communication(40 * MS, 1e-9),) * 2, 50 * MS, sms=10**9, tax=0.0, half_chunk=0.0, ceiling=16)


@pytest.mark.parametrize("drift", [wandering, throttling])
@pytest.mark.parametrize("strategy", ["guided", "lagom"])
def test_no_false_accepts_from_the_floor_with_kernels_seen(strategy: str, drift: Callable[[int], float]) -> None:
    """The defaults of a live run at the largest noise, under drift: X, Y and a fitted model guide, Z alone decides."""
    landscape = nothing_but_seen()
    problem = landscape.problem()
    accepted, confirmed, tried = [], [], []
    for seed in range(RUNS_SEEN):
        session = TuningSession(make_strategy(strategy, problem, seed, model=FittedModel), problem)
        LandscapeDriver(landscape, seed=seed, noise=0.05, drift=drift).drive(session)
        assert session.outcome is not None
        accepted.append(session.outcome.verdict == "improved")
        confirmed.append(any(move.verdict == "confirmed" for move in session.moves))
        tried.append(session.outcome.configs)
    assert np.median(tried) >= 4  # or nothing was there to be accepted
    assert np.mean(accepted) <= ALPHA
    assert np.mean(confirmed) <= ALPHA


def test_few_good_pairs_keep_the_level_too() -> None:
    """The policy for blocks of iterations, where a pair is dear and quiet."""
    results = [run_on_nothing("lagom", 0.01, wandering, seed, BLOCKS) for seed in range(RUNS)]
    assert np.mean([accepted or confirmed for accepted, confirmed in results]) <= ALPHA


def test_repeated_looks_keep_the_level_of_a_final_test() -> None:
    """The sequential signed-rank test alone, thousands of times at once, with noise that has heavy tails."""
    looks, level, runs = Policy().looks, statistics.final_level(ALPHA), amount(5_000, 20_000)
    rng = np.random.default_rng(0)
    differences = 0.03 * (rng.standard_t(2.5, size=(runs, looks[-1])) - rng.standard_t(2.5, size=(runs, looks[-1])))
    passed = np.zeros(runs, dtype=bool)
    for look in looks:
        seen = differences[:, :look]
        ranks = np.argsort(np.argsort(np.abs(seen), axis=1), axis=1) + 1
        positive = np.sum(ranks * (seen > 0), axis=1)
        passed |= statistics.signed_rank_cdf(look)[positive] <= level / len(looks)
    assert np.mean(passed) <= level


def gain_at_the_bottom(gain: float) -> Landscape:
    """One hidden site of four channels on ten SMs: one channel instead of four makes Z shorter by exactly ``gain``."""
    most, least = 4 / (10 - 4), 1 / (10 - 1)  # compute lost per time of communication
    time = gain / (most - (1.0 + gain) * least)
    return Landscape((Communication(30e6 * time, knee=0.5),), 30e6, sms=10, tax=0.0, half_chunk=0.0, ceiling=4)


@pytest.mark.parametrize(("noise", "gain", "often"), [(0.01, 0.03, 0.9), (0.02, 0.05, 0.9), (0.05, 0.20, 0.9)])
def test_a_true_gain_is_found(noise: float, gain: float, often: float) -> None:
    """Power: the search and the final A/B together end on something faster in at least 9 runs of 10."""
    landscape = gain_at_the_bottom(gain)
    problem = landscape.problem()
    found = []
    for seed in range(RUNS_GAINING):
        driver = LandscapeDriver(landscape, seed=seed, noise=noise)
        session = driver.drive(TuningSession(make_strategy("lagom", problem, seed, start="stock"), problem))
        assert session.outcome is not None
        found.append(
            driver.gain(session.outcome.assignment) >= 1.0 + 0.6 * gain
        )  # one rung short of the bottom will do
    assert np.mean(found) >= often


def test_final_interval_holds_the_true_gain() -> None:
    landscape = gain_at_the_bottom(0.08)
    problem = landscape.problem()
    inside = []
    for seed in range(RUNS_GAINING):
        driver = LandscapeDriver(landscape, seed=seed, noise=0.02, drift=wandering)
        session = driver.drive(TuningSession(make_strategy("lagom", problem, seed, start="stock"), problem))
        outcome = session.outcome
        assert outcome is not None
        if outcome.speedup_low is not None and outcome.speedup_high is not None:
            inside.append(outcome.speedup_low <= driver.gain(outcome.assignment) <= outcome.speedup_high)
    assert len(inside) >= 0.67 * RUNS_GAINING
    assert np.mean(inside) >= 0.85
