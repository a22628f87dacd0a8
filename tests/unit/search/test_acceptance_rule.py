# SPDX-License-Identifier: Apache-2.0
"""What becomes the incumbent and what the job is left with, on fixed sequences of pairs: no chance and no simulator, so
each sentence of the rule has a case that only this sentence decides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from lagom.records import Assignment, Sample
from lagom.search import LIVE, Policy, WindowResult, statistics
from lagom.search.base import BETTER, NOT_WORSE, TIE, Comparison, Proposal, compare
from lagom.search.landscape import flat
from lagom.search.measurements import Measurements, Trial
from lagom.search.sequential_test import SequentialTest
from lagom.search.stopping_rule import StoppingRule
from lagom.search.strategies.acceptance import Acceptance
from tests.unit.search.test_session import GOOD, OTHER, drive, session_of

STOCK = Assignment.stock(2)
WATCHED = (0,)
SIGMA = 0.01
SE = 0.02  # of ln(Z new / Z old)
Z = 1e8
EPSILON = 0.005


def comparison(z_leans: float, x_change: float = 0.0) -> Comparison:
    """Z differs by ``z_leans`` standard errors, X of the watched site by the factor exp(``x_change``), 1 % error."""

    def trial(of: Assignment, z: float, x: float) -> Trial:
        share = 0.01 / math.sqrt(2.0)
        return Trial(of, z, SE / math.sqrt(2.0), x, share, None, (x, x), (share, share), pairs=8)

    old, new = trial(STOCK, Z, 1e6), trial(GOOD, Z * math.exp(z_leans * SE), 1e6 * math.exp(x_change))
    return compare(new, old, EPSILON, 2.0)


# -- when a question is dropped early


@pytest.mark.parametrize(
    ("x_change", "z_leans", "dropped"),
    [
        (0.1, 1.0, True),  # its communication is surely slower: no, whatever Z will say
        (-0.1, 0.0, True),  # surely faster, and Z does not lean up: yes
        (-0.1, 0.4, True),
        (-0.1, 0.6, False),  # surely faster, and Z leans up: the next pairs decide
        (0.1, -1.0, True),
    ],
)
@pytest.mark.parametrize("asks", [BETTER, NOT_WORSE])
def test_either_the_watched_communication_or_z_is_enough_to_drop_a_question(
    asks: str, x_change: float, z_leans: float, dropped: bool
) -> None:
    rule = StoppingRule(Measurements(STOCK), Policy())
    proposal = Proposal(GOOD, "of a test", 0, STOCK, asks=asks, watch=WATCHED)
    assert rule._leaning(comparison(z_leans, x_change), proposal) == dropped


# -- what a search goes on from


@pytest.mark.parametrize(
    ("z_leans", "x_change", "kept"),
    [
        (0.0, -0.1, True),
        (0.9, -0.1, True),  # within one standard error
        (1.1, -0.1, False),  # Z leans up: its faster communication may have been paid for with compute
        (1.9, -0.1, False),
        (0.0, 0.0, False),  # nothing got faster
        (0.0, 0.1, False),
    ],
)
def test_a_tie_is_kept_only_if_its_communication_is_faster_and_z_does_not_lean_up(
    z_leans: float, x_change: float, kept: bool
) -> None:
    acceptance = Acceptance(flat(2, ceiling=4).problem(), delta=0.05, epsilon=EPSILON)
    answer = comparison(z_leans, x_change)
    assert answer.verdict == TIE
    assert acceptance.kept(answer, WATCHED)[0] == kept


def test_better_is_kept_whatever_its_communication_does_and_worse_never() -> None:
    acceptance = Acceptance(flat(2, ceiling=4).problem(), delta=0.05, epsilon=EPSILON)
    assert acceptance.kept(comparison(-2.5, 0.1), WATCHED)[0]
    assert not acceptance.kept(comparison(2.5, -0.5), WATCHED)[0]


@pytest.mark.parametrize(("contexts", "awaited"), [(("exposed", "hidden"), False), (("exposed", "exposed"), True)])
def test_communication_that_no_compute_covers_is_waited_for_though_x_is_below_y(
    contexts: tuple[str, str], awaited: bool
) -> None:
    problem = flat(2, ceiling=4).problem()
    sites = tuple(replace(site, context=one) for site, one in zip(problem.sites, contexts, strict=True))
    acceptance = Acceptance(replace(problem, sites=sites), delta=0.05, epsilon=EPSILON)
    assert acceptance.awaited((0, 1), Trial(STOCK, Z, 0.01, x=1e6, y=2e6)) == ((0, 1) if awaited else ())


# -- the test on fresh pairs


def sequential_test(*looks: int, level: float = 0.05, proven: float = 1.0) -> SequentialTest:
    return SequentialTest("final", STOCK, GOOD, level, looks, EPSILON, proven)


def window(*ratios: float) -> WindowResult:
    return WindowResult(tuple((Sample(Z), Sample(Z * ratio)) for ratio in ratios))


STEADY = (0.95, 0.951, 0.949, 0.952, 0.948, 0.95, 0.953, 0.947, 0.9505, 0.9495)
SPOILT = (1.5, 0.4, 1.4, 0.45)  # two in favour and two against: no side has more outliers


@pytest.mark.parametrize(("proven", "passes"), [(1.0, True), (1.05, True), (1.10, False)])
def test_less_than_what_is_proven_already_does_not_replace_it(proven: float, passes: bool) -> None:
    """Ten pairs at 1.053x are surely faster than stock, and slower than 1.10x."""
    test = sequential_test(10, proven=proven)
    test.add(window(*STEADY), SIGMA)
    assert test.passed is passes


def test_the_interval_leaves_out_what_the_estimate_leaves_out() -> None:
    test = sequential_test(len(STEADY) + len(SPOILT))
    test.add(window(*STEADY, *SPOILT), SIGMA)
    assert test.found is not None
    assert (test.found.dropped_slow, test.found.dropped_fast) == (2, 2)
    low, high = statistics.shift_interval(np.log(STEADY))
    assert test.interval == pytest.approx((math.exp(low), math.exp(high)))
    everything = statistics.shift_interval(np.log((*STEADY, *SPOILT)))
    assert math.exp(everything[1]) > 1.02 * math.exp(high), "with the outliers it would be another interval"
    assert test.passed


def test_the_outcome_has_the_interval_without_outliers() -> None:
    """One window of the final A/B is enough, and four of its fourteen pairs are spoilt."""
    session = drive(session_of(GOOD, answer=GOOD), lambda a, purpose: Z if a != GOOD else 0.97 * Z, until="final")
    session.report(window(*STEADY, *SPOILT))
    outcome = session.outcome
    assert outcome is not None
    low, high = statistics.shift_interval(np.log(STEADY))
    assert (outcome.speedup_low, outcome.speedup_high) == pytest.approx((math.exp(-high), math.exp(-low)))


# Eight pairs scattered about a gain of 0.3 %, less than epsilon; their standard error is near 0.8 %, so that the gain
# may as well be 1 %. Then it turns out to be 2 %.
UNCLEAR = (0.970, 1.024, 0.974, 1.020, 0.978, 1.016, 0.982, 1.012)
CLEAR = (0.980, 0.981, 0.979, 0.982, 0.978, 0.980, 0.983, 0.977)


def test_a_gain_in_sight_within_one_standard_error_gets_more_pairs_and_is_found() -> None:
    test = sequential_test(8, 40)
    test.add(window(*UNCLEAR), 0.02)
    assert test.found is not None
    assert -EPSILON < test.found.value < test.found.se - EPSILON, "no gain worth having yet, but one may be there"
    assert test.open, "one standard error on the bright side it is worth more pairs"
    test.add(window(*(CLEAR * 4)), 0.02)
    assert (test.open, test.passed) == (False, True)


def test_a_gain_out_of_sight_by_more_than_one_standard_error_ends_the_test() -> None:
    """The last look would cost up to 96 pairs of a live job."""
    test = sequential_test(8, 40)
    test.add(window(*(ratio * 1.01 for ratio in UNCLEAR)), 0.02)
    assert test.found is not None
    assert test.found.se < test.found.value + EPSILON < 3.0 * test.found.se
    assert (test.open, test.passed) == (False, False)


# -- which of two gets the final A/B


def finals(z_of: Callable[[Assignment, str], float], policy: Policy = LIVE) -> tuple[list[Assignment], Assignment]:
    """Of a search that tries GOOD and OTHER and answers OTHER: whom the final A/Bs were of, and what the job gets."""
    session = drive(session_of(GOOD, OTHER, answer=OTHER, policy=policy), z_of)
    assert session.outcome is not None
    tested = [move.candidate for move in session.moves if move.purpose == "final"]
    return list(dict.fromkeys(tested)), session.outcome.assignment


#: Nothing is confirmed during the search.
ONLY_FINALS = replace(LIVE, promote_gain=1.0)


def test_a_slower_answer_has_no_final_where_the_incumbent_is_proven() -> None:
    """It would pass: it is faster than stock. The job would run 10 % slower than with what is confirmed already."""
    z = {GOOD: 0.8 * Z, OTHER: 0.9 * Z}
    assert finals(lambda a, purpose: z.get(a, Z)) == ([], GOOD)


def test_an_answer_that_is_faster_by_less_than_a_standard_error_has_no_final_where_the_incumbent_is_proven() -> None:
    """Trials scatter by 2 %: 0.1 % is none that pairs could show, and they would be lost."""
    scatter = itertools.cycle((0.98, 1.02, 1.02, 0.98))
    z = {GOOD: 0.8 * Z, OTHER: 0.7992 * Z}
    assert finals(lambda a, purpose: z.get(a, Z) * next(scatter)) == ([], GOOD)


def test_an_answer_that_is_faster_than_what_is_proven_has_a_final() -> None:
    z = {GOOD: 0.8 * Z, OTHER: 0.78 * Z}
    assert finals(lambda a, purpose: z.get(a, Z)) == ([OTHER], OTHER)


def test_after_the_answer_failed_the_job_gets_what_was_proven() -> None:
    """The answer is faster than the incumbent in its trial and as slow as stock in the final A/B: what was confirmed
    during the search must not be lost with it, and is not tested again."""
    z = {GOOD: 0.8 * Z, OTHER: 0.78 * Z}
    assert finals(lambda a, purpose: Z if (a, purpose) == (OTHER, "final") else z.get(a, Z)) == ([OTHER], GOOD)


def test_where_nothing_is_proven_and_the_final_fails_the_job_is_left_with_stock() -> None:
    z = {GOOD: 0.8 * Z, OTHER: 0.795 * Z}
    assert finals(lambda a, purpose: Z if purpose == "final" else z.get(a, Z), ONLY_FINALS) == ([OTHER], STOCK)
