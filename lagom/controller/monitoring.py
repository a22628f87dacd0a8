# SPDX-License-Identifier: Apache-2.0
"""After the search: nothing is recorded any more, and yet a job that has changed is noticed.

A rank publishes how many iterations of its program it has begun (``lagom_slot.iterations``). Read from shared memory
ten times a second, that and a clock give Z, for the price of one look: no record, no event, nothing in the job.
A block is at least ten seconds and twenty iterations long, and its ends are seen within a look (0.1 s) or an iteration,
whichever is shorter: one block is known to 1 %, or to a twentieth where iterations are very short or very long.

Blocks in which the program was left (evaluation, a checkpoint that gathers) do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from lagom.controller.drift import VOTES, DriftDetector
from lagom.controller.phase import TunerPhase
from lagom.controller.tuner_state import TunerState
from lagom.format import format_percent
from lagom.wire.views import SlotView

BLOCK_NS, BLOCK_ITERATIONS = 10_000_000_000, 20
#: No iteration of the program for so long, while calls go on: what was learnt is no longer what the job does.
AWAY_NS = 1_800_000_000_000
LOOK_SECONDS = 0.1
#: Searches after the first one, in the life of a communicator; each needs twice the evidence of the one before.
MAX_RETUNES = 4


@dataclass(frozen=True, slots=True)
class SlotSnapshot:
    """One rank's counters at one moment."""

    time_ns: int
    calls: int
    iterations: int
    epoch: int
    suspensions: int

    @classmethod
    def of(cls, slot: SlotView, time_ns: int) -> SlotSnapshot:
        """What a slot shows now."""
        return cls(time_ns, slot.calls, slot.iterations, slot.active_epoch, slot.suspensions)


class Monitoring(TunerPhase):
    """Nothing is recorded; then learning again, if Z has drifted for long or the program is gone for good."""

    name = "monitoring"
    is_busy = False
    is_over = True

    def __init__(self, state: TunerState) -> None:
        super().__init__(state)
        self._drift = DriftDetector(VOTES << state.retunes)
        self._watches = state.retunes < MAX_RETUNES and not state.options.only_compares
        self._began: SlotSnapshot | None = None  # of this block
        self._last: SlotSnapshot | None = None
        self._away_since: SlotSnapshot | None = None
        self._looked_at = 0.0

    def step(self, now: float) -> TunerPhase | None:
        if now - self._looked_at < LOOK_SECONDS or not self._watches:
            return None
        self._looked_at = now
        if self._state.findings_refuted():
            self._state.history = type(self._state.history)()
            return self.learn_again()
        snapshot = self._read_counters()
        if snapshot is None or self._state.captured():
            return None
        z, self._last = self._block_ended_by(snapshot), snapshot
        if self._is_away(snapshot):
            return self._again("the job makes other calls than those that were learnt", None)
        if z is not None and self._drift.add(z):
            return self._again(self._what_happened(), self._drift.latest)
        return None

    # -- Z from counters

    def _read_counters(self) -> SlotSnapshot | None:
        """The rank with the lowest slot; all of them go at one pace."""
        slots = self._state.region.slots(self._state.view.index)
        if not slots:
            return None
        return SlotSnapshot.of(slots[0], self._state.region.now_ns(slots[0].process))

    def _block_ended_by(self, snapshot: SlotSnapshot) -> float | None:
        """ns an iteration of the block that ends with this look, if one does. A block begins when an iteration has just
        begun; it is dropped if the program was left in it or another plan took over."""
        began, last = self._began, self._last
        if last is None or snapshot.iterations == last.iterations:
            return None
        if began is None or (began.epoch, began.suspensions) != (snapshot.epoch, snapshot.suspensions):
            self._began = snapshot
            return None
        iterations, time = snapshot.iterations - began.iterations, snapshot.time_ns - began.time_ns
        if iterations < BLOCK_ITERATIONS or time < BLOCK_NS:
            return None
        self._began = snapshot
        return time / iterations

    def _is_away(self, snapshot: SlotSnapshot) -> bool:
        """Whether calls go on and no iteration has begun for half an hour."""
        since = self._away_since
        if since is None or snapshot.iterations != since.iterations or snapshot.epoch != since.epoch:
            self._away_since = snapshot
            return False
        return snapshot.time_ns - since.time_ns > AWAY_NS and snapshot.calls > since.calls

    # -- and what follows

    def _what_happened(self) -> str:
        then, now = self._drift.reference, self._drift.latest
        change = abs(now / then - 1.0)
        return (
            f"for {self._drift.votes_needed} blocks or more Z has been {format_percent(change)} "
            f"{'longer' if now > then else 'shorter'} than after the search "
            f"(one block scatters by {format_percent(self._drift.sigma)})"
        )

    def _again(self, reason: str, z: float | None) -> TunerPhase:
        state = self._state
        state.retunes += 1
        reference = self._drift.reference
        state.events.drift(state.view, reason, reference, z, state.retunes, MAX_RETUNES)
        state.known, state.history = state.best, type(state.history)()
        return self.learn_again()
