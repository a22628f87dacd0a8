# SPDX-License-Identifier: Apache-2.0
"""AutoCCL's objective and descent: minimise each x_j by itself, blind to what that costs compute (NSDI'25).

From its code, on our ladders: each communication is a job of its own, and all jobs move in every window. A job
stands at a point and looks along one knob in one direction: of the k = max(3, lr * count) nearest untried rungs it
tries the three farthest, farthest first. If one lowers x_j it moves there and lr becomes 0.8 times the relative gain;
if none does, it turns round, then takes the next knob. Once every knob has failed both ways the point is a local
optimum. There is no test of Z and none of significance: the session's final A/B is the first to ask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from lagom.records import Assignment, Problem
from lagom.search.base import Answer, Moves, Proposal, Strategy, percent
from lagom.search.measurements import Measurements, Trial
from lagom.search.space import Space, Unit

NEAREST, FARTHEST = 3, 3
LEARNING = 0.8


@dataclass
class Descent:
    """One communication's descent."""

    unit: Unit
    space: Space
    point: Assignment  # only this unit's sites matter
    score: float  # x_j there, ns
    ways: list[tuple[str, int]] = field(default_factory=list)  # (knob, direction), the current one first
    lr: float = -1.0
    failures: int = 0
    tried: set[Assignment] = field(default_factory=set)
    queue: list[Assignment] = field(default_factory=list)  # of the current way, farthest first

    def next(self) -> Assignment | None:
        """The next point to try; ``None`` at a local optimum."""
        while not self.queue and self.failures < len(self.ways):
            self.queue = self._ahead()
            if not self.queue:
                self._turn()
        return self.queue[0] if self.queue else None

    def learn(self, score: float) -> bool:
        """The score of the point at the head of the queue; True if the job moved there."""
        tried = self.queue.pop(0)
        self.tried.add(tried)
        if score < self.score:
            self.lr = LEARNING * (self.score - score) / self.score
            self.point, self.score = tried, score
            self.queue, self.failures = [], 0
            return True
        if not self.queue:
            self._turn()
        return False

    def _ahead(self) -> list[Assignment]:
        knob, direction = self.ways[0]
        points: list[Assignment] = []
        step = direction
        while (point := self.space.moved(self.point, self.unit, knob, step)) is not None and point not in points:
            points.append(point)
            step += direction
        fresh = [point for point in points if point not in self.tried]
        near = fresh[: max(NEAREST, math.ceil(self.lr * len(fresh)))]
        return near[::-1][:FARTHEST]

    def _turn(self) -> None:
        self.ways.append(self.ways.pop(0))
        self.lr, self.failures = -1.0, self.failures + 1


class AutoCCL(Strategy):
    """Every x_j as short as it gets."""

    name: ClassVar[str] = "autoccl"
    proves_early: ClassVar[bool] = False

    def __init__(self, problem: Problem, seed: int = 0, *, shared: bool = False, windows: int = 64) -> None:
        """``windows``: the most that are taken."""
        super().__init__(problem, seed, shared=shared)
        self.windows = windows

    def moves(self, measurements: Measurements) -> Moves:
        """One window a round, every unfinished job at its next point."""
        stock = measurements.known(self.space.stock)
        jobs = [self._job(unit, stock) for unit in self.space.units]
        seen = "x_j" if stock.x_by_site else "X" if stock.x else "Z"
        for number in range(1, self.windows + 1):
            moving = [job for job in jobs if job.next() is not None]
            if not moving:
                break
            moving = moving if seen == "x_j" else moving[:1]  # one number cannot judge two moves
            why = f"window {number}: lower {seen}"
            answer = yield Proposal(self._joint(jobs, moving), why, moving[0].unit[0], cautious=True, once=True)
            self.explain(f"{why}; {self._learn(moving, answer.new)} (Z {percent(answer.delta)}, not used)")
        chosen = self._joint(jobs, [])
        why = f"the shortest {seen} of each communication, together"
        answer = yield Proposal(chosen, why, cautious=True)
        self.explain(f"{why}: Z {percent(answer.delta)}")
        if any(job.next() is not None for job in jobs):
            return Answer(chosen, f"{why}, after {self.windows} windows (the limit)", cut_short=True)
        return Answer(chosen, why)

    def _joint(self, jobs: list[Descent], moving: list[Descent]) -> Assignment:
        assignment = self.space.stock
        for job in jobs:
            point = job.queue[0] if job in moving else job.point
            for site in job.unit:
                assignment = assignment.with_config(site, point[site])
        return assignment

    def _learn(self, moving: list[Descent], trial: Trial | None) -> str:
        if trial is None:
            for job in moving:
                job.learn(math.inf)
            return "not measured"
        moved = sum(job.learn(self._score(job.unit, trial)) for job in moving)
        return f"{moved} of {len(moving)} went faster"

    def _job(self, unit: Unit, stock: Trial) -> Descent:
        ways = [(knob, direction) for knob in self.space.dims if knob != "threads" for direction in (1, -1)]
        return Descent(unit, self.space, stock.assignment, self._score(unit, stock), ways)

    def _score(self, unit: Unit, trial: Trial) -> float:
        """x_j; where kernels are not seen one by one X, and without CUPTI Z: the best that can be had of it."""
        own = trial.x_of(unit)
        return own if own is not None else trial.x if trial.x is not None else trial.z
