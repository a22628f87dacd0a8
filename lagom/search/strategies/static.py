# SPDX-License-Identifier: Apache-2.0
"""One cap for all communications, as users set it by environment variable today.

``caps=None`` sweeps the channel ladder and keeps the fastest (the best that a static setting can do). Liger's setting
is ``caps=(3,)`` (NCCL_MAX_NCHANNELS=3), DHelix's ``caps=(2,), threads=256``.
"""

from __future__ import annotations

from typing import ClassVar

from lagom.records import Assignment, Problem
from lagom.search.base import Answer, Moves, Proposal, Strategy, percent
from lagom.search.measurements import Measurements
from lagom.search.space import CHANNELS


class Static(Strategy):
    """A sweep over caps, each for every communication at once."""

    name: ClassVar[str] = "static"

    def __init__(
        self,
        problem: Problem,
        seed: int = 0,
        *,
        shared: bool = True,
        caps: tuple[int, ...] | None = None,
        threads: int | None = None,
    ) -> None:
        """``caps``: channel counts to try, the ladder below the ceiling if not said. ``threads``: NT set along with
        them, where it may be set at all."""
        super().__init__(problem, seed, shared=shared)
        self.caps = caps if caps is not None else tuple(cap for cap in CHANNELS if cap < problem.channels_ceiling)
        self.threads = threads

    def moves(self, measurements: Measurements) -> Moves:
        """From the largest cap down, so that a sweep starts with the harmless ones."""
        best = measurements.known(self.space.stock)
        for cap in sorted(self.caps, reverse=True):
            candidate = self.capped(cap)
            if candidate.is_stock:
                continue
            why = f"at most {cap} channels everywhere"
            answer = yield Proposal(candidate, why, against=best.assignment, cautious=True)
            self.explain(f"{why}: Z {percent(answer.delta, 'the best before')}")
            if answer.better and answer.new is not None:
                best = answer.new
        if len(self.caps) == 1:  # not a search but a setting: used whatever it measured
            return Answer(self.capped(self.caps[0]), f"the cap is {self.caps[0]}")
        return Answer(best.assignment, f"best of {len(self.caps)} caps")

    def capped(self, cap: int) -> Assignment:
        """Every site at its highest channel rung not above ``cap``; sites already below it stay as they are."""
        assignment = self.space.stock
        for site in range(len(self.problem.sites)):
            assignment = self._capped_site(assignment, site, cap)
        return assignment

    def _capped_site(self, assignment: Assignment, site: int, cap: int) -> Assignment:
        if "channels" in self.space.dims:
            own = self.space.rung(self.space.stock, site, "channels")
            under = [rung for rung in range(own + 1) if self._channels(site, rung) <= cap]
            assignment = self.space.at(assignment, site, "channels", max(under, default=0))
        if self.threads is not None and "threads" in self.space.dims:
            ladder = self.space.ladder(site, "threads")
            if self.threads in ladder and self.space.movable(assignment, (site,), "threads"):
                assignment = self.space.at(assignment, site, "threads", ladder.index(self.threads))
        return assignment

    def _channels(self, site: int, rung: int) -> int:
        return self.space.magnitude(self.space.at(self.space.stock, site, "channels", rung), site, "channels")
