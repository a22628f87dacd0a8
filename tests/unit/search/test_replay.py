# SPDX-License-Identifier: Apache-2.0
"""A run again from its own log file: through JSON and back, to the same decisions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lagom import journal
from lagom.search import ReplayMismatch, TuningSession, make_strategy, moves_of, replay
from lagom.search.landscape import LandscapeDriver, comm_bound, compute_bound


def tuned(seed: int = 5) -> TuningSession:
    problem = comm_bound().problem()
    session = TuningSession(make_strategy("lagom", problem, seed), problem)
    return LandscapeDriver(comm_bound(), seed=seed, noise=0.03, outliers=0.02, lose=0.05).drive(session)


def test_the_log_file_replays_to_the_same_end(tmp_path: Path) -> None:
    session = tuned()
    lines = [journal.Move.of(m, communicator=0, iteration=None).model_dump_json(by_alias=True) for m in session.moves]
    path = tmp_path / "decisions.jsonl"
    path.write_text("\n".join(lines) + "\n")
    moves = moves_of(journal.read(path))
    assert [(m.number, m.candidate, m.samples) for m in moves] == [
        (m.number, m.candidate, m.samples) for m in session.moves
    ]
    again = replay(moves, make_strategy("lagom", comm_bound().problem(), 5), comm_bound().problem())
    assert again.outcome == session.outcome


def test_half_a_log_leaves_the_session_where_it_was() -> None:
    session = tuned()
    again = replay(session.moves[:7], make_strategy("lagom", comm_bound().problem(), 5), comm_bound().problem())
    assert again.outcome is None
    request = again.request()
    assert request is not None
    assert request.candidate == session.moves[7].candidate


def test_another_strategy_does_not_fit_the_log() -> None:
    session = tuned()
    with pytest.raises(ReplayMismatch, match="move 2"):
        replay(session.moves, make_strategy("static", comm_bound().problem()), comm_bound().problem())


def test_a_log_that_was_tampered_with_is_noticed() -> None:
    session = tuned()
    forged = [replace(move, verdict="better") if move.verdict == "worse" else move for move in session.moves]
    with pytest.raises(ReplayMismatch, match="the log says verdict better, now it is worse"):
        replay(forged, make_strategy("lagom", comm_bound().problem(), 5), comm_bound().problem())


def test_the_same_decisions_on_every_rank() -> None:
    """Nothing of a rank, a clock or a process enters: two sessions fed alike are alike."""
    problem = compute_bound().problem()
    first, second = (
        LandscapeDriver(compute_bound(), seed=1).drive(TuningSession(make_strategy("lagom", problem, 1), problem))
        for _ in "ab"
    )
    assert first.outcome == second.outcome


def test_a_run_that_was_wrapped_up_replays_too() -> None:
    problem = comm_bound().problem()
    driver, session = LandscapeDriver(comm_bound(), noise=0.02), TuningSession(make_strategy("lagom", problem), problem)
    while (request := session.request()) is not None:
        if request.number == 9:
            session.wrap_up("time is up")
        session.report(driver.measure(request, session.should_cut))
    assert session.outcome is not None
    assert "time is up" in session.outcome.reason
    again = replay(session.moves, make_strategy("lagom", problem), problem)
    assert again.outcome is not None
    assert again.outcome.assignment == session.outcome.assignment
    assert again.moves == session.moves
