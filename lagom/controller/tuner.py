"""One communicator's way through a tuning run: join, learn the program, try configs, go quiet, and watch.

    joining -> learning -> tuning -> finishing -> quiet -> (drift) learning ...
            \\-> pinning -> pinned                            aside, ended, profiled: nothing more is done

A state machine that the controller's loop steps; it never sleeps. Each phase is an object in a file of its own and
names the phase that follows it; what they share lies on the ground (``ground.py``). What decides is elsewhere: the
session (lagom.search) says what to try and what it meant.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from lagom.controller.ground import Deaf, Ground, Phase
from lagom.controller.hunt import Hunt
from lagom.controller.joining import Joining
from lagom.controller.landing import Landing
from lagom.controller.learning import Learning
from lagom.controller.options import Options
from lagom.controller.pinning import Pinning
from lagom.controller.story import Story
from lagom.controller.timeline import Timeline
from lagom.controller.vigil import Vigil
from lagom.profile_file import Section
from lagom.program import find_program
from lagom.wire.plan import Rule
from lagom.wire.region import Region
from lagom.wire.views import CommunicatorView

#: Phases in which nothing more is published unless rules are pinned or the job drifts.
OVER = ("quiet", "pinned", "aside", "ended", "profiled")


class Resting(Deaf):
    """A phase in which nothing happens; its name says why."""

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]  # the one phase with several names


class CommunicatorTuner:
    """Drives one communicator."""

    def __init__(
        self,
        region: Region,
        view: CommunicatorView,
        options: Options,
        story: Story,
        timeline: Timeline | None = None,
    ) -> None:
        self.ground = Ground(region, view, options, story, timeline)
        self._phase: Phase = Joining(self.ground)

    @property
    def view(self) -> CommunicatorView:
        """The communicator."""
        return self.ground.view

    @property
    def phase(self) -> str:
        """The word for the current phase."""
        return self._phase.name

    # -- what arrives

    def add_calls(self, slot: int, records: NDArray[Any]) -> None:
        """Call records of one rank. One rank's make the history: they are the same on every rank."""
        if not len(records) or slot not in self.ground.slots:
            return
        if slot == min(self.ground.slots):
            self.ground.history.extend(records)
        self._phase.add_calls(slot, records)

    def add_spans(self, process: int, spans: NDArray[Any]) -> None:
        """Kernel spans of one process."""
        if len(spans):
            self._phase.add_spans(process, spans)

    def pin(self, rules: tuple[Rule, ...]) -> None:
        """Put these rules in force by hand (``--set``) instead of searching; no rules = back to stock and to searching.

        A running search ends; its open lease is replaced by the pinned plan, or ends by itself.
        """
        if rules == self.ground.rules or self.phase == "aside":
            return
        self.ground.rules = rules
        if self.phase == "joining":
            return
        self._phase.leave("rules were pinned by hand")
        self.ground.best = self.ground.known = self.ground.learned = None
        self._phase = Pinning(self.ground)

    # -- the way

    def step(self, now: float) -> None:
        """One step of the current phase; ``now`` is a monotonic clock in seconds."""
        following = self._phase.step(now)
        if following != self.phase:
            self._phase = self._begin(following, now)

    def _begin(self, phase: str, now: float) -> Phase:
        """The phase of that name, made from the ground that the one before has left."""
        before = self._phase
        if phase == "learning":
            return Learning(self.ground)
        if phase == "pinning":
            return Pinning(self.ground)
        if phase == "tuning":
            return Hunt(self.ground, now)
        if phase == "finishing" and isinstance(before, Hunt) and before.session.outcome is not None:
            return Landing(self.ground, before.session.outcome)
        return Vigil(self.ground) if phase == "quiet" else Resting(phase)

    # -- what others want to know

    @property
    def is_profiling(self) -> bool:
        """Whether these are the iterations that `lagom profile` asked for."""
        return isinstance(self._phase, Learning) and self._phase.is_profiling

    @property
    def wants_timeline(self) -> bool:
        """Whether kernels should be recorded now."""
        return self._phase.wants_timeline

    @property
    def is_over(self) -> bool:
        """Nothing more will be published here unless rules are pinned or the job drifts."""
        return self.phase in OVER

    # -- whose turn it is

    @property
    def wants_turn(self) -> bool:
        """Whether there is something to search for here."""
        return self.phase == "tuning" or (self.phase == "learning" and self.traffic() > 0)

    @property
    def is_unknown(self) -> bool:
        """Whether its calls have not told yet how busy it is."""
        return self.phase in ("joining", "learning") and not self.traffic()

    @property
    def is_idle(self) -> bool:
        """Whether it has the turn and cannot use it now: no program is found, or the job does something else."""
        return isinstance(self._phase, Learning | Hunt) and self._phase.is_waiting

    def give_turn(self, seconds: float | None) -> None:
        """From now on this communicator may search, for so long in all."""
        self.ground.may_tune, self.ground.search_seconds = True, seconds

    def take_turn(self) -> None:
        """Another one searches."""
        self.ground.may_tune = False
        if self.is_idle:
            self.ground.story.note(
                f"communicator {self.view.index}: its calls are irregular, so others have their turn first"
            )

    def traffic(self) -> int:
        """Bytes a period, for choosing which communicator is tuned first; 0 while unknown."""
        program = find_program(self.ground.history)
        return sum(size for _, size in program.positions) if program else 0

    # -- the end

    def section(self) -> Section | None:
        """This communicator's part of the profile, once something better than stock is confirmed or pinned."""
        ground, view = self.ground, self.view
        identity = (view.rank_count, view.node_count, view.ordinal, view.name)
        if ground.agreed_rules:
            return Section(*identity, rules=ground.agreed_rules)
        if ground.learned is None or ground.best is None or ground.best.is_stock:
            return None
        return Section(*identity, ground.tuned, ground.tuned.widen(ground.best))

    def shut(self) -> None:
        """The controller or the communicator ends: withdraw what is open, and say how far the search came. Leases end
        by themselves, confirmed plans stay."""
        self._phase.leave("the job ended before the search did")
        self._phase = Resting("ended")
