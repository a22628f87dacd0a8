# SPDX-License-Identifier: Apache-2.0
"""How much faster one start or arm is than another: by pairs of neighbours, or by the means of whole processes.

README.md says which is used where, and why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from lagom.search import statistics

CONFIDENCE = 0.95
CERTAINTY = 2.0  # standard errors
#: What the number and its interval are, for a table.
BY_MEANS = "speed-up: ratio of the means of processes, with Welch's interval"
BY_PAIRS = "speed-up: median over pairs (Hodges-Lehmann), with the interval of the signed-rank test"


@dataclass(frozen=True, slots=True)
class SpeedupEstimate:
    """``value``: time of the one over time of the other, above 1 is faster, with its interval (95 % unless asked for
    otherwise); ``low`` is 0 and ``high`` infinite where there are too few pairs for one. ``detectable``: the smallest
    effect, as a fraction, that so many processes or pairs of such noise could have shown. ``count``: of each."""

    value: float
    low: float
    high: float
    detectable: float
    count: tuple[int, int]

    @property
    def pairs(self) -> int:
        """As many as the fewer have."""
        return min(self.count)

    @property
    def has_interval(self) -> bool:
        """Whether there were enough for one."""
        return self.low > 0.0 and math.isfinite(self.high)

    @property
    def is_faster(self) -> bool:
        """Beyond the noise between processes."""
        return self.low > 1.0

    @property
    def text(self) -> str:
        """``2.10x [1.95, 2.26]``, and ``1.014x [1.007, 1.021]`` where two digits would hide the difference."""
        digits = self.digits
        return f"{self.value:.{digits}f}x [{self.low:.{digits}f}, {self.high:.{digits}f}]"

    @property
    def digits(self) -> int:
        """After the point, where it is printed."""
        return 3 if abs(self.value - 1.0) < 0.1 else 2


def estimate_speedup(
    plain: Sequence[float], ours: Sequence[float], confidence: float = CONFIDENCE
) -> SpeedupEstimate | None:
    """From iteration times, one a process; None with fewer than two processes of either.

    The interval is Welch's for the difference of means, taken to the ratio by the delta method: the processes of two
    starts have different noise.
    """
    if len(plain) < 2 or len(ours) < 2:
        return None
    # of the logarithm of each mean
    terms = [(float(np.var(one, ddof=1)) / len(one) / float(np.mean(one)) ** 2, len(one)) for one in (plain, ours)]
    variance = sum(term for term, _ in terms)
    value = float(np.mean(plain) / np.mean(ours))
    if variance == 0.0:
        return SpeedupEstimate(value, value, value, 0.0, (len(plain), len(ours)))
    freedom = variance**2 / sum(term**2 / (count - 1) for term, count in terms)
    reach = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * math.sqrt(variance)
    return SpeedupEstimate(
        value, value * math.exp(-reach), value * math.exp(reach), math.expm1(reach), (len(plain), len(ours))
    )


def estimate_from_pairs(logs: Sequence[float]) -> SpeedupEstimate | None:
    """From ln(time of the arm / time of stock), one a pair; None without pairs.

    The Hodges-Lehmann median, and the interval of the signed-rank test: neither assumes a distribution of the noise.
    """
    if not logs:
        return None
    values = np.asarray(logs, dtype=float)
    low, high = statistics.shift_interval(values)
    scatter = statistics.Noise()
    scatter.add(list(logs))
    return SpeedupEstimate(
        value=math.exp(-statistics.hodges_lehmann(values)),
        low=math.exp(-high) if math.isfinite(high) else 0.0,
        high=math.exp(-low) if math.isfinite(low) else math.inf,
        detectable=statistics.resolvable(statistics.estimate(list(logs), scatter.sigma).se, CERTAINTY),
        count=(len(values), len(values)),
    )
