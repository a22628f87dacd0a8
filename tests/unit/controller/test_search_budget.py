# SPDX-License-Identifier: Apache-2.0
"""What a search may spend: seconds, all windows and the final A/B included, or a share of the job's iterations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lagom.controller.searching import Searching
from lagom.records import Sample
from lagom.search import TuningSession, WindowResult
from tests.unit.search.test_session import GOOD, OTHER, session_of


def searching(session: TuningSession, *, seconds: float | None = None, percent: float | None = None) -> Any:
    """The phase between two windows, at time 0, in a job that has made 100 iterations."""
    phase: Any = object.__new__(Searching)
    phase.session, phase._window = session, None
    phase._state = SimpleNamespace(
        may_tune=True,
        search_seconds=seconds,
        options=SimpleNamespace(search_percent=percent),
        iteration=lambda: phase.iterations,
    )
    phase.iterations = 100
    phase._spent = phase._stepped_at = phase._measured_seconds = 0.0
    phase._measured_pairs = 0
    return phase


def pairs(count: int, slower: float = 1.0) -> WindowResult:
    return WindowResult(tuple((Sample(1e8), Sample(1e8 * slower)) for _ in range(count)))


def has_lost(iterations: int) -> TuningSession:
    """A session whose first candidate took twice as long, for so many iterations."""
    session = session_of(GOOD, OTHER, answer=GOOD)
    session.report(pairs(4))
    session.report(pairs(iterations, slower=2.0))
    return session


def test_the_session_knows_how_many_pairs_still_fit() -> None:
    """Four pairs took two seconds of windows; of ten seconds, four are spent: six seconds are twelve pairs."""
    session = session_of(GOOD, answer=GOOD)
    told: list[tuple[float, str]] = []
    session.set_time_left = lambda left, reason: told.append((left, reason))  # type: ignore[method-assign]
    phase = searching(session, seconds=10.0)
    phase._tell_time_left()
    assert told == [], "nothing was measured yet: nobody knows what a pair takes"
    phase._window = object()
    phase._mind_the_time(2.0)
    phase._window, phase._measured_pairs = None, 4
    phase._mind_the_time(4.0)
    phase._tell_time_left()
    ((left, reason),) = told
    assert left == pytest.approx(12.0)
    assert reason == "stopped: time limit of 10 s reached"


def test_time_in_which_another_communicator_had_its_turn_is_not_counted() -> None:
    phase = searching(session_of(GOOD, answer=GOOD), seconds=10.0)
    phase._state.may_tune = False
    phase._mind_the_time(60.0)
    assert phase._spent == 0.0


def test_a_search_waits_until_the_job_has_made_enough_iterations_for_what_it_lost() -> None:
    session = has_lost(4)
    assert session.lost_iterations == pytest.approx(4.0)
    phase = searching(session, seconds=10.0, percent=2.0)
    assert phase._has_lost_too_much()
    phase._mind_the_time(60.0)
    assert phase._spent == 0.0, "waiting is not searching"
    phase.iterations = 200
    assert not phase._has_lost_too_much()


def test_a_window_under_way_is_never_given_up_for_what_was_lost() -> None:
    phase = searching(has_lost(4), percent=2.0)
    phase._window = object()
    assert not phase._has_lost_too_much()


def test_without_a_share_a_search_never_waits() -> None:
    assert not searching(has_lost(50))._has_lost_too_much()
