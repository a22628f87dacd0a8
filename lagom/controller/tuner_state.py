# SPDX-License-Identifier: Apache-2.0
"""What the phases of one communicator's tuner share: who takes part, what was seen, what is in force.

A phase (``learning.py``, ``searching.py``, ...) reads it when it begins and leaves in it what the next one needs.
Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lagom.config_file import Section
from lagom.controller.event_log import EventLog
from lagom.controller.measure import Tier
from lagom.controller.options import Options
from lagom.controller.publication import Margin, Offer
from lagom.controller.record_feed import RecordFeed
from lagom.controller.stock_observations import StockObservations
from lagom.controller.timeline_control import TimelineControl
from lagom.program import CallHistory, TunedProgram, find_latest_start, find_program
from lagom.records import Assignment, Problem
from lagom.search import SearchOutcome
from lagom.wire.plan import Plan, Rule
from lagom.wire.region import Capture, Region
from lagom.wire.views import CommunicatorView

if TYPE_CHECKING:
    from lagom.cost import IterationModel as CostProgram

#: Calls and kernels: what learning needs in its turn.
EVERYTHING = Capture.CALLS | Capture.KERNELS


@dataclass(frozen=True, slots=True)
class Learned:
    """What stock iterations have shown. ``traced`` is the iteration as the cost model wants it, where kernels were
    seen."""

    tuned: TunedProgram
    problem: Problem
    tier: Tier
    traced: CostProgram | None = None


@dataclass(slots=True)
class TunerState:
    """``slots`` maps slot to process. ``best`` is confirmed and in force, of the tuned sites; ``known`` is what an
    earlier search of this job ended on. ``may_tune``: the controller lets one communicator at a time search."""

    region: Region
    view: CommunicatorView
    options: Options
    events: EventLog
    timeline: TimelineControl | None = None
    records: RecordFeed = field(default_factory=RecordFeed)
    slots: dict[int, int] = field(default_factory=dict)
    history: CallHistory = field(default_factory=CallHistory)
    observations: StockObservations = field(default_factory=StockObservations)
    margin: Margin = field(default_factory=Margin)
    learned: Learned | None = None
    best: Assignment | None = None
    known: Assignment | None = None
    rules: tuple[Rule, ...] = ()
    agreed_rules: tuple[Rule, ...] = ()
    may_tune: bool = False
    search_seconds: float | None = None  # of this turn
    spent_seconds: float = 0.0  # of it, by the search
    retunes: int = 0
    unproven: tuple[Section, ...] = ()  # of a search that was stopped: what the next one should try first
    capture: int | None = None  # what the ranks were asked to record
    search_has_ended: bool = False  # by itself: nothing is left to be tried
    learn: Callable[[TunerState], Any] | None = None  # makes the phase Learning, to which later ones may go back

    @property
    def tuned(self) -> TunedProgram:
        """The program being tuned; only asked for once it is known."""
        assert self.learned is not None
        return self.learned.tuned

    # -- the ranks

    def record(self, capture: int) -> None:
        """What the ranks shall record from now on (bits of :class:`Capture`). Kernels only while they are needed: a
        call whose kernel is timed takes the host some 20 us longer, and NCCL then times those of all communicators."""
        if capture != self.capture:  # the ranks read it at each call
            self.capture = capture
            self.region.set_capture(self.view.index, capture)

    def record_calls(self) -> None:
        """Until kernels are needed; but those, too, where raw records are kept or the job is profiled."""
        keeps_all = self.options.record or self.options.profile_iterations
        self.record(EVERYTHING if keeps_all else Capture.CALLS)

    def can_show_kernels(self) -> bool:
        """Whether every process has NCCL report its kernels, or is simulated."""
        return all(process.profiler_api or process.simulated for process in self.region.processes())

    def ranks_have_left(self) -> bool:
        """Whether no plan can be agreed any more."""
        return len(self.region.slots(self.view.index)) < self.view.rank_count

    def captured(self) -> bool:
        """Whether a CUDA graph was captured on this communicator: then no more trials here."""
        return any(slot.capturing for slot in self.region.slots(self.view.index))

    def findings_refuted(self) -> bool:
        """Whether what was learnt and found here has just turned out not to be measured: NCCL's times of this
        communicator's kernels are other kernels' (the plugin's gpu_times.h). They count for nothing from then on,
        whoever watches is told, and nothing that stands on them is kept, nor in the saved config."""
        slots = self.region.slots(self.view.index)
        if self.observations.times_refuted or not any(slot.times_refuted for slot in slots):
            return False
        self.observations.times_refuted = True
        self.events.warn(
            f"communicator {self.view.index}: by the times that NCCL reports, a kernel would have begun before its "
            "call (NCCL does not report sends to oneself and Broadcasts): these times are not used here any more"
        )
        if self.learned is None or self.learned.tier is Tier.HOST:
            return False
        had = self.best
        self.best = self.known = self.learned = None
        if had is not None:
            self.events.config_changed()
        return True

    # -- what becomes of a search

    def section(self, assignment: Assignment) -> Section:
        """The part of a saved config that gives the tuned sites these configs."""
        view, tuned = self.view, self.tuned
        return Section(view.rank_count, view.node_count, view.ordinal, view.name, tuned, tuned.widen(assignment))

    def keep_unproven(self, outcome: SearchOutcome, untried: Iterable[Assignment] = ()) -> None:
        """The best that a search measured which ended before its proof, what it had confirmed, and the candidates that
        it never came to."""
        if not self.options.only_compares:
            self.search_has_ended = outcome.verdict != "stopped" and outcome.best is None
            left = () if self.search_has_ended else dict.fromkeys((outcome.best, outcome.assignment, *untried))
            self.unproven = tuple(self.section(each) for each in left if each is not None and not each.is_stock)
        self.events.config_changed()

    # -- the iteration

    def iteration(self) -> int | None:
        """About how many iterations the job has made."""
        if self.learned is None or not self.history.numbers:
            return None
        return self.history.numbers[-1] // self.tuned.program.calls_per_iteration

    def is_regular(self) -> bool:
        """Whether the latest calls are those of the program."""
        return find_latest_start(self.history, self.tuned.program) is not None

    def start_after(self, call: int) -> int | None:
        """The first position 0 at or after ``call``, or ``None`` while the calls are irregular."""
        start = find_latest_start(self.history, self.tuned.program)
        return None if start is None else self.tuned.program.next_start(start, call)

    def traffic(self) -> int:
        """Bytes an iteration, for choosing which communicator is tuned first; 0 while unknown."""
        program = find_program(self.history)
        return sum(size for _, size in program.positions) if program else 0

    # -- plans

    def offer(self, plan_at: Callable[[int], Plan], purpose: str) -> Offer:
        """A plan that begins with an iteration."""
        return self.offer_at(plan_at, purpose, self.start_after, self.tuned.program.calls_per_iteration)

    def offer_at(
        self,
        plan_at: Callable[[int], Plan],
        purpose: str,
        start_after: Callable[[int], int | None],
        calls_per_iteration: int,
    ) -> Offer:
        """A plan that begins where ``start_after`` says, at least ``calls_per_iteration`` calls ahead."""
        return Offer(
            self.region,
            self.view.index,
            self.margin,
            calls_per_iteration,
            plan_at,
            start_after,
            lambda kind, **facts: self.events.plan(self.view, kind, purpose, **facts),
            self.view.comm_id,
        )
