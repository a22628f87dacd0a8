# SPDX-License-Identifier: Apache-2.0
"""What a search that ends before its final A/B is over can say: the best it measured, and what would prove it.

The best of many noisy trials looks better than it is, so this is a candidate for a proof and none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lagom.format import format_interval
from lagom.records import Assignment
from lagom.search.measurements import Measurements
from lagom.search.proof_budget import pairs_against_stock
from lagom.search.sequential_test import SequentialTest
from lagom.search.stopping_rule import Policy


@dataclass(frozen=True, slots=True)
class BestSoFar:
    """``speedup`` over stock with its 95 % interval; ``missing_pairs`` of the final A/B would most likely prove it."""

    assignment: Assignment
    speedup: float
    low: float
    high: float
    missing_pairs: int

    def __str__(self) -> str:
        interval = format_interval(self.low, self.high)
        return f"{self.speedup:.3f}x plain NCCL {interval} (about {self.missing_pairs} pairs missing)"


def best_so_far(measurements: Measurements, policy: Policy, final: SequentialTest | None) -> BestSoFar | None:
    """The candidate whose upper bound is lowest, or the one in the final A/B that had begun, with the numbers of that
    test alone: they are not chosen among many. ``None`` where nothing measured is faster than stock."""
    if final is not None and final.found is not None:
        gain, se, assignment, missing = -final.found.value, final.found.se, final.candidate, final.pairs_wanted
    else:
        fastest = next((each for each in measurements.ranking() if not each.is_stock), None)
        if fastest is None:
            return None
        best = measurements.known(fastest)
        gain, se, assignment = measurements.gain(best), best.z_se, fastest
        missing = pairs_against_stock(best, measurements, policy)
    if gain <= 0.0:
        return None
    return BestSoFar(assignment, math.exp(gain), math.exp(gain - 1.96 * se), math.exp(gain + 1.96 * se), missing)
