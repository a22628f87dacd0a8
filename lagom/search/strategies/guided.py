# SPDX-License-Identifier: Apache-2.0
"""``guided``: the paper's loop, but a fitted cost model says where to look, what to leave out and when to stop.

1. **Learn**: a few designed windows near NCCL's own pick, every site on another level in each (a Latin square). Where
   fewer channels were clearly faster, half of them again; where clearly slower than NCCL's own, none with as few.
2. **Believe**: fit; if the gate lets the model pass, measure what promises the greatest improvement on the best so far,
   refit, and go on until nothing promises enough. In the running are the model's optimum, its optima under other
   parameters that the windows leave plausible, and single rungs, at most a halving beyond what was measured. What is
   predicted to lose by more than three standard deviations, or by 10 %, or lies beyond a known loss, is never measured.
   If the gate says no, nothing more is looked for: measured moves from there, those of ``lagom``, were tried and found
   a hundredth more of what may be gained, at the cost of more time lost than that pays for.
3. **Decide**: the two best are measured until it is known which of them is faster.

What is returned is the best by measurement and model together: each weighs what it is sure of, so a lucky window of a
few pairs does not win. The model's part of the budget is four configs and four more a site.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import ClassVar

from lagom.errors import LagomError
from lagom.records import Assignment, Choice, Observation, Problem, Protocol
from lagom.search.base import Answer, Comparison, Expectation, MakeModel, Moves, Proposal, Strategy, percent
from lagom.search.known_losses import KnownLosses
from lagom.search.measurements import Measurements, Trial
from lagom.search.space import Pair, Space, Unit

CONFIGS = 4  # budget: this many configs, and as many more for each site
CLEAR = 2.0  # standard errors: of a gain that makes the next halving of NC worth a window, of a loss that rules it out
TRIFLE = 0.005  # of Z: a window that loses less says nothing of what lies beyond it
SLOWEST = 1.1  # a config predicted slower than this times the best is not measured: sigma alone would make it promising
HOPE = 0.002  # expected improvements below this fraction of Z are not worth a window: at 0.001 half as many again
DRAWS = 6  # plausible parameter sets whose optima are in the running
RUN_OFFS = 2  # between the two best: the first may bring up a third

LEVELS = ((0.5, 1.0), (1.0, 1 / 8), (0.5, 0.25))
"""(share of NC, share of C) of the base: fewer channels; smaller chunks; both, by less."""
LEVELS_WITHOUT_CHUNK = ((0.5, 1.0), (0.25, 1.0), (0.75, 1.0))

Reached = dict[tuple[int, str], int]
"""The least of each knob that was measured at each site."""


class Guided(Strategy):
    """Warm-started and pruned by the cost model, from NCCL's own pick instead of the floor."""

    name: ClassVar[str] = "guided"
    uses_model: ClassVar[bool] = True

    def __init__(
        self,
        problem: Problem,
        seed: int = 0,
        *,
        shared: bool = False,
        model: MakeModel | None = None,
        units: Sequence[Unit] = (),
        learn: bool = True,
        configs: int = 0,
        pairs: Sequence[Pair] = (),
        decide: bool = True,
    ) -> None:
        """``model``: what makes the cost model, ``lagom.cost.FittedModel`` or another. It has no default, so that this
        package does not import the cost model. ``units``: sites that share one config, each site in one of them.
        ``learn``: false where there are windows enough for a first fit. ``configs``: the model's part of the budget
        ends when so many different configs were measured in the whole run. ``pairs``: algorithms and protocols beside
        NCCL's own that the model may choose where C can be set, too. ``decide``: false where another search goes on
        from the answer."""
        super().__init__(problem, seed, shared=shared)
        if model is None:
            raise LagomError("strategy guided needs a cost model: pass model=lagom.cost.FittedModel to make_strategy.")
        if units:
            self.space = Space(problem, units=units)
        self._learns = learn
        self._dims = tuple(dim for dim in self.space.dims if dim in ("channels", "chunk"))  # NT: see lagom/cost
        self._pairs = tuple(pairs) if "chunk" in self._dims else worth_a_window(self.space)
        self._model = model(problem, [self._alternatives(unit) for unit in self.space.units])
        self._seed = seed
        self._run_offs = RUN_OFFS if decide else 0
        self._budget = configs or CONFIGS * (1 + len(self.space.units))
        self._budget += learn and not self._with_all_channels().is_stock  # a window of its own
        self._windows_fitted = 0

    def moves(self, measurements: Measurements) -> Moves:
        """The course set out at the head of this file."""
        if not self.problem.sites or not self._dims:
            return Answer(self.space.stock, "nothing here can be tuned")
        if self._learns:
            yield from self._learn(measurements)
            yield from self._descend(measurements)
        return (yield from self._believe(measurements))

    # -- 1. learn

    def _learn(self, measurements: Measurements) -> Generator[Proposal, Comparison, None]:
        """The designed windows."""
        slower: list[Assignment] = []
        for number, designed in enumerate(self._design(), start=1):
            candidate = self._spared(designed, slower)
            if candidate != designed and measurements.trial(candidate) is not None:
                continue  # what is left of it is NCCL's own config, or an earlier window
            what = f"designed window {number} of the cost model, {_short(candidate)}"
            answer = yield Proposal(candidate, f"{what}: what NC and C do at each site", once=True)
            self.explain(f"{what}: {percent(answer.delta)} than the incumbent", phase="learn")
            if answer.new is not None and self._is_clearly_slower(answer.new, measurements):
                slower.append(candidate)

    def _is_clearly_slower(self, trial: Trial, measurements: Measurements) -> bool:
        """Than NCCL's own pick, not than the incumbent: beside a config of an earlier search, a gain may be a loss."""
        return -measurements.gain(trial) > max(TRIFLE, CLEAR * trial.z_se)

    def _spared(self, candidate: Assignment, slower: Sequence[Assignment]) -> Assignment:
        """``candidate`` with NCCL's own NC, or C, where as little of it alone was clearly slower. Z over either has one
        minimum: less makes communication longer and compute faster, so that beyond a clear loss nothing is found."""
        for worse, dim in itertools.product(slower, self._dims):
            if self._lowered(worse) == {dim} and self._is_as_low(candidate, worse, dim):
                for site in range(len(candidate)):
                    candidate = self.space.at(candidate, site, dim, self.space.rung(self.space.stock, site, dim))
        return candidate

    def _lowered(self, assignment: Assignment) -> set[str]:
        """The settings that some site has less of than NCCL's own pick."""
        sites = range(len(assignment))
        return {dim for dim in self._dims if any(self._below_own(assignment, site, dim) for site in sites)}

    def _below_own(self, assignment: Assignment, site: int, dim: str) -> bool:
        return self.space.rung(assignment, site, dim) < self.space.rung(self.space.stock, site, dim)

    def _is_as_low(self, candidate: Assignment, other: Assignment, dim: str) -> bool:
        """At every site at most what the other has."""
        return all(
            self.space.rung(candidate, site, dim) <= self.space.rung(other, site, dim) for site in range(len(candidate))
        )

    def _descend(self, measurements: Measurements) -> Generator[Proposal, Comparison, None]:
        """Half the channels again, as long as the last halving was a clear gain: the model sees no further than the
        windows reach, and what a channel costs compute is what it knows least."""
        best = measurements.known(measurements.fastest())
        gained = measurements.gain(best) > CLEAR * best.z_se
        while gained and (candidate := self._half_the_channels(best.assignment)) is not None:
            if measurements.trial(candidate) is not None:
                return
            what = f"half the channels again, {_short(candidate)}"
            answer = yield Proposal(candidate, what, against=best.assignment, once=True)
            self.explain(f"{what}: {percent(answer.delta)} than the best so far", phase="learn")
            if answer.new is None:
                return
            best, gained = answer.new, answer.delta < -CLEAR * answer.se

    def _half_the_channels(self, assignment: Assignment) -> Assignment | None:
        """At every site that has fewer than NCCL's own; ``None`` where there is none, or all are at the floor."""
        if "channels" not in self._dims:
            return None
        lowered = [site for site in range(len(assignment)) if self._below_own(assignment, site, "channels")]
        moved = halve_channels(self.space, assignment, lowered)
        return None if moved == assignment else moved

    def _design(self) -> list[Assignment]:
        levels = LEVELS if "chunk" in self._dims else LEVELS_WITHOUT_CHUNK
        windows = [self.space.stock]
        for row in latin_square(len(levels), len(self.space.units)):
            candidate = self.space.stock
            for unit, level in zip(self.space.units, row, strict=True):
                shares = dict(zip(("channels", "chunk"), levels[level], strict=True))
                candidate = self._at_level(candidate, unit, shares)
            windows.append(candidate)
        windows.append(self._with_all_channels())
        windows += [self.space.on_pair(self.space.stock, pair, range(len(self.space.stock))) for pair in self._pairs]
        return list(dict.fromkeys(windows))[1:]

    def _with_all_channels(self) -> Assignment:
        """Where NCCL built more channels than it would use (``lagom run --headroom``), all of them; else stock."""
        candidate = self.space.stock
        for site in range(len(candidate)) if "channels" in self._dims else ():
            candidate = self.space.at(candidate, site, "channels", len(self.space.ladder(site, "channels")) - 1)
        return candidate

    def _at_level(self, assignment: Assignment, unit: Unit, shares: dict[str, float]) -> Assignment:
        """``unit`` at these shares of NCCL's own settings."""
        for site, dim in itertools.product(unit, self._dims):
            own = self.space.rung(self.space.stock, site, dim)
            there = nearest_rung(self.space.magnitudes(site, dim), own, shares[dim])
            assignment = self.space.at(assignment, site, dim, there)
        return assignment

    # -- 2. believe

    def _believe(self, measurements: Measurements) -> Moves:
        """Measure what the model promises until it promises too little, or is caught out."""
        while measurements.tried < self._budget:
            trusted, reason = self._refit(measurements)
            if not trusted:
                return (yield from self._decide(measurements, reason))
            leader = self._ranking(measurements)[0]
            chosen = self._most_promising(measurements, leader)
            self.expected_gain = None if chosen is None else chosen[1].hope
            if chosen is None:
                enough = f"the model expects no other config to gain {HOPE:.1%} ({reason})"
                return (yield from self._decide(measurements, enough))
            candidate, change, what = chosen
            expected = f"predicted {percent(math.log(change.ratio))} +- {change.sigma:.1%}"
            why = f"{what}: {expected}"
            answer = yield Proposal(candidate, why, against=leader, once=True)
            self.explain(
                f"{what}, {_short(candidate)}: {expected}, measured {percent(answer.delta)} than the best so far",
                phase="predict",
            )
            if answer.new is None:
                return Answer(leader, "the window of the model's choice came back empty", cut_short=True)
        return (yield from self._decide(measurements, f"the budget of {self._budget} configs is used up"))

    def _refit(self, measurements: Measurements) -> tuple[bool, str]:
        noise = measurements.noise.sigma
        seen = [
            Observation(trial.assignment, trial.z, _seen(trial.y), _all_seen(trial.x_by_site), _error(trial, noise))
            for trial in measurements.trials()
        ]
        self._windows_fitted = len(seen)
        return self._model.refit(seen)

    def _ranking(self, measurements: Measurements) -> Sequence[Assignment]:
        """By the model once it was fitted; else by the windows alone: what they gained is not thrown away."""
        return self._model.ranking() if self._windows_fitted else measurements.ranking()

    def _most_promising(
        self, measurements: Measurements, leader: Assignment
    ) -> tuple[Assignment, Expectation, str] | None:
        """The untried config with the greatest expected improvement on the leader; ``None`` if that is negligible."""
        reached, losses = self._reached(measurements), KnownLosses(self.space, measurements)
        near = [(self._within_reach(place, reached), what) for place, what in self._running(leader)]
        running = {
            place: what for place, what in near if measurements.trial(place) is None and not losses.rule_out(place)
        }
        changes = self._model.compare(list(running), leader)
        hopeful = [
            (place, change, what)
            for (place, what), change in zip(running.items(), changes, strict=True)
            if not change.surely_worse and change.ratio < SLOWEST and change.hope > HOPE
        ]
        return max(hopeful, key=lambda each: each[1].hope, default=None)

    def _reached(self, measurements: Measurements) -> Reached:
        tried = [trial.assignment for trial in measurements.trials()]
        every = itertools.product(range(len(self.problem.sites)), self._dims)
        return {(site, dim): min(self.space.magnitude(each, site, dim) for each in tried) for site, dim in every}

    def _within_reach(self, place: Assignment, reached: Reached) -> Assignment:
        """No more than a halving beyond what was measured: further out the equations are a guess, and some guesses
        were 9 times as slow."""
        for (site, dim), least in reached.items():
            ladder = self.space.magnitudes(site, dim)
            furthest = next(rung for rung, magnitude in enumerate(ladder) if 2 * magnitude >= least)
            if self.space.rung(place, site, dim) < furthest:
                place = self.space.at(place, site, dim, furthest)
        return place

    def _running(self, leader: Assignment) -> Iterator[tuple[Assignment, str]]:
        """What is in the running, the model's own optimum last."""
        yield from ((rung, "one step from the best") for rung in self._rungs(leader))
        for optimum in self._model.optima(leader, DRAWS, self._seed + self._windows_fitted):
            yield optimum, "a plausible optimum"
        yield self._model.optimum(leader), "the model's optimum"

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

    # -- 3. decide

    def _decide(self, measurements: Measurements, reason: str) -> Moves:
        """The answer, after windows of the two best: a few pairs that came out well make a leader of what is none."""
        ranking = self._ranking_with_the_last_window(measurements)
        for _ in range(self._run_offs):
            leader, second = (*ranking, measurements.stock)[:2]
            if measurements.stock in (leader, second):
                break  # that is what the final A/B asks
            what = f"the second best once more beside the best, {_short(second)}"
            answer = yield Proposal(second, what, against=leader)
            self.explain(f"{what}: {percent(answer.delta)}", phase="decide")
            ranking = self._ranking_with_the_last_window(measurements)
            if answer.new is None:
                break
        return Answer(ranking[0], reason)

    def _ranking_with_the_last_window(self, measurements: Measurements) -> Sequence[Assignment]:
        if self._windows_fitted:
            self._refit(measurements)
        return self._ranking(measurements)


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


def worth_a_window(space: Space) -> tuple[Pair, ...]:
    """Algorithms and protocols that some unit is offered: where C cannot be set, one of them may bring smaller chunks.
    LL is left out: half of what it sends are flags, and where messages are short enough for it NCCL takes it by itself
    (AllReduce of 67 MB by host memory on 4 H200: 3.7 to 5.7 times as long)."""
    offered = dict.fromkeys(pair for unit in space.units for pair in space.subspaces(unit))
    return tuple(pair for pair in offered if pair[1] != Protocol.LL)


def halve_channels(space: Space, assignment: Assignment, sites: Iterable[int]) -> Assignment:
    """Half the channels at these sites, down to the floor."""
    floor = space.floor(space.stock)
    for site in sites:
        now, least = (space.rung(at, site, "channels") for at in (assignment, floor))
        half = nearest_rung(space.magnitudes(site, "channels"), now, 0.5)
        assignment = space.at(assignment, site, "channels", min(now, max(half, least)))
    return assignment


def latin_square(levels: int, sites: int) -> list[list[int]]:
    """The level of each site in each of ``levels`` windows."""
    return [[(window + site) % levels for site in range(sites)] for window in range(levels)]


def nearest_rung(ladder: Sequence[int], base: int, share: float) -> int:
    """Position on the ascending ``ladder`` nearest to ``share`` of its entry ``base``; below it for a share below 1.

    Where nothing lies below, the base itself.
    """
    wanted = share * ladder[base]
    allowed = range(base) if share < 1.0 and base > 0 else range(base, base + 1)
    return min(allowed, key=lambda rung: abs(ladder[rung] - wanted))
