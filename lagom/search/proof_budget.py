# SPDX-License-Identifier: Apache-2.0
"""How many pairs a proof takes, when one is overdue, and how much of a limited time is kept for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lagom.records import Assignment
from lagom.search import statistics
from lagom.search.measurements import Measurements, Trial
from lagom.search.sequential_test import pairs_to_prove
from lagom.search.stopping_rule import Policy

SHARE = 0.5  # of a search with a time limit, for proofs


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """About how many more pairs fit into the driver's time limit, and how many did at first."""

    pairs: float = math.inf
    at_first: float = 0.0
    reason: str = ""

    def fitting(self, pairs: int) -> int:
        """Of these pairs of a test as many as there is time for; even, so that rounds of A B B A stay whole."""
        return pairs if pairs <= self.pairs else max(2, 2 * int(self.pairs / 2.0))


class ProofBudget:
    """``time``: what the driver's limit leaves. ``spent``: pairs measured for proofs so far."""

    def __init__(self, measurements: Measurements, policy: Policy) -> None:
        self.time = TimeLeft()
        self.spent = 0
        self._measurements = measurements
        self._policy = policy

    def set_time(self, pairs: float, reason: str) -> None:
        """About ``pairs`` more pairs can be measured; ``reason``: why the search will have ended."""
        self.time = TimeLeft(pairs, max(pairs, self.time.at_first), reason)

    @property
    def is_left(self) -> bool:
        """Whether proofs have not used up their share of the time. Without a limit there is always some."""
        return math.isinf(self.time.pairs) or self.spent < SHARE * self.time.at_first

    def kept(self, proven: Assignment | None) -> float:
        """What is kept for the final A/B: the pairs that most likely prove the best so far. Nothing where that is
        ``proven`` already."""
        if math.isinf(self.time.pairs) or self._measurements.trial(self._measurements.stock) is None:
            return 0.0
        best = self._measurements.known(self._measurements.fastest())
        if best.assignment == proven:
            return 0.0
        is_in_sight = self._measurements.is_gain_in_sight(best)
        wanted = pairs_against_stock(best, self._measurements, self._policy) if is_in_sight else self._policy.looks[0]
        return min(wanted, max(0.0, SHARE * self.time.at_first - self.spent))

    def is_overdue(self, best: Trial, searched: int) -> bool:
        """Whether a search of ``searched`` pairs has taken many times those that most likely prove ``best``."""
        return searched >= self._policy.patience * pairs_against_stock(best, self._measurements, self._policy)


def pairs_against_stock(trial: Trial, measurements: Measurements, policy: Policy) -> int:
    """How many pairs most likely prove ``trial`` against stock, at the level of a final A/B."""
    level = statistics.final_level(policy.alpha)
    return pairs_to_prove(measurements.gain(trial), measurements.noise.sigma, level, policy.looks)
