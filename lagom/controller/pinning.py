"""Rules by hand (``--set``, ``lagom set``) put in force, or taken back."""

from __future__ import annotations

from typing import ClassVar

from lagom.controller.evidence import common_knobs
from lagom.controller.ground import Deaf, Ground
from lagom.controller.publication import Offer, Progress
from lagom.controller.settable import left_out, settable_rules
from lagom.wire.plan import Plan

#: Room before a plan of pinned rules, which needs no iteration boundary.
PINNED_CALLS = 16


class Pinning(Deaf):
    """One plan of rules; then pinned, or back to learning where the rules were taken away."""

    name: ClassVar[str] = "pinning"

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._offer: Offer | None = None
        ground.record_everything()

    def step(self, now: float) -> str:
        self._offer = self._offer or self._new_offer()
        progress = self._offer.step(now)
        if progress is Progress.PENDING:
            return "pinning"
        ground = self._ground
        if progress is Progress.FAILED:
            ground.story.standing_aside(f"the pinned rules could not be agreed: {self._offer.failure}", ground.view)
        elif self._offer.plan is not None:
            ground.agreed_rules = self._offer.plan.rules
            ground.story.profile_changed()
        self._offer = None
        return "pinned" if ground.rules else "learning"

    def leave(self, reason: str) -> None:
        if self._offer is not None:
            self._offer.give_up()

    def _new_offer(self) -> Offer:
        ground = self._ground
        knobs = common_knobs(ground.region.processes())
        rules = settable_rules(ground.rules, knobs)
        for sentence in left_out([rule.config for rule in ground.rules], knobs):
            ground.story.warn(sentence)
        return ground.offer_at(lambda start: Plan(start, rules=rules), "pin", lambda call: call, PINNED_CALLS)
