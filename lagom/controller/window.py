# SPDX-License-Identifier: Apache-2.0
"""One window from request to result: get the lease agreed, collect what the ranks record, cut a clearly bad candidate.

The plan is a lease: whatever becomes of this process, the candidate ends at ``end_call`` on every rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lagom.controller.measure import Pacing, Tier, WindowMeter
from lagom.controller.publication import Offer, Progress
from lagom.controller.record_feed import OnCalls, OnSpans, Subscription
from lagom.program import TunedProgram
from lagom.records import Assignment, Sample
from lagom.search import WindowRequest, WindowResult
from lagom.wire.plan import Plan
from lagom.wire.region import Region

LOOK_SECONDS = 0.03
#: Ranks that have passed the lease's end are given this long, and the calls of this many iterations, to deliver their
#: last kernels: on a busy machine a rank may not run for seconds.
TAIL_SECONDS, TAIL_ITERATIONS = 2.0, 3
#: A window whose calls stop coming (evaluation, a checkpoint, a hang of the job's own) is given up after this long.
STALLED_SECONDS = 60.0

Pairs = tuple[tuple[Sample, Sample], ...]
NewOffer = Callable[[Callable[[int], Plan], str], Offer]
Subscribe = Callable[[OnCalls, OnSpans], Subscription]


def lease(tuned: TunedProgram, request: WindowRequest, pacing: Pacing, start: int) -> Plan:
    """The plan of a window that starts at call ``start``: whole ABBA rounds, and one iteration to end the last."""
    blocks = 2 * (request.pairs + request.pairs % 2)
    iterations = blocks * pacing.block + 1
    return Plan(
        start_call=start,
        sites=tuned.sites,
        positions=tuned.positions,
        incumbent=tuned.widen(request.incumbent),
        candidate=tuned.widen(request.candidate),
        end_call=start + iterations * tuned.program.calls_per_iteration,
        alternate_iterations=pacing.block,
    )


def standing(tuned: TunedProgram, assignment: Assignment, start: int) -> Plan:
    """The open-ended plan that puts ``assignment`` in force."""
    return Plan(start, tuned.sites, tuned.positions, tuned.widen(assignment))


@dataclass(slots=True)
class Window:
    """Step it until :meth:`step` returns a result. ``should_cut`` judges the pairs so far;
    ``subscribe`` gets the ranks' records."""

    region: Region
    communicator: int
    slots: dict[int, int]  # slot -> process
    tuned: TunedProgram
    request: WindowRequest
    tier: Tier
    new_offer: NewOffer
    should_cut: Callable[[Pairs], bool]
    subscribe: Subscribe
    failure: str = ""
    _offer: Offer | None = None
    _meter: WindowMeter | None = None
    _subscription: Subscription | None = None
    _end_call: int = 0
    _cutting: Offer | None = None
    _cut_pairs: Pairs = ()
    _looked_at: float = 0.0
    _moved_at: float = 0.0
    _smallest: int = field(default=-1)
    _beyond: int = 0  # calls that every rank has made behind the lease

    @property
    def starts_only(self) -> bool:
        """Whether the ranks record no kernels but position 0's: a proof asks for Z alone, of the job as it is without
        anybody looking."""
        return self.request.purpose == "confirm" and self.tier is not Tier.TIMELINE

    @property
    def offer(self) -> Offer | None:
        """The offer under way, if any."""
        return self._cutting or self._offer

    def close(self) -> None:
        """No more records are wanted."""
        if self._subscription is not None:
            self._subscription.close()

    def step(self, now: float) -> WindowResult | None:
        """What can be done now; a result once the window is over. An empty result says why in ``failure``."""
        if self._cutting is not None:
            return self._finish_cut(now)
        return self._agree(now) if self._meter is None else self._measure(now)

    def _agree(self, now: float) -> WindowResult | None:
        if self._offer is None:
            pacing = Pacing.of(self.tier)
            self._offer = self.new_offer(
                lambda start: lease(self.tuned, self.request, pacing, start), self.request.purpose
            )
        progress = self._offer.step(now)
        if progress is Progress.FAILED:
            self.failure = f"the ranks could not agree: {self._offer.failure}"
            return WindowResult(())
        if progress is Progress.COMMITTED and self._offer.plan is not None:
            self._meter = WindowMeter(
                self._offer.epoch, self.slots, self.tuned.tuned, self.tier, starts_only=self.starts_only
            )
            self._subscription = self.subscribe(self._meter.add_calls, self._meter.add_spans)
            self._end_call, self._moved_at = self._offer.plan.end_call, now
        return None

    def _measure(self, now: float) -> WindowResult | None:
        assert self._meter is not None
        ended = self._note_progress(now)
        if now - self._looked_at < LOOK_SECONDS:
            return None
        self._looked_at = now
        pairs = self._meter.pairs()
        if len(pairs) >= self.request.pairs:
            return self._result(pairs[: self.request.pairs])
        if self._no_more_comes(now, ended):
            pairs = self._meter.pairs(no_more_comes=True)[: self.request.pairs]
            self.failure = "" if pairs else "no iteration could be measured"
            return self._result(pairs)
        if not ended and self.request.purpose == "trial" and self.should_cut(pairs):
            self._cut_pairs = pairs
            self._cutting = self.new_offer(lambda start: standing(self.tuned, self.request.incumbent, start), "cut")
        return None

    def _no_more_comes(self, now: float, ended: bool) -> bool:
        """Whether pairs that irregular calls have spoilt leave the window short."""
        assert self._meter is not None
        rested = now - self._moved_at
        if ended and self._meter.has_measured(self._end_call):
            return True
        tail = TAIL_ITERATIONS * self.tuned.program.calls_per_iteration
        if ended and self._beyond >= tail:
            return rested > TAIL_SECONDS
        return rested > STALLED_SECONDS

    def _note_progress(self, now: float) -> bool:
        """Whether every rank has passed the end of the lease."""
        _, smallest, _ = self.region.counters(self.communicator)
        self._beyond = smallest - self._end_call
        if smallest != self._smallest and smallest < self._end_call:
            self._smallest, self._moved_at = smallest, now
        elif smallest >= self._end_call > self._smallest:
            self._smallest, self._moved_at = self._end_call, now
        return smallest >= self._end_call

    def _finish_cut(self, now: float) -> WindowResult | None:
        assert self._cutting is not None
        if self._cutting.step(now) is Progress.PENDING:
            return None
        return self._result(self._cut_pairs, ended_early=True)

    def _result(self, pairs: Pairs, *, ended_early: bool = False) -> WindowResult:
        assert self._meter is not None
        return WindowResult(pairs, self._meter.discarded, ended_early, self._meter.candidate_iterations)
