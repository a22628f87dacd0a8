# SPDX-License-Identifier: Apache-2.0
"""Getting one plan agreed: choose a start far enough ahead, offer it, look until the ranks have decided, try again.

Nobody waits for anybody: a rank that arrives at the start before the decision aborts the offer, and one that was there
before the offer has it refused. The next attempt leaves twice the room. What is far enough is learnt from the round
trips of this very communicator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from lagom.wire.plan import Plan
from lagom.wire.region import Publication, Region, Verdict

#: An offer that nobody answers though calls are made is withdrawn after this long. While none is made it stays open.
OFFER_SECONDS = 20.0
MAX_ATTEMPTS = 12
#: What no further attempt can change.
FATAL = {
    Publication.BAD_PLAN: "the plan was refused as unsound; this is a bug of lagom",
    Publication.REPLACED: "the communicator was destroyed and another has its place",
}
DIFFERENT_CALLS = "the ranks have not made the same calls, so nothing can be agreed among them"
ROUND_TRIPS_OF_ROOM = 4


class Progress(Enum):
    """Where an offer stands."""

    PENDING = "pending"
    COMMITTED = "committed"
    FAILED = "failed"


@dataclass(slots=True)
class Margin:
    """How many calls ahead of the fastest rank a plan must start. Kept over a communicator's life.

    At least one iteration; at least four measured round trips, in calls; doubled each time that a rank came first and
    eased again by each success.
    """

    round_trip_calls: float = 4.0
    factor: int = 1

    def calls(self, calls_per_iteration: int) -> int:
        """The margin for the next attempt."""
        return self.factor * max(calls_per_iteration, int(ROUND_TRIPS_OF_ROOM * self.round_trip_calls) + 1)

    def committed(self, calls: int) -> None:
        """An offer took ``calls`` calls from offer to commit."""
        self.round_trip_calls += 0.25 * (calls - self.round_trip_calls)
        self.factor = max(1, self.factor // 2)

    def too_small(self) -> None:
        """A rank arrived before the decision, or even before the offer was there."""
        self.factor = min(self.factor * 2, 1 << 12)


@dataclass(slots=True)
class Offer:
    """One plan on its way. ``plan_at(start)`` makes the plan; ``start_after(call)`` finds the first position 0 at or
    after a call, or ``None`` while the job's calls are irregular."""

    region: Region
    communicator: int
    margin: Margin
    calls_per_iteration: int
    plan_at: Callable[[int], Plan]
    start_after: Callable[[int], int | None]
    on_event: Callable[..., None]
    comm_id: int = 0  # 0 = whichever communicator has the entry
    attempts: int = 0
    epoch: int = 0
    plan: Plan | None = None
    failure: str = ""
    _open: bool = False
    _offered_at: float = 0.0
    _offered_call: int = 0
    waits: bool = False  # no rank makes calls, so nobody can answer
    _begun_at: float = field(default=-1.0)
    _seen_call: int = -1

    def step(self, now: float) -> Progress:
        """Do what can be done now; ``now`` is a monotonic clock in seconds."""
        if self._begun_at < 0:
            self._begun_at, self._seen_call = now, self._largest_call()
        return self._look(now) if self._open else self._offer(now)

    def give_up(self) -> Progress:
        """Withdraw; the ranks may have decided otherwise meanwhile."""
        if not self._open:
            return Progress.FAILED
        return self._decided(self.region.withdraw(self.communicator), "withdrawn")

    def _offer(self, now: float) -> Progress:
        if self.attempts >= MAX_ATTEMPTS:
            self.failure = self.failure or "the ranks aborted every attempt"
            return Progress.FAILED
        if not self.region.ready_to_publish(self.communicator):
            return self._expired(now, "the ranks have not passed the last switch yet")
        _, _, largest = self.region.counters(self.communicator)
        start = self.start_after(largest + self.margin.calls(self.calls_per_iteration))
        if start is None:
            return self._expired(
                now, "the calls are irregular, so the call at which the next iteration begins cannot be predicted"
            )
        self.plan = self.plan_at(start)
        result, self.epoch = self.region.publish(self.communicator, self.plan, self.comm_id)
        if result is Publication.OK:
            self._open, self._offered_at, self._offered_call = True, now, largest
            self._seen_call, self.waits = largest, False
            self.attempts += 1
            self.on_event("plan_published", plan=self.plan, epoch=self.epoch)
            return Progress.PENDING
        if result in FATAL:
            self.failure = FATAL[result]
            return Progress.FAILED
        if result is Publication.LATE:
            self.margin.too_small()
        return self._expired(now, f"publishing was refused: {result.name.lower()}")

    def _look(self, now: float) -> Progress:
        verdict = self.region.poll(self.communicator)
        if verdict is not Verdict.OPEN and self.region.epoch(self.communicator) != self.epoch:
            self._open, self.failure = False, FATAL[Publication.REPLACED]  # what was decided is not our plan
            return Progress.FAILED
        if verdict is Verdict.OPEN and now - self._offered_at > OFFER_SECONDS:
            if self._stands_still():
                self._offered_at = now
                return Progress.PENDING
            return self._decided(self.region.withdraw(self.communicator), "no rank answered in time")
        if verdict is Verdict.ABORTED and (refusal := self.region.refusal(self.communicator, self.epoch)) is not None:
            # It would say so again, unless it only came too late to remember.
            self._decided(Verdict.ABORTED, f"a rank refused: {refusal.text}")
            return Progress.PENDING if refusal.may_pass else Progress.FAILED
        differed = verdict is Verdict.ABORTED and self.region.histories_differed(self.communicator, self.epoch)
        return self._decided(verdict, DIFFERENT_CALLS if differed else "a rank arrived before all had answered")

    def _decided(self, verdict: Verdict, why_aborted: str) -> Progress:
        if verdict is Verdict.OPEN:
            return Progress.PENDING
        self._open = self.waits = False
        if verdict is Verdict.COMMITTED:
            _, _, largest = self.region.counters(self.communicator)
            self.margin.committed(largest - self._offered_call)
            self.on_event("plan_committed", plan=self.plan, epoch=self.epoch)
            return Progress.COMMITTED
        self.margin.too_small()
        self.failure = why_aborted
        self._begun_at = -1.0
        self.on_event("plan_aborted", plan=self.plan, epoch=self.epoch, reason=why_aborted)
        return Progress.PENDING

    def _largest_call(self) -> int:
        return self.region.counters(self.communicator)[2]

    def _stands_still(self) -> bool:
        """Whether no rank has made a call since the last such look: a checkpoint, an evaluation elsewhere. Whoever
        calls first will answer, so there is no hurry."""
        before, self._seen_call = self._seen_call, self._largest_call()
        self.waits = before == self._seen_call
        return self.waits

    def _expired(self, now: float, why: str) -> Progress:
        if now - self._begun_at <= OFFER_SECONDS:
            return Progress.PENDING
        if self._stands_still():
            self._begun_at = now
            return Progress.PENDING
        self.failure = why
        return Progress.FAILED
