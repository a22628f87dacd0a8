"""``guided``: the paper's loop, but a fitted cost model says where to look, what to leave out and when to stop.

1. **Learn**: a few designed windows near NCCL's own pick, every site on another level in each (``lagom.cost.design``).
2. **Believe**: fit; if the gate lets the model pass, measure what promises the greatest improvement on the best so far,
   refit, and go on until nothing promises enough. In the running are the model's optimum, its optima under other
   parameters that the windows leave plausible, and single rungs. What is predicted to lose by more than three
   standard deviations is never measured.
3. **Or measure**: if the gate says no, the measured moves of ``lagom`` take over, downward from NCCL's own pick.

What is returned is the best by measurement and model together: each weighs what it is sure of, so a lucky window of a
few pairs does not win. The model's part of the budget is four configs and four more a site.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, ClassVar

from lagom.records import Assignment, Problem
from lagom.search.base import Answer, Comparison, Moves, Proposal, Strategy, percent
from lagom.search.measurements import Measurements, Trial
from lagom.search.space import Unit

if TYPE_CHECKING:
    from lagom.cost import Change, Choice, Fit, IterationModel, Trust
    from lagom.cost.parameters import Pair

CONFIGS = 4  # budget: this many configs, and as many more for each site
ENOUGH = 0.006  # standard error of Z at which a window is known well enough
MOST_PAIRS = 16  # or after so many pairs
SLOW = 0.03  # this much behind the best, the exact figure is of no use
HOPE = 0.002  # expected improvements below this fraction of Z are not worth a window: at 0.001 half as many again
DRAWS = 6  # plausible parameter sets whose optima are in the running

Believed = Generator[Proposal, Comparison, Answer | None]
"""Proposals, and at the end the answer, or ``None`` if the model is not to be trusted."""


class Guided(Strategy):
    """Warm-started and pruned by the cost model, from NCCL's own pick instead of the floor."""

    name: ClassVar[str] = "guided"

    def __init__(
        self, problem: Problem, seed: int = 0, *, shared: bool = False, program: IterationModel | None = None
    ) -> None:
        """``program``: who waits for whom, from a traced iteration (``lagom.cost.traced_program``); without it the
        model knows the sites only and is less sure."""
        super().__init__(problem, seed, shared=shared)
        from lagom.cost import Ladders, model_of  # numpy; scipy follows at the first fit

        self._dims = tuple(dim for dim in self.space.dims if dim in ("channels", "chunk"))  # NT: see lagom/cost
        self._pairs = () if "chunk" in self._dims else self._offered()
        self._model = model_of(problem, program)
        self._ladders = Ladders(self._model, [self._alternatives(unit) for unit in self.space.units])
        self._shared = shared
        self._seed = seed
        self._budget = CONFIGS * (1 + len(self.space.units))
        self._fit: Fit | None = None
        self._doubt = ""  # why the model is not trusted

    def _offered(self) -> tuple[Pair, ...]:
        """Algorithms and protocols worth a window: where C cannot be set, one of them may bring smaller chunks.

        Where it can, they are left alone: for messages that last long enough to matter they have nothing else to give.
        """
        return tuple(dict.fromkeys(pair for unit in self.space.units for pair in self.space.subspaces(unit)))

    def moves(self, measurements: Measurements) -> Moves:
        """The course set out at the head of this file."""
        if not self.problem.sites or not self._dims:
            return Answer(self.space.stock, "nothing here can be tuned")
        yield from self._learn()
        believed = yield from self._believe(measurements)
        if believed is None:
            return (yield from self._measure(measurements))
        return believed

    # -- 1. learn

    def _learn(self) -> Generator[Proposal, Comparison, None]:
        """The designed windows."""
        for number, candidate in enumerate(self._design(), start=1):
            what = f"designed window {number} of the cost model, {_short(candidate)}"
            answer = yield from self._windows(Proposal(candidate, f"{what}: what NC and C do at each site", once=True))
            self.explain(f"{what}: {percent(answer.delta)} than the incumbent")

    def _design(self) -> list[Assignment]:
        from lagom.cost.design import LEVELS, LEVELS_WITHOUT_CHUNK, latin_square

        levels = LEVELS if "chunk" in self._dims else LEVELS_WITHOUT_CHUNK
        windows = [self.space.stock]
        for row in latin_square(len(levels), len(self.space.units)):
            candidate = self.space.stock
            for unit, level in zip(self.space.units, row, strict=True):
                shares = dict(zip(("channels", "chunk"), levels[level], strict=True))
                candidate = self._at_level(candidate, unit, shares)
            windows.append(candidate)
        windows += [self._on_pair(pair) for pair in self._pairs]
        return list(dict.fromkeys(windows))[1:]

    def _on_pair(self, pair: Pair) -> Assignment:
        """Every unit that offers this algorithm and protocol put on it, at NCCL's own NC."""
        candidate = self.space.stock
        for unit in self.space.units:
            if pair in self.space.subspaces(unit):
                candidate = self.space.in_subspace(candidate, unit, pair)
        return candidate

    def _at_level(self, assignment: Assignment, unit: Unit, shares: dict[str, float]) -> Assignment:
        """``unit`` at these shares of NCCL's own settings."""
        from lagom.cost.design import nearest_rung

        for site, dim in itertools.product(unit, self._dims):
            rungs = range(len(self.space.ladder(site, dim)))
            ladder = [self.space.magnitude(self.space.at(assignment, site, dim, rung), site, dim) for rung in rungs]
            own = self.space.rung(self.space.stock, site, dim)
            assignment = self.space.at(assignment, site, dim, nearest_rung(ladder, own, shares[dim]))
        return assignment

    # -- 2. believe

    def _believe(self, measurements: Measurements) -> Believed:
        """Measure what the model promises until it promises too little; no answer if it is caught out."""
        while measurements.tried < self._budget:
            trust = self._refit(measurements)
            if not trust.trusted:
                self._doubt = trust.reason
                return None
            leader = self._leader(measurements)
            chosen = self._most_promising(measurements, leader)
            if chosen is None:
                return Answer(leader, f"the model expects no other config to gain {HOPE:.1%} ({trust.reason})")
            candidate, change, what = chosen
            expected = f"predicted {percent(math.log(change.ratio))} +- {change.sigma:.1%}"
            why = f"{what}: {expected}"
            answer = yield from self._windows(Proposal(candidate, why, against=leader, once=True))
            self.explain(
                f"{what}, {_short(candidate)}: {expected}, measured {percent(answer.delta)} than the best so far"
            )
            if answer.new is None:
                return Answer(leader, "stopped: the window of the model's choice came back empty", cut_short=True)
        return Answer(
            self._leader(measurements),
            f"stopped after {self._budget} configs (the limit)",
            cut_short=True,
        )

    def _windows(self, proposal: Proposal) -> Generator[Proposal, Comparison, Comparison]:
        """Windows of one candidate until its Z is known well enough for a fit, or it is clearly slow."""
        answer = yield proposal
        while answer.new is not None and answer.new.z_se > ENOUGH and answer.new.pairs < MOST_PAIRS:
            if answer.delta > max(SLOW, 2.0 * answer.se):
                break
            self.explain(f"{proposal.why}; {percent(answer.delta)} so far, measured again")
            before, answer = answer.new.pairs, (yield proposal)
            if answer.new is None or answer.new.pairs == before:
                break
        return answer

    def _refit(self, measurements: Measurements) -> Trust:
        from lagom.cost import Observation, fit, judge

        noise = measurements.noise.sigma
        seen = [
            Observation(trial.assignment, trial.z, _seen(trial.y), _all_seen(trial.x_by_site), _error(trial, noise))
            for trial in measurements.trials()
        ]
        self._fit = fit(self._model, seen, self._fit.theta if self._fit else None)
        return judge(self._fit)

    def _leader(self, measurements: Measurements) -> Assignment:
        """The best by measurement and model together."""
        from lagom.cost import shrunk

        if self._fit is None:
            return measurements.incumbent
        times = shrunk(self._fit)
        return min(times, key=lambda assignment: times[assignment])

    def _most_promising(self, measurements: Measurements, leader: Assignment) -> tuple[Assignment, Change, str] | None:
        """The untried config with the greatest expected improvement on the leader; ``None`` if that is negligible."""
        from lagom.cost import compare

        assert self._fit is not None
        running = {place: what for place, what in self._running(leader) if measurements.trial(place) is None}
        changes = compare(self._fit, list(running), leader)
        hopeful = [
            (place, change, what)
            for (place, what), change in zip(running.items(), changes, strict=True)
            if not change.surely_worse and change.hope > HOPE
        ]
        return max(hopeful, key=lambda each: each[1].hope, default=None)

    def _running(self, leader: Assignment) -> Iterator[tuple[Assignment, str]]:
        """What is in the running, the model's own optimum last."""
        from lagom.cost import draws

        assert self._fit is not None
        yield from ((rung, "one step from the best") for rung in self._rungs(leader))
        for theta in draws(self._fit, DRAWS, self._seed + len(self._fit.observations)):
            yield self._ladders.best(theta, leader, thorough=False), "a plausible optimum"
        yield self._ladders.best(self._fit.theta, leader), "the model's optimum"

    def _rungs(self, base: Assignment) -> Iterator[Assignment]:
        """Every single-rung move from ``base``."""
        for unit, dim, by in itertools.product(self.space.units, self._dims, (-1, 1)):
            moved = self.space.moved(base, unit, dim, by)
            if moved is not None:
                yield moved

    def _alternatives(self, unit: Unit) -> list[Choice]:
        """Every setting of A, P, NC and C of a unit that the search may choose; threads stay NCCL's own."""
        pairs = [None, *(pair for pair in self.space.subspaces(unit) if pair in self._pairs)]
        lengths = [len(self.space.ladder(unit[0], dim)) for dim in self._dims]
        return [
            self._on_rungs(unit, rungs, pair) for pair in pairs for rungs in itertools.product(*map(range, lengths))
        ]

    def _on_rungs(self, unit: Unit, rungs: tuple[int, ...], pair: Pair | None) -> Choice:
        """These rungs at every site of ``unit`` (its own top rung where a ladder is shorter)."""
        assignment = self.space.in_subspace(self.space.stock, unit, pair)
        for site, (dim, rung) in itertools.product(unit, zip(self._dims, rungs, strict=True)):
            top = len(self.space.ladder(site, dim)) - 1
            assignment = self.space.at(assignment, site, dim, min(rung, top))
        return {site: assignment[site] for site in unit}

    # -- 3. or measure

    def _measure(self, measurements: Measurements) -> Moves:
        """The measured moves of ``lagom``, in its own words."""
        from lagom.search.strategies.lagom import Lagom

        walker = Lagom(self.problem, self._seed, shared=self._shared, start="stock")
        course = walker.moves(measurements)
        try:
            step = next(course)
            while True:
                answer = yield step
                step = course.send(answer)
                self._pass_on(walker)
        except StopIteration as stopped:
            self._pass_on(walker)
            answer_of_lagom: Answer = stopped.value
            return answer_of_lagom

    def _pass_on(self, walker: Strategy) -> None:
        note = walker.take_explanation()
        if note is not None:
            self.explain(f"{note.reason} (search without a model: {self._doubt})", verdict=note.verdict, h=note.h)


def _seen(time: float | None) -> float | None:
    """A time that was really measured: a window without kernels says 0."""
    return time if time is not None and time > 0.0 else None


def _all_seen(times: tuple[float, ...] | None) -> tuple[float, ...] | None:
    return times if times is not None and all(time > 0.0 for time in times) else None


def _error(trial: Trial, noise: float) -> float:
    """Relative standard error of a trial's Z; that of stock is its own scatter, which all ratios share."""
    return trial.z_se or noise / math.sqrt(2.0 * max(1, trial.pairs))


def _short(assignment: Assignment) -> str:
    return "[" + "; ".join(str(config) for config in assignment.configs) + "]"
