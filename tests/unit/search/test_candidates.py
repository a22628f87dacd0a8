# SPDX-License-Identifier: Apache-2.0
"""What earlier searches found is tried first, may cost a window, and is never trusted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product, takewhile

import numpy as np
import pytest

from lagom.cost import FittedModel
from lagom.records import Algorithm, Assignment, CommConfig, Protocol
from lagom.search import STRATEGIES, SearchMove, Suggestion, TuningSession, make_strategy, replay
from lagom.search.landscape import MS, Communication, Landscape, LandscapeDriver, comm_bound, compute_bound, flat
from tests.tiers import amount, most_accepted

RUNS = amount(40, 240)
MOST_ACCEPTED = most_accepted(0.05, RUNS)
SHORT = 32  # iterations of a second search that is cut
FIRST = 14  # windows of a first search that is interrupted
LANDSCAPES = {
    "compute_bound": compute_bound(),
    "comm_bound": comm_bound(),
    "only_z": compute_bound(see_kernels=False),
    "one_exposed": Landscape(
        (Communication(9 * MS), Communication(6 * MS), Communication(5 * MS, exposed=0.3)), 25 * MS, late_chunk=0.3
    ),
}


def session_on(landscape: Landscape, *candidates: Assignment, strategy: str = "lagom", seed: int = 0) -> TuningSession:
    problem = landscape.problem()
    chosen = make_strategy(strategy, problem, seed, model=FittedModel)
    return TuningSession(chosen, problem, seed=seed, candidates=candidates)


def everywhere(landscape: Landscape, **config: int) -> Assignment:
    return Assignment((CommConfig(**config),) * len(landscape.communications))


def search(
    landscape: Landscape, *candidates: Assignment, seed: int, windows: int | None = None, limit: int | None = None,
    noise: float = 0.02, strategy: str = "lagom",
) -> TuningSession:  # fmt: skip
    """One search: interrupted after so many windows, or wrapped up after so many iterations."""
    session = session_on(landscape, *candidates, strategy=strategy, seed=seed)
    driver = LandscapeDriver(landscape, seed=seed, noise=noise)
    while (request := session.request()) is not None:
        if windows is not None and len(session.moves) >= windows:
            session.stop("the job ended")
            break
        if limit is not None and driver.iteration >= limit:
            session.wrap_up(f"limit of {limit} iterations reached")
        session.report(driver.measure(request, session.should_cut))
    return session


def left_by(session: TuningSession) -> Assignment:
    assert session.outcome is not None
    return session.outcome.best or session.outcome.assignment


@cache
def best_gain(name: str) -> float:
    """The most that whole searches without noise find."""
    landscape = LANDSCAPES[name]
    driver = LandscapeDriver(landscape, noise=0.0)
    found = [search(landscape, seed=0, noise=0.0, strategy=strategy) for strategy in ("lagom", "guided")]
    return max(driver.gain(move.candidate) for session in found for move in session.moves)


def share_of_gain(name: str, session: TuningSession) -> float:
    assert session.outcome is not None
    gain = LandscapeDriver(LANDSCAPES[name]).gain(session.outcome.assignment)
    return (gain - 1.0) / (best_gain(name) - 1.0)


def trials(session: TuningSession) -> list[SearchMove]:
    return [move for move in session.moves if move.purpose == "trial"]


@pytest.mark.parametrize("strategy", ["lagom", "guided"])
@pytest.mark.parametrize("name", ["compute_bound", "comm_bound"])
def test_what_an_earlier_search_found_is_confirmed_within_a_few_windows(name: str, strategy: str) -> None:
    found = search(LANDSCAPES[name], seed=1, strategy=strategy)
    assert found.outcome is not None
    assert found.outcome.verdict == "improved", "or there is nothing to be found again"
    again = search(LANDSCAPES[name], found.outcome.assignment, seed=2, strategy=strategy)
    confirmed = [move.number for move in again.moves if move.verdict == "confirmed"]
    assert again.moves[1].candidate == found.outcome.assignment
    assert again.moves[1].phase == "candidate"
    assert confirmed[0] <= 6
    assert again.outcome is not None
    assert again.outcome.verdict == "improved"


@pytest.mark.parametrize("strategy", ["lagom", "guided"])
def test_a_short_search_that_goes_on_finds_more_than_one_from_the_beginning(strategy: str) -> None:
    """Interrupted after a few windows; the next one is cut after SHORT iterations, with and without what was left."""
    shares: dict[str, list[float]] = {"with": [], "without": []}
    for name, seed in product(LANDSCAPES, range(amount(6, 8))):
        landscape = LANDSCAPES[name]
        candidate = left_by(search(landscape, seed=seed, windows=FIRST, strategy=strategy))
        for key, candidates in (("with", (candidate,)), ("without", ())):
            again = search(landscape, *candidates, seed=1000 + seed, limit=SHORT, strategy=strategy)
            shares[key].append(share_of_gain(name, again))
    gained = np.asarray(shares["with"]) - np.asarray(shares["without"])
    assert np.mean(gained) > 2.0 * np.std(gained) / np.sqrt(len(gained)), f"{gained.round(2)}"


def test_lagom_goes_on_from_a_confirmed_candidate_and_not_from_the_floor() -> None:
    landscape = LANDSCAPES["compute_bound"]
    found = left_by(search(landscape, seed=1))
    again = search(landscape, found, seed=2)
    assert any(move.verdict == "confirmed" for move in again.moves)
    assert not [move for move in again.moves if move.phase in ("floor", "raise", "grow")]
    assert "what an earlier search found" in again.outcome.reason  # type: ignore[union-attr]


def test_a_candidate_that_is_not_confirmed_leaves_lagom_its_own_way() -> None:
    landscape = LANDSCAPES["compute_bound"]
    again = search(landscape, everywhere(landscape, channels=1), seed=2)
    assert [move for move in again.moves if move.phase == "floor"]


def test_a_candidate_that_is_39_times_slower_costs_one_window() -> None:
    """And no more than its two pairs; the rest of the search is what it would have been without."""
    landscape = Landscape((Communication(78 * MS, knee=24.0),), 40 * MS)
    slow = everywhere(landscape, channels=1, chunk_bytes=32 << 10)
    assert 1.0 / LandscapeDriver(landscape).gain(slow) > 39.0
    for seed in range(amount(6, 20)):
        session = search(landscape, slow, seed=seed)
        (move,) = [move for move in session.moves if move.candidate == slow]
        assert (move.number, move.verdict, move.pairs) == (2, "worse", 2)
        assert session.outcome is not None


def suggested(
    landscape: Landscape, *given: Assignment, seed: int = 0, before: tuple[Assignment, ...] = ()
) -> tuple[TuningSession, list[tuple[float | None, float | None]]]:
    """A whole search with suggestions, and the X and Y with which they were asked for."""
    problem, asked = landscape.problem(), []

    def suggest(x: float | None, y: float | None) -> list[Suggestion]:
        asked.append((x, y))
        return [Suggestion(each, "the atlas") for each in given]

    strategy = make_strategy("auto", problem, seed, model=FittedModel)
    session = TuningSession(strategy, problem, seed=seed, candidates=before, suggest=suggest)
    return LandscapeDriver(landscape, seed=seed, noise=0.02).drive(session), asked


def test_suggestions_are_asked_for_once_with_stocks_x_and_y_and_tried_after_the_candidates() -> None:
    landscape = compute_bound()
    own, other = everywhere(landscape, channels=4), everywhere(landscape, channels=6)
    session, asked = suggested(landscape, other, own, before=(own,))
    ((x, y),) = asked
    truth = landscape.truth(Assignment.stock(len(landscape.communications)))
    assert x == pytest.approx(truth.x, rel=0.1)
    assert y == pytest.approx(truth.y, rel=0.1)
    assert session.candidates == (own, other), "each once"
    reasons = [move.reason for move in session.moves if move.phase == "candidate"]
    assert any("candidate 1 of 2 from an earlier search" in reason for reason in reasons)
    assert any("candidate 2 of 2 from the atlas" in reason for reason in reasons)
    again = replay(session.moves, make_strategy("auto", session.problem, 0, model=FittedModel), session.problem)
    assert [move.candidate for move in again.moves] == [move.candidate for move in session.moves]


def test_where_x_and_y_are_not_seen_they_are_not_said() -> None:
    assert suggested(compute_bound(see_kernels=False))[1] == [(None, None)]


def test_without_suggestions_nothing_is_tried_first() -> None:
    session, asked = suggested(compute_bound())
    assert len(asked) == 1
    assert not [move for move in session.moves if move.phase == "candidate"]


@pytest.mark.parametrize("channels", [1, 2])
def test_a_suggestion_of_another_regime_costs_one_window_of_two_pairs(channels: int) -> None:
    """What gives compute back where X <= Y, tried where the iteration waits for communication."""
    landscape = comm_bound()
    wrong = everywhere(landscape, channels=channels)
    assert LandscapeDriver(landscape).gain(wrong) < 0.95
    for seed in range(amount(6, 20)):
        session, _ = suggested(landscape, wrong, seed=seed)
        tried = [move for move in session.moves if move.phase == "candidate"]
        assert [(move.number, move.pairs) for move in tried] == [(2, 2)]
        assert not [move for move in session.moves if move.candidate == wrong and move.verdict == "confirmed"]


def test_a_candidate_that_is_a_little_slower_is_given_up_without_being_sure() -> None:
    """2 % slower in 2 % of noise: not beyond doubt after two pairs. Half of them at least cost one window."""
    landscape = compute_bound()
    stock = LandscapeDriver(landscape).gain
    slower = next(
        each
        for each in (everywhere(landscape, channels=count, chunk_bytes=32 << 10) for count in (24, 16, 12, 8, 6, 4, 3))
        if 0.9 < stock(each) < 0.985
    )
    windows = []
    seeds = amount(8, 20)
    for seed in range(seeds):
        session, _ = suggested(landscape, slower, seed=seed)
        windows.append(sum(move.phase == "candidate" for move in session.moves))
    assert windows.count(1) >= seeds // 2, windows


def test_a_suggestion_that_is_not_legal_here_costs_nothing_and_is_said() -> None:
    landscape = compute_bound(ceiling=8)
    session, _ = suggested(landscape, everywhere(landscape, channels=12))
    assert not [move for move in session.moves if move.phase == "candidate"]
    (sentence,) = session.left_out
    assert "not legal here" in sentence


def together(session: TuningSession) -> Iterator[SearchMove]:
    """The moves of a search by ``auto`` before its communications are searched apart."""
    return takewhile(lambda move: "half the channels at" not in move.reason, session.moves)


def test_candidates_take_nothing_of_what_auto_may_try_itself() -> None:
    """Four configs for all communications, whatever was tried before."""
    landscape = flat()
    given = [everywhere(landscape, channels=count) for count in (2, 3, 4)]
    alone, _ = suggested(landscape)
    after, _ = suggested(landscape, *given)
    ours = [sum(move.phase in ("learn", "predict") for move in together(session)) for session in (alone, after)]
    assert ours[1] >= ours[0] > 0


def test_what_is_not_legal_here_costs_nothing_and_is_said() -> None:
    landscape = compute_bound(ceiling=8)
    illegal = (
        Assignment((CommConfig(channels=2),)),
        everywhere(landscape, channels=64),
        everywhere(landscape, threads=128),
        Assignment((CommConfig(Algorithm.TREE, Protocol.LL),) * 2),
    )
    session = search(landscape, *illegal, seed=3)
    assert session.moves == search(landscape, seed=3).moves
    assert len(session.left_out) == len(illegal)
    for sentence, said in zip(session.left_out, ("1 configs for 2", "channels=64", "threads=128", "TREE"), strict=True):
        assert said.lower() in sentence.lower()


def test_stock_a_second_time_and_nccls_own_values_are_no_candidates() -> None:
    landscape = compute_bound(ceiling=8)
    own, good = everywhere(landscape, channels=8, chunk_bytes=2 << 20), everywhere(landscape, channels=2)
    named = Assignment((CommConfig(Algorithm.RING, Protocol.SIMPLE, 2, None, 2 << 20),) * 2)
    session = session_on(landscape, Assignment.stock(2), own, good, named, good)
    assert session.candidates == (good,)
    assert session.left_out == ()


def test_candidates_are_tried_in_order_and_those_never_come_to_are_known() -> None:
    landscape = flat(2, ceiling=8)
    wanted = tuple(everywhere(landscape, channels=channels) for channels in (2, 3, 4))
    session = search(landscape, *wanted, seed=0)
    assert list(dict.fromkeys(move.candidate for move in trials(session)))[:3] == list(wanted)
    early = search(landscape, *wanted, seed=0, windows=2)
    assert early.untried == wanted[1:]
    ended = session_on(landscape, *wanted)
    ended.wrap_up("time limit of 1 s reached")
    LandscapeDriver(landscape).drive(ended)
    assert not trials(ended), "after the time is over nothing new is tried"


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in ("exhaustive", "given")])
def test_every_strategy_goes_on_and_replays_from_its_log(strategy: str) -> None:
    landscape = comm_bound()
    candidate = everywhere(landscape, chunk_bytes=256 << 10)
    for seed in range(3):
        session = search(landscape, candidate, everywhere(landscape, channels=1), seed=seed, strategy=strategy)
        again = replay(
            session.moves, make_strategy(strategy, landscape.problem(), seed, model=FittedModel), landscape.problem()
        )
        assert again.outcome == session.outcome
        assert session.outcome is not None
        assert LandscapeDriver(landscape).gain(session.outcome.assignment) >= 0.99


def test_windows_that_cannot_be_measured_end_the_candidates() -> None:
    landscape = flat(2, ceiling=8)
    session = session_on(landscape, *(everywhere(landscape, channels=channels) for channels in (2, 3, 4)))
    driver = LandscapeDriver(landscape)
    request = session.request()
    assert request is not None
    session.report(driver.measure(request))
    driver.lose = 1.0
    driver.drive(session)
    assert len({move.candidate for move in session.moves if move.phase == "candidate"}) == 1
    assert session.outcome is not None


def test_a_log_that_ends_within_a_candidate_replays_too() -> None:
    landscape = comm_bound()
    candidate = everywhere(landscape, chunk_bytes=1 << 20)
    whole = search(landscape, candidate, seed=0)
    for windows in range(1, len(whole.moves)):
        again = replay(whole.moves[:windows], make_strategy("lagom", landscape.problem()), landscape.problem())
        assert again.moves == tuple(whole.moves[:windows]) or windows == len(whole.moves)


@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_a_candidate_does_not_raise_false_accepts(noise: float) -> None:
    landscape = flat(2, ceiling=16, see_kernels=False)
    accepted = confirmed = 0
    for seed in range(RUNS):
        candidates = [everywhere(landscape, channels=2 + seed % 4), everywhere(landscape, chunk_bytes=256 << 10)]
        session = search(landscape, *candidates, seed=seed, noise=noise)
        accepted += session.outcome is not None and session.outcome.verdict == "improved"
        confirmed += any(move.verdict == "confirmed" for move in session.moves)
    assert accepted <= MOST_ACCEPTED
    assert confirmed <= MOST_ACCEPTED


def test_interrupted_again_and_again_ends_like_an_uninterrupted_search() -> None:
    """Ten interruptions at chance moments, each search beginning with what the one before left."""
    shares = []
    for seed, name in product(range(amount(2, 5)), LANDSCAPES):
        rng, left = np.random.default_rng(seed), ()
        for part in range(10):
            session = search(LANDSCAPES[name], *left, seed=100 * seed + part, windows=int(rng.integers(1, 12)))
            found = () if session.outcome is None else (session.outcome.best, session.outcome.assignment)
            left = tuple(each for each in dict.fromkeys((*found, *session.untried)) if each and not each.is_stock)
        last = search(LANDSCAPES[name], *left, seed=100 * seed + 99)
        whole = search(LANDSCAPES[name], seed=100 * seed + 99)
        shares.append(share_of_gain(name, last) - share_of_gain(name, whole))
    assert np.mean(shares) > -0.05, np.round(shares, 2)
