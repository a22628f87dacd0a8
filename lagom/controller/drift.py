# SPDX-License-Identifier: Apache-2.0
"""Has Z left the level it had when the search ended? A sequential test on a few numbers a minute.

The job is cut into blocks of some seconds; each block has a mean iteration, and votes: slower than the reference by
more than any noise, faster by as much, or neither. A vote counts one up, anything else one down, and what has come to
``votes_needed`` is drift. So one long pause is one vote, however long, and a spread of blocks that scatter about the
reference never adds up.

Error. If each block votes "slower" with a probability p < 1/2 whatever came before, the chance that the count ever
reaches h from a given block on is at most (p / (1 - p))^h (a gambler's ruin). With p = 1/4, four times what the
threshold is set for, and h = 12, that is 1.9e-6 a block, in blocks of ten seconds one false alarm in 60 days; each
further alarm of a job needs twice as many votes. What holds for minutes at more than 5 % is no noise by definition.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from lagom.search.statistics import scatter

#: Blocks that give the reference: its median, and the scatter of one block.
REFERENCE_BLOCKS = 12
#: A change below this is no reason to search again: a search costs more than it would bring back.
LEAST = 0.05
#: Standard deviations of one block beyond which it votes.
BEYOND = 4.0
VOTES = 12


@dataclass(slots=True)
class DriftDetector:
    """Feed it one number a block with :meth:`add`."""

    votes_needed: int = VOTES
    reference: float = math.nan  # ns
    sigma: float = math.nan  # of one block, relative
    _first: list[float] = field(default_factory=list)
    _recent: deque[float] = field(default_factory=deque)
    _slower: int = 0
    _faster: int = 0

    @property
    def threshold(self) -> float:
        """ln(Z / reference) beyond which a block votes."""
        return max(math.log1p(LEAST), BEYOND * self.sigma)

    @property
    def latest(self) -> float:
        """ns: median of the newest blocks, as many as can vote."""
        return float(np.median(self._recent)) if self._recent else math.nan

    def add(self, z: float) -> bool:
        """One block's mean iteration in ns. True once Z has drifted; then ``latest`` says where to."""
        if len(self._first) < REFERENCE_BLOCKS:
            self._first.append(z)
            self.reference = float(np.median(self._first))
            self.sigma = scatter(np.abs(np.diff(np.log(np.asarray(self._first)))))  # of neighbouring blocks
            return False
        change = math.log(z / self.reference)
        self._slower = max(0, self._slower + (1 if change > self.threshold else -1))
        self._faster = max(0, self._faster + (1 if change < -self.threshold else -1))
        self._recent.append(z)
        if len(self._recent) > self.votes_needed:
            self._recent.popleft()
        return max(self._slower, self._faster) >= self.votes_needed
