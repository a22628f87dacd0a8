"""The paper's search: grow what pays most for the compute it costs, stop where communication hides.

As printed, Algorithms 1 and 2 do not work; README.md of this folder goes through them line by line. The course here:

1. *screen*   where several (A, P) are usable: one window each, at NCCL's own resources; the best one is kept
2. *floor*    every communication at its fewest resources, measured together (Alg. 2 lines 1-3, for all at once)
3. *grow*     the communication with the smallest H goes up 2 rungs of NC or C; kept if Z falls, or Z ties and X falls;
              else rolled back and tried with 1 rung, then with the other knob, then that communication is done
4. *settle*   if growth ended because X crossed Y: the rungs between; if it ended below the incumbent: go on from there
5. *polish*   resources handed back, a rung at a time, as long as Z does not rise (NT here too, if it may be set)

The three boundary conditions of section 3.4 are the three ways out of growth. Z decides every step; X, Y only guide.
Where only Z is known, X <= Y cannot be seen: growth then ends when nothing lowers Z any more.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from lagom.records import Assignment
from lagom.search.base import TIE, Answer, Comparison, Moves, Proposal, Strategy, percent
from lagom.search.ledger import Ledger, Trial
from lagom.search.problem import Problem
from lagom.search.space import Unit

GROWN = ("channels", "chunk")  # NT is left to polish: it hardly matters (paper 3.2)
STEP = 2  # rungs: about x2 to x3; after a failure 1, about x1.3 to x2
KILL = 1.5  # a subspace this much slower than the best is not looked at again (AutoCCL's rule)
HIDDEN = 0.05  # Z above max(X, Y) by more than this: some communication is exposed and X <= Y proves nothing

Course = Generator[Proposal, Comparison, Trial]


@dataclass
class Communication:
    """The state of one communication in the search (the paper's s_j)."""

    unit: Unit
    h: float = -math.inf  # -inf: not probed yet, so it comes first
    steps: dict[str, int] = field(default_factory=dict)  # rungs of the next move, per knob; 0 = closed
    turn: str = ""  # the knob to move next

    @property
    def done(self) -> bool:
        """Every knob is closed."""
        return not any(self.steps.values())

    def open_knobs(self) -> list[str]:
        """The knobs still open, the one whose turn it is first."""
        knobs = [knob for knob, step in self.steps.items() if step]
        return sorted(knobs, key=lambda knob: knob != self.turn)

    def alternate(self, moved: str) -> None:
        """After a success the other knob has its turn."""
        self.turn = next((knob for knob in self.steps if knob != moved and self.steps[knob]), moved)

    def shorten(self, knob: str) -> None:
        """After a failure the step shrinks; at 0 the knob is closed."""
        self.steps[knob] -= 1


class Lagom(Strategy):
    """Algorithms 1 and 2, made to work."""

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
        self.delta = delta
        self.epsilon = epsilon
        self._ended = ""
        self._last_growth: tuple[Communication, str, int] | None = None

    def moves(self, ledger: Ledger) -> Moves:
        """The course set out at the head of this file."""
        base = yield from self._screen(ledger)
        if self.start == "floor":
            current = yield from self._measure_floor(ledger, base)
            current = yield from self._grow(ledger, current)
            current = yield from self._between_rungs(current)
        else:
            current = yield from self._descend(ledger, ledger.known(base))
            current = yield from self._grow(ledger, current)
        current = yield from self._back_to_incumbent(ledger, current)
        current = yield from self._polish(ledger, current)
        current = yield from self._screen_again(ledger, current)
        return Answer(current.assignment, self._ended)

    # -- 1: algorithm and protocol

    def _screen(self, ledger: Ledger) -> Generator[Proposal, Comparison, Assignment]:
        """One window for each usable (A, P) of each communication, at NCCL's own NC and C.

        The paper leaves this to AutoCCL, which screens at minimum resources; a live job is better off at NCCL's.
        """
        base = self.space.stock
        self._kept: list[tuple[Unit, object]] = []
        for unit in self.space.units:
            reference = best = ledger.known(base)
            for pair in self.space.subspaces(unit):
                candidate = self.space.in_subspace(base, unit, pair)
                why = f"screen {_pair(pair)} for {self._name(unit)}"
                answer = yield Proposal(candidate, why, unit[0], reference.assignment, cautious=True)
                self.explain(f"{why}: {percent(answer.delta)} than NCCL's own pick")
                if answer.new is None:
                    continue
                if answer.new.z < KILL * best.z:
                    self._kept.append((unit, pair))
                if answer.better and answer.new.z < best.z:
                    best = answer.new
            base = best.assignment
        return base

    def _screen_again(self, ledger: Ledger, current: Trial) -> Course:
        """The (A, P) that were not far behind once more, at the NC and C found."""
        for unit, pair in self._kept:
            candidate = self.space.in_subspace(current.assignment, unit, pair)  # type: ignore[arg-type]
            if candidate == current.assignment or self.space.why_illegal(candidate):
                continue
            why = f"{_pair(pair)} again for {self._name(unit)}, at the resources found"
            answer = yield Proposal(candidate, why, unit[0], current.assignment)
            self.explain(f"{why}: {percent(answer.delta)}; {'taken' if answer.better else 'left'}")
            if answer.better and answer.new is not None:
                current = answer.new
        return current

    # -- 2: the floor

    def _measure_floor(self, ledger: Ledger, base: Assignment) -> Course:
        floor = self.space.floor(base)
        if floor == base:
            return ledger.known(base)
        why = "all communications at their floor"
        answer = yield Proposal(floor, why, cautious=True)
        if answer.new is None:
            self.explain("the floor could not be measured: the search goes on from NCCL's own pick")
            return ledger.known(base)
        self.explain(f"{why}: Z {percent(answer.delta)} than the incumbent; {self._where(answer.new)}")
        return answer.new

    # -- 3: growth

    def _grow(self, ledger: Ledger, current: Trial) -> Course:
        """Algorithm 1: until hidden, or nothing left that pays."""
        communications = [self._communication(unit) for unit in self.space.units]
        while True:
            if self._hidden(current):
                self._ended = self._why_hidden(current)
                return current
            chosen = self._choose(communications, current)
            if chosen is None:
                self._ended = f"condition 2: no communication can be grown to any profit ({self._where(current)})"
                return current
            current = yield from self._try_growth(chosen, current)

    def _communication(self, unit: Unit) -> Communication:
        knobs = [knob for knob in GROWN if knob in self.space.dims]
        return Communication(unit, steps=dict.fromkeys(knobs, STEP), turn=knobs[0] if knobs else "")

    def _choose(self, communications: list[Communication], current: Trial) -> Communication | None:
        """argmin H over those not done (Alg. 1 line 4); of equals the one that takes longest."""
        alive = [comm for comm in communications if self._next_move(comm, current) is not None]
        if not alive:
            return None
        if self.order == "random":
            return self.random.choice(alive)
        sign = 1.0 if self.order == "h" else -1.0
        return min(alive, key=lambda comm: (sign * comm.h, -self._weight(comm.unit, current)))

    def _next_move(self, comm: Communication, current: Trial) -> tuple[str, Assignment] | None:
        """The knob and where it would go; knobs at the top of their ladder are closed on the way."""
        for knob in comm.open_knobs():
            candidate = self.space.moved(current.assignment, comm.unit, knob, comm.steps[knob])
            if candidate is not None:
                return knob, candidate
            comm.steps[knob] = 0
        return None

    def _try_growth(self, comm: Communication, current: Trial) -> Course:
        """Algorithm 2 for one communication: move, keep or roll back."""
        move = self._next_move(comm, current)
        assert move is not None
        knob, candidate = move
        why = f"{self._name(comm.unit)}: {self._change(current.assignment, candidate, comm.unit, knob)}"
        answer = yield Proposal(candidate, why, comm.unit[0], current.assignment)
        kept, because = self._judge_growth(answer, comm.unit)
        logged = self._metric_h(answer, comm.unit)
        if kept and answer.new is not None:
            comm.h = logged if logged is not None else answer.delta  # only Z known: who gained most goes first
            self._last_growth = (comm, knob, comm.steps[knob])
            comm.alternate(knob)
            self.explain(f"{why}: kept, {because}", verdict="better", h=logged)
            return answer.new
        if answer.new is None:
            comm.steps[knob] = 0
        else:
            comm.shorten(knob)
        end = "knob closed" if not comm.steps[knob] else "shorter step next"
        self.explain(f"{why}: rolled back, {because}; {'communication done' if comm.done else end}", h=logged)
        return current

    def _judge_growth(self, answer: Comparison, unit: Unit) -> tuple[bool, str]:
        """Better: Z falls, or Z ties and X falls while X is still what matters."""
        if answer.new is None:
            return False, "it could not be measured"
        if answer.better:
            return True, f"Z {percent(answer.delta)}"
        fallen = self._x_falls(answer, unit)
        if answer.verdict == TIE and fallen and answer.delta - answer.se < self.epsilon:
            return True, f"Z ties and X falls ({percent(fallen)})"
        return False, f"Z {percent(answer.delta)}" + ("" if answer.verdict != TIE else " within noise and epsilon")

    def _x_falls(self, answer: Comparison, unit: Unit) -> float:
        """ln(X new / X old) if that is a significant fall while X > Y; else 0."""
        old, new = answer.old, answer.new
        if new is None or old.x is None or new.x is None or old.y is None or old.x <= old.y:
            return 0.0
        change = math.log(new.x / old.x)
        return change if change < -max(self.epsilon, 2.0 * math.hypot(old.x_se, new.x_se)) else 0.0

    def _metric_h(self, answer: Comparison, unit: Unit) -> float | None:
        """Eq. 7 with its denominator the right way round: ns of compute lost per ns of communication won.

        +inf where the communication did not get faster beyond noise ("already optimal" in the paper's words).
        """
        old, new = answer.old, answer.new
        if new is None or old.y is None or new.y is None or old.x is None or new.x is None:
            return None
        x_old, x_new = old.x_of(unit), new.x_of(unit)
        if x_old is None or x_new is None:
            x_old, x_new = old.x, new.x
        won = x_old - x_new
        noise = 2.0 * math.hypot(old.x_se, new.x_se) * x_old
        return (new.y - old.y) / won if won > noise else math.inf

    def _hidden(self, trial: Trial) -> bool:
        """Conditions 1 and 3: all communication fits behind compute, and the wall clock agrees."""
        if trial.x is None or trial.y is None or trial.x > (1.0 - self.delta) * trial.y:
            return False
        return trial.z <= (1.0 + HIDDEN) * max(trial.x, trial.y)

    def _why_hidden(self, trial: Trial) -> str:
        number = 3 if self._last_growth else 1
        return f"condition {number}: communication is hidden ({self._where(trial)})"

    # -- 4: the crossing, and the way back

    def _between_rungs(self, current: Trial) -> Course:
        """If the last step jumped over X = Y by two rungs, the one between may be the better one."""
        if self._last_growth is None or not self._hidden(current) or self._last_growth[2] < 2:
            return current
        comm, knob, _ = self._last_growth
        between = self.space.moved(current.assignment, comm.unit, knob, -1)
        if between is None:
            return current
        why = f"{self._name(comm.unit)}: the rung between, {self._change(current.assignment, between, comm.unit, knob)}"
        answer = yield Proposal(between, why, comm.unit[0], current.assignment)
        kept = answer.new is not None and answer.not_worse(self.epsilon)
        self.explain(
            f"{why}: {'taken' if kept else 'left'}, Z {percent(answer.delta)}", h=self._metric_h(answer, comm.unit)
        )
        return answer.new if kept and answer.new is not None else current

    def _back_to_incumbent(self, ledger: Ledger, current: Trial) -> Course:
        """Growth may end in a valley: polishing then starts from the best confirmed, stock at worst."""
        incumbent = ledger.known(ledger.incumbent)
        if current.z > incumbent.z * math.exp(2.0 * current.z_se):
            self._ended += (
                f"; growth ended {percent(math.log(current.z / incumbent.z))} than the incumbent, which is kept"
            )
            current = yield from self._descend(ledger, incumbent)
        return current

    # -- 5: giving resources back

    def _descend(self, ledger: Ledger, current: Trial) -> Course:
        """From above: two rungs down, then one, for each communication and knob; kept as long as Z does not rise."""
        for step in (STEP, 1):
            current = yield from self._give_back(current, step, repeat=True)
        self._ended = self._ended or f"nothing more can be given back ({self._where(current)})"
        return current

    def _polish(self, ledger: Ledger, current: Trial) -> Course:
        """Condition 3's afterthought: least resources at equal Z, which is what "lagom" means."""
        return (yield from self._give_back(current, 1, repeat=False))

    def _give_back(self, current: Trial, step: int, *, repeat: bool) -> Course:
        """``anchor`` is the fastest seen on the way: ties are judged against it, so that small losses cannot add up."""
        anchor = current
        for unit, knob in list(self._downward(current)):
            while True:
                candidate = self.space.moved(current.assignment, unit, knob, -step)
                if candidate is None or not self.space.movable(candidate, unit, knob):
                    break
                why = f"{self._name(unit)}: {self._change(current.assignment, candidate, unit, knob)}"
                answer = yield Proposal(candidate, why, unit[0], anchor.assignment)
                kept = answer.new is not None and (answer.better or answer.not_worse(self.epsilon))
                done = "kept" if kept else "rolled back"
                self.explain(f"{why}: {done}, Z {percent(answer.delta)}", h=self._metric_h(answer, unit))
                if not kept or answer.new is None:
                    break
                current = answer.new
                anchor = current if answer.better else anchor
                if not repeat:
                    break
        return current

    def _downward(self, current: Trial) -> Iterator[tuple[Unit, str]]:
        """Communications by their time, longest first; each knob of each."""
        for unit in sorted(self.space.units, key=lambda unit: -self._weight(unit, current)):
            for knob in self.space.dims:
                yield unit, knob

    # -- words and weights

    def _weight(self, unit: Unit, trial: Trial) -> float:
        """x_j, or where it was not seen, the bytes moved."""
        seen = trial.x_of(unit)
        sites = self.problem.sites
        return seen if seen is not None else float(sum(sites[s].bytes * sites[s].calls_per_iteration for s in unit))

    def _name(self, unit: Unit) -> str:
        return str(self.problem.sites[unit[0]]) if len(unit) == 1 else f"{len(unit)} sites together"

    def _change(self, before: Assignment, after: Assignment, unit: Unit, knob: str) -> str:
        old = self.space.magnitude(before, unit[0], knob)
        new = self.space.magnitude(after, unit[0], knob)
        return f"{knob} {_size(knob, old)} to {_size(knob, new)}"

    def _where(self, trial: Trial) -> str:
        if trial.x is None or trial.y is None:
            return f"X and Y unknown, Z {trial.z / 1e6:.2f} ms"
        sign = "<" if trial.x < trial.y else ">="
        return f"X {trial.x / 1e6:.2f} {sign} Y {trial.y / 1e6:.2f} ms, Z {trial.z / 1e6:.2f} ms"


def _size(knob: str, value: int) -> str:
    return f"{value >> 10}K" if knob == "chunk" else str(value)


def _pair(pair: object) -> str:
    return "NCCL's own" if pair is None else " ".join(part.name for part in pair)  # type: ignore[attr-defined]
