# SPDX-License-Identifier: Apache-2.0
"""The search of one communicator: each request of the session becomes a window, each result goes back to it.

Nothing is tried while the job does something else (evaluation, a checkpoint): trials wait for the iteration to come
back, for as long as it takes. Only if other calls have taken its place for good is the job learnt anew.
"""

from __future__ import annotations

from functools import partial

from lagom.atlas.match import MOST_SUGGESTIONS
from lagom.controller.candidates import candidates_of, suggest_from
from lagom.controller.finalizing import Finalizing
from lagom.controller.measure import Tier
from lagom.controller.phase import Stopped, TunerPhase
from lagom.controller.publication import Offer, Progress
from lagom.controller.record_feed import Subscription
from lagom.controller.session_choice import chosen_session
from lagom.controller.tuner_state import TunerState
from lagom.controller.window import Window, standing
from lagom.controller.workload_change import WorkloadChange
from lagom.records import Assignment
from lagom.search import Suggest, TuningSession, WindowRequest
from lagom.wire.region import Capture

MAX_LOST_WINDOWS = 5
LOOK_SECONDS = 0.25
MOST_CANDIDATES = 4  # each may cost a window


class Searching(TunerPhase):
    """Then finalizing, stopped (no more plans can be agreed), or learning again."""

    name = "searching"
    may_search = True

    def __init__(self, state: TunerState, now: float) -> None:
        super().__init__(state)
        assert state.learned is not None
        self._stepped_at = now
        # In windows: what a pair takes, and so how many still fit.
        self._measured_seconds, self._measured_pairs = 0.0, 0
        self._tier = state.learned.tier
        candidates = self._candidates()
        suggest = self._suggestions(MOST_CANDIDATES - len(candidates))
        self.session = chosen_session(state.options, state.learned, state.events.warn, candidates, suggest)
        self._window: Window | None = None
        self._request: WindowRequest | None = None
        self._in_force = self.session.incumbent  # where the last lease ended
        self._standing: Offer | None = None  # of the incumbent, under way
        self._workload_change: WorkloadChange | None = None
        self._changed_calls: Subscription | None = None
        self._last_purpose = ""
        self._lost_windows = 0
        self._looked_at = 0.0
        state.events.program(
            state.view,
            state.tuned,
            state.learned.problem,
            self._tier,
            state.observations,
            simulated_clock=state.region.has_simulated_clock,
        )
        if state.learned.traced is not None:
            state.events.note(
                f"communicator {state.view.index}: the kernels of one iteration show the cost model which kernel "
                "waits for which"
            )

    @property
    def wants_timeline(self) -> bool:
        """For every window but those that have the last word, which see the job as it is without anybody looking."""
        is_wanted = self._tier is Tier.TIMELINE and not self._has_last_word(self._request)
        return is_wanted and not self._has_lost_too_much()

    @property
    def purpose(self) -> str:
        return self._last_purpose

    @property
    def is_waiting(self) -> bool:
        """Whether the job does something else, or no trial may begin yet, so that another communicator may have its
        turn."""
        if self._window is not None:
            return self._stands_still
        return self._workload_change is not None or self._has_lost_too_much()

    @property
    def _stands_still(self) -> bool:
        """Whether a plan waits for ranks that make no calls at all."""
        return self._offer is not None and self._offer.waits

    @property
    def _offer(self) -> Offer | None:
        """What is offered to the ranks now."""
        return self._standing if self._window is None else self._window.offer

    def step(self, now: float) -> TunerPhase | None:
        if self._state.ranks_have_left():
            self.leave("a rank has left the communicator")
            return Stopped(self._state, "ended")
        self._mind_the_time(now)
        if self._stands_still and (self._state.captured() or not self._state.may_tune):
            self._put_off()
        if self._window is None:
            return self._between_windows(now)
        result = self._window.step(now)
        if result is None:
            return None
        if self._state.findings_refuted():
            return self._begin_anew()
        failure = self._window.failure
        if result.pairs:
            self._in_force = self._window.request.incumbent
        self._window.close()
        self._window = self._request = None
        self._lost_windows = 0 if result.pairs else self._lost_windows + 1
        self._measured_pairs += len(result.pairs) + result.discarded
        self._tell_time_left()
        move = self.session.report(result)
        state = self._state
        state.events.move(state.view, move, state.iteration(), failure)
        if move.verdict == "confirmed":
            state.best = move.candidate
            state.events.config_changed()
        return None

    def leave(self, reason: str) -> None:
        """Close the session, if it still runs, and tell its outcome."""
        self._put_off()
        self.session.stop(reason)
        if self.session.outcome is not None:
            self._state.events.outcome(self._state.view, self.session.outcome)
            untried = self.session.untried if isinstance(self.session, TuningSession) else ()
            self._state.keep_unproven(self.session.outcome, untried)

    def _candidates(self) -> list[Assignment]:
        """What held before in this job; what the given saved configs say; what a stopped search left in our folder."""
        state, left = self._state, self._state.options.best_so_far
        if state.options.only_compares:
            return []
        paths = [*state.options.candidates, *([left] if left.exists() else [])]
        saved = candidates_of(paths, state.view, state.tuned, state.events.note)
        return [*([state.known] if state.known is not None else []), *saved][:MOST_CANDIDATES]

    def _suggestions(self, room: int) -> Suggest | None:
        """What the atlas knows of communicators like this one; None = it is not asked."""
        state, atlas = self._state, self._state.options.atlas
        if atlas.problem:
            state.events.note(f"the atlas is without what this user's jobs found: {atlas.problem}")
        if not atlas.entries or state.options.only_compares or room <= 0:
            return None
        assert state.learned is not None
        processes = set(state.slots.values())
        process = next((process for process in state.region.processes() if process.index in processes), None)
        if process is None:  # every rank has gone
            return None
        most = min(room, MOST_SUGGESTIONS)
        return partial(suggest_from, atlas.entries, state.view, process, state.learned.problem, most)

    # -- what may be tried, and when

    def _between_windows(self, now: float) -> TunerPhase | None:
        following = self._next_window(now)
        if self._window is None:  # it may be long until the next one
            self._state.record_calls()
        return following

    def _next_window(self, now: float) -> TunerPhase | None:
        if self._standing is not None and not self._is_decided(self._standing, now):
            return None
        if not self._state.may_tune:
            return None
        if self._is_elsewhere(now):
            return self._wait_it_out()
        self._end_workload_change()
        self._request = self._next_request()
        self._last_purpose = self._last_purpose if self._request is None else self._request.purpose
        if self._request is None:
            assert self.session.outcome is not None
            return Finalizing(self._state, self.session.outcome)
        if self._has_lost_too_much():
            self._put_in_force(self.session.incumbent)
        elif self._can_be_seen(self._request, now):
            self._window = self._open_window(self._request)
        return None

    def _put_in_force(self, incumbent: Assignment) -> None:
        """The lease of the window that proved it has ended on the incumbent before it; the next window may be far off.
        What the ranks do not agree on is not offered again."""
        if incumbent != self._in_force:
            self._in_force = incumbent
            tuned = self._state.tuned
            self._standing = self._state.offer(lambda start: standing(tuned, incumbent, start), "incumbent")

    def _is_decided(self, offer: Offer, now: float) -> bool:
        if offer.step(now) is Progress.PENDING:
            return False
        self._standing = None
        return True

    def _put_off(self) -> None:
        """What is offered is given up and asked for again, if ever: another communicator has its turn, or a graph has
        taken the calls over."""
        if self._offer is not None:
            self._offer.give_up()
        if self._window is not None:
            self._window.close()
        self._window = self._request = self._standing = None

    def _mind_the_time(self, now: float) -> None:
        """The limit counts the time in which this communicator had its turn and did not wait with a trial."""
        limit = self._state.search_seconds
        passed = now - self._stepped_at
        self._state.spent_seconds += passed if self._state.may_tune and not self._has_lost_too_much() else 0.0
        self._measured_seconds += passed if self._window is not None else 0.0
        self._stepped_at = now
        if limit is not None and self._state.spent_seconds > limit:
            self.session.wrap_up(_limit_reached(limit))

    def _tell_time_left(self) -> None:
        """The session sizes its proofs by it, so that the final A/B ends within the limit."""
        limit = self._state.search_seconds
        if limit is not None and self._measured_pairs and self._measured_seconds > 0.0:
            left = max(0.0, limit - self._state.spent_seconds) * self._measured_pairs / self._measured_seconds
            self.session.set_time_left(left, _limit_reached(limit))

    def _has_lost_too_much(self) -> bool:
        """Whether the search waits before another trial, until the job has made enough iterations for what it lost. It
        never waits with a proof: that ends the cost and brings the gain."""
        percent, request = self._state.options.search_percent, self.session.request()
        if percent is None or self._window is not None or not isinstance(self.session, TuningSession):
            return False
        if request is None or request.purpose != "trial" or self._state.captured():
            return False
        return self.session.lost_iterations > percent / 100.0 * (self._state.iteration() or 0)

    def _next_request(self) -> WindowRequest | None:
        """The next window, or None when the search is over."""
        if self._state.captured():
            self.session.stop("a CUDA graph was captured here, so trials end with the incumbent in force")
        elif self._lost_windows >= MAX_LOST_WINDOWS:
            self.session.stop(f"{MAX_LOST_WINDOWS} windows in a row could not be measured")
        return self.session.request()

    def _begin_anew(self) -> TunerPhase:
        """Neither this window nor what was found out before it was measured."""
        self._put_off()
        self.session.stop("the times it was measured by are other kernels'")
        return self.learn_again()

    # -- irregular phases

    def _is_elsewhere(self, now: float) -> bool:
        """Looked up a few times a second only: it takes the whole history."""
        if self._workload_change is not None and now - self._looked_at < LOOK_SECONDS:
            return True
        self._looked_at = now
        return not self._state.captured() and not self._state.is_regular()

    def _wait_it_out(self) -> TunerPhase | None:
        """Until the iteration comes back, or something else has taken its place."""
        state = self._state
        if self._workload_change is None:
            self._workload_change = WorkloadChange(state.tuned.program.positions, min(state.slots))
            self._changed_calls = self.subscribe(self._workload_change.add_calls)
        if not self._workload_change.has_replaced_it():
            return None
        state.events.warn(f"communicator {state.view.index}: {self._workload_change.sentence}; learning it again")
        state.history, state.known, state.best = self._workload_change.history, None, None
        self.session.stop("the job's iteration has changed")
        return self.learn_again()

    def _end_workload_change(self) -> None:
        """The iteration is back."""
        if self._changed_calls is not None:
            self._changed_calls.close()
        self._workload_change = self._changed_calls = None

    # -- how a window is measured

    @staticmethod
    def _has_last_word(request: WindowRequest | None) -> bool:
        return request is not None and request.purpose in ("confirm", "final")

    def _quiet_tier(self) -> Tier:
        return self._state.observations.quiet_tier(self._state.slots)

    def _can_be_seen(self, request: WindowRequest, now: float) -> bool:
        """Whether the timeline is on, where this window wants it, or has had its time to come on."""
        timeline = self._state.timeline
        if timeline is None or self._tier is not Tier.TIMELINE or self._has_last_word(request):
            return True
        by_cupti = self._quiet_tier() is not Tier.TIMELINE
        return not by_cupti or timeline.is_settled(self._state.slots.values(), now)

    def _window_tier(self, request: WindowRequest) -> Tier:
        """How this window is measured: by the timeline where it is on, else by what NCCL and the clock say."""
        quiet, timeline = self._quiet_tier(), self._state.timeline
        if self._tier is not Tier.TIMELINE or quiet is Tier.TIMELINE or timeline is None:
            return self._tier
        on = not self._has_last_word(request) and timeline.is_on(self._state.slots.values())
        return Tier.TIMELINE if on else quiet

    def _open_window(self, request: WindowRequest) -> Window:
        state, tier = self._state, self._window_tier(request)
        window = Window(
            state.region,
            state.view.index,
            state.slots,
            state.tuned,
            request,
            tier,
            state.offer,
            self.session.should_cut,
            self.subscribe,
        )
        state.record(Capture.CALLS | (Capture.ITERATION if window.starts_only else Capture.KERNELS))
        return window


def _limit_reached(seconds: float) -> str:
    return f"time limit of {seconds:.0f} s reached"
