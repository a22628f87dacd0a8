# SPDX-License-Identifier: Apache-2.0
"""The driver's ways to end a session early."""

from __future__ import annotations

import math
import random

import pytest

from lagom.cost import FittedModel
from lagom.records import STOCK, Assignment, CommConfig, Sample
from lagom.search import Policy, TuningSession, WindowRequest, WindowResult, make_strategy, replay, statistics
from lagom.search.landscape import LandscapeDriver, comm_bound, flat
from lagom.sim import Simulator, machine, workloads
from tests.unit.search.test_session import GOOD, OTHER, Scripted, drive, session_of

ENOUGH = 9


def measured(simulator: Simulator, request: WindowRequest) -> WindowResult:
    """A noise-free window."""
    sides = [simulator.run(assignment) for assignment in (request.incumbent, request.candidate)]
    incumbent, candidate = (Sample(side.z, side.x, side.y, side.x_by_site) for side in sides)
    return WindowResult(((incumbent, candidate),) * request.pairs)


def test_wrapped_up_session_goes_to_its_final_with_the_best_so_far() -> None:
    simulator = Simulator(workloads.fsdp("llama3_8b", layers=4, tokens=4096), machine.A40_NVLINK)
    problem = simulator.problem()
    session = TuningSession(make_strategy("lagom", problem), problem, Policy(patience=math.inf))
    purposes = []
    while (request := session.request()) is not None:
        purposes.append(request.purpose)
        if len(purposes) == ENOUGH:
            session.wrap_up("time limit of 10 s reached")
        session.report(measured(simulator, request))
    assert purposes[:ENOUGH].count("trial") == ENOUGH - 1, "it was in the middle of its search"
    assert set(purposes[ENOUGH + 1 :]) <= {"confirm", "final"}, "one proposal at most is brought to its end"
    assert purposes[-1] == "final"
    assert session.outcome is not None
    assert session.outcome.verdict == "improved"
    assert not session.outcome.assignment.is_stock


def test_a_search_that_a_limit_ends_does_not_call_stock_the_best() -> None:
    """Communication is the longer part and stock drives it hardest; but only a whole search can know."""
    landscape = comm_bound(late_chunk=0.0)
    problem = landscape.problem()
    whole = LandscapeDriver(landscape).drive(TuningSession(make_strategy("lagom", problem), problem))
    cut = TuningSession(make_strategy("lagom", problem), problem)
    cut.wrap_up("time limit of 10 s reached")
    few = TuningSession(make_strategy("lagom", problem), problem, Policy(max_iterations=60))
    for session, limit in ((cut, "time limit of 10 s reached"), (few, "limit of 60 iterations reached")):
        outcome = LandscapeDriver(landscape).drive(session).outcome
        assert outcome is not None
        assert (outcome.verdict, outcome.cut_short, outcome.assignment.is_stock) == ("cut_short", True, True)
        assert outcome.reason.startswith("nothing faster than plain NCCL found: ")
        assert limit in outcome.reason
    assert whole.outcome is not None
    assert (whole.outcome.verdict, whole.outcome.cut_short) == ("stock_is_best", False)
    assert whole.outcome.reason.startswith("plain NCCL is already best here: ")


@pytest.mark.parametrize(("strategy", "options"), [("autoccl", {"windows": 1}), ("as_printed", {"windows": 1})])
def test_a_strategys_own_limit_cuts_it_short_too(strategy: str, options: dict[str, int]) -> None:
    landscape = comm_bound(late_chunk=0.0)
    problem = landscape.problem()
    session = LandscapeDriver(landscape).drive(TuningSession(make_strategy(strategy, problem, **options), problem))
    assert session.outcome is not None
    assert session.outcome.cut_short, session.outcome.reason
    assert session.outcome.verdict in ("improved", "cut_short")


def test_what_was_never_measured_resolves_nothing() -> None:
    problem = flat(2, ceiling=4).problem()
    session = TuningSession(make_strategy("lagom", problem), problem)
    session.stop("the job ended")
    assert session.outcome is not None
    assert session.outcome.resolvable is None


def run_limited(strategy: str, seed: int, pairs: int) -> tuple[TuningSession, int, list[int]]:
    """A search that is told before each report how many of ``pairs`` are left. The size of each window too."""
    landscape = comm_bound()
    problem = landscape.problem()
    session = TuningSession(make_strategy(strategy, problem, seed, model=FittedModel), problem, seed=seed)
    driver, windows, left = LandscapeDriver(landscape, seed=seed), [], pairs
    while (request := session.request()) is not None:
        result = driver.measure(request, session.should_cut)
        windows.append(len(result.pairs))
        left -= len(result.pairs)
        session.set_time_left(max(0, left), "time limit of 10 s reached")
        session.report(result)
    return session, left, windows


@pytest.mark.parametrize("pairs", [40, 60, 120])
@pytest.mark.parametrize("strategy", ["lagom", "guided"])
def test_a_time_limit_holds_with_the_final_included(strategy: str, pairs: int) -> None:
    """It ends within the limit, one window more at most; there is time for a final, which is not begun in vain."""
    improved = 0
    for seed in range(6):
        session, left, windows = run_limited(strategy, seed, pairs)
        assert session.outcome is not None
        assert left >= -windows[-1], (seed, windows)
        assert left >= -Policy().pairs_max, (seed, windows)
        finals = [move for move in session.moves if move.purpose == "final"]
        assert all(move.verdict != "more" for move in finals[-1:])
        improved += session.outcome.verdict == "improved"
    assert improved >= 4


def test_a_search_with_a_time_limit_replays_from_its_log() -> None:
    for seed in range(6):
        session, _, _ = run_limited("lagom", seed, 60)
        problem = session.problem
        assert session.outcome is not None
        cut_short = session.outcome.cut_short
        again = replay(session.moves, make_strategy("lagom", problem, seed), problem, cut_short=cut_short)
        assert again.outcome is not None
        assert again.outcome.verdict == session.outcome.verdict
        assert again.outcome.assignment == session.outcome.assignment


def limited_to(pairs: int, noise: float = 0.01, gain: float = 1.25) -> TuningSession:
    """GOOD is tried in a search of so many pairs: four for the baseline, four for the trial, the rest for its proof."""
    draw, session, used = random.Random(1), session_of(GOOD, answer=GOOD), 0
    while (request := session.request()) is not None:
        sides = [1e8 / gain if each == GOOD else 1e8 for each in (request.incumbent, request.candidate)]
        result = [(Sample(sides[0] * draw.gauss(1, noise)), Sample(sides[1] * draw.gauss(1, noise)))
                  for _ in range(request.pairs)]  # fmt: skip
        used += len(result)
        session.set_time_left(max(0, pairs - used), "time limit of 10 s reached")
        session.report(WindowResult(tuple(result)))
    return session


def test_a_config_whose_proof_there_was_no_time_for_is_not_forgotten() -> None:
    """Stock is not the best: what was found is named, with the pairs that are missing."""
    session = limited_to(12)
    assert "final" not in [move.purpose for move in session.moves]
    outcome = session.outcome
    assert outcome is not None
    assert (outcome.verdict, outcome.cut_short, outcome.assignment.is_stock) == ("cut_short", True, True)
    assert outcome.best == GOOD
    assert outcome.best_speedup == pytest.approx(1.25, rel=0.05)
    assert outcome.missing_pairs is not None
    assert outcome.missing_pairs >= Policy().looks[0]
    assert outcome.reason.startswith("no proof yet of 1.2")


@pytest.mark.parametrize("pairs", range(14, 24))
def test_no_final_is_begun_that_could_prove_nothing(pairs: int) -> None:
    """Windows have even numbers of pairs: where nine are left and nine are needed, there is time for eight."""
    session = limited_to(pairs)
    counts = [move.pairs for move in session.moves if move.purpose == "final"]
    level, looks = statistics.final_level(Policy().alpha), len(Policy().looks)
    assert not counts or sum(counts) >= statistics.fewest_pairs(level / looks), counts


def test_a_final_that_has_its_last_look_for_lack_of_time_is_no_verdict_on_stock() -> None:
    """Gain in sight, and the next look was due after more pairs than there was time for."""
    session = limited_to(30, noise=0.03, gain=1.025)
    finals = [move for move in session.moves if move.purpose == "final"]
    assert [move.verdict for move in finals][-1] == "rejected"
    outcome = session.outcome
    assert outcome is not None
    assert (outcome.verdict, outcome.cut_short) == ("cut_short", True)
    assert outcome.best == GOOD
    assert outcome.missing_pairs is not None
    assert outcome.missing_pairs > 0


def test_a_final_that_saw_no_gain_within_its_time_is_a_verdict_on_stock() -> None:
    session = limited_to(30, gain=0.99)
    outcome = session.outcome
    assert outcome is not None
    assert (outcome.verdict, outcome.best) == ("stock_is_best", None)


@pytest.mark.parametrize("pairs", [9, 12, 14, 20, 30])
def test_a_final_that_was_skipped_or_cut_off_replays(pairs: int) -> None:
    session = limited_to(pairs)
    assert session.outcome is not None
    strategy = Scripted(session.problem).script(GOOD, answer=GOOD)
    again = replay(session.moves, strategy, session.problem, cut_short=session.outcome.cut_short)
    assert again.outcome is not None
    for name in ("verdict", "assignment", "speedup", "cut_short", "best", "missing_pairs"):
        assert getattr(again.outcome, name) == getattr(session.outcome, name), name


def test_a_trial_that_was_not_confirmed_because_proofs_had_used_their_half_replays() -> None:
    """The first proof takes more than half of the time; the search goes on, and OTHER is not confirmed."""
    third = Assignment((CommConfig(channels=1), STOCK))
    draw, z, left = random.Random(), {GOOD: 1e8 / 1.06, OTHER: 1e8 / 1.3}, 60
    seen = 0
    for seed in range(40):
        draw.seed(seed)
        session, left = session_of(GOOD, OTHER, third, answer=OTHER), 60
        while (request := session.request()) is not None:
            noise = 0.003 if request.purpose == "trial" else 0.05
            sides = [z.get(each, 1e8) for each in (request.incumbent, request.candidate)]
            result = [(Sample(sides[0] * draw.gauss(1, noise)), Sample(sides[1] * draw.gauss(1, noise)))
                      for _ in range(request.pairs)]  # fmt: skip
            left -= len(result)
            session.set_time_left(max(0, left), "time limit of 10 s reached")
            session.report(WindowResult(tuple(result)))
        assert session.outcome is not None
        strategy = Scripted(session.problem).script(GOOD, OTHER, third, answer=OTHER)
        again = replay(session.moves, strategy, session.problem, cut_short=session.outcome.cut_short)
        assert again.outcome is not None
        assert again.outcome.assignment == session.outcome.assignment
        tried = [(move.purpose, move.candidate) for move in session.moves]
        seen += ("trial", third) in tried and ("confirm", OTHER) not in tried and ("confirm", GOOD) in tried
    assert seen, "some of them went on without a confirmation"


def test_a_search_that_is_stopped_after_a_proof_does_not_forget_it() -> None:
    session = session_of(GOOD, OTHER, answer=OTHER)
    drive(session, lambda assignment, _: 8e7 if assignment == GOOD else 1e8, until="confirm")
    while session.incumbent.is_stock:
        request = session.request()
        assert request is not None
        session.report(WindowResult(((Sample(1e8), Sample(8e7)),) * request.pairs))
    session.stop("the job ended before the search did")
    outcome = session.outcome
    assert outcome is not None
    assert (outcome.verdict, outcome.assignment) == ("stopped", GOOD)
    assert outcome.speedup == pytest.approx(1.25)
    assert (outcome.missing_pairs, outcome.best) == (0, None)


def test_a_search_that_is_cut_short_says_what_its_next_config_promised() -> None:
    """So that the user knows whether a longer limit is worth it. One that came to its end expects nothing."""
    short, _, _ = run_limited("guided", 1, 40)
    assert short.outcome is not None
    assert short.outcome.cut_short
    assert short.outcome.expected_gain is not None
    assert 0.0 < short.outcome.expected_gain < 0.5
    whole, _, _ = run_limited("guided", 1, 2000)
    assert whole.outcome is not None
    assert not whole.outcome.cut_short
    assert whole.outcome.expected_gain is None
