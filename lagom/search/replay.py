# SPDX-License-Identifier: Apache-2.0
"""A run again, from its log: the same windows handed to a new session must lead to the same decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from lagom.errors import LagomError
from lagom.records import Assignment, Problem
from lagom.search.base import Strategy
from lagom.search.moves import SearchMove, WindowResult
from lagom.search.session import CANDIDATE, TuningSession
from lagom.search.stopping_rule import LIVE, Policy

_PLAIN = [field.name for field in fields(SearchMove) if field.name not in ("candidate", "incumbent", "ran", "samples")]


#: What a move decided. Its sentence is not compared: another release may word it otherwise.
DECIDED = ("verdict", "kept", "site", "phase", "knob", "before", "after")
#: After the last move of a log: a limit ended the search there.
LIMIT = "limit"


class ReplayMismatch(LagomError):
    """The log asks for another window than the session: another version, policy, strategy, option or seed wrote it."""


def replay(
    moves: Iterable[SearchMove],
    strategy: Strategy,
    problem: Problem,
    policy: Policy = LIVE,
    *,
    cut_short: bool = False,
) -> TuningSession:
    """Drive a new session with the logged windows and check each decision on the way. Candidates of earlier searches
    are those that the log says were tried. ``cut_short``: the outcome in the log says that a limit ended the search.

    Returns the session, over if the log was complete. Raises ReplayMismatch at the first move that differs.
    """
    log = list(moves)
    candidates = [move.candidate for move in log if move.phase == CANDIDATE]
    session = TuningSession(strategy, problem, policy, candidates=candidates)
    purposes_after = [*(move.purpose for move in log[1:]), LIMIT if cut_short else ""]
    for logged, after in zip(log, purposes_after, strict=False):  # of an empty log the second is longer
        request = session.request()
        wanted = request and (request.candidate, request.incumbent, request.purpose)
        if wanted != (logged.ran or logged.candidate, logged.incumbent, logged.purpose):
            raise ReplayMismatch(
                f"move {logged.number} of the log ({logged.purpose}, {logged.reason}) is not what is wanted now"
            )
        repeat_limits(session, logged, after)
        again = session.report(WindowResult(logged.samples, logged.discarded, logged.ended_early, logged.iterations))
        for name in DECIDED:
            then, now = getattr(logged, name), getattr(again, name)
            if then != now:
                raise ReplayMismatch(f"move {logged.number}: the log says {name} {then}, now it is {now}")
    return session


def repeat_limits(session: TuningSession, logged: SearchMove, after: str) -> None:
    """The limits of time that the logged run met at this move. A session sees no clock: what came ``after``, the
    purpose of the next move or :data:`LIMIT`, shows them."""
    if logged.purpose != "final" and after in ("final", LIMIT):
        session.wrap_up("the log ends here")  # of no effect if the strategy had its answer anyway
    if after == LIMIT:
        session.set_time_left(0.0, "the log ends here")  # no final A/B after its last window
    if logged.purpose == "trial" and after != "confirm":
        session.skip_proof()
    if logged.verdict in ("confirmed", "rejected") and logged.samples:
        session.end_test()  # of no effect unless a time limit ended it before its next look


def moves_of(events: Iterable[Any]) -> list[SearchMove]:
    """The moves among the events of a log (``lagom.journal.read``), as values again; other events are passed over."""
    return [_move(event) for event in events if getattr(event, "event", "") == "move"]


def _move(event: Any) -> SearchMove:
    plain = {name: getattr(event, name) for name in _PLAIN}
    samples = tuple((incumbent.sample(), candidate.sample()) for incumbent, candidate in event.samples)
    return SearchMove(
        **plain,
        candidate=_assignment(event.candidate),
        incumbent=_assignment(event.incumbent),
        ran=_assignment(event.ran) if event.ran else None,
        samples=samples,
    )


def _assignment(configs: Iterable[Any]) -> Assignment:
    return Assignment(tuple(record.config() for record in configs))
