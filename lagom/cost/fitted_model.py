# SPDX-License-Identifier: Apache-2.0
"""The best configs there are, as the model sees it: a search over the ladders that costs no iteration of the job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lagom.cost.cost_model import CostModel, model_of
from lagom.cost.fit import ModelFit, fit
from lagom.cost.gate import judge
from lagom.cost.iteration import IterationModel
from lagom.cost.parameters import Array, Parameters, decode
from lagom.cost.predict import Change, compare, draws, shrunk
from lagom.records import Assignment, Choice, Observation, Problem

JOINT_LIMIT = 6000  # combinations that are simply all evaluated
EVEN = 5e-4  # predicted Z closer than this is a tie, and ties go to the config that takes less from compute
ROUNDS = 6

Picks = npt.NDArray[np.intp]
"""The alternative chosen for each unit, by its place in the list; one row or many."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """x_j and the slow-down beside it for every alternative under one parameter set, shape (alternatives, sites).

    A site's x and slow-down depend on its own config alone, so a search only has to put parts together.
    """

    parameters: Parameters
    x: Array
    slow: Array


class Ladders:
    """Everything a search may set, with what each alternative runs with looked up once."""

    def __init__(self, model: CostModel, choices: Sequence[Sequence[Choice]]) -> None:
        """``choices[k]``: the alternatives of unit k; all of one unit name the same sites, units share none."""
        self.model = model
        self.choices = choices
        self._lengths = np.array([len(alternatives) for alternatives in choices], dtype=np.intp)
        self._unit_of = np.zeros(model.sites, dtype=np.intp)
        for unit, alternatives in enumerate(choices):
            self._unit_of[list(alternatives[0])] = unit
        # Row a: every unit on its alternative a (on its last one where the list is shorter).
        rows = (np.minimum(row, self._lengths - 1) for row in range(max(self._lengths, default=0)))
        self._runs = model.resources([self._assignment(row, Assignment.stock(model.sites)) for row in rows])

    def best(self, theta: Array, start: Assignment, *, thorough: bool = True) -> Assignment:
        """The assignment with the least Z under the parameters ``theta`` (the fit's coordinates, shape (coordinates,)).

        All combinations where they are few; else coordinate descent from ``start`` and, if ``thorough``, from where
        each unit takes little, too. Near-ties (``EVEN``) go to the one that takes less from compute: fewer channels,
        then smaller chunks.
        """
        parameters = decode(theta, self.model.sites)
        x, slow = self.model.beside(parameters, self._runs)
        parts = _Parts(parameters, x[0], slow[0])
        if thorough and math.prod(self._lengths.tolist()) <= JOINT_LIMIT:
            everything = np.indices(self._lengths.tolist()).reshape(len(self._lengths), -1).T
            return self._assignment(self._least(parts, everything), start)
        starts = [self._nearest(start), self._lengths // 4] if thorough else [self._nearest(start)]
        ends = [self._descend(parts, picks) for picks in starts]
        return self._assignment(self._least(parts, np.stack(ends)), start)

    def _descend(self, parts: _Parts, picks: Picks) -> Picks:
        """Change one unit at a time to its best alternative until a whole round changes nothing."""
        for _ in range(ROUNDS):
            before = picks
            for unit, length in enumerate(self._lengths):
                rows = np.repeat(picks[None], length, axis=0)
                rows[:, unit] = np.arange(length)
                picks = self._least(parts, rows)
            if np.array_equal(before, picks):
                break
        return picks

    def _least(self, parts: _Parts, rows: Picks) -> Picks:
        """The row of ``rows`` with the least Z."""
        where = (rows[:, self._unit_of], np.arange(self.model.sites))
        z = self.model.run(parts.parameters, parts.x[where][None], parts.slow[where][None]).z[0]
        near = np.flatnonzero(z <= z.min() * (1.0 + EVEN))
        where = (rows[near][:, self._unit_of], np.arange(self.model.sites))
        taken = self._runs.nc[where].sum(-1) + 1e-9 * self._runs.chunk[where].sum(-1)
        chosen: Picks = rows[near[np.argmin(taken)]]
        return chosen

    def _nearest(self, assignment: Assignment) -> Picks:
        """Each unit's alternative nearest to ``assignment`` in doublings of NC and C, if possible on its algorithm."""
        there = self.model.resources([assignment])
        gap = np.log2(self._runs.nc / there.nc) ** 2 + np.log2(self._runs.chunk / there.chunk) ** 2
        gap = gap + 1e3 * (self._runs.pair != there.pair)
        by_unit = np.stack([gap[:, self._unit_of == unit].sum(-1) for unit in range(len(self.choices))], axis=-1)
        return np.minimum(np.argmin(by_unit, axis=0), self._lengths - 1)

    def _assignment(self, picks: Picks, base: Assignment) -> Assignment:
        for alternatives, pick in zip(self.choices, picks, strict=True):
            base = Assignment(tuple(alternatives[pick].get(site, config) for site, config in enumerate(base.configs)))
        return base


class FittedModel:
    """The cost model as a search uses it: fitted again after each window, then asked what is worth measuring.

    ``choices`` as in :class:`Ladders`; ``program``: which kernels wait for which, from a traced iteration. Without it
    only the sites are known, and the model is less sure. Before the first :meth:`refit` nothing may be asked.
    """

    def __init__(
        self, problem: Problem, choices: Sequence[Sequence[Choice]], *, program: IterationModel | None = None
    ) -> None:
        self._ladders = Ladders(model_of(problem, program), choices)
        self._fitted: ModelFit | None = None

    def refit(self, observations: Sequence[Observation]) -> tuple[bool, str]:
        """Fit to everything measured, stock first. Whether the model may be trusted, and why or why not."""
        self._fitted = fit(self._ladders.model, observations, self._fitted.theta if self._fitted else None)
        trust = judge(self._fitted)
        return trust.trusted, trust.reason

    def ranking(self) -> list[Assignment]:
        """What was measured, the fastest first, by measurement and model together."""
        times = shrunk(self._fit)
        return sorted(times, key=lambda assignment: times[assignment])

    def compare(self, candidates: Sequence[Assignment], base: Assignment) -> list[Change]:
        """Predicted Z of each candidate over that of ``base``."""
        return compare(self._fit, candidates, base)

    def optima(self, start: Assignment, count: int, seed: int) -> Iterator[Assignment]:
        """The best assignments under ``count`` parameter sets that the measurements leave plausible."""
        for theta in draws(self._fit, count, seed):
            yield self._ladders.best(theta, start, thorough=False)

    def optimum(self, start: Assignment) -> Assignment:
        """The best assignment under the fitted parameters."""
        return self._ladders.best(self._fit.theta, start)

    @property
    def _fit(self) -> ModelFit:
        assert self._fitted is not None, "refit comes first"
        return self._fitted
