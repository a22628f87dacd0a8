"""The search is over: its result is put in force, open-ended, and everything that records is switched off."""

from __future__ import annotations

from typing import ClassVar

from lagom.controller.ground import Deaf, Ground
from lagom.controller.publication import Offer, Progress
from lagom.controller.window import standing
from lagom.search import Outcome
from lagom.wire.region import Capture


class Landing(Deaf):
    """Then quiet; or ended, where a rank has gone meanwhile."""

    name: ClassVar[str] = "finishing"

    def __init__(self, ground: Ground, outcome: Outcome) -> None:
        self._ground, self._outcome = ground, outcome
        self._offer: Offer | None = None

    def step(self, now: float) -> str:
        ground, outcome = self._ground, self._outcome
        if ground.ranks_have_left():
            self.leave("a rank has left the communicator")
            return "ended"
        self._offer = self._offer or self._new_offer()
        progress = self._offer.step(now)
        if self._offer.waits and ground.captured():  # nobody will ever answer
            progress = Progress.FAILED if self._offer.give_up() is not Progress.COMMITTED else Progress.COMMITTED
        if progress is Progress.PENDING:
            return "finishing"
        if progress is Progress.FAILED:
            ground.story.standing_aside(f"the final plan could not be agreed: {self._offer.failure}", ground.view)
        ground.best = outcome.assignment
        ground.story.outcome(ground.view, outcome)
        ground.story.profile_changed()
        ground.record(Capture.NOTHING)
        return "quiet"

    def leave(self, reason: str) -> None:
        if self._offer is not None:
            self._offer.give_up()
        self._ground.story.outcome(self._ground.view, self._outcome)

    def _new_offer(self) -> Offer:
        tuned, assignment = self._ground.tuned, self._outcome.assignment
        return self._ground.offer(lambda start: standing(tuned, assignment, start), "final")
