# SPDX-License-Identifier: Apache-2.0
"""Until every rank of the communicator is here, or it is known that it cannot be tuned."""

from __future__ import annotations

from lagom.controller.learning import Learning
from lagom.controller.phase import Stopped, TunerPhase
from lagom.controller.pinning import Pinning
from lagom.journal import Cause
from lagom.wire.layout import MAX_CALL_RINGS, MAX_PLANS
from lagom.wire.library import library


class Joining(TunerPhase):
    """Then learning, or straight to the rules pinned by hand."""

    name = "joining"
    is_busy = False
    is_early = True
    reads_rules = True

    def step(self, now: float) -> TunerPhase | None:
        state = self._state
        if (prevented := self._prevented()) is not None:
            return prevented
        slots = state.region.slots(state.view.index)
        if len(slots) < state.view.rank_count or not state.region.claim(state.view.index):
            return None
        if not state.rules and not all(slot.records_calls for slot in slots):
            return self._pass_through(
                f"the shared region has room to record the calls of {MAX_CALL_RINGS} ranks of communicators a node, "
                "and not all of this one got it"
            )
        online = library().LAGOM_KNOB_ONLINE
        if not all(process.knobs & online for process in state.region.processes()):
            return self._pass_through("this NCCL gives its ranks no common id, so they cannot agree while the job runs")
        state.slots = {slot.index: slot.process for slot in slots}
        return Pinning(state) if state.rules else Learning(state)

    def _prevented(self) -> TunerPhase | None:
        """Where the communicator itself cannot be tuned, whoever may still come."""
        state = self._state
        if state.view.node_count != 1:
            reason = f"the communicator spans {state.view.node_count} nodes, which is not tuned yet"
            return self._pass_through(reason, "several_nodes")
        if not state.view.has_plan:
            return self._pass_through(
                f"the shared region has room to tune {MAX_PLANS} communicators a node, and this is one more"
            )
        if state.region.has_double(state.view.index):
            return self._pass_through(
                "one of its ranks is registered twice, or cannot be distinguished from another one of its process"
            )
        return None

    def _pass_through(self, reason: str, cause: Cause = "") -> TunerPhase:
        self._state.events.passthrough(reason, self._state.view, cause=cause)
        return Stopped(self._state, "passthrough")
