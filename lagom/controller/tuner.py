"""One communicator's way through a tuning run: join, learn the program, try configs, go quiet.

A state machine that the controller's loop steps; it never sleeps. Each phase is a method that does what can be done now
and names the next phase. What decides is elsewhere: the session (lagom.search) says what to try and what it meant, a
:class:`~lagom.controller.window.Window` gets it agreed and measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from lagom.controller.choice import chosen_strategy, given_by_hand
from lagom.controller.contexts import Contexts
from lagom.controller.evidence import Evidence, common_knobs
from lagom.controller.measure import Tier
from lagom.controller.options import Options
from lagom.controller.publication import Margin, Offer, Progress
from lagom.controller.settable import left_out, settable_rules
from lagom.controller.story import Story
from lagom.controller.timeline import Timeline
from lagom.controller.window import Window, standing
from lagom.profile_file import Section
from lagom.program import CallHistory, Program, TunedProgram, find_program, latest_start, tuned_program
from lagom.program.detect import HISTORY_CALLS
from lagom.records import Assignment, Function
from lagom.search import BLOCKS, LIVE, TuningSession, WindowRequest
from lagom.wire.library import library
from lagom.wire.plan import Plan, Rule
from lagom.wire.region import Capture, CommunicatorView, Region

LOOK_SECONDS = 0.25
MAX_LOST_WINDOWS = 5
RELEARN_AFTER = 2
#: Room before a plan of pinned rules, which needs no iteration boundary.
PINNED_CALLS = 16


class CommunicatorTuner:
    """Drives one communicator. The controller sets ``may_tune``: one communicator is searched at a time."""

    def __init__(
        self,
        region: Region,
        view: CommunicatorView,
        options: Options,
        story: Story,
        timeline: Timeline | None = None,
    ) -> None:
        self.region, self.view, self.options, self.story = region, view, options, story
        self.may_tune = False
        self.phase = "joining"
        self.history = CallHistory()
        self.evidence = Evidence()
        self.slots: dict[int, int] = {}  # slot -> process
        self.tuned: TunedProgram | None = None
        self.best: Assignment | None = None  # confirmed and in force, of the tuned sites
        self.rules: tuple[Rule, ...] = ()
        self._contexts: Contexts | None = None
        self._session: TuningSession | None = None
        self._search_began = 0.0
        self._window: Window | None = None
        self._offer: Offer | None = None
        self._tier = Tier.HOST
        self._margin = Margin()
        self._timeline = timeline
        self._request: WindowRequest | None = None
        self._profiled_from: int | None = None  # call
        self._looked_at = 0.0
        self._agreed_rules: tuple[Rule, ...] = ()
        self._lost_windows = 0
        self._suspected: tuple[tuple[Function, int], ...] = ()
        self._suspected_at = 0

    # -- what arrives

    def add_calls(self, slot: int, records: NDArray[Any]) -> None:
        """Call records of one rank. One rank's make the history: they are the same on every rank."""
        if not len(records) or slot not in self.slots:
            return
        if slot == min(self.slots):
            self.history.extend(records)
            if self.phase == "learning":
                self.evidence.add_calls(records)
        if self._contexts is not None:
            self._contexts.add_calls(slot, records)
        if self._window is not None:
            self._window.add_calls(slot, records)

    def add_spans(self, process: int, spans: NDArray[Any]) -> None:
        """Kernel spans of one process."""
        if not len(spans):
            return
        if self.phase == "learning":
            self.evidence.add_spans(process, self.slots, spans)
        if self._contexts is not None:
            self._contexts.add_spans(process, spans)
        if self._window is not None:
            self._window.add_spans(process, spans)

    def pin(self, rules: tuple[Rule, ...]) -> None:
        """Put these rules in force by hand (``--set``) instead of searching; no rules = back to stock and to searching.

        A running search ends; its open lease is replaced by the pinned plan, or ends by itself.
        """
        if rules == self.rules or self.phase == "aside":
            return
        self.rules = rules
        if self.phase == "joining":
            return
        self._withdraw()
        if self._session is not None:
            self._session.stop("rules were pinned by hand")
        self._session, self._window, self._contexts, self.best, self.tuned = None, None, None, None, None
        self._request = None
        self.region.set_capture(self.view.index, Capture.CALLS | Capture.KERNELS)
        self.phase = "pinning"

    def step(self, now: float) -> None:
        """One step of the current phase; ``now`` is a monotonic clock in seconds."""
        phases: dict[str, Callable[[float], str]] = {
            "joining": self._joining,
            "learning": self._learning,
            "pinning": self._pinning,
            "tuning": self._tuning,
            "finishing": self._finishing,
        }
        if self.phase in phases:
            self.phase = phases[self.phase](now)

    @property
    def is_profiling(self) -> bool:
        """Whether these are the iterations that `lagom profile` asked for."""
        return self.phase == "learning" and self._profiled_from is not None

    @property
    def wants_timeline(self) -> bool:
        """Whether kernels should be recorded now: while learning, and for every window but those that have the last
        word, which see the job as it is without anybody looking."""
        if self.phase == "learning":
            return self.may_tune
        return self.phase == "tuning" and self._tier is Tier.TIMELINE and not self._has_last_word(self._request)

    @property
    def is_over(self) -> bool:
        """Nothing more will be published here unless rules are pinned."""
        return self.phase in ("quiet", "pinned", "aside", "ended", "profiled")

    def traffic(self) -> int:
        """Bytes a period, for choosing which communicator is tuned first; 0 while unknown."""
        program = find_program(self.history)
        return sum(size for _, size in program.positions) if program else 0

    def section(self) -> Section | None:
        """This communicator's part of the profile, once something better than stock is confirmed or pinned."""
        identity = (self.view.rank_count, self.view.node_count, self.view.ordinal, self.view.name)
        if self._agreed_rules:
            return Section(*identity, rules=self._agreed_rules)
        if self.tuned is None or self.best is None or self.best.is_stock:
            return None
        return Section(*identity, self.tuned, self.tuned.widen(self.best))

    def shut(self) -> None:
        """The controller or the communicator ends: withdraw what is open, and say how far the search came. Leases end
        by themselves, confirmed plans stay."""
        self._withdraw()
        if self._session is not None and self.phase in ("tuning", "finishing"):
            self._end_search("the job ended before the search did")
        self.phase = "ended"

    # -- phases: each returns the next

    def _joining(self, now: float) -> str:
        if self.view.node_count != 1:
            return self._aside(f"the communicator spans {self.view.node_count} nodes, which is not tuned yet")
        slots = self.region.slots(self.view.index)
        if len(slots) < self.view.rank_count:
            return "joining"
        online = library().LAGOM_KNOB_ONLINE
        if not all(process.knobs & online for process in self.region.processes()):
            return self._aside("this NCCL gives its ranks no common id, so they cannot agree while the job runs")
        self.slots = {slot.index: slot.process for slot in slots}
        self.region.set_capture(self.view.index, Capture.CALLS | Capture.KERNELS)
        return "pinning" if self.rules else "learning"

    def _learning(self, now: float) -> str:
        if now - self._looked_at < LOOK_SECONDS or not self.may_tune:
            return "learning"
        self._looked_at = now
        self._contexts = self._contexts or Contexts(self.slots, now)
        program = self._believed_program()
        if program is None:
            return "learning"
        if self._captured():
            return self._aside("a CUDA graph was captured here: NCCL no longer asks per call")
        if self.options.profile_iterations:
            return self._profiling(program, now)
        self._tier = self.evidence.tier(self.slots)
        hidden = self._contexts.hidden_shares(self.history, program) if self._tier is Tier.TIMELINE else None
        if hidden is None and self._tier is Tier.TIMELINE and self._contexts.worth_waiting(program, now):
            return "learning"
        self._contexts = None
        self.tuned = tuned_program(program, hidden)
        problem = self.evidence.problem(self.tuned, self.region.processes())
        strategy = chosen_strategy(self.options, problem)
        for sentence in left_out(given_by_hand(self.options), problem.knobs):
            self.story.note(sentence, warning=True)
        self._session = TuningSession(strategy, problem, BLOCKS if self._tier is Tier.HOST else LIVE, self.options.seed)
        self._search_began = now
        self.story.program(self.view, self.tuned, problem, self._tier)
        return "tuning"

    def _profiling(self, program: Program, now: float) -> str:
        """`lagom profile`: whole iterations as they are, counted from when the timeline is on, or will not come on."""
        call = self.history.numbers[-1]
        if self._profiled_from is None:
            if self._timeline is None or self._timeline.is_settled(self.slots.values(), now):
                self._profiled_from = call
        elif call - self._profiled_from >= self.options.profile_iterations * program.calls_per_iteration:
            self.region.set_capture(self.view.index, Capture.NOTHING)
            return "profiled"
        return "learning"

    def _pinning(self, now: float) -> str:
        if self._offer is None:
            knobs = common_knobs(self.region.processes())
            rules = settable_rules(self.rules, knobs)
            for sentence in left_out([rule.config for rule in self.rules], knobs):
                self.story.note(sentence, warning=True)
            self._offer = self._new_offer(
                lambda start: Plan(start, rules=rules), "pin", lambda call: call, calls_per_iteration=PINNED_CALLS
            )
        progress = self._offer.step(now)
        if progress is Progress.PENDING:
            return "pinning"
        if progress is Progress.FAILED:
            self.story.standing_aside(f"the pinned rules could not be agreed: {self._offer.failure}", self.view)
        elif self._offer.plan is not None:
            self._agreed_rules = self._offer.plan.rules
            self.story.profile_changed()
        self._offer = None
        return "pinned" if self.rules else "learning"

    def _tuning(self, now: float) -> str:
        assert self._session is not None
        assert self.tuned is not None
        if (limit := self.options.search_seconds) is not None and now - self._search_began > limit:
            self._session.wrap_up(f"{limit:.0f} seconds of searching are over")
        if self._ranks_have_left():
            self._end_search("a rank has left the communicator")
            return "ended"
        if self._window is None:
            self._request = self._request or self._next_request()
            if self._request is None:
                return "finishing"
            if not self._can_be_seen(self._request, now):
                return "tuning"
            self._window = self._open_window(self._request)
        result = self._window.step(now)
        if result is None:
            return "tuning"
        failure, self._window, self._request = self._window.failure, None, None
        self._lost_windows = 0 if result.pairs else self._lost_windows + 1
        if self._lost_windows >= RELEARN_AFTER and self._program_has_changed():
            self.story.note("the iteration is another than was thought; learning it again", warning=True)
            self._session, self.tuned, self._request, self._lost_windows = None, None, None, 0
            self.region.set_capture(self.view.index, Capture.CALLS | Capture.KERNELS)
            return "learning"
        move = self._session.report(result)
        self.story.move(self.view, move, "tuning", self._iteration(), failure)
        if move.verdict == "confirmed":
            self.best = move.candidate
            self.story.profile_changed()
        return "tuning"

    def _finishing(self, now: float) -> str:
        assert self._session is not None
        outcome, tuned = self._session.outcome, self.tuned
        assert outcome is not None
        assert tuned is not None
        if self._ranks_have_left():
            self._end_search("a rank has left the communicator")
            return "ended"
        if self._offer is None:
            self._offer = self._new_offer(
                lambda start: standing(tuned, outcome.assignment, (), start), "final", self._start_after
            )
        progress = self._offer.step(now)
        if progress is Progress.PENDING:
            return "finishing"
        if progress is Progress.FAILED:
            self.story.standing_aside(f"the final plan could not be agreed: {self._offer.failure}", self.view)
        self._offer = None
        self.best = outcome.assignment
        self.story.outcome(self.view, outcome)
        self.story.profile_changed()
        self.region.set_capture(self.view.index, Capture.NOTHING)
        return "quiet"

    # -- helpers

    def _believed_program(self) -> Program | None:
        """A program that has repeated long enough, and was found already when half of these calls had been seen: a run
        of equal gathers inside the first forward pass also repeats for a while."""
        program = find_program(self.history)
        if program is None:
            return None
        seen = len(self.history.numbers)
        if program.positions != self._suspected:
            self._suspected, self._suspected_at = program.positions, seen
        settled = seen >= min(2 * self._suspected_at, HISTORY_CALLS)
        return program if settled and program.iterations_seen >= self.options.stable_iterations else None

    def _program_has_changed(self) -> bool:
        assert self.tuned is not None
        program = find_program(self.history)
        return program is None or sorted(program.positions) != sorted(self.tuned.program.positions)

    def _next_request(self) -> WindowRequest | None:
        """The next window, or None when the search is over."""
        assert self._session is not None
        if (why := self._reason_to_stop()) is not None:
            self._session.stop(why)
        return self._session.request()

    @staticmethod
    def _has_last_word(request: WindowRequest | None) -> bool:
        return request is not None and request.purpose in ("confirm", "final")

    def _can_be_seen(self, request: WindowRequest, now: float) -> bool:
        """Whether the timeline is on, where this window wants it, or has had its time to come on."""
        if self._timeline is None or self._tier is not Tier.TIMELINE or self._has_last_word(request):
            return True
        by_cupti = self.evidence.quiet_tier(self.slots) is not Tier.TIMELINE
        return not by_cupti or self._timeline.is_settled(self.slots.values(), now)

    def _window_tier(self, request: WindowRequest) -> Tier:
        """How this window is measured: by the timeline where it is on, else by what NCCL and the clock say."""
        quiet = self.evidence.quiet_tier(self.slots)
        if self._tier is not Tier.TIMELINE or quiet is Tier.TIMELINE or self._timeline is None:
            return self._tier
        on = not self._has_last_word(request) and self._timeline.is_on(self.slots.values())
        return Tier.TIMELINE if on else quiet

    def _open_window(self, request: WindowRequest) -> Window:
        assert self._session is not None
        assert self.tuned is not None
        tier = self._window_tier(request)
        seen = Capture.KERNELS if request.purpose != "confirm" or tier is Tier.TIMELINE else Capture.ITERATION
        self.region.set_capture(self.view.index, Capture.CALLS | seen)
        return Window(
            self.region,
            self.view.index,
            self.slots,
            self.tuned,
            request,
            tier,
            (),
            lambda plan_at, purpose: self._new_offer(plan_at, purpose, self._start_after),
            self._session.should_cut,
        )

    def _reason_to_stop(self) -> str | None:
        if self._captured():
            return "a CUDA graph was captured here, so trials end with the incumbent in force"
        if self._lost_windows >= MAX_LOST_WINDOWS:
            return f"{MAX_LOST_WINDOWS} windows in a row could not be measured"
        return None

    def _ranks_have_left(self) -> bool:
        return len(self.region.slots(self.view.index)) < self.view.rank_count

    def _end_search(self, reason: str) -> None:
        """No more plans can be agreed: close the session, if it still runs, and tell its outcome."""
        assert self._session is not None
        self._withdraw()
        self._window = None
        self._session.stop(reason)
        if self._session.outcome is not None:
            self.story.outcome(self.view, self._session.outcome)

    def _captured(self) -> bool:
        return any(slot.capturing for slot in self.region.slots(self.view.index))

    def _aside(self, reason: str) -> str:
        self._contexts = None
        self.story.standing_aside(reason, self.view)
        return "aside"

    def _start_after(self, call: int) -> int | None:
        assert self.tuned is not None
        start = latest_start(self.history, self.tuned.program)
        return None if start is None else self.tuned.program.next_start(start, call)

    def _new_offer(
        self,
        plan_at: Callable[[int], Plan],
        purpose: str,
        start_after: Callable[[int], int | None],
        calls_per_iteration: int | None = None,
    ) -> Offer:
        if calls_per_iteration is None:
            assert self.tuned is not None
            calls_per_iteration = self.tuned.program.calls_per_iteration
        return Offer(
            self.region,
            self.view.index,
            self._margin,
            calls_per_iteration,
            plan_at,
            start_after,
            lambda kind, **facts: self.story.plan(self.view, kind, purpose, **facts),
        )

    def _iteration(self) -> int | None:
        if self.tuned is None or not self.history.numbers:
            return None
        return self.history.numbers[-1] // self.tuned.program.calls_per_iteration

    def _withdraw(self) -> None:
        for offer in (self._offer, self._window.offer if self._window is not None else None):
            if offer is not None:
                offer.give_up()
        self._offer = None
