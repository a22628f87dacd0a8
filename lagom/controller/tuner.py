# SPDX-License-Identifier: Apache-2.0
"""One communicator's way through a tuning run: join, learn the program, try configs, and watch.

    Joining -> Learning -> Searching -> Finalizing -> Monitoring -> (drift) Learning ...
            \\-> Pinning -> Stopped (pinned)          Stopped also: passthrough, ended, profiled

A state machine that the controller's loop steps; it never sleeps. Each phase is a class in a file of its own and makes
the phase that follows it; what they share is in ``tuner_state.py``. What decides is elsewhere: the session
(lagom.search) says what to try and what it meant.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from lagom.config_file import Section
from lagom.controller.event_log import EventLog
from lagom.controller.joining import Joining
from lagom.controller.learning import Learning
from lagom.controller.options import Options
from lagom.controller.phase import Stopped, TunerPhase
from lagom.controller.pinning import Pinning
from lagom.controller.timeline_control import TimelineControl
from lagom.controller.tuner_state import TunerState
from lagom.journal import PhaseName
from lagom.wire.plan import Rule
from lagom.wire.region import Region
from lagom.wire.views import CommunicatorView


class CommunicatorTuner:
    """Drives one communicator."""

    def __init__(
        self,
        region: Region,
        view: CommunicatorView,
        options: Options,
        events: EventLog,
        timeline: TimelineControl | None = None,
    ) -> None:
        self.state = TunerState(region, view, options, events, timeline, learn=Learning)
        self._phase: TunerPhase = Joining(self.state)
        self._may_pin = False  # although it is passed through
        self._told = ("", "", "")
        self._tell_phase()

    @property
    def view(self) -> CommunicatorView:
        """The communicator."""
        return self.state.view

    @property
    def phase(self) -> PhaseName:
        """The word for the current phase."""
        return self._phase.name

    # -- what arrives

    def add_calls(self, slot: int, records: NDArray[Any]) -> None:
        """Call records of one rank. One rank's make the history: they are the same on every rank."""
        if not len(records) or slot not in self.state.slots:
            return
        if slot == min(self.state.slots):
            self.state.history.extend(records)
        self.state.records.add_calls(slot, records)

    def add_spans(self, process: int, spans: NDArray[Any]) -> None:
        """Kernel spans of one process."""
        if len(spans):
            self.state.records.add_spans(process, spans)

    def pin(self, rules: tuple[Rule, ...]) -> None:
        """Put these rules in force by hand (``--set``) instead of searching; no rules = back to stock and to searching.

        A running search ends; its open lease is replaced by the pinned plan, or ends by itself.
        """
        if rules == self.state.rules or (self._phase.why == "passthrough" and not self._may_pin):
            return
        self.state.rules = rules
        if self._phase.why == "passthrough":
            self._enter(Joining(self.state))
            return
        if self._phase.reads_rules:
            return
        self._phase.leave("rules were pinned by hand")
        self.state.best = self.state.known = self.state.learned = None
        self._enter(Pinning(self.state))

    def pass_through(self, reason: str) -> None:
        """Search here no more, nor begin to. What is in force stays, and rules may still be pinned by hand."""
        is_searched = self._phase.is_early or self._phase.may_search
        if not is_searched or self.state.rules or self.view.node_count != 1:
            return
        self._phase.leave(reason)
        self.state.events.passthrough(reason, self.view, cause="several_nodes")
        self._may_pin = True
        self._enter(Stopped(self.state, "passthrough"))

    def end_profile(self) -> None:
        """The iterations that `lagom profile` asked for are over, here or on another communicator."""
        if not self.is_profiled:
            self._enter(Stopped(self.state, "profiled"))

    # -- the way

    def step(self, now: float) -> None:
        """One step of the current phase; ``now`` is a monotonic clock in seconds."""
        following = self._phase.step(now)
        if following is not None:
            self._enter(following)
        self._tell_phase()

    def _enter(self, phase: TunerPhase) -> None:
        self._phase.close()
        self._phase = phase
        self._tell_phase()

    def _tell_phase(self) -> None:
        """To the log, whenever it is another one, or a search's windows have another purpose."""
        now = (self._phase.name, self._phase.purpose, self._phase.why)
        if now != self._told:
            self._told = now
            self.state.events.phase(self.view, *now)

    # -- what others want to know

    @property
    def is_profiling(self) -> bool:
        """Whether these are the iterations that `lagom profile` asked for."""
        return self._phase.is_profiling

    @property
    def is_profiled(self) -> bool:
        """Whether those are over."""
        return self._phase.why == "profiled"

    @property
    def is_busy(self) -> bool:
        """Whether the loop should come back soon."""
        return self._phase.is_busy

    @property
    def wants_timeline(self) -> bool:
        """Whether kernels should be recorded now."""
        return self._phase.wants_timeline

    @property
    def is_over(self) -> bool:
        """Nothing more will be published here unless rules are pinned or the job drifts."""
        return self._phase.is_over

    # -- whose turn it is

    @property
    def wants_turn(self) -> bool:
        """Whether there is something to search for here."""
        return self._phase.may_search

    @property
    def is_unknown(self) -> bool:
        """Whether its calls have not told yet how busy it is."""
        return self._phase.is_early and not self.traffic()

    @property
    def is_idle(self) -> bool:
        """Whether it has the turn and cannot use it now: no program is found, the job does something else, or the
        search has lost as much as it may."""
        return self._phase.is_waiting

    def give_turn(self, seconds: float | None) -> None:
        """From now on this communicator may search, for so long in this turn."""
        self.state.may_tune, self.state.search_seconds, self.state.spent_seconds = True, seconds, 0.0

    @property
    def spent_seconds(self) -> float:
        """What its search took of this turn."""
        return self.state.spent_seconds

    def take_turn(self) -> None:
        """Another one searches."""
        self.state.may_tune = False
        if self.is_idle:
            self.state.events.note(
                f"communicator {self.view.index}: nothing can be tried now, so others have their turn first"
            )

    def traffic(self) -> int:
        """Bytes an iteration; 0 while unknown."""
        return self.state.traffic()

    # -- the end

    def section(self) -> Section | None:
        """This communicator's part of the saved config, once something better than stock is confirmed or pinned."""
        state, view = self.state, self.view
        if state.agreed_rules:
            return Section(view.rank_count, view.node_count, view.ordinal, view.name, rules=state.agreed_rules)
        if state.learned is None or state.best is None or state.best.is_stock:
            return None
        return state.section(state.best)

    def shut(self) -> None:
        """The controller or the communicator ends: withdraw what is open, and say how far the search came. Leases end
        by themselves, confirmed plans stay."""
        self._phase.leave("the job ended before the search did")
        self._enter(Stopped(self.state, "ended"))
