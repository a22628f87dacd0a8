# SPDX-License-Identifier: Apache-2.0
"""Paired comparison of noisy iterations: estimates, exact rank tests, and how an error level is shared.

All differences are d = ln(Z of candidate / Z of incumbent), one a pair; negative is faster. Two neighbouring
iterations share the machine's drift, so it cancels in d. If candidate and incumbent do not differ, swapping them
changes nothing: d is symmetric about 0 whatever the noise looks like, which is all that the signed-rank test asks
for. Pure numpy, no scipy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

MAD_TO_SIGMA = 1.4826  # of a normal distribution
POWER_80 = 0.84  # normal quantile: an effect of (certainty + this) standard errors is found 4 times in 5
OUTLIER_MADS = 5.0
NOISE_FLOOR = 1e-4  # no clock is better than that; keeps noise-free simulations from dividing by nothing
DISBELIEF = 9.0  # own variance over the pooled one beyond which the pooled one is not believed (3 sigma)
#: A step between neighbouring pairs so many times the lower quartile of all of them is no noise: the job did something
#: else in one of the two pairs. Of a normal distribution that is 13 standard deviations, which no step reaches.
NO_NOISE = 40.0
PRIOR_WEIGHT = 10  # pairs that the pooled noise counts for beside a candidate's own scatter


@dataclass(frozen=True, slots=True)
class Estimate:
    """A location and its standard error, both in log units, from ``count`` values; ``dropped`` more were outliers."""

    value: float
    se: float
    count: int
    dropped_slow: int = 0
    dropped_fast: int = 0


def walsh_averages(values: np.ndarray) -> np.ndarray:
    """All means of two values, each value with itself included, sorted: n (n + 1) / 2 of them."""
    first, second = _pair_indices(len(values))
    return np.sort((values[first] + values[second]) / 2.0)


@lru_cache(maxsize=256)
def _pair_indices(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(count)


def hodges_lehmann(values: np.ndarray) -> float:
    """The median of the Walsh averages: nearly as sharp as the mean, nearly as tough as the median."""
    return float(np.median(walsh_averages(values)))


@lru_cache(maxsize=256)
def signed_rank_cdf(count: int) -> np.ndarray:
    """P(W <= w) for w = 0 ... n (n + 1) / 2, W the sum of the ranks of the positive differences, exactly."""
    ways = np.zeros(count * (count + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):
        ways[rank:] += ways[:-rank].copy()
    return np.cumsum(ways / ways.sum())


def median_of_known(values: Iterable[float | None]) -> float | None:
    """None where none is known."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def signed_rank_p(values: np.ndarray) -> float:
    """One-sided p-value of "the candidate is faster" (differences below 0). Exact zeros speak for neither side."""
    values = values[values != 0.0]
    count = len(values)
    if count == 0:
        return 1.0
    positive = float(np.sum(_ranks(np.abs(values))[values > 0.0]))
    return float(signed_rank_cdf(count)[math.ceil(positive)])


def _ranks(magnitudes: np.ndarray) -> np.ndarray:
    """1 ... n; equal magnitudes share their mean rank."""
    _, inverse, counts = np.unique(magnitudes, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2.0)[inverse]


def shift_interval(values: np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """The signed-rank interval of the true difference. Too few values for the confidence asked: everything."""
    cdf = signed_rank_cdf(len(values))
    outside = int(np.searchsorted(cdf, (1.0 - confidence) / 2.0, side="right")) - 1
    if len(values) == 0 or outside < 0:
        return -math.inf, math.inf
    averages = walsh_averages(values)
    return float(averages[outside]), float(averages[len(averages) - 1 - outside])


def fewest_pairs(level: float) -> int:
    """The smallest number of pairs whose best possible p-value, 2^-n, reaches ``level``."""
    return math.ceil(-math.log2(level) - 1e-12)


def confirmation_level(alpha: float, number: int) -> float:
    """The level of the ``number``-th confirmation of a run (1, 2, ...): half of alpha, spread so that the sum over any
    number of them stays below it (1/(k (k + 1)) sums to 1)."""
    return 0.5 * alpha / (number * (number + 1))


def final_level(alpha: float) -> float:
    """The level of one final A/B against stock: the other half of alpha, for at most two of them."""
    return 0.25 * alpha


class Noise:
    """The scatter of one pair's difference, pooled over every window of a run.

    Taken from |d_i - d_i+1| of neighbouring pairs of one window: needs no location, so a window of two pairs counts
    too. Its median is untouched by outliers where they are few. A job that pauses often spoils half of the steps, two
    for each pair with a pause, and so steps that are no noise are left out first.
    """

    def __init__(self) -> None:
        self._steps: list[float] = []
        self._sigma: float | None = None

    def add(self, differences: Sequence[float]) -> None:
        """One window's differences, in the order measured."""
        self._steps.extend(abs(b - a) for a, b in pairwise(differences))
        self._sigma = None

    @property
    def is_measured(self) -> bool:
        """Whether any two differences followed each other."""
        return bool(self._steps)

    @property
    def sigma(self) -> float:
        """Standard deviation of one pair's difference."""
        if self._sigma is None:
            self._sigma = max(scatter(_ordinary(np.array(self._steps))), NOISE_FLOOR)
        return self._sigma


def _ordinary(steps: np.ndarray) -> np.ndarray:
    """The steps that are noise."""
    return steps[steps <= NO_NOISE * max(np.quantile(steps, 0.25), NOISE_FLOOR)] if len(steps) else steps


def scatter(steps: Sequence[float] | np.ndarray) -> float:
    """Standard deviation of single values from the sizes of the steps between neighbours, which a slow change does not
    blow up; robust against the odd one. 0 without steps."""
    return MAD_TO_SIGMA * float(np.median(steps)) / math.sqrt(2.0) if len(steps) else 0.0


def outlier_mask(values: np.ndarray, sigma: float) -> np.ndarray:
    """True where a difference lies more than 5 MAD from the median: an iteration that something outside spoilt.

    The MAD is the larger of the values' own and the pooled one, so that few values cannot call each other outliers.
    """
    if len(values) < 3:
        return np.zeros(len(values), dtype=bool)
    distance = np.abs(values - np.median(values))
    return distance > OUTLIER_MADS * max(float(np.median(distance)), sigma / MAD_TO_SIGMA)


def estimate(values: Sequence[float], sigma: float) -> Estimate:
    """Location and standard error of paired differences, outliers left out and counted.

    The variance is the candidate's own, drawn towards the pooled one: a few pairs say little about their own scatter,
    but two pairs that disagree wildly must not look certain.
    """
    raw = np.asarray(values, dtype=float)
    out = outlier_mask(raw, sigma)
    kept = raw[~out]
    location = hodges_lehmann(kept)
    squares = float(np.sum((kept - location) ** 2))
    variance = (PRIOR_WEIGHT * sigma**2 + squares) / (PRIOR_WEIGHT + len(kept) - 1)
    if squares > DISBELIEF * sigma**2 * (len(kept) - 1):
        variance = squares / (len(kept) - 1)
    slow = int(np.sum(raw[out] > location))
    return Estimate(location, math.sqrt(variance / len(kept)), len(kept), slow, int(np.sum(out)) - slow)


def resolvable(se: float, certainty: float) -> float:
    """The smallest true effect, as a fraction, that data with this standard error show four times in five."""
    return math.expm1((certainty + POWER_80) * se)


def has_more_outliers(slow: int, fast: int) -> bool:
    """True if the candidate's iterations were spoilt more often than the incumbent's beyond chance (a sign test)."""
    total = slow + fast
    tail = sum(math.comb(total, k) for k in range(slow, total + 1)) / 2.0**total
    return total > 0 and tail <= 0.01
