# SPDX-License-Identifier: Apache-2.0
"""``auto``: one config for all communications first, then one for each of them. The default.

1. **Together**: communications of one context (hidden or exposed) share a config; where no context is known, all of
   them. ``guided`` searches these few knobs: an effect too small to be seen at one site is seen at all of them, and a
   search that is cut short has found most of what there is.
2. **Protocols**: the other algorithms and protocols at the resources found, of each context by itself, from the most
   bandwidth to the least latency as long as one is a gain. (Where C cannot be set they are in ``guided``'s windows.)
3. **Apart**: windows of a two-level design, each with half the channels at half of the sites, so that every window says
   something of every site; then ``guided`` again, one config a site, from everything measured so far.

The third part is left out where nothing can be gained: NCCL's own config is the best so far, what another one gains,
with one standard error of doubt, is below what could be resolved, and compute was not faster in any window, so there is
no contention to win back. Of one communication, where no gain is in sight.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterable
from typing import ClassVar

from lagom.records import Algorithm, Assignment, Problem
from lagom.search import statistics
from lagom.search.base import Answer, Comparison, MakeModel, Moves, Proposal, Strategy, percent
from lagom.search.measurements import Measurements
from lagom.search.site_groups import SiteGroups
from lagom.search.space import Pair
from lagom.search.stopping_rule import LIVE
from lagom.search.strategies.guided import Guided, halve_channels, worth_a_window

TOGETHER = 4  # configs for each group of communications
APART = 6  # and then for each communication
CERTAIN = 2.0  # standard errors by which compute must be faster to count


class Auto(Strategy):
    """``guided`` twice: communications together, then apart."""

    name: ClassVar[str] = "auto"
    uses_model: ClassVar[bool] = True

    def __init__(
        self, problem: Problem, seed: int = 0, *, shared: bool = False, model: MakeModel | None = None
    ) -> None:
        """``model``: what makes the cost model, ``lagom.cost.FittedModel`` or another."""
        super().__init__(problem, seed, shared=shared)
        contexts_known = all(site.context for site in problem.sites)
        self._sites = SiteGroups(problem, self.space)
        groups = self._sites.together(list(self.space.units))
        self._groups = groups if contexts_known else [tuple(range(len(problem.sites)))]
        self._alone = len(self._groups) >= len(self.space.units)  # no two of them share a config
        self._model, self._seed = model, seed

    def moves(self, measurements: Measurements) -> Moves:
        """The course set out at the head of this file."""
        configs = measurements.tried + TOGETHER * len(self._groups)  # candidates of earlier searches come on top
        groups, alone = self._groups, self._alone
        together = Guided(self.problem, self._seed, model=self._model, units=groups, configs=configs, decide=alone)
        answer = yield from self.follow(together, measurements)
        best = yield from self._try_protocols(answer.assignment)
        if best != answer.assignment:
            answer = Answer(best, "another protocol is faster")
        if self._is_enough(measurements, answer):
            return answer
        if not alone:
            yield from self._halve(best, measurements)
        configs = measurements.tried + APART * len(self.space.units)
        apart = Guided(
            self.problem,
            self._seed,
            model=self._model,
            units=groups if alone else (),
            learn=False,
            configs=configs,
            pairs=_pairs_of(best),
        )
        return (yield from self.follow(apart, measurements))

    def _is_enough(self, measurements: Measurements, answer: Answer) -> bool:
        """Whether the third part is left out."""
        if not self._alone:
            return _nothing_to_gain(measurements, answer)
        return not measurements.is_gain_in_sight(measurements.known(answer.assignment))

    def _try_protocols(self, best: Assignment) -> Generator[Proposal, Comparison, Assignment]:
        """The best so far, or what is faster with another algorithm or protocol."""
        if "chunk" not in self.space.dims:
            return best
        for group, pairs in itertools.product(self._groups, outward(worth_a_window(self.space))):
            for pair in pairs:
                candidate = self.space.on_pair(best, pair, group)
                if self.space.why_illegal(candidate):
                    break
                if candidate == best:
                    continue
                what = f"{self._sites.name(group)}: {pair[0].name} {pair[1].name} at the resources found"
                answer = yield Proposal(candidate, what, against=best, cautious=True)
                made = f"{what}: {'taken' if answer.better else 'left'}, {percent(answer.delta)} than the best so far"
                self.explain(made, kept=answer.better, phase="screen")
                if not answer.better:
                    break
                best = candidate
        return best

    def _halve(self, best: Assignment, measurements: Measurements) -> Generator[Proposal, Comparison, None]:
        """The windows of the two-level design, from the best of the first part."""
        for sites in two_level_design(len(self.space.units)) if "channels" in self.space.dims else ():
            chosen = itertools.chain.from_iterable(self.space.units[unit] for unit in sites)
            candidate = halve_channels(self.space, best, chosen)
            if measurements.trial(candidate) is None:
                what = f"designed window: half the channels at {len(sites)} of {len(self.space.units)} communications"
                answer = yield Proposal(candidate, what, against=best, once=True)
                self.explain(f"{what}: {percent(answer.delta)} than the best so far", phase="learn")


def two_level_design(factors: int) -> list[tuple[int, ...]]:
    """Which factors are on the other level in each run: the saturated design of Hadamard's matrix, whose entry in row r
    and column c is negative where r and c share an odd number of bits. Row 0, in which none is, is known already."""
    rows = range(1, 1 << factors.bit_length())
    return [tuple(factor for factor in range(factors) if (row & (factor + 1)).bit_count() % 2) for row in rows]


def outward(offered: Iterable[Pair]) -> list[list[Pair]]:
    """For each algorithm its protocols from the most bandwidth to the least latency: where one is a loss, the messages
    are too long for the next."""
    found: dict[Algorithm, list[Pair]] = {}
    for pair in sorted(offered, key=lambda pair: (pair[0] != Algorithm.RING, pair[0], -pair[1])):
        found.setdefault(pair[0], []).append(pair)
    return list(found.values())


def _pairs_of(assignment: Assignment) -> tuple[Pair, ...]:
    """The algorithms and protocols that it sets."""
    set_here = ((config.algorithm, config.protocol) for config in assignment.configs)
    return tuple(dict.fromkeys((a, p) for a, p in set_here if a is not None and p is not None))


def _nothing_to_gain(measurements: Measurements, answer: Answer) -> bool:
    """Whether stock is the best, no other config gains as much as could be resolved, and compute is no faster with any
    of them. Unknown where Y is not seen."""
    stock = measurements.known(measurements.stock)
    if stock.y is None or not answer.assignment.is_stock:
        return False
    tried = [trial for trial in measurements.trials() if not trial.assignment.is_stock]
    if any(trial.y is not None and trial.y < stock.y * (1.0 - CERTAIN * trial.z_se) for trial in tried):
        return False
    resolvable = statistics.resolvable(measurements.noise.sigma / math.sqrt(LIVE.pairs_max), CERTAIN)
    return all(measurements.gain(trial) + trial.z_se < resolvable for trial in tried)
