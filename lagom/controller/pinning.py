# SPDX-License-Identifier: Apache-2.0
"""Rules by hand (``--set``, ``lagom set``) put in force, or taken back."""

from __future__ import annotations

from lagom.controller.learning import Learning
from lagom.controller.phase import Stopped, TunerPhase
from lagom.controller.pinned_rules import left_out, settable_rules
from lagom.controller.publication import Offer, Progress
from lagom.controller.stock_observations import common_knobs
from lagom.controller.tuner_state import TunerState
from lagom.wire.plan import Plan

#: Room before a plan of pinned rules, which needs no iteration boundary.
PINNED_CALLS = 16


class Pinning(TunerPhase):
    """One plan of rules; then pinned, or back to learning where the rules were taken away."""

    name = "pinning"

    def __init__(self, state: TunerState) -> None:
        super().__init__(state)
        self._offer: Offer | None = None
        state.record_calls()

    def step(self, now: float) -> TunerPhase | None:
        self._offer = self._offer or self._new_offer()
        progress = self._offer.step(now)
        if progress is Progress.PENDING:
            return None
        state = self._state
        if progress is Progress.FAILED:
            state.events.passthrough(f"the pinned rules could not be agreed: {self._offer.failure}", state.view)
        elif self._offer.plan is not None:
            state.agreed_rules = self._offer.plan.rules
            state.events.config_changed()
        self._offer = None
        return Stopped(state, "pinned") if state.rules else Learning(state)

    def leave(self, reason: str) -> None:
        if self._offer is not None:
            self._offer.give_up()

    def _new_offer(self) -> Offer:
        state = self._state
        knobs = common_knobs(state.region.processes())
        rules = settable_rules(state.rules, knobs)
        for sentence in left_out([rule.config for rule in state.rules], knobs):
            state.events.warn(sentence)
        return state.offer_at(lambda start: Plan(start, rules=rules), "pin", lambda call: call, PINNED_CALLS)
