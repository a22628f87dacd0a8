# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is: one communicator is searched at a time, for Z of several at once could not say which helped.

The busiest goes first (by bytes an iteration, as far as its program is known). One that does not settle, or whose job
is elsewhere, holds the others up only for a while, and so does one that must not lose more yet; it gets another turn
when they have had theirs. A limit in time is for all of them together: each gets an equal part of what the searches
have left. When all have had their turn it begins anew, for
those that drift later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from lagom.controller.tuner import CommunicatorTuner

#: How long others wait for a program that is not found, or for a job that does something else.
PATIENCE_SECONDS = 30.0
#: How long the first one waits for those whose program is not known yet: they may be busier.
FIRST_SECONDS = 5.0


class Scheduler:
    """Asked a few times a second; sets ``may_tune`` and ``search_seconds`` of the tuners."""

    def __init__(self, search_seconds: float | None) -> None:
        self._limit = self._left = search_seconds
        self._turn: CommunicatorTuner | None = None
        self._idle_since: float | None = None
        self._first_seen: float | None = None
        self._had: Counter[int] = Counter()  # turns by communicator

    def look(self, tuners: Collection[CommunicatorTuner], now: float) -> None:
        """Pass the turn on if it is time to."""
        if self._turn is not None:
            if self._keeps_it(self._turn, tuners, now):
                return
            self._end(self._turn)
            self._turn = None
        waiting = [tuner for tuner in tuners if tuner.wants_turn]
        if waiting and self._should_wait_for_others(tuners, now):
            return
        fewest_first = sorted(waiting, key=lambda tuner: (self._had[tuner.view.index], -tuner.traffic()))
        self._turn = next(iter(fewest_first), None)
        if self._turn is not None:
            self._begin(self._turn, len(waiting))
        else:
            self._left = self._limit

    def _should_wait_for_others(self, tuners: Collection[CommunicatorTuner], now: float) -> bool:
        """Before the first turn of all, for a moment."""
        self._first_seen = now if self._first_seen is None else self._first_seen
        return now - self._first_seen < FIRST_SECONDS and any(tuner.is_unknown for tuner in tuners)

    def _keeps_it(self, turn: CommunicatorTuner, tuners: Collection[CommunicatorTuner], now: float) -> bool:
        if turn.is_over or turn not in tuners:
            return False
        if not turn.is_idle:
            self._idle_since = None
            return True
        self._idle_since = now if self._idle_since is None else self._idle_since
        if now - self._idle_since < PATIENCE_SECONDS:
            return True
        return not any(tuner.wants_turn for tuner in tuners if tuner is not turn)

    def _begin(self, tuner: CommunicatorTuner, waiting: int) -> None:
        self._had[tuner.view.index] += 1
        self._idle_since = None
        tuner.give_turn(None if self._left is None else self._left / waiting)

    def _end(self, tuner: CommunicatorTuner) -> None:
        tuner.take_turn()
        if self._left is not None:
            self._left = max(1.0, self._left - tuner.spent_seconds)
