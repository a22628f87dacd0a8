# SPDX-License-Identifier: Apache-2.0
"""Stock iterations watched until it is known what repeats, what overlaps and what may be tuned."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from lagom.controller.contexts import Contexts
from lagom.controller.measure import Tier
from lagom.controller.phase import Stopped, TunerPhase
from lagom.controller.searching import Searching
from lagom.controller.session_choice import wants_trace
from lagom.controller.traced_iteration import traced_iteration
from lagom.controller.tuner_state import EVERYTHING, Learned, TunerState
from lagom.program import CallProgram, ProgramConfirmation, cut_into_sites
from lagom.program.detect import FEWEST_CALLS, HISTORY_CALLS

LOOK_SECONDS = 0.25
CALLS_BETWEEN_LOOKS = HISTORY_CALLS // 4
#: After so long without an iteration whoever watches is told why nothing happens.
LATE_SECONDS = 25.0  # before others have their turn (scheduler.py)


class Learning(TunerPhase):
    """Then searching; or stopped, where `lagom profile` only wanted to look."""

    name = "learning"
    is_early = True

    def __init__(self, state: TunerState) -> None:
        super().__init__(state)
        self._contexts: Contexts | None = None
        self._looked_at = 0.0
        self._looked_until = 0  # call
        self._profiled_from: int | None = None  # call
        self._confirmation = ProgramConfirmation(state.options.stable_iterations)
        self._began: float | None = None  # when it was first looked for
        self.subscribe(self._observe_calls, self._observe_spans)
        self._record_what_is_needed()

    @property
    def is_profiling(self) -> bool:
        """Whether these are the iterations that `lagom profile` asked for."""
        return self._profiled_from is not None

    @property
    def is_waiting(self) -> bool:
        """Whether no program is in sight that may be believed, or ever another one."""
        return self._confirmation.is_lost

    @property
    def wants_timeline(self) -> bool:
        return self._state.may_tune

    @property
    def may_search(self) -> bool:  # type: ignore[override]
        return self._state.traffic() > 0

    def _observe_calls(self, slot: int, records: NDArray[Any]) -> None:
        if slot == min(self._state.slots):
            self._state.observations.add_calls(records)

    def _observe_spans(self, process: int, spans: NDArray[Any]) -> None:
        self._state.observations.add_spans(process, self._state.slots, spans)

    def step(self, now: float) -> TunerPhase | None:
        state = self._state
        self._record_what_is_needed()
        if not (state.may_tune and self._is_time_to_look(now)):
            return None
        state.findings_refuted()
        if self._contexts is None:
            self._contexts = Contexts(state.slots, now)
            self.subscribe(self._contexts.add_calls, self._contexts.add_spans)
        program = self._confirmation.look(state.history)
        if program is None:
            self._say_if_late(now)
            return None
        if state.captured():
            state.events.passthrough("a CUDA graph was captured here: NCCL no longer asks per call", state.view)
            return Stopped(state, "passthrough")
        if state.options.profile_iterations:
            return self._profiling(program, now)
        if self._kernels_may_come(program, now):
            return None
        learned = self._conclude(program, now)
        if learned is None:
            return None
        if state.learned is not None and state.learned.tuned.sites != learned.tuned.sites:
            state.best = state.known = None  # of sites that are no more
        state.learned = learned
        return Searching(state, now)

    def _record_what_is_needed(self) -> None:
        """Kernels only in its turn: others may search for minutes before."""
        if self._state.may_tune:
            self._state.record(EVERYTHING)
        else:
            self._state.record_calls()

    def _is_time_to_look(self, now: float) -> bool:
        """Now and then, and before calls are forgotten that no look has seen."""
        newest = next(reversed(self._state.history.numbers), 0)
        if now - self._looked_at < LOOK_SECONDS and newest - self._looked_until < CALLS_BETWEEN_LOOKS:
            return False
        self._looked_at, self._looked_until = now, newest
        return True

    def _say_if_late(self, now: float) -> None:
        """Not where an iteration is in sight and being counted, nor of next to no calls: that is no mystery."""
        self._began = now if self._began is None else self._began
        state, calls = self._state, len(self._state.history.numbers)
        if now - self._began >= LATE_SECONDS and self.is_waiting and calls >= FEWEST_CALLS:
            state.events.warn(
                f"communicator {state.view.index}: nothing can be tried yet: its last {calls} calls do not show an "
                f"iteration {state.options.stable_iterations} times; it is still being watched"
            )
            self._began = math.inf

    def _kernels_may_come(self, program: CallProgram, now: float) -> bool:
        """Whether a kernel of each call is still waited for: they are recorded only since the turn began, and tell how
        well can be measured and how many channels NCCL takes."""
        state, contexts = self._state, self._contexts
        assert contexts is not None
        if state.observations.shows(program, state.slots) or not state.can_show_kernels():
            return False
        return contexts.worth_waiting(program, now, state.history.numbers[-1])

    def _conclude(self, program: CallProgram, now: float) -> Learned | None:
        """What is to be tuned and how it can be measured; ``None`` while the timeline may still say more."""
        state, contexts = self._state, self._contexts
        assert contexts is not None
        tier = state.observations.tier(state.slots)
        if (known := state.learned) is not None and known.tuned.program.positions == program.positions:
            return self._learned_before(known, program, tier)
        hidden = contexts.hidden_shares(state.history, program) if tier is Tier.TIMELINE else None
        call = state.history.numbers[-1]
        if hidden is None and tier is Tier.TIMELINE and contexts.worth_waiting(program, now, call):
            return None
        tuned = cut_into_sites(program, hidden)
        problem = state.observations.problem(tuned, state.region.processes(), state.options.headroom)
        wanted = hidden is not None and wants_trace(state.options)
        traced = traced_iteration(contexts, state.history, tuned, problem) if wanted else None
        return Learned(tuned, problem, tier, traced)

    def _learned_before(self, known: Learned, program: CallProgram, tier: Tier) -> Learned:
        """The same iteration again, after drift. Sites stay as they were cut: on stock's timeline, which is not the one
        that runs now."""
        tuned = replace(known.tuned, program=program)
        problem = self._state.observations.problem(tuned, self._state.region.processes(), self._state.options.headroom)
        return Learned(tuned, problem, tier, known.traced)

    def _profiling(self, program: CallProgram, now: float) -> TunerPhase | None:
        """`lagom profile`: whole iterations as they are, counted from when the timeline is on, or will not come on."""
        state = self._state
        call, timeline = state.history.numbers[-1], state.timeline
        if self._profiled_from is None:
            if timeline is None or timeline.is_settled(state.slots.values(), now):
                self._profiled_from = call
        elif call - self._profiled_from >= state.options.profile_iterations * program.calls_per_iteration:
            return Stopped(state, "profiled")
        return None
