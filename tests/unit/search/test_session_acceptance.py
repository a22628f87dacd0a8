# SPDX-License-Identifier: Apache-2.0
"""What a session believes: a candidate that failed once is not proven again, and one slow pair cuts no window."""

from __future__ import annotations

import pytest

from lagom.records import Assignment, Sample
from lagom.search import Policy, TuningSession, WindowResult
from tests.unit.search.test_session import GOOD, OTHER, drive, jitter, session_of


def test_a_candidate_whose_confirmation_failed_is_not_confirmed_again() -> None:
    """It looks 20 % faster in every trial, and is like stock in every test: each test would be another chance."""

    def looks_fast(assignment: Assignment, purpose: str) -> float:
        return 8e7 if assignment == GOOD and purpose == "trial" else 1e8

    session = drive(session_of(GOOD, OTHER, GOOD, OTHER, GOOD, answer=GOOD, once=True), looks_fast)
    confirmed = [move.candidate for move in session.moves if move.purpose == "confirm"]
    trials = [move.candidate for move in session.moves if move.purpose == "trial"]
    assert trials.count(GOOD) >= 3, "it was measured again and again"
    assert set(confirmed) == {GOOD}, "it was tested once"
    finals = {move.candidate for move in session.moves if move.purpose == "final"}
    assert session._confirmations + session._finals == 1 + len(finals), "and once only, besides a final A/B"


def at_the_first_trial(policy: Policy) -> TuningSession:
    session = session_of(GOOD, answer=GOOD, policy=policy)
    wobble = jitter()
    session.report(WindowResult(tuple((Sample(1e8 * next(wobble)), Sample(1e8 * next(wobble))) for _ in range(8))))
    return session


def test_one_slow_pair_cuts_no_window_and_a_slow_candidate_is_cut() -> None:
    session = at_the_first_trial(Policy(pairs_first=8))
    fine, stalled, slow = (Sample(1e8), Sample(1e8)), (Sample(1e8), Sample(3e8)), (Sample(1e8), Sample(1.5e8))
    for pairs in ([fine, stalled], [stalled, fine], [fine, fine, stalled], [fine, stalled, stalled]):
        assert not session.should_cut(pairs), "not every pair is slow, and there are few"
    assert not session.should_cut([fine, fine, fine, stalled, stalled])
    for count in (2, 3, 4, 8):
        assert session.should_cut([slow] * count), f"{count} pairs, each 50 % slower"
    assert session.should_cut([fine, slow, slow, slow, slow]), "most are"


def test_a_final_that_shows_less_than_what_is_proven_replaces_nothing() -> None:
    """OTHER was lucky in its trial; against stock it is faster, and slower than GOOD, which is proven."""

    def z_of(assignment: Assignment, purpose: str) -> float:
        return {GOOD: 1e8 / 1.25, OTHER: 1e8 / (1.30 if purpose == "trial" else 1.15)}.get(assignment, 1e8)

    session = drive(session_of(GOOD, OTHER, answer=OTHER), z_of)
    (final,) = [move for move in session.moves if move.purpose == "final"]
    assert (final.candidate, final.verdict) == (OTHER, "rejected")
    assert "that is proven already" in final.reason
    assert session.outcome is not None
    assert session.outcome.assignment == GOOD
    assert session.outcome.speedup == pytest.approx(1.25, rel=0.01)


def test_a_final_against_stock_is_not_multiplied_onto_what_was_proven_before() -> None:
    """GOOD is proven at 1.25x stock; OTHER at 1.30x stock, which is all that it gains."""
    z = {GOOD: 1e8 / 1.25, OTHER: 1e8 / 1.30}
    session = drive(session_of(GOOD, OTHER, answer=OTHER), lambda assignment, purpose: z.get(assignment, 1e8))
    final = [move for move in session.moves if move.purpose == "final"][-1]
    assert (final.candidate, final.verdict) == (OTHER, "confirmed")
    assert session.outcome is not None
    assert session.outcome.assignment == OTHER
    assert session.outcome.speedup == pytest.approx(1.30, rel=0.01)
