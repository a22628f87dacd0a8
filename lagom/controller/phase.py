# SPDX-License-Identifier: Apache-2.0
"""What a phase of one communicator's tuner is."""

from __future__ import annotations

from typing import ClassVar

from lagom.controller.record_feed import OnCalls, OnSpans, Subscription
from lagom.controller.tuner_state import TunerState
from lagom.journal import PhaseName
from lagom.wire.region import Capture


class TunerPhase:
    """One phase, and what most of them have in common."""

    name: ClassVar[PhaseName]
    #: Whether the controller's loop should come back soon: a plan is offered or a window runs.
    is_busy: ClassVar[bool] = True
    #: Nothing more is published unless rules are pinned or the job drifts.
    is_over: ClassVar[bool] = False
    #: Its calls have not told yet how busy the communicator is, until they have shown an iteration.
    is_early: ClassVar[bool] = False
    #: It will look at the rules that were pinned when it ends.
    reads_rules: ClassVar[bool] = False
    #: Why nothing happens any more: see :class:`Stopped`.
    why: str = ""
    #: There is something to search for here.
    may_search: ClassVar[bool] = False

    def __init__(self, state: TunerState) -> None:
        self._state = state
        self._subscriptions: list[Subscription] = []

    def subscribe(self, on_calls: OnCalls | None = None, on_spans: OnSpans | None = None) -> Subscription:
        """For as long as this phase lasts, at most."""
        self._subscriptions.append(self._state.records.subscribe(on_calls, on_spans))
        return self._subscriptions[-1]

    def close(self) -> None:
        """The phase is over: it gets no more records."""
        for subscription in self._subscriptions:
            subscription.close()

    def step(self, now: float) -> TunerPhase | None:
        """Do what can be done now, without waiting; the phase that follows, or None. ``now``: monotonic seconds."""
        return None

    def learn_again(self) -> TunerPhase:
        """The phase in which what was learnt is learnt anew."""
        assert self._state.learn is not None
        learning: TunerPhase = self._state.learn(self._state)
        return learning

    def leave(self, reason: str) -> None:
        """The phase is broken off: withdraw what is open, tell how far it came."""

    @property
    def purpose(self) -> str:
        """What the window under way is for: baseline, trial, confirm or final; empty where none is."""
        return ""

    @property
    def wants_timeline(self) -> bool:
        """Whether kernels should be recorded now."""
        return False

    @property
    def is_waiting(self) -> bool:
        """Whether it cannot use its turn now: no program is found, the job does something else, or the search has
        lost as much as it may."""
        return False

    @property
    def is_profiling(self) -> bool:
        """Whether these are the iterations that `lagom profile` asked for."""
        return False


class Stopped(TunerPhase):
    """Nothing happens any more, and nothing is recorded but for raw records. ``why``: passthrough (it cannot be
    tuned), pinned, profiled, or ended."""

    name = "stopped"
    is_busy = False
    is_over = True

    def __init__(self, state: TunerState, why: str) -> None:
        super().__init__(state)
        self.why = why
        if why == "profiled" or not state.options.record:
            state.record(Capture.NOTHING)
