# SPDX-License-Identifier: Apache-2.0
"""The search is over: its result is put in force, open-ended, and everything that records is switched off."""

from __future__ import annotations

from lagom.controller.monitoring import Monitoring
from lagom.controller.phase import Stopped, TunerPhase
from lagom.controller.publication import Offer, Progress
from lagom.controller.tuner_state import TunerState
from lagom.controller.window import standing
from lagom.search import SearchOutcome
from lagom.wire.region import Capture


class Finalizing(TunerPhase):
    """Then monitoring; or stopped, where a rank has gone meanwhile."""

    name = "finalizing"

    def __init__(self, state: TunerState, outcome: SearchOutcome) -> None:
        super().__init__(state)
        self._outcome = outcome
        self._offer: Offer | None = None

    def step(self, now: float) -> TunerPhase | None:
        state, outcome = self._state, self._outcome
        if state.ranks_have_left():
            self.leave("a rank has left the communicator")
            return Stopped(state, "ended")
        self._offer = self._offer or self._new_offer()
        progress = self._offer.step(now)
        if self._offer.waits and state.captured():  # nobody will ever answer
            progress = Progress.FAILED if self._offer.give_up() is not Progress.COMMITTED else Progress.COMMITTED
        if progress is Progress.PENDING:
            return None
        if progress is Progress.FAILED:
            state.events.passthrough(f"the final plan could not be agreed: {self._offer.failure}", state.view)
        state.best = outcome.assignment
        state.events.outcome(state.view, outcome)
        state.keep_unproven(outcome)
        state.record(Capture.NOTHING)
        return Monitoring(state)

    def leave(self, reason: str) -> None:
        if self._offer is not None:
            self._offer.give_up()
        self._state.events.outcome(self._state.view, self._outcome)
        self._state.keep_unproven(self._outcome)

    def _new_offer(self) -> Offer:
        tuned, assignment = self._state.tuned, self._outcome.assignment
        return self._state.offer(lambda start: standing(tuned, assignment, start), "final")
