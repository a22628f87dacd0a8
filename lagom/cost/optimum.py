"""The best configs there are, as the model sees it: a search over the ladders that costs no iteration of the job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lagom.cost.forward import CostModel, Resources
from lagom.cost.parameters import Array
from lagom.records import Assignment, CommConfig

JOINT_LIMIT = 6000  # combinations that are simply all evaluated
EVEN = 5e-4  # predicted Z closer than this is a tie, and ties go to the config that takes less from compute
ROUNDS = 6

Choice = Mapping[int, CommConfig]
"""One alternative: configs by site (several sites where they must share one)."""

Picks = npt.NDArray[np.intp]
"""The alternative chosen for each unit, by its place in the list."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """Sites set together, and what each alternative runs with there, shape (alternatives, sites of the unit)."""

    sites: list[int]
    runs: Resources


class Ladders:
    """Everything a search may set, with what each alternative runs with looked up once."""

    def __init__(self, model: CostModel, choices: Sequence[Sequence[Choice]]) -> None:
        """``choices[k]``: the alternatives of unit k; all of one unit name the same sites, units share none."""
        self.model = model
        self.choices = choices
        self._units = [self._unit(alternatives) for alternatives in choices]

    def _unit(self, alternatives: Sequence[Choice]) -> _Unit:
        sites = sorted(alternatives[0])
        stock = Assignment.stock(self.model.sites)
        runs = self.model.resources([_apply(stock, choice) for choice in alternatives])
        return _Unit(sites, Resources(runs.nc[:, sites], runs.chunk[:, sites], runs.pair[:, sites]))

    def best(self, theta: Array, start: Assignment) -> Assignment:
        """The assignment with the least Z under the parameters ``theta`` (the fit's coordinates, shape (coordinates,)).

        All combinations where they are few; else coordinate descent from ``start``, then from where each unit takes
        least. Near-ties (``EVEN``) go to the one that takes less from compute: fewer channels, then smaller chunks.
        """
        if math.prod(len(alternatives) for alternatives in self.choices) <= JOINT_LIMIT:
            everything = np.indices([len(alternatives) for alternatives in self.choices])
            return self._assignment(self._least(theta, everything.reshape(len(self.choices), -1).T)[0], start)
        ends = [self._descend(theta, picks) for picks in (self._picks(start), self._meagre())]
        return self._assignment(self._least(theta, np.stack(ends))[0], start)

    def _descend(self, theta: Array, picks: Picks) -> Picks:
        """Change one unit at a time to its best alternative until a whole round changes nothing."""
        for _ in range(ROUNDS):
            before = picks
            for unit, alternatives in enumerate(self.choices):
                rows = np.repeat(picks[None], len(alternatives), axis=0)
                rows[:, unit] = np.arange(len(alternatives))
                picks = self._least(theta, rows)[0]
            if np.array_equal(before, picks):
                break
        return picks

    def _least(self, theta: Array, rows: Picks) -> Picks:
        """The row of ``rows`` with the least Z, as an array of one row."""
        shape = (len(rows), self.model.sites)
        runs = Resources(np.empty(shape), np.empty(shape), np.empty(shape, dtype=np.intp))
        for unit, column in zip(self._units, rows.T, strict=True):
            runs.nc[:, unit.sites], runs.chunk[:, unit.sites] = unit.runs.nc[column], unit.runs.chunk[column]
            runs.pair[:, unit.sites] = unit.runs.pair[column]
        z = self.model.times(theta[None], runs).z[0]
        near = np.flatnonzero(z <= z.min() * (1.0 + EVEN))
        taken = runs.nc[near].sum(-1) + 1e-9 * runs.chunk[near].sum(-1)
        return rows[near[np.argmin(taken)]][None]

    def _picks(self, assignment: Assignment) -> Picks:
        """Where ``assignment`` stands; the alternative nearest to it where it is not among them."""
        there = self.model.resources([assignment])
        return np.array([_nearest(unit, there) for unit in self._units], dtype=np.intp)

    def _meagre(self) -> Picks:
        """A quarter of the way up each list: another start, where little is taken."""
        return np.array([len(alternatives) // 4 for alternatives in self.choices], dtype=np.intp)

    def _assignment(self, picks: Picks, base: Assignment) -> Assignment:
        for alternatives, pick in zip(self.choices, picks, strict=True):
            base = _apply(base, alternatives[pick])
        return base


def _nearest(unit: _Unit, there: Resources) -> int:
    """The alternative of ``unit`` nearest to ``there`` in doublings of NC and C, if possible on the same algorithm."""
    nc = np.log2(unit.runs.nc / there.nc[0, unit.sites])
    chunk = np.log2(unit.runs.chunk / there.chunk[0, unit.sites])
    other = unit.runs.pair != there.pair[0, unit.sites]
    return int(np.argmin((nc**2 + chunk**2 + 1e3 * other).sum(-1)))


def _apply(assignment: Assignment, choice: Choice) -> Assignment:
    return Assignment(tuple(choice.get(site, config) for site, config in enumerate(assignment.configs)))
