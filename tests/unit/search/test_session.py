# SPDX-License-Identifier: Apache-2.0
"""The session: what it asks for, what it makes of the answers, and what it will not be talked into."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator

import pytest

from lagom.records import STOCK, Assignment, CommConfig, Sample
from lagom.search import (
    LIVE,
    Answer,
    IllegalProposal,
    Measurements,
    Policy,
    Proposal,
    Strategy,
    TuningSession,
    WindowResult,
    statistics,
)
from lagom.search.base import Moves
from lagom.search.landscape import LandscapeDriver, comm_bound, compute_bound, flat
from lagom.search.sequential_test import SequentialTest

GOOD = Assignment((CommConfig(channels=2), STOCK))
OTHER = Assignment((CommConfig(channels=3), STOCK))


class Scripted(Strategy):
    """Proposes what it is told to."""

    name = "scripted"

    def script(self, *candidates: Assignment, answer: Assignment, **how: object) -> Scripted:
        self.candidates, self.answer, self.how = candidates, answer, how
        return self

    def moves(self, measurements: Measurements) -> Moves:
        for candidate in self.candidates:
            yield Proposal(candidate, f"try {candidate[0]}", **self.how)  # type: ignore[arg-type]
            self.explain(f"tried {candidate[0]} and looked at it")
        return Answer(self.answer, "the script is over")


def session_of(*candidates: Assignment, answer: Assignment, policy: Policy = LIVE, **how: object) -> TuningSession:
    problem = flat(2, ceiling=4).problem()
    return TuningSession(Scripted(problem).script(*candidates, answer=answer, **how), problem, policy)


def jitter() -> Iterator[float]:
    """Small, deterministic, without a trend."""
    while True:
        yield from (1.001, 0.998, 1.0, 1.002, 0.999, 1.0005, 0.9985)


def drive(session: TuningSession, z_of: Callable[[Assignment, str], float], until: str = "") -> TuningSession:
    """Answer each window with jittered times of ``z_of(assignment, purpose)`` ns, to the end or to the first window of
    purpose ``until``."""
    wobble = jitter()
    while (request := session.request()) is not None and request.purpose != until:
        pairs = tuple(
            (
                Sample(z_of(request.incumbent, request.purpose) * next(wobble)),
                Sample(z_of(request.candidate, request.purpose) * next(wobble)),
            )
            for _ in range(request.pairs)
        )
        session.report(WindowResult(pairs))
    return session


def test_a_run_starts_with_stock_against_itself() -> None:
    session = session_of(GOOD, answer=GOOD)
    request = session.request()
    assert request is session.request()
    assert request is not None
    assert (request.purpose, request.incumbent, request.candidate) == (
        "baseline",
        session.measurements.stock,
        session.measurements.stock,
    )
    move = session.report(WindowResult(((Sample(1e8), Sample(1.01e8)),) * 8))
    assert move.verdict == "baseline"
    assert "X not seen, Y not seen" in move.reason
    assert move.ratio is None


def test_promotion_needs_fresh_samples_and_moves_the_yardstick() -> None:
    session = drive(session_of(GOOD, OTHER, answer=GOOD), lambda a, purpose: 1e8 if a != GOOD else 8e7)
    purposes = [(move.purpose, move.candidate, move.verdict) for move in session.moves]
    assert purposes[1] == ("trial", GOOD, "better")
    proof = purposes.index(("confirm", GOOD, "confirmed"))
    assert {candidate for _, candidate, _ in purposes[2 : proof + 1]} == {GOOD}
    assert session.moves[proof].incumbent == session.measurements.stock
    assert session.moves[proof + 1].incumbent == GOOD  # OTHER is measured against the new incumbent
    assert purposes[-1][:2] == ("trial", OTHER), "what is proven is not proven again"
    outcome = session.outcome
    assert outcome is not None
    assert (outcome.verdict, outcome.assignment) == ("improved", GOOD)
    assert outcome.speedup == pytest.approx(1.25, rel=0.01)
    assert outcome.speedup_low is not None
    assert outcome.speedup_high is not None
    assert 1.0 < outcome.speedup_low <= outcome.speedup <= outcome.speedup_high


@pytest.mark.parametrize("proves_early", [True, False])
def test_a_small_gain_is_proven_long_before_a_long_search_ends(
    proves_early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 % at hand in the first window, nothing in 24 others: a job that ends midway must have had the gain."""
    monkeypatch.setattr(Scripted, "proves_early", proves_early)
    rungs = [CommConfig(channels=channels) for channels in (1, 2, 3, 4, 6)]
    good, *others = (Assignment(pair) for pair in itertools.product(rungs, rungs))
    problem = flat(2, ceiling=8).problem()
    session = TuningSession(Scripted(problem).script(good, *others, answer=good), problem)
    drive(session, lambda a, purpose: 9.7e7 if a == good else 1e8)
    proofs = [move for move in session.moves if move.verdict == "confirmed"]
    assert [move.candidate for move in proofs] == [good]
    if proves_early:
        before = session.moves[: proofs[0].number - 1]
        least = session.policy.patience * session.policy.looks[0]
        assert least <= sum(move.pairs for move in before) < least + session.policy.pairs_max
        after = [move for move in session.moves[proofs[0].number :] if move.purpose == "trial"]
        assert len(after) > 15, "the search goes on"
        assert {move.incumbent for move in after} == {good}
    else:
        assert proofs[0].purpose == "final"
    assert session.outcome is not None
    assert session.outcome.verdict == "improved"
    assert session.outcome.speedup == pytest.approx(1 / 0.97, rel=0.01)


def test_a_lucky_trial_does_not_become_the_incumbent() -> None:
    """Fast in the trial, like stock ever after."""
    session = drive(session_of(GOOD, answer=GOOD), lambda a, purpose: 8e7 if (a, purpose) == (GOOD, "trial") else 1e8)
    assert [move.verdict for move in session.moves if move.purpose == "confirm"][-1] == "rejected"
    assert session.outcome is not None
    assert session.outcome.verdict == "stock_is_best"
    assert session.outcome.assignment.is_stock
    assert session.outcome.proposed == GOOD


def test_the_level_of_a_first_confirmation_is_that_of_a_final() -> None:
    """So that it is the final A/B: a later one, of which there may be many, must show more."""
    session = drive(session_of(GOOD, OTHER, answer=GOOD), lambda a, purpose: {GOOD: 8e7, OTHER: 6e7}.get(a, 1e8))
    confirmed = [move for move in session.moves if move.verdict == "confirmed"]
    assert [(move.candidate, move.purpose) for move in confirmed] == [(GOOD, "confirm"), (OTHER, "confirm")]
    needed = [float(re.findall(r"needed ([0-9.]+)", move.reason)[0]) for move in confirmed]
    looks = len(session.policy.looks)
    assert needed == [
        pytest.approx(statistics.final_level(session.policy.alpha) / looks, rel=0.05),
        pytest.approx(statistics.confirmation_level(session.policy.alpha, 1) / looks, rel=0.05),
    ]


def test_of_two_confirmed_in_turn_the_gains_are_multiplied() -> None:
    """The second was tested against the first alone; both tests together are its proof."""
    session = drive(session_of(GOOD, OTHER, answer=OTHER), lambda a, purpose: {GOOD: 8e7, OTHER: 6e7}.get(a, 1e8))
    outcome = session.outcome
    assert outcome is not None
    assert (outcome.verdict, outcome.assignment) == ("improved", OTHER)
    assert outcome.speedup == pytest.approx(1e8 / 6e7, rel=0.01)
    assert outcome.speedup_low is not None
    assert outcome.speedup_high is not None
    assert outcome.speedup_low < 1e8 / 6e7 < outcome.speedup_high
    assert "in 2 tests" in outcome.reason
    assert not [move for move in session.moves if move.purpose == "final"]


def test_a_slower_candidate_costs_what_the_books_say() -> None:
    """20 % slower, 4 pairs: 0.8 stock iterations; with two iterations a pair twice that."""
    for iterations, lost in ((0, 0.8), (8, 1.6)):
        session = session_of(GOOD, answer=session_of(answer=GOOD).measurements.stock)
        while (request := session.request()) is not None:
            z = 1.2e8 if request.candidate == GOOD else 1e8
            session.report(WindowResult(((Sample(1e8), Sample(z)),) * request.pairs, iterations=iterations))
        assert session.outcome is not None
        assert session.outcome.regret_iterations == pytest.approx(lost)
        assert session.outcome.configs == 1
        assert session.outcome.windows == 2


def test_a_clearly_bad_candidate_is_cut_and_not_asked_again() -> None:
    session = session_of(GOOD, answer=GOOD, policy=Policy(pairs_first=8))
    wobble = jitter()
    session.report(WindowResult(tuple((Sample(1e8 * next(wobble)), Sample(1e8 * next(wobble))) for _ in range(8))))
    assert not session.should_cut([(Sample(1e8), Sample(3e8))])  # one pair may be an outlier
    assert session.should_cut([(Sample(1e8), Sample(3e8))] * 2)
    assert not session.should_cut([(Sample(1e8), Sample(1.05e8))] * 4)
    move = session.report(WindowResult(((Sample(1e8), Sample(3e8)),) * 2, ended_early=True))
    assert move.verdict == "worse"
    assert session.outcome is not None
    assert session.outcome.verdict == "stock_is_best"


def test_empty_windows_are_asked_again_then_given_up() -> None:
    session = session_of(GOOD, OTHER, answer=GOOD)
    session.report(WindowResult(((Sample(1e8), Sample(1e8)),) * 8))
    asked, verdicts = [], []
    for _ in range(3):
        request = session.request()
        assert request is not None
        asked.append(request.pairs)
        verdicts.append(session.report(WindowResult(())).verdict)
    assert verdicts == ["missing"] * 3
    assert asked == [4, 8, 16], "interruptions leave something of a longer window"
    request = session.request()
    assert request is not None
    assert request.candidate == OTHER
    assert "given up" not in session.moves[1].reason
    assert "empty" in session.moves[1].reason


def test_a_baseline_of_few_pairs_is_asked_again_while_it_may_be() -> None:
    session = session_of(GOOD, answer=GOOD)
    stock = (Sample(1e8), Sample(1e8))
    moves = [session.report(WindowResult((stock,) * pairs)) for pairs in (1, 1, 2)]
    assert [move.verdict for move in moves] == ["missing", "missing", "baseline"]
    assert "1 of 4 pairs" in moves[0].reason


@pytest.mark.parametrize(("count", "ratio", "passes"), [(9, 0.85, True), (9, 1.0, False), (5, 0.5, False)])
def test_pairs_in_hand_have_a_last_look_when_no_more_can_be_measured(count: int, ratio: float, passes: bool) -> None:
    """The first look wants ten; then the job was interrupted in each window."""
    wobble, policy = jitter(), Policy()
    level = statistics.final_level(policy.alpha)
    test = SequentialTest("final", Assignment.stock(2), GOOD, level, policy.looks, policy.epsilon)
    pairs = tuple((Sample(1e8 * next(wobble)), Sample(1e8 * ratio * next(wobble))) for _ in range(count))
    test.add(WindowResult(pairs), sigma=0.005)
    assert test.open
    test.give_up()
    assert (test.open, test.passed) == (False, passes)
    assert test.sentence


def test_nothing_measurable_ends_the_run_on_stock() -> None:
    session = session_of(*[Assignment((CommConfig(channels=c), STOCK)) for c in (1, 2, 3)] * 3, answer=GOOD)
    session.report(WindowResult(((Sample(1e8), Sample(1e8)),) * 8))
    while session.request() is not None:
        session.report(WindowResult(()))
    assert session.outcome is not None
    assert session.outcome.assignment.is_stock
    assert "could not be measured" in session.outcome.reason


def test_times_no_clock_can_show_are_thrown_away() -> None:
    session = session_of(GOOD, answer=GOOD)
    good = (Sample(1e8), Sample(1e8))
    bad = (Sample(0.0), Sample(1e8)), (Sample(1e8), Sample(math.nan))
    move = session.report(WindowResult((good, good, *bad, good, good)))
    assert (move.verdict, move.pairs, move.discarded) == ("baseline", 4, 2)


def test_a_candidate_that_straggles_is_refused_however_fast_its_median() -> None:
    """5 % faster in nearly all iterations, three times as slow in one of five."""
    count = 0

    def z_of(assignment: Assignment, purpose: str) -> float:
        nonlocal count
        count += assignment == GOOD
        return 1e8 if assignment != GOOD else 3e8 if purpose != "trial" and count % 5 == 0 else 9.5e7

    session = drive(session_of(GOOD, answer=GOOD), z_of)
    assert session.outcome is not None
    assert session.outcome.assignment.is_stock
    assert any("outliers" in move.reason or "on average" in move.reason for move in session.moves)


def test_drift_between_windows_cancels() -> None:
    """The machine is 15 % slower in every other window; nothing is mistaken for a gain or a loss."""

    def z_of(assignment: Assignment, purpose: str) -> float:
        return 1e8 * (1.15 if len(session.moves) % 2 else 1.0) * (0.9 if assignment == GOOD else 1.0)

    session = session_of(OTHER, GOOD, answer=GOOD)
    drive(session, z_of)
    by_candidate = {move.candidate: move for move in session.moves}
    assert by_candidate[OTHER].z == pytest.approx(1e8, rel=0.01)
    assert by_candidate[GOOD].z == pytest.approx(0.9e8, rel=0.01)


def test_budgets_end_the_search_and_still_settle_it() -> None:
    candidates = [Assignment((CommConfig(channels=c), STOCK)) for c in (3, 2, 1)]
    session = drive(
        session_of(*candidates, answer=candidates[0], policy=Policy(max_configs=2)),
        lambda a, purpose: 8e7 if a == candidates[1] else 1e8,
    )
    assert session.outcome is not None
    assert session.outcome.assignment == candidates[1]
    assert session.outcome.configs == 2
    assert "limit" in session.outcome.reason


def measured_until(session: TuningSession, windows: int, z_of: Callable[[Assignment], float]) -> TuningSession:
    """Stopped after so many windows."""
    wobble = jitter()
    for _ in range(windows):
        request = session.request()
        assert request is not None
        arms = request.incumbent, request.candidate
        pairs = [
            (Sample(z_of(arms[0]) * next(wobble)), Sample(z_of(arms[1]) * next(wobble))) for _ in range(request.pairs)
        ]
        session.report(WindowResult(tuple(pairs)))
    session.stop("the job ended before the search did")
    return session


def test_a_stopped_search_says_its_best_and_what_is_missing() -> None:
    """3 % faster: no reason to make it the incumbent at once, and not proven."""
    session = measured_until(session_of(OTHER, GOOD, answer=GOOD), 3, lambda a: 9.7e7 if a == GOOD else 1e8)
    outcome = session.outcome
    assert outcome is not None
    assert (outcome.verdict, outcome.assignment.is_stock, outcome.best) == ("stopped", True, GOOD)
    assert outcome.speedup is None, "that is the final A/B's"
    assert outcome.best_low is not None
    assert outcome.best_high is not None
    assert outcome.best_speedup == pytest.approx(1 / 0.97, rel=0.01)
    assert outcome.best_low < outcome.best_speedup < outcome.best_high
    assert outcome.missing_pairs == LIVE.looks[0], "at so little noise the first look is enough"


def test_a_search_stopped_in_its_final_says_how_many_pairs_are_missing() -> None:
    session = session_of(GOOD, answer=GOOD)
    while (request := session.request()) is not None and request.purpose != "final":
        z = 9.8e7 if request.candidate == GOOD else 1e8
        session.report(WindowResult(((Sample(1e8), Sample(z)), (Sample(1.001e8), Sample(z))) * (request.pairs // 2)))
    session.report(WindowResult(((Sample(1e8), Sample(9.9e7)),) * 4))
    session.stop("interrupted")
    assert session.outcome is not None
    assert session.outcome.best == GOOD
    assert session.outcome.best_speedup == pytest.approx(1 / 0.99), "of the fresh samples alone"
    assert session.outcome.missing_pairs == LIVE.looks[0] - 4


def test_a_stopped_search_that_found_nothing_names_no_best() -> None:
    for windows in (0, 1, 2):
        session = measured_until(session_of(OTHER, GOOD, answer=GOOD), windows, lambda a: 1e8 if a.is_stock else 1.2e8)
        assert session.outcome is not None
        assert (session.outcome.verdict, session.outcome.best, session.outcome.missing_pairs) == ("stopped", None, None)


def test_illegal_proposals_never_reach_the_job() -> None:
    session = session_of(Assignment((CommConfig(channels=64), STOCK)), answer=GOOD)
    with pytest.raises(IllegalProposal, match="channels=64"):
        session.report(WindowResult(((Sample(1e8), Sample(1e8)),) * 8))


def test_reporting_to_a_session_that_is_over_is_a_mistake() -> None:
    session = session_of(GOOD, answer=GOOD)
    session.stop("enough")
    assert session.outcome is not None
    assert (session.outcome.verdict, session.outcome.reason) == ("stopped", "enough")
    with pytest.raises(RuntimeError, match="over"):
        session.report(WindowResult(()))


@pytest.mark.parametrize("landscape", [comm_bound(), compute_bound(ceiling=8)])
def test_time_to_tune_a_live_job(landscape: object) -> None:
    """Two communications at 2 % noise: under 400 iterations (two minutes at 300 ms), under 15 of them lost."""
    from lagom.search import make_strategy

    spent, lost = [], []
    for seed in range(20):
        problem = landscape.problem()  # type: ignore[attr-defined]
        driver = LandscapeDriver(landscape, seed=seed, noise=0.02)  # type: ignore[arg-type]
        outcome = driver.drive(TuningSession(make_strategy("lagom", problem, seed), problem)).outcome
        assert outcome is not None
        spent.append(outcome.iterations)
        lost.append(outcome.regret_iterations)
    assert sorted(spent)[10] <= 400
    assert sorted(lost)[10] <= 15


def test_wrapping_up_ends_the_search_but_not_the_proof() -> None:
    candidates = [Assignment((CommConfig(channels=c), STOCK)) for c in (3, 2, 1)]
    session = session_of(*candidates, answer=candidates[2])
    wobble = jitter()
    while (request := session.request()) is not None:
        if request.candidate == candidates[1]:
            session.wrap_up("the job is nearly over")
        z = 8e7 if request.candidate == candidates[1] else 1e8
        pairs = tuple((Sample(1e8 * next(wobble)), Sample(z * next(wobble))) for _ in range(request.pairs))
        session.report(WindowResult(pairs))
    assert session.outcome is not None
    assert session.outcome.assignment == candidates[1]
    assert not any(move.candidate == candidates[2] for move in session.moves)
    assert "the job is nearly over" in session.outcome.reason


@pytest.mark.parametrize("seed", range(6))
def test_a_logged_ratio_lies_inside_its_interval(seed: int) -> None:
    """A test's interval is of its fresh samples alone, so its ratio must be too, not that of all there are."""
    from lagom.search import make_strategy

    problem = comm_bound().problem()
    driver = LandscapeDriver(comm_bound(), seed=seed, noise=0.02)
    for move in driver.drive(TuningSession(make_strategy("lagom", problem, seed), problem)).moves:
        if move.ratio is not None:
            assert move.ratio_low is not None
            assert move.ratio_high is not None
            assert move.ratio_low <= move.ratio <= move.ratio_high, f"window {move.number}, {move.purpose}"
