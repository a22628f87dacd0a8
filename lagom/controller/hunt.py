"""The search of one communicator: each request of the session becomes a window, each result goes back to it.

Nothing is tried while the job does something else (evaluation, a checkpoint): trials wait for the iteration to come
back, for as long as it takes. Only if other calls have taken its place for good is the job learnt anew.
"""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from lagom.controller.choice import chosen_session
from lagom.controller.ground import Ground
from lagom.controller.interlude import Interlude
from lagom.controller.measure import Tier
from lagom.controller.window import Window
from lagom.search import WindowRequest
from lagom.wire.region import Capture

MAX_LOST_WINDOWS = 5
LOOK_SECONDS = 0.25


class Hunt:
    """Then finishing, ended (no more plans can be agreed), or learning again."""

    name: ClassVar[str] = "tuning"

    def __init__(self, ground: Ground, now: float) -> None:
        assert ground.learned is not None
        self._ground = ground
        self._spent, self._stepped_at = 0.0, now  # seconds
        self._tier = ground.learned.tier
        self.session = chosen_session(ground.options, ground.learned, ground.story.warn, ground.known)
        self._window: Window | None = None
        self._request: WindowRequest | None = None
        self._interlude: Interlude | None = None
        self._lost_windows = 0
        self._looked_at = 0.0
        ground.story.program(ground.view, ground.tuned, ground.learned.problem, self._tier, ground.evidence)
        if ground.learned.traced is not None:
            ground.story.note(
                f"communicator {ground.view.index}: the kernels of one iteration tell the cost model who waits for whom"
            )

    @property
    def wants_timeline(self) -> bool:
        """For every window but those that have the last word, which see the job as it is without anybody looking."""
        return self._tier is Tier.TIMELINE and not self._has_last_word(self._request)

    @property
    def is_waiting(self) -> bool:
        """Whether the job does something else, so that another communicator may have its turn."""
        return self._stands_still if self._window is not None else self._interlude is not None

    @property
    def _stands_still(self) -> bool:
        """Whether a window waits for ranks that make no calls at all."""
        return self._window is not None and self._window.offer is not None and self._window.offer.waits

    def add_calls(self, slot: int, records: NDArray[Any]) -> None:
        if self._window is not None:
            self._window.add_calls(slot, records)
        if self._interlude is not None and slot == min(self._ground.slots):
            self._interlude.add_calls(records)

    def add_spans(self, process: int, spans: NDArray[Any]) -> None:
        if self._window is not None:
            self._window.add_spans(process, spans)

    def step(self, now: float) -> str:
        if self._ground.ranks_have_left():
            self.leave("a rank has left the communicator")
            return "ended"
        self._mind_the_time(now)
        if self._stands_still and (self._ground.captured() or not self._ground.may_tune):
            self._put_off()
        if self._window is None:
            return self._next_window(now)
        result = self._window.step(now)
        if result is None:
            return "tuning"
        if self._ground.findings_refuted():
            return self._begin_anew()
        failure, self._window, self._request = self._window.failure, None, None
        self._lost_windows = 0 if result.pairs else self._lost_windows + 1
        move = self.session.report(result)
        ground = self._ground
        ground.story.move(ground.view, move, "retuning" if ground.retunes else "tuning", ground.iteration(), failure)
        if move.verdict == "confirmed":
            ground.best = move.candidate
            ground.story.profile_changed()
        return "tuning"

    def leave(self, reason: str) -> None:
        """Close the session, if it still runs, and tell its outcome."""
        self._put_off()
        self.session.stop(reason)
        if self.session.outcome is not None:
            self._ground.story.outcome(self._ground.view, self.session.outcome)

    # -- what may be tried, and when

    def _next_window(self, now: float) -> str:
        if not self._ground.may_tune:
            return "tuning"
        if self._is_elsewhere(now):
            return self._wait_it_out()
        self._interlude = None
        self._request = self._request or self._next_request()
        if self._request is None:
            return "finishing"
        if self._can_be_seen(self._request, now):
            self._window = self._open_window(self._request)
        return "tuning"

    def _put_off(self) -> None:
        """The window is given up and asked for again, if ever: another communicator has its turn, or a graph has taken
        the calls over."""
        if self._window is not None and self._window.offer is not None:
            self._window.offer.give_up()
        self._window = self._request = None

    def _mind_the_time(self, now: float) -> None:
        """The limit counts the time in which this communicator had its turn."""
        limit = self._ground.search_seconds
        self._spent += now - self._stepped_at if self._ground.may_tune else 0.0
        self._stepped_at = now
        if limit is not None and self._spent > limit:
            self.session.wrap_up(f"stopped: time limit of {limit:.0f} s reached")

    def _next_request(self) -> WindowRequest | None:
        """The next window, or None when the search is over."""
        if self._ground.captured():
            self.session.stop("a CUDA graph was captured here, so trials end with the incumbent in force")
        elif self._lost_windows >= MAX_LOST_WINDOWS:
            self.session.stop(f"{MAX_LOST_WINDOWS} windows in a row could not be measured")
        return self.session.request()

    def _begin_anew(self) -> str:
        """Neither this window nor what was found out before it was measured."""
        self._put_off()
        self.session.stop("the times it was measured by are other kernels'")
        return "learning"

    # -- irregular phases

    def _is_elsewhere(self, now: float) -> bool:
        """Looked up a few times a second only: it takes the whole history."""
        if self._interlude is not None and now - self._looked_at < LOOK_SECONDS:
            return True
        self._looked_at = now
        return not self._ground.captured() and not self._ground.is_regular()

    def _wait_it_out(self) -> str:
        """Until the iteration comes back, or something else has taken its place."""
        ground = self._ground
        self._interlude = self._interlude or Interlude(ground.tuned.program.positions)
        if not self._interlude.has_replaced_it():
            return "tuning"
        ground.story.warn(f"communicator {ground.view.index}: {self._interlude.sentence}; learning it again")
        ground.history, ground.known, ground.best = self._interlude.history, None, None
        self.session.stop("the job's iteration has changed")
        return "learning"

    # -- how a window is measured

    @staticmethod
    def _has_last_word(request: WindowRequest | None) -> bool:
        return request is not None and request.purpose in ("confirm", "final")

    def _quiet_tier(self) -> Tier:
        return self._ground.evidence.quiet_tier(self._ground.slots)

    def _can_be_seen(self, request: WindowRequest, now: float) -> bool:
        """Whether the timeline is on, where this window wants it, or has had its time to come on."""
        timeline = self._ground.timeline
        if timeline is None or self._tier is not Tier.TIMELINE or self._has_last_word(request):
            return True
        by_cupti = self._quiet_tier() is not Tier.TIMELINE
        return not by_cupti or timeline.is_settled(self._ground.slots.values(), now)

    def _window_tier(self, request: WindowRequest) -> Tier:
        """How this window is measured: by the timeline where it is on, else by what NCCL and the clock say."""
        quiet, timeline = self._quiet_tier(), self._ground.timeline
        if self._tier is not Tier.TIMELINE or quiet is Tier.TIMELINE or timeline is None:
            return self._tier
        on = not self._has_last_word(request) and timeline.is_on(self._ground.slots.values())
        return Tier.TIMELINE if on else quiet

    def _open_window(self, request: WindowRequest) -> Window:
        ground, tier = self._ground, self._window_tier(request)
        window = Window(
            ground.region,
            ground.view.index,
            ground.slots,
            ground.tuned,
            request,
            tier,
            ground.offer,
            self.session.should_cut,
        )
        ground.record(Capture.CALLS | (Capture.ITERATION if window.starts_only else Capture.KERNELS))
        return window
