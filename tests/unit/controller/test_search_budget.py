# SPDX-License-Identifier: Apache-2.0
"""What a search may spend: seconds, all windows and the final A/B included, or a share of its iterations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lagom.controller.finalizing import Finalizing
from lagom.controller.publication import Progress
from lagom.controller.searching import Searching
from lagom.controller.tuner_state import TunerState
from lagom.records import Assignment, Sample
from lagom.search import TuningSession, WindowResult
from lagom.wire.plan import Plan
from lagom.wire.region import Capture
from tests.unit.search.test_session import GOOD, OTHER, drive, session_of
from tests.unit.search.test_session_limits import limited_to


class Taken:
    """An offer that the ranks take at the second look."""

    waits = False

    def __init__(self, plan: Plan) -> None:
        self.plan, self.looks = plan, 0

    def step(self, now: float) -> Progress:
        self.looks += 1
        return Progress.COMMITTED if self.looks > 1 else Progress.PENDING


def searching(session: TuningSession, *, seconds: float | None = None, percent: float | None = None) -> Any:
    """The phase between two windows, at time 0, in a job that has made 100 iterations."""
    phase: Any = object.__new__(Searching)
    phase.session, phase._window = session, None
    phase._standing = phase._request = phase._workload_change = phase._changed_calls = None
    phase._in_force, phase._last_purpose = Assignment.stock(2), ""
    phase._lost_windows, phase._looked_at = 0, 0.0
    phase.graph, phase.opened, phase.offered, phase.recorded = False, [], [], []
    phase._can_be_seen = lambda request, now: not phase.opened.append(request.purpose)
    phase._open_window = lambda request: None
    phase._state = SimpleNamespace(
        may_tune=True,
        search_seconds=seconds,
        spent_seconds=0.0,
        options=SimpleNamespace(search_percent=percent, record=False, profile_iterations=0),
        record=phase.recorded.append,
        record_calls=lambda: TunerState.record_calls(phase._state),
        iteration=lambda: phase.iterations,
        captured=lambda: phase.graph,
        ranks_have_left=lambda: False,
        is_regular=lambda: True,
        tuned=SimpleNamespace(sites=(), positions=(), widen=lambda assignment: assignment),
        offer=lambda plan_at, purpose: phase.offered.append(Taken(plan_at(100))) or phase.offered[-1],
    )
    phase.iterations = 100
    phase._stepped_at = phase._measured_seconds = 0.0
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
    session.set_time_left = lambda pairs, reason: told.append((pairs, reason))  # type: ignore[method-assign]
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
    assert reason == "time limit of 10 s reached"


def test_time_in_which_another_communicator_had_its_turn_is_not_counted() -> None:
    phase = searching(session_of(GOOD, answer=GOOD), seconds=10.0)
    phase._state.may_tune = False
    phase._mind_the_time(60.0)
    assert phase._state.spent_seconds == 0.0


def test_a_search_waits_until_the_job_has_made_enough_iterations_for_what_it_lost() -> None:
    session = has_lost(4)
    assert session.lost_iterations == pytest.approx(4.0)
    phase = searching(session, seconds=10.0, percent=2.0)
    assert phase._has_lost_too_much()
    assert phase.is_waiting, "so that others may have their turn"
    phase._mind_the_time(60.0)
    assert phase._state.spent_seconds == 0.0, "waiting is not searching"
    phase.iterations = 200
    assert not phase._has_lost_too_much()
    assert not phase.is_waiting


def test_a_window_under_way_is_never_given_up_for_what_was_lost() -> None:
    phase = searching(has_lost(4), percent=2.0)
    phase._window = object()
    assert not phase._has_lost_too_much()


def test_without_a_share_a_search_never_waits() -> None:
    assert not searching(has_lost(50))._has_lost_too_much()


def proven(*candidates: Assignment, until: str = "") -> TuningSession:
    """The first candidate takes three times as long, GOOD is faster than stock; to the end or to a window of purpose
    ``until``."""
    z = {OTHER: 3e8, GOOD: 8e7}
    return drive(session_of(*candidates, answer=GOOD), lambda assignment, _: z.get(assignment, 1e8), until)


def test_a_search_that_is_over_is_finalized_whatever_it_lost() -> None:
    session = proven(OTHER, GOOD)
    assert session.request() is None
    assert isinstance(searching(session, percent=1.0).step(1.0), Finalizing)


def test_a_proof_is_never_waited_for() -> None:
    """It ends the cost and brings the gain."""
    session = proven(OTHER, GOOD, until="confirm")
    phase = searching(session, percent=1.0)
    assert session.lost_iterations > 1.0
    phase.step(1.0)
    assert phase.opened == ["confirm"]


def test_a_proven_incumbent_is_in_force_while_the_search_waits() -> None:
    """The lease of its proof ended on the incumbent before it, which is stock."""
    session = proven(OTHER, GOOD, Assignment((GOOD[1], GOOD[0])), until="confirm")
    while session.request().purpose == "confirm":  # type: ignore[union-attr]
        session.report(pairs(session.request().pairs, slower=0.8))  # type: ignore[union-attr]
    assert session.incumbent == GOOD
    phase = searching(session, percent=1.0)
    for step in range(5):
        phase.step(float(step))
    (offer,) = phase.offered
    assert offer.plan.incumbent == GOOD
    assert not phase.opened
    assert set(phase.recorded) == {Capture.CALLS}, "no kernel is timed meanwhile"
    phase.iterations = 10_000
    phase.step(9.0)
    assert phase.opened == ["trial"]
    assert len(phase.offered) == 1


def test_no_window_is_opened_while_the_incumbent_is_offered() -> None:
    phase = searching(has_lost(4), percent=2.0)
    phase._in_force = GOOD
    phase.step(1.0)
    phase.iterations = 10_000
    phase.step(2.0)
    assert not phase.opened
    phase.step(3.0)
    assert phase.opened == ["trial"]


def test_a_graph_ends_the_waiting_for_iterations_that_are_not_counted_any_more() -> None:
    phase = searching(has_lost(4), percent=2.0)
    assert phase.step(1.0) is None
    phase.graph = True
    assert isinstance(phase.step(2.0), Finalizing)


def test_what_there_was_no_time_to_prove_is_kept_for_the_next_start() -> None:
    state: Any = SimpleNamespace(
        options=SimpleNamespace(only_compares=False),
        section=lambda assignment: assignment,
        events=SimpleNamespace(config_changed=lambda: None),
    )
    TunerState.keep_unproven(state, limited_to(12).outcome)  # type: ignore[arg-type]
    assert state.unproven == (GOOD,)
    assert not state.search_has_ended, "what the folder holds is not removed"


def test_where_every_rank_has_gone_the_atlas_is_not_asked() -> None:
    phase = searching(session_of(GOOD, answer=GOOD))
    phase._state.options.atlas = SimpleNamespace(problem="", entries=("one",))
    phase._state.options.only_compares = False
    phase._state.learned, phase._state.slots = object(), {0: 7}
    phase._state.region = SimpleNamespace(processes=list)
    assert phase._suggestions(4) is None


def test_the_ranks_are_told_once_what_to_record() -> None:
    """They read it at each call, so that writing it again would cost each of them a cache line."""
    told: list[int] = []
    region: Any = SimpleNamespace(set_capture=lambda index, capture: told.append(capture))
    state = TunerState(region, SimpleNamespace(index=3), None, None, None)  # type: ignore[arg-type]
    for capture in (Capture.NOTHING, Capture.CALLS, Capture.CALLS, Capture.NOTHING):
        state.record(capture)
    assert told == [Capture.NOTHING, Capture.CALLS, Capture.NOTHING]
