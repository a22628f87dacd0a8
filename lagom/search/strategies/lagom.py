# SPDX-License-Identifier: Apache-2.0
"""The paper's search: grow what pays most for the compute it costs, stop where communication hides.

As printed, Algorithms 1 and 2 do not work; README.md of this folder goes through them line by line. The course here:

1. *floor*   every communication at its fewest resources, measured together (Alg. 2 lines 1-3, for all at once)
2. *raise*   while that is far slower than the incumbent: all of them up together; whatever their order, they need it
3. *grow*    the communication with the smallest H goes up 2 rungs of NC or C; kept if Z falls, or Z ties and its own
             time falls; else rolled back and tried with 1 rung, then with the other knob, then it is done
4. *settle*  where the last step jumped over X = Y: the intermediate value; where growth ended behind the incumbent:
             every knob up and down from there
5. *screen*  where several (A, P) are usable: the others at the resources found, and with a rung more
6. *trade*   NC against C within one communication: one up, the other down, as long as it pays
7. *polish*  resources handed back, a rung at a time, as long as Z does not rise (NT here too, if it may be set)
8. *refine*  communications that were moved together so far, one by one

Communications of one group (hidden or exposed, see ``Site.context``) are one communication until step 8: what is good
for one of them is good for the others, and an effect too small to be seen in one is seen in three. Where no context is
known each is a group of its own.

Where a candidate from an earlier search was confirmed before the first move, steps 1 to 3 are left out: every knob is
tried up and down from there (step 4).

The three boundary conditions of section 3.4 are the three ways out of growth. Z decides every step; X, Y only guide.
Where only Z is known, X <= Y cannot be seen: growth then ends when nothing lowers Z any more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator
from typing import ClassVar

from lagom.records import Algorithm, Assignment, Problem, Protocol
from lagom.search.base import BETTER, NOT_WORSE, Answer, Comparison, Moves, Proposal, Strategy, percent
from lagom.search.measurements import Measurements, Trial
from lagom.search.site_groups import GrowthState, SiteGroups
from lagom.search.space import Unit
from lagom.search.strategies.acceptance import Acceptance, where

GROWN = ("channels", "chunk")  # NT is left to polish: it hardly matters (paper 3.2)
STEP = 2  # rungs: about x2 to x3; after a failure 1, about x1.3 to x2
ROUNDS = 2  # over the knobs of one group: a new C may make another NC right
KILL = 0.1  # another (A, P) this far behind is not tried again with more channels
FAR = 1.5  # this much slower than the incumbent: no time for one communication after the other

Course = Generator[Proposal, Comparison, Trial]


class Lagom(Strategy):
    """Algorithms 1 and 2, made to work: the eight steps set out at the head of this file."""

    name: ClassVar[str] = "lagom"

    def __init__(
        self,
        problem: Problem,
        seed: int = 0,
        *,
        shared: bool = False,
        start: str = "floor",
        order: str = "h",
        delta: float = 0.01,
        epsilon: float = 0.005,
    ) -> None:
        """``start``: ``floor`` (the paper) or ``stock`` (go down from NCCL's pick: little regret). ``order``: ``h``,
        ``random`` or ``reversed`` (ablation of the priority). ``delta``: X must lie this far below Y to count as
        hidden. ``epsilon``: a rise of Z below this fraction is no rise."""
        super().__init__(problem, seed, shared=shared)
        if start not in ("floor", "stock") or order not in ("h", "random", "reversed"):
            raise ValueError(
                f"start={start!r}, order={order!r}: start is floor or stock; order is h, random or reversed"
            )
        self.start = start
        self.order = order
        self.epsilon = epsilon
        self._acceptance = Acceptance(problem, delta, epsilon)
        self._groups = SiteGroups(problem, self.space)
        self._grown = [knob for knob in GROWN if knob in self.space.dims]
        self._ended = ""
        self._above_floor = False
        self._last_growth: tuple[GrowthState, str, int] | None = None

    def moves(self, measurements: Measurements) -> Moves:
        stock = self._anchor = measurements.known(self.space.stock)
        units = [unit for unit in self.space.units if self._groups.matters(unit, stock, self.epsilon)]
        self._comms = self._groups.together(units)
        current = stock
        incumbent = measurements.incumbent
        from_floor = self.start == "floor" and incumbent.is_stock
        if from_floor:
            current = yield from self._measure_floor(stock)
            current = yield from self._raise_together(measurements, current)
            current = yield from self._grow(current)
            current = yield from self._try_intermediate(current)
        else:
            base = "NCCL's own config" if incumbent.is_stock else "what an earlier search found"
            self._ended = f"every knob was tried up and down from {base}"
        if not from_floor or self._behind(measurements, current):
            self._anchor = measurements.known(measurements.incumbent if from_floor else measurements.fastest())
            current = yield from self._explore(self._anchor)
        self._anchor = yield from self._screen(current)
        current = self._anchor
        current = yield from self._trade(current)
        current = yield from self._polish(current)
        current = yield from self._refine(current, [unit for unit in units if unit not in self._comms])
        return Answer(current.assignment, self._ended)

    # -- 1 and 2: the floor, and up from it

    def _measure_floor(self, stock: Trial) -> Course:
        floor = self.space.floor(stock.assignment, self._comms)
        if floor == stock.assignment:
            return stock
        why = "all communications at their fewest resources"
        answer = yield Proposal(floor, why, cautious=True)
        if answer.new is None:
            self.explain(
                "the fewest resources could not be measured: the search starts at NCCL's own config", phase="floor"
            )
            return stock
        made = f"{why}: Z {percent(answer.delta, 'the incumbent')}; {where(answer.new)}"
        self.explain(made, phase="floor")
        return answer.new

    def _raise_together(self, measurements: Measurements, current: Trial) -> Course:
        """Two rungs of every knob of every communication, until Z comes near the incumbent's. What one of them is
        given too much here, polish takes back."""
        while current.z > FAR * measurements.known(measurements.incumbent).z:
            raised = current.assignment
            for unit, knob in itertools.product(self._comms, self._grown):
                raised = self.space.moved(raised, unit, knob, STEP) or raised
            if raised in (current.assignment, self.space.stock):
                break
            why = "more resources for all communications together, because this is much slower than the incumbent"
            answer = yield Proposal(raised, why, None, current.assignment, cautious=True)
            self.explain(f"{why}: Z {percent(answer.delta)}", phase="raise")
            if not answer.better or answer.new is None:
                break
            current, self._above_floor = answer.new, True
        return current

    # -- 3: growth

    def _grow(self, current: Trial) -> Course:
        """Algorithm 1: until hidden, or nothing left that pays. Exposed communications are never hidden: they go on."""
        turn = self._grown[0] if self._grown else ""
        communications = [GrowthState(unit, steps=dict.fromkeys(self._grown, STEP), turn=turn) for unit in self._comms]
        while True:
            hidden = self._acceptance.hidden(current)
            chosen = self._choose(
                [c for c in communications if not hidden or self._acceptance.exposed(c.unit)], current
            )
            if chosen is None:
                self._ended = self._acceptance.why_ended(hidden, self._above_floor, current)
                return current
            current = yield from self._try_growth(chosen, current)

    def _choose(self, communications: list[GrowthState], current: Trial) -> GrowthState | None:
        """argmin H over those not done (Alg. 1 line 4); of equals the one that takes longest."""
        alive = [comm for comm in communications if self._next_move(comm, current) is not None]
        if not alive:
            return None
        if self.order == "random":
            return self.random.choice(alive)
        sign = 1.0 if self.order == "h" else -1.0
        return min(alive, key=lambda comm: (sign * comm.h, -self._groups.weight(comm.unit, current)))

    def _next_move(self, comm: GrowthState, current: Trial) -> tuple[str, Assignment] | None:
        """The knob and where it would go; knobs at the top of their ladder are not tried again."""
        for knob in comm.open_knobs():
            candidate = self.space.moved(current.assignment, comm.unit, knob, comm.steps[knob])
            if candidate is not None:
                return knob, candidate
            comm.steps[knob] = 0
        return None

    def _try_growth(self, comm: GrowthState, current: Trial) -> Course:
        """Algorithm 2 for one communication: move, keep or roll back."""
        move = self._next_move(comm, current)
        assert move is not None
        knob, candidate = move
        change = self._groups.change(current.assignment, candidate, comm.unit, knob)
        why = f"{self._groups.name(comm.unit)}: {change}"
        watch = self._acceptance.awaited(comm.unit, current, growing=True)
        answer = yield Proposal(candidate, why, comm.unit[0], current.assignment, watch=watch)
        kept, because = self._acceptance.kept(answer, watch)
        logged = self._acceptance.metric_h(answer, comm.unit)
        comm.h = self._priority(answer, logged)
        if kept and answer.new is not None:
            self._last_growth, self._above_floor = (comm, knob, comm.steps[knob]), True
            comm.alternate(knob)
            made = f"{why}: kept, {because}"
            self.explain(made, verdict="better", h=logged, kept=True, phase="grow", change=change)
            return answer.new
        if answer.new is None:
            comm.steps[knob] = 0
        else:
            comm.shorten(knob)
        end = "a smaller change next" if comm.steps[knob] else f"no further change of {knob} tried"
        end = "no further change tried" if comm.done else end
        made = f"{why}: rolled back, {because}; {end}"
        self.explain(made, h=logged, kept=False, phase="grow", change=change)
        return current

    @staticmethod
    def _priority(answer: Comparison, h: float | None) -> float:
        """H after a step, kept or not: one that failed must not stay first. Only Z known: the gain in its place."""
        if answer.new is None:
            return math.inf
        return h if h is not None else answer.delta

    # -- 4: the crossing, and the way back

    def _try_intermediate(self, current: Trial) -> Course:
        """If the last step jumped over X = Y by two rungs, the intermediate value may be better."""
        if self._last_growth is None or not self._acceptance.hidden(current) or self._last_growth[2] < 2:
            return current
        comm, knob, _ = self._last_growth
        between = self.space.moved(current.assignment, comm.unit, knob, -1)
        if between is None:
            return current
        change = self._groups.change(current.assignment, between, comm.unit, knob)
        why = f"{self._groups.name(comm.unit)}: intermediate value, {change}"
        answer = yield Proposal(between, why, comm.unit[0], current.assignment)
        kept = answer.new is not None and answer.not_worse(self.epsilon)
        self.explain(
            f"{why}: {'taken' if kept else 'left'}, Z {percent(answer.delta)}",
            h=self._acceptance.metric_h(answer, comm.unit),
            kept=kept,
            phase="settle",
            change=change,
        )
        return answer.new if kept and answer.new is not None else current

    def _behind(self, measurements: Measurements, current: Trial) -> bool:
        """Growth may end in a valley: the search then goes on from the best confirmed, stock at worst."""
        incumbent = measurements.known(measurements.incumbent)
        if current.z <= incumbent.z * math.exp(2.0 * current.z_se):
            return False
        self._ended += f"; that was {percent(math.log(current.z / incumbent.z), 'the incumbent')}, which is kept"
        return True

    def _explore(self, current: Trial) -> Course:
        """Every knob up and down, two rungs and one; twice, for a new C may make another NC right."""
        for unit in self._comms:
            for _ in range(ROUNDS):
                before = current.assignment
                for knob, rungs in itertools.product(self._grown, (-STEP, -1, STEP, 1)):
                    current = yield from self._walk(current, unit, knob, rungs, "settle")
                if current.assignment == before:
                    break
        return current

    # -- 6: NC against C

    def _trade(self, current: Trial) -> Course:
        """The diagonal moves: where time depends on NC and C together, a change of either alone is a loss."""
        if len(self._grown) < 2:
            return current
        for unit, rungs in itertools.product(self._groups.longest_first(self._comms, current), (STEP, 1, -STEP, -1)):
            paid = True
            while paid:
                before = current
                current = yield from self._try_trade(
                    current, unit, dict(zip(self._grown, (rungs, -rungs), strict=True))
                )
                paid = current is not before
        return current

    def _try_trade(self, current: Trial, unit: Unit, ways: dict[str, int]) -> Course:
        candidate, changes = current.assignment, []
        for knob, rungs in ways.items():
            moved = self.space.moved(candidate, unit, knob, rungs)
            if moved is None:
                return current
            changes.append(str(self._groups.change(candidate, moved, unit, knob)))
            candidate = moved
        why = f"{self._groups.name(unit)}: {' and '.join(changes)}"
        answer = yield Proposal(candidate, why, unit[0], current.assignment)
        kept = answer.better and answer.new is not None
        made = f"{why}: {'kept' if kept else 'rolled back'}, Z {percent(answer.delta)}"
        self.explain(made, h=self._acceptance.metric_h(answer, unit), kept=kept, phase="trade")
        if not kept or answer.new is None:
            return current
        self._anchor = answer.new
        return answer.new

    # -- 7 and 8: giving resources back, and one by one

    def _polish(self, current: Trial) -> Course:
        """Condition 3's afterthought: least resources at equal Z, which is what "lagom" means."""
        for unit in self._groups.longest_first(self._comms, current):
            for knob in self.space.dims:
                current = yield from self._walk(current, unit, knob, -1, "polish")
        return current

    def _refine(self, current: Trial, units: list[Unit]) -> Course:
        """Each communication of a group may be better one rung up or down from the others."""
        for way in (1, -1):
            for unit in self._groups.longest_first(units, current):
                for knob in self._grown:
                    current = yield from self._walk(current, unit, knob, way, "refine")
        return current

    def _walk(self, current: Trial, unit: Unit, knob: str, rungs: int, phase: str) -> Course:
        """One knob that way, and on as long as it pays. Down, a tie is kept too; it is judged against the last point
        that was better than all before, so that small losses cannot add up."""
        paid = True
        while paid:
            candidate = self.space.moved(current.assignment, unit, knob, rungs)
            if candidate is None or not self.space.movable(candidate, unit, knob):
                break
            change = self._groups.change(current.assignment, candidate, unit, knob)
            why = f"{self._groups.name(unit)}: {change}"
            asks, watch = NOT_WORSE if rungs < 0 else BETTER, self._acceptance.awaited(unit, current)
            answer = yield Proposal(candidate, why, unit[0], self._anchor.assignment, asks=asks, watch=watch)
            paid, because = self._acceptance.kept(answer, watch)
            kept = paid or (rungs < 0 and not watch and answer.not_worse(self.epsilon))
            made, h = f"{why}: {'kept' if kept else 'rolled back'}, {because}", self._acceptance.metric_h(answer, unit)
            self.explain(made, h=h, kept=kept, phase=phase, change=change)
            if kept and answer.new is not None:
                current = answer.new
                self._anchor = current if paid else self._anchor
        return current

    # -- 5: algorithm and protocol

    def _screen(self, current: Trial) -> Course:
        """Every other (A, P) at the resources found; where it is not far behind, with a rung more as well.

        The paper leaves this to AutoCCL, which searches each subspace by itself. Here NCCL's own pick is searched first
        and the others are held against the result: at NCCL's own resources a protocol may look good only because it has
        the smaller chunk.
        """
        for unit in self._comms:
            for pair in self.space.subspaces(unit):
                current = yield from self._try_pair(current, unit, pair)
        return current

    def _try_pair(self, current: Trial, unit: Unit, pair: tuple[Algorithm, Protocol]) -> Course:
        candidate: Assignment | None = self.space.in_subspace(current.assignment, unit, pair)
        what = f"{self._groups.name(unit)}: {pair[0].name} {pair[1].name} at the resources found"
        for more in ("", ", and one step more channels"):
            if candidate is None or self.space.why_illegal(candidate):
                break
            answer = yield Proposal(candidate, what + more, unit[0], current.assignment, cautious=True)
            made = f"{what}{more}: {'taken' if answer.better else 'left'}, Z {percent(answer.delta)}"
            self.explain(made, kept=answer.better, phase="screen")
            if answer.better and answer.new is not None:
                return answer.new
            if answer.new is None or answer.delta > KILL or "channels" not in self.space.dims:
                break
            candidate = self.space.moved(candidate, unit, "channels", 1)
        return current
