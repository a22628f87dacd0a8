# SPDX-License-Identifier: Apache-2.0
"""A claim tested on fresh samples: "this candidate is faster than that". Used before a promotion and at the end."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal

import numpy as np

from lagom.records import Assignment
from lagom.search import statistics
from lagom.search.moves import WindowResult
from lagom.search.statistics import Estimate


def pairs_to_prove(gain: float, sigma: float, level: float, looks: tuple[int, ...]) -> int:
    """At which look a true gain of ln(Z / Z) is found four times in five, roughly: of normal differences with standard
    deviation ``sigma``. The last look where none is enough."""
    share = level / len(looks)
    quantile = NormalDist().inv_cdf(1.0 - share) + statistics.POWER_80
    enough = max((quantile * sigma / gain) ** 2 if gain > 0.0 else math.inf, statistics.fewest_pairs(share))
    return next((look for look in looks if look >= enough), looks[-1])


class SequentialTest:
    """A signed-rank test with a few looks at growing data, each at an equal share of ``level`` (Bonferroni, so the
    whole test keeps ``level`` however the looks depend on each other). No sample of the search enters it."""

    def __init__(
        self,
        purpose: str,
        against: Assignment,
        candidate: Assignment,
        level: float,
        looks: tuple[int, ...],
        epsilon: float,
        proven: float = 1.0,
    ) -> None:
        """``proven``: the speed-up that something else is proven to have; to pass, the candidate must reach it."""
        self.purpose = purpose
        self.against = against
        self.candidate = candidate
        self.open = True
        self.passed = False
        self.cut_off = False  # ended before its next look, while a gain was in sight
        self.sentence = ""
        self.found: Estimate | None = None
        self._share = level / len(looks)
        self.least = statistics.fewest_pairs(self._share)
        self._looks = [max(look, self.least) for look in looks]
        self._worthwhile = max(epsilon, math.log(proven))  # of -ln(Z / Z)
        self._proven = proven
        self._differences: list[float] = []
        self._times: list[tuple[float, float]] = []

    @property
    def pairs_wanted(self) -> int:
        """How many more pairs the next look needs; even, so that rounds of A B B A stay whole."""
        missing = max(2, self._looks[0] - len(self._differences))
        return missing + missing % 2

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of Z candidate / Z reference, from all fresh samples so far."""
        if self.found is None:
            return None
        low, high = statistics.shift_interval(self._clean, 0.95)
        return math.exp(low), math.exp(min(high, 700.0))

    @property
    def measured(self) -> tuple[float, float, float] | None:
        """Z candidate / Z reference of all fresh samples so far, with its 95 % interval."""
        if self.found is None or self.interval is None:
            return None
        return math.exp(self.found.value), *self.interval

    def add(self, result: WindowResult, sigma: float, *, last: bool = False) -> None:
        """One window of fresh pairs; looks when there are enough of them. ``last``: no more windows can be measured, so
        it looks now, in place of its next look."""
        self._differences += [math.log(candidate.z / incumbent.z) for incumbent, candidate in result.pairs]
        self._times += [(incumbent.z, candidate.z) for incumbent, candidate in result.pairs]
        raw = np.asarray(self._differences)
        self._clean = raw[~statistics.outlier_mask(raw, sigma)]
        self.found = statistics.estimate(self._differences, sigma)
        if len(self._differences) >= self._looks[0] or result.ended_early or last:
            self._look(result.ended_early or last)

    def give_up(self) -> None:
        """No more windows can be measured: what is in hand has the last look, if it could show anything."""
        if len(self._differences) >= self.least:
            self._look(cut=True)
            return
        self.open = False
        self.sentence = "it could not be measured again: not accepted"

    @property
    def verdict(self) -> Literal["more", "confirmed", "rejected"]:
        """For the log: ``confirmed``, ``rejected``, or ``more`` while it is open."""
        return "more" if self.open else "confirmed" if self.passed else "rejected"

    def _look(self, cut: bool) -> None:
        self._looks.pop(0)
        assert self.found is not None
        p = statistics.signed_rank_p(self._clean)
        outliers = statistics.has_more_outliers(self.found.dropped_slow, self.found.dropped_fast)
        is_less = math.exp(-self.found.value) < self._proven
        self.passed = p <= self._share and not outliers and not is_less and self._total < 1.0
        is_settled = self.passed or outliers or not self._looks or self._hopeless()
        self.open = not (is_settled or cut)
        self.cut_off = cut and not is_settled
        self.sentence = self._describe(p, outliers)

    @property
    def _total(self) -> float:
        """All the candidate's time over all the other's, outliers and all: the job pays the mean, not the median."""
        times = np.asarray(self._times)
        return float(times[:, 1].sum() / times[:, 0].sum())

    def _hopeless(self) -> bool:
        """Even one standard error on the bright side it is no gain worth having, or none that the last look would
        show."""
        if self.found is None:
            return False
        pairs = len(self._differences)
        last = max(self._looks, default=pairs)
        shown = NormalDist().inv_cdf(1.0 - self._share) * self.found.se * math.sqrt(pairs / last)
        return self.found.value - self.found.se > -max(self._worthwhile, shown)

    def _describe(self, p: float, outliers: bool) -> str:
        assert self.found is not None
        what = "plain NCCL" if self.against.is_stock else "the incumbent"
        low, high = self.interval or (math.nan, math.nan)
        if outliers:
            slow, fast = self.found.dropped_slow, self.found.dropped_fast
            return f"more of its iterations are outliers than of {what}'s ({slow} to {fast})"
        text = (
            f"{math.exp(-self.found.value):.3f}x {what} [{1 / high:.3f}, {1 / low if low > 0 else math.inf:.3f}] "
            f"in {len(self._differences)} fresh pairs (p = {p:.2g}, needed {self._share:.2g})"
        )
        end = "not faster on average" if self._total >= 1.0 else "not shown to be faster"
        if 1.0 < math.exp(-self.found.value) < self._proven:
            end = f"less than the {self._proven:.3f}x that is proven already"
        return text + ("" if self.passed else "; more pairs" if self.open else f"; {end}")
