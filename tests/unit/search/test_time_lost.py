# SPDX-License-Identifier: Apache-2.0
"""What a search has cost: the candidates' time, and not what the job lost by itself while they ran."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lagom.records import STOCK, Assignment, CommConfig, Sample
from lagom.search import LIVE, SearchOutcome, TuningSession, WindowRequest, WindowResult, make_strategy
from lagom.search.comparison import PAIRS, Arm, ComparisonSession
from lagom.search.landscape import Landscape, LandscapeDriver, comm_bound, flat
from lagom.search.moves import Pairs
from lagom.search.time_lost import TimeLost

TRIED = Assignment((CommConfig(channels=2),))
SIGMA = 0.005
LONG = 36.0  # an evaluation of 1.7 s, in iterations
SHORT = replace(LIVE, pairs_first=2)


def lost(*windows: list[tuple[float, float]], x: tuple[float, float] | None = None, each: int = 2) -> float:
    """Of windows of (Z of stock, Z of the candidate); ``x``: the communication time of both; ``each``: iterations a
    pair."""
    account = TimeLost()
    for window in windows:
        x_of = x or (None, None)
        pairs: Pairs = tuple((Sample(before, x_of[0]), Sample(after, x_of[1])) for before, after in window)
        account.add(TRIED, pairs, each * len(pairs), sigma=SIGMA)
    return account.lost


@pytest.mark.parametrize("pairs", [2, 3, 4, 8])
@pytest.mark.parametrize("arm", [0, 1])
def test_an_interruption_is_not_the_candidates(pairs: int, arm: int) -> None:
    """In whichever half and at whichever pair: 5 % slower stays 5 % slower."""
    for at in range(pairs):
        window = [(1.0, 1.05)] * pairs
        window[at] = (LONG, 1.05) if arm == 0 else (1.0, LONG)
        assert lost(window) == pytest.approx(lost([(1.0, 1.05)] * pairs))


@pytest.mark.parametrize("pairs", [1, 2, 3, 8])
@pytest.mark.parametrize("x", [None, (0.5, 38.5)])
def test_a_really_bad_candidate_is_counted_whole(pairs: int, x: tuple[float, float] | None) -> None:
    assert lost([(1.0, 39.0)] * pairs, x=x) == pytest.approx(38.0 * 2 * pairs)


def test_a_bad_candidate_that_scatters_is_counted_whole() -> None:
    assert lost([(1.0, 39.0), (1.0, 30.0)]) == pytest.approx((38.0 + 29.0) / 2 * 4)


def test_a_bad_candidate_whose_kernels_are_not_all_seen_is_counted_whole() -> None:
    """NCCL 2.28.9 reports no broadcast: X is that of the other calls and says nothing of what takes so long."""
    assert lost([(1.0, 39.0)] * 2, x=(0.5, 0.5)) == pytest.approx(38.0 * 4)


def test_a_single_pair_is_told_by_its_kernels() -> None:
    """The GPU was idle for 35 iterations; in the other half of the pair that is no gain either."""
    assert lost([(1.0, LONG)], x=(0.5, 0.5)) == 0.0
    assert lost([(LONG, 1.05)], x=(0.5, 0.5)) == 0.0
    assert lost([(LONG, 1.05)]) == 0.0
    assert lost([(1.0, 1.3)], x=(0.5, 0.5)) == pytest.approx(0.6)


def test_only_what_communication_takes_longer_explains_a_longer_iteration() -> None:
    """Not all of it: 1.3 iterations more with the communication of before are an interruption, with 0.4 more of it they
    are none."""
    assert lost([(1.0, 2.3)], x=(0.5, 0.5)) == 0.0
    assert lost([(1.0, 2.3)], x=(0.5, 0.9)) == pytest.approx(2.6)


def test_what_is_known_of_a_candidate_tells_too() -> None:
    """A window of one pair, interrupted, after one that was not."""
    assert lost([(1.0, 1.05)] * 2, [(1.0, LONG)]) == pytest.approx(0.05 * 6)


def test_more_interruptions_than_iterations_are_told_by_the_kernels() -> None:
    """Most of a candidate's pairs, in both halves: 6x slower by its communication, as its one good pair says."""
    window = [(1.0, LONG), (1.0, 6.0), (2 * LONG, 6.0)]
    assert lost(window, [(1.0, LONG)], x=(0.5, 5.5)) == pytest.approx(5.0 * 8)


def test_where_all_were_interrupted_a_candidate_costs_what_its_kernels_explain() -> None:
    """By another length each: a search beside a job that waits every few iterations was said to have lost 352
    iterations, and had lost 152."""
    assert lost([(1.0, LONG), (1.0, 2 * LONG)], x=(0.5, 2.5)) == pytest.approx(2.0 * 4)
    assert lost([(1.0, LONG), (2 * LONG, 3.0)], x=(0.5, 2.5)) == pytest.approx(2.0 * 4)
    assert lost([(1.0, LONG)], x=(0.5, 2.5)) == pytest.approx(2.0 * 2)


def test_what_hides_the_communication_hides_that_of_an_interrupted_iteration_too() -> None:
    """Stock's iteration, interrupted, is not taken to be shorter than its computation."""
    account = TimeLost()
    account.add(TRIED, ((Sample(LONG, 0.2, 1.0), Sample(1.0, 0.9, 1.0)),), 2, sigma=SIGMA)
    assert account.lost == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("x", [(0.0, 0.0), (1.5, 0.0), (0.0, 1.0), (40.0, 40.0)])
def test_times_that_cannot_be_are_survived(x: tuple[float, float]) -> None:
    for window in ([(1.0, LONG)], [(LONG, 1.0)], [(1.0, LONG), (LONG, 1.0)], [(1.0, LONG), (1.0, 2 * LONG)]):
        assert math.isfinite(lost(window, x=x))


def test_noise_is_no_interruption() -> None:
    assert lost([(1.0, 1.01), (1.0, 1.03)]) == pytest.approx(0.02 * 4)


class Interrupted(LandscapeDriver):
    """One iteration that takes 36 times as long, its kernels as ever: ``at`` counts the iterations of candidates, or
    those of ``arm`` 0, the incumbent."""

    at = -1
    arm = 1

    def measure(self, request: WindowRequest, should_cut: object = None) -> WindowResult:
        pairs = []
        for pair in super().measure(request).pairs:
            if request.purpose == "trial":
                self.at -= 1
            z = pair[self.arm].z
            sample = Sample(LONG * z, pair[self.arm].x, pair[self.arm].y, pair[self.arm].x_by_site)
            spoilt = (sample, pair[1]) if self.arm == 0 else (pair[0], sample)
            pairs.append(spoilt if self.at == 0 and request.purpose == "trial" else pair)
        return WindowResult(tuple(pairs))


def searched(landscape: Landscape, at: int, arm: int = 1) -> tuple[SearchOutcome, float]:
    """(outcome, what its windows have truly lost) of a search with an interruption at the candidates' iteration
    ``at``."""
    problem = landscape.problem()
    driver = Interrupted(landscape, seed=3, noise=0.002)
    driver.at, driver.arm = at, arm
    session = driver.drive(TuningSession(make_strategy("lagom", problem, 3), problem, SHORT))
    assert session.outcome is not None
    truth = 0.0
    for move in session.moves[1:]:
        ran = move.ran or move.candidate
        truth += max(0.0, 1.0 / driver.gain(ran) - 1.0) * move.pairs
    return session.outcome, truth


@pytest.mark.parametrize("arm", [0, 1])
@pytest.mark.parametrize("at", [1, 2, 3, 5, 9, 20, 33])
def test_a_search_with_an_interruption_loses_what_its_candidates_cost(at: int, arm: int) -> None:
    outcome, truth = searched(comm_bound(), at, arm)
    assert outcome.regret_iterations == pytest.approx(truth, abs=0.5)


def test_arms_that_are_interrupted_lose_no_more() -> None:
    """`lagom bench`: windows of two pairs."""
    for at in range(1, 20):
        session = ComparisonSession([Arm("a", TRIED), Arm("stock", Assignment((STOCK,)))], 1, cycles=6)
        while session.request() is not None:
            pairs = [(Sample(1.0), Sample(1.05 if session.request().candidate == TRIED else 1.0))] * PAIRS  # type: ignore[union-attr]
            if (at := at - 1) == 0:
                pairs[0] = (Sample(1.0), Sample(LONG))
            session.report(WindowResult(tuple(pairs)))
        assert session.outcome is not None
        assert session.outcome.regret_iterations == pytest.approx(6 * PAIRS * 0.05)


# -- when it is paid back


def test_the_tuned_job_pays_back() -> None:
    """10 iterations lost at 1.25x: each tuned iteration takes 0.8 of stock's and saves 0.2."""
    account = TimeLost()
    account.add(TRIED, ((Sample(1.0), Sample(2.0)),) * 5, 10, sigma=SIGMA)
    assert account.payback(1.25) == pytest.approx(50.0)
    assert account.payback(1.0) is None
    assert account.payback(0.9) is None


def test_what_the_search_has_gained_already_counts() -> None:
    """A faster incumbent was in force while the slow candidate was tried: 2 x 10 lost, then 0.2 x 200 gained."""
    account = TimeLost()
    account.add(TRIED, ((Sample(1.0), Sample(3.0)),) * 5, 10, sigma=SIGMA)
    better = Assignment((CommConfig(channels=3),))
    account.add(better, ((Sample(1.0), Sample(1.0)),) * 5, 100, sigma=SIGMA, level=0.8)
    assert account.lost == pytest.approx(20.0)
    assert account.gained == pytest.approx(0.2 * 100 * 2)
    assert account.payback(1.25) is None


def test_an_outcome_says_when() -> None:
    landscape = comm_bound()
    problem = landscape.problem()
    session = LandscapeDriver(landscape, noise=0.002).drive(
        TuningSession(make_strategy("lagom", problem, 0), problem, LIVE)
    )
    assert session.outcome is not None
    assert session.outcome.speedup is not None
    payback = session.outcome.payback_iterations
    assert payback is None or payback <= session.outcome.regret_iterations / (1.0 - 1.0 / session.outcome.speedup)
    nothing = flat(1, ceiling=4)
    ended = LandscapeDriver(nothing).drive(
        TuningSession(make_strategy("lagom", nothing.problem(), 0), nothing.problem(), LIVE)
    )
    assert ended.outcome is not None
    assert ended.outcome.payback_iterations is None
    assert math.isfinite(ended.outcome.regret_iterations)
