"""After the search: nothing is recorded any more, and yet a job that has changed is noticed.

A rank publishes how many iterations of its program it has begun (``lagom_slot.iterations``). Read from shared memory
ten times a second, that and a clock give Z, for the price of one look: no record, no event, nothing in the job.
A block is at least ten seconds and twenty iterations long, and its ends are seen within a look (0.1 s) or an iteration,
whichever is shorter: one block is known to 1 %, or to a twentieth where iterations are very short or very long.

Blocks in which the program was left (evaluation, a checkpoint that gathers) do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lagom.controller.drift import VOTES, Drift
from lagom.controller.ground import Deaf, Ground
from lagom.format import format_percent
from lagom.wire.views import SlotView

BLOCK_NS, BLOCK_ITERATIONS = 10_000_000_000, 20
#: No iteration of the program for so long, while calls go on: what was learnt is no longer what the job does.
AWAY_NS = 1_800_000_000_000
LOOK_SECONDS = 0.1
#: Searches after the first one, in the life of a communicator; each needs twice the evidence of the one before.
MAX_RETUNES = 4


@dataclass(frozen=True, slots=True)
class Glance:
    """One rank's counters at one moment."""

    time_ns: int
    calls: int
    iterations: int
    epoch: int
    suspensions: int

    @classmethod
    def of(cls, slot: SlotView, time_ns: int) -> Glance:
        """What a slot shows now."""
        return cls(time_ns, slot.calls, slot.iterations, slot.active_epoch, slot.suspensions)


class Vigil(Deaf):
    """Quiet; then learning again, if Z has drifted for long or the program is gone for good."""

    name: ClassVar[str] = "quiet"

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._drift = Drift(VOTES << ground.retunes)
        self._watches = ground.retunes < MAX_RETUNES and not ground.options.only_compares
        self._began: Glance | None = None  # of this block
        self._last: Glance | None = None
        self._away_since: Glance | None = None
        self._looked_at = 0.0

    def step(self, now: float) -> str:
        if now - self._looked_at < LOOK_SECONDS or not self._watches:
            return "quiet"
        self._looked_at = now
        if self._ground.findings_refuted():
            self._ground.history = type(self._ground.history)()
            return "learning"
        glance = self._glance()
        if glance is None or self._ground.captured():
            return "quiet"
        z, self._last = self._block_ended_by(glance), glance
        if self._is_away(glance):
            return self._again("the job makes other calls than those that were learnt", None)
        if z is not None and self._drift.add(z):
            return self._again(self._what_happened(), self._drift.latest)
        return "quiet"

    # -- Z from counters

    def _glance(self) -> Glance | None:
        """The rank with the lowest slot; all of them go at one pace."""
        slots = self._ground.region.slots(self._ground.view.index)
        if not slots:
            return None
        return Glance.of(slots[0], self._ground.region.now_ns(slots[0].process))

    def _block_ended_by(self, glance: Glance) -> float | None:
        """ns an iteration of the block that ends with this look, if one does. A block begins when an iteration has just
        begun; it is dropped if the program was left in it or another plan took over."""
        began, last = self._began, self._last
        if last is None or glance.iterations == last.iterations:
            return None
        if began is None or (began.epoch, began.suspensions) != (glance.epoch, glance.suspensions):
            self._began = glance
            return None
        iterations, time = glance.iterations - began.iterations, glance.time_ns - began.time_ns
        if iterations < BLOCK_ITERATIONS or time < BLOCK_NS:
            return None
        self._began = glance
        return time / iterations

    def _is_away(self, glance: Glance) -> bool:
        """Whether calls go on and no iteration has begun for half an hour."""
        since = self._away_since
        if since is None or glance.iterations != since.iterations or glance.epoch != since.epoch:
            self._away_since = glance
            return False
        return glance.time_ns - since.time_ns > AWAY_NS and glance.calls > since.calls

    # -- and what follows

    def _what_happened(self) -> str:
        then, now = self._drift.reference, self._drift.latest
        change = abs(now / then - 1.0)
        return (
            f"for {self._drift.votes_needed} blocks or more Z has been {format_percent(change)} "
            f"{'longer' if now > then else 'shorter'} than after the search "
            f"(one block scatters by {format_percent(self._drift.sigma)})"
        )

    def _again(self, reason: str, z: float | None) -> str:
        ground = self._ground
        ground.retunes += 1
        reference = self._drift.reference
        ground.story.drift(ground.view, reason, reference, z, ground.retunes, MAX_RETUNES)
        ground.known, ground.history = ground.best, type(ground.history)()
        return "learning"
