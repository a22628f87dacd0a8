# SPDX-License-Identifier: Apache-2.0
"""Algorithms 1 and 2 to the letter, to show which of their lines fail. Nobody should tune with this.

Two lines cannot be followed at all and are read in the mildest way: line 4's ``s_i in M`` as ``S`` (M is the number
of compute operators), and S is updated with s'_j, for otherwise no communication would ever be done. Values that
leave the legal range are clamped. ``repaired`` names lines to mend, so that each failure can be looked at alone:

``lr``      lines 8-11 of Alg. 2: lr = (x - x') / x, and each knob moves by lr of its remaining rungs, at least one
``h``       Eq. 7 with x - x' in the denominator
``append``  line 7 of Alg. 1: the configuration just found, not the one before it
``floor``   lines 1-3 of Alg. 2 for all communications before the first window
``first``   line 5 of Alg. 2: the first window of a communication has nothing to be compared with
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

from lagom.records import Assignment, Problem
from lagom.search.base import Answer, Comparison, Moves, Proposal, Strategy
from lagom.search.measurements import Measurements, Trial
from lagom.search.space import Unit

FIRST_H = 0.01
REPAIRS = frozenset({"lr", "h", "append", "floor", "first"})


@dataclass
class State:
    """s_j: the config that was measured last, and its times."""

    unit: Unit
    config: Assignment  # s_j; only this unit's sites matter
    x: float | None  # x_j there, ns; None: nothing to compare the first window with
    h: float = FIRST_H
    started: bool = False
    done: bool = False


def profile_time(trial: Trial | None, unit: Unit) -> tuple[float, float, float] | None:
    """(x_j, X, Y) of a window, ns; None where one of them was not seen."""
    x = None if trial is None else trial.x_of(unit)
    if trial is None or x is None or trial.x is None or trial.y is None:
        return None
    return x, trial.x, trial.y


class AsPrinted(Strategy):
    """The printed lines, with their numbers beside them."""

    name: ClassVar[str] = "as_printed"
    proves_early: ClassVar[bool] = False

    def __init__(
        self,
        problem: Problem,
        seed: int = 0,
        *,
        shared: bool = False,
        repaired: frozenset[str] | set[str] = frozenset(),
        windows: int = 60,
    ) -> None:
        """``windows``: where to give up; as printed the loop need not end. ``repaired``: see the head of this file."""
        super().__init__(problem, seed, shared=shared)
        if unknown := set(repaired) - REPAIRS:
            raise ValueError(f"no repair named {sorted(unknown)}: there are {sorted(REPAIRS)}")
        self.repaired = frozenset(repaired)
        self.windows = windows
        self.result = self.space.stock  # S'
        self.priorities: list[int] = []  # the order in which line 4 chose, for the tests

    def moves(self, measurements: Measurements) -> Moves:
        """Algorithm 1."""
        stock = measurements.known(self.space.stock)
        if profile_time(stock, ()) is None:
            return Answer(self.space.stock, "as printed the search needs x_j and Y, and here only Z is seen")
        known = "first" not in self.repaired
        waiting = [State(unit, stock.assignment, stock.x_of(unit) if known else None) for unit in self.space.units]
        current, before = self.space.stock, stock  # line 2
        if "floor" in self.repaired:
            current = self._minimum_of_all()
        for _ in range(self.windows):
            if not waiting:  # line 3
                break
            chosen = min(waiting, key=attrgetter("h"))  # line 4
            self.priorities.append(chosen.unit[0])
            current, trial = yield from self._resource_efficient_tuning(chosen, current, before)  # line 5
            if chosen.done:
                waiting.remove(chosen)
                found = current if "append" in self.repaired else chosen.config
                for site in chosen.unit:  # line 7
                    self.result = self.result.with_config(site, found[site])
            before = trial or before
        end = f"given up after {self.windows} windows" if waiting else "all communications are done"
        yield from self._measure_result()
        return Answer(self.result, f"{end} ({len(waiting)} not done)", cut_short=bool(waiting))

    def _resource_efficient_tuning(
        self, state: State, current: Assignment, before: Trial
    ) -> Generator[Proposal, Comparison, tuple[Assignment, Trial | None]]:
        """Algorithm 2: measure s'_j ("ProfileTime"), then either done or the next configuration."""
        if not state.started:  # line 1
            current = self._minimum(current, state.unit)  # line 2
            state.started = True
        why = f"measure {self.problem.sites[state.unit[0]]}"
        answer = yield Proposal(current, why, state.unit[0], self.space.stock, cautious=True, once=True)  # line 4
        times = profile_time(answer.new, state.unit)
        if times is None:
            state.done = True
            self.explain(f"{why}: not measured, so it is done")
            return current, answer.new
        x, total, y = times
        old, state.x = state.x, x
        grew = old is not None and x - old > 0
        if grew or total < y:  # line 5
            state.done = True  # line 6
            because = "x_j did not fall" if grew else "X' < Y'"
            self.explain(f"{why}: done, {because}", h=state.h)
            return current, answer.new
        if old is not None:
            state.h = self.metric_h(before.y or 0.0, y, old, x)  # Alg. 1 line 9
        lr = self.learning_rate(x if old is None else old, x)  # line 8
        self.explain(f"{why}: lr = {lr:.3f}, H = {state.h:.3g}", h=state.h)
        state.config = current
        return self.grown(current, state.unit, lr), answer.new

    def metric_h(self, y_old: float, y_new: float, x_old: float, x_new: float) -> float:
        """Eq. 7: Y' - Y over x' - x."""
        denominator = x_old - x_new if "h" in self.repaired else x_new - x_old
        return (y_new - y_old) / denominator if denominator else math.inf

    def learning_rate(self, x_old: float, x_new: float) -> float:
        """Alg. 2 line 8: (x' - x) / x', negative whenever growth helped."""
        return (x_old - x_new) / x_old if "lr" in self.repaired else (x_new - x_old) / x_new

    def grown(self, assignment: Assignment, unit: Unit, lr: float) -> Assignment:
        """Lines 9-11. NC and C are integers, so adding a fraction to them changes nothing."""
        for dim in self.space.dims:
            if dim == "threads" and not self.space.movable(assignment, unit, dim):
                continue
            if "lr" in self.repaired:
                left = len(self.space.ladder(unit[0], dim)) - 1 - self.space.rung(assignment, unit[0], dim)
                assignment = self.space.moved(assignment, unit, dim, max(1, math.floor(lr * left))) or assignment
                continue
            for site in unit:
                value = self.space.magnitude(assignment, site, dim)
                assignment = self._nearest(assignment, site, dim, int(value + lr))
        return assignment

    def _nearest(self, assignment: Assignment, site: int, dim: str, value: int) -> Assignment:
        """The rung of that magnitude, clamped to the ladder; between two rungs the lower one."""
        rungs = range(len(self.space.ladder(site, dim)))
        magnitudes = [self.space.magnitude(self.space.at(assignment, site, dim, rung), site, dim) for rung in rungs]
        under = [rung for rung in rungs if magnitudes[rung] <= value]
        return self.space.at(assignment, site, dim, max(under, default=0))

    def _minimum(self, assignment: Assignment, unit: Unit) -> Assignment:
        for dim in self.space.dims:
            if dim != "threads" or self.space.movable(assignment, unit, dim):
                for site in unit:
                    assignment = self.space.at(assignment, site, dim, 0)
        return assignment

    def _minimum_of_all(self) -> Assignment:
        assignment = self.space.stock
        for unit in self.space.units:
            assignment = self._minimum(assignment, unit)
        return assignment

    def _measure_result(self) -> Generator[Proposal, Comparison, None]:
        if not self.result.is_stock:
            yield Proposal(self.result, "the configuration set S' as a whole", cautious=True)
            self.explain("the configuration set S' as a whole")
