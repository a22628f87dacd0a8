# SPDX-License-Identifier: Apache-2.0
"""How much faster one start is than another, from the values of whole processes: the ratio of their means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
#: What the number and its interval are, for a table.
ESTIMATOR = "speed-up: ratio of the means of processes, with Welch's interval"


@dataclass(frozen=True, slots=True)
class SpeedupEstimate:
    """``value``: mean time of the one over mean time of the other, above 1 is faster, with its interval (95 % unless
    asked for otherwise);
    ``detectable``: the smallest effect, as a fraction, that so many processes of such noise could have shown.
    ``count``: processes of each."""

    value: float
    low: float
    high: float
    detectable: float
    count: tuple[int, int]

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
