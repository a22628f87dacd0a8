"""What a job's log says about each of its communicators so far: the half of the picture that shared memory lacks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from lagom import journal
from lagom.journal.schema import Base
from lagom.records import printable

#: Lines kept of what was decided.
DECISIONS = 50
#: Events whose line a watcher wants to read; plans of trials come and go with every move.
DECISIVE = ("program", "move", "outcome", "plan_aborted", "plan_committed", "standing_aside", "drift", "job_end")


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of what was decided. ``t``: wall clock, seconds since 1970."""

    t: float
    kind: str
    text: str


@dataclass(slots=True)
class GroupStory:
    """One communicator, from the log. Times in ns, ``lost`` in iterations of stock."""

    program: journal.Program | None = None
    last: journal.Move | None = None
    stock_z: float | None = None
    outcome: journal.Outcome | None = None
    aside: str = ""
    pinned: tuple[str, ...] = ()
    configs: int = 0
    plans: dict[int, journal.PlanPublished] = field(default_factory=dict)
    committed: int = 0
    aborted: int = 0
    drifts: int = 0
    drifted: str = ""  # why it is learnt anew, until a program is found
    _lost_before: float = 0.0  # in searches that are over

    @property
    def resolvable(self) -> float | None:
        """The smallest effect, as a fraction of Z, that the data of the last word could tell from nothing."""
        if self.outcome is not None and self.outcome.resolvable is not None:
            return self.outcome.resolvable
        return self.last.resolvable if self.last is not None else None

    @property
    def lost_iterations(self) -> float:
        """Time lost against stock while searching."""
        if self.outcome is not None:
            return self._lost_before + self.outcome.regret_iterations
        return self._lost_before + (self.last.lost_iterations if self.last is not None else 0.0)

    def begin(self, program: journal.Program) -> None:
        """A search begins, perhaps not the first."""
        self._lost_before, self.drifted = self.lost_iterations, ""
        self.program, self.last, self.outcome, self.stock_z, self.configs = program, None, None, None, 0

    def drift(self, drift: journal.Drift) -> None:
        """The job is no longer as it was left: what was found stays in force while it is learnt anew."""
        self._lost_before = self.lost_iterations
        self.last, self.outcome, self.drifted = None, None, drift.reason
        self.drifts += 1

    def move(self, move: journal.Move) -> None:
        """A step of it."""
        self.last = move
        if move.purpose == "baseline" and move.z is not None:
            self.stock_z = move.z
        elif move.purpose != "baseline":
            self.configs += 1

    def publish(self, plan: journal.PlanPublished) -> None:
        """A plan was offered; those long decided are forgotten."""
        self.plans[plan.epoch] = plan
        while len(self.plans) > DECISIONS:
            del self.plans[min(self.plans)]

    def commit(self, epoch: int) -> None:
        """And agreed."""
        self.committed += 1
        plan = self.plans.get(epoch)
        if plan is not None and plan.purpose == "pin":
            self.pinned = plan.rules


class JobStory:
    """A log as it grows. One log may hold several jobs after each other: each ``job_start`` begins anew."""

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, start: journal.JobStart | None) -> None:
        self.start = start
        self.end: journal.JobEnd | None = None
        self.groups: dict[int, GroupStory] = {}
        self.asides: list[str] = []
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS)
        self._formatter = journal.Formatter()

    @property
    def region(self) -> str:
        """The shared memory this log's last job used; empty if it does not say."""
        return self.start.region if self.start is not None else ""

    def read(self, events: Iterable[Base]) -> None:
        """More of the log."""
        for event in events:
            if isinstance(event, journal.JobStart):
                self._begin(event)
            self._take(event)
            line = self._formatter.line(event)
            warned = isinstance(event, journal.Note) and event.level == "warning"
            if line is not None and (event.kind in DECISIVE or warned):
                self.decisions.append(Decision(event.t, event.kind, printable(line.split(" ", 1)[1])))

    def group(self, communicator: int) -> GroupStory:
        """What is told of a communicator."""
        return self.groups.setdefault(communicator, GroupStory())

    def _take(self, event: Base) -> None:
        if isinstance(event, journal.JobEnd):
            self.end = event
        elif isinstance(event, journal.Communicator):
            self.groups[event.communicator] = GroupStory()
        elif isinstance(event, journal.StandingAside):
            self._aside(event)
        elif isinstance(event, journal.Program):
            self.group(event.communicator).begin(event)
        elif isinstance(event, journal.Move):
            self.group(event.communicator).move(event)
        elif isinstance(event, journal.Outcome):
            self.group(event.communicator).outcome = event
        elif isinstance(event, journal.Drift):
            self.group(event.communicator).drift(event)
        else:
            self._take_plan(event)

    def _take_plan(self, event: Base) -> None:
        if isinstance(event, journal.PlanPublished):
            self.group(event.communicator).publish(event)
        elif isinstance(event, journal.PlanCommitted):
            self.group(event.communicator).commit(event.epoch)
        elif isinstance(event, journal.PlanAborted):
            self.group(event.communicator).aborted += 1

    def _aside(self, event: journal.StandingAside) -> None:
        if event.communicator is not None:
            self.group(event.communicator).aside = event.reason
        else:
            self.asides.append(event.reason)
