"""May the fitted model be trusted? If not, why not, in one sentence; the search then measures instead of believing.

Three questions, all asked of windows that the fit has not seen (leave-one-out):
1. is Z predicted to within 10 % in the median (facts par. 8);
2. does it say "better" and "worse" where the measurement did, at least four times in five;
3. does it beat knowing nothing, i.e. predicting that every config is as fast as stock?
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lagom.cost.fit import Fit
from lagom.cost.parameters import Array

LARGEST_ERROR = 0.10
LEAST_AGREEMENT = 0.80
FEWEST_WINDOWS = 3  # besides stock
ENOUGH_WINDOWS = 6  # for the third question
CLEAR, CLEAR_AT_LEAST = 2.5, 0.015  # standard errors, and the fraction of Z, by which a window must be off stock
FORGIVEN = 1  # wrong directions: one is chance


@dataclass(frozen=True, slots=True)
class Trust:
    """The gate's answer. ``error``: median of |log(predicted/measured)| of Z, left out; ``agreement``: share of the
    clearly better or worse windows whose direction was predicted; ``blind``: the error of predicting no change."""

    trusted: bool
    reason: str
    error: float
    agreement: float
    blind: float


def judge(fit: Fit) -> Trust:
    """Ask the three questions of ``fit``. The first observation must be stock: the others are compared with it."""
    if len(fit.observations) < FEWEST_WINDOWS + 1:
        seen = len(fit.observations) - 1
        reason = f"only {seen} windows besides stock, {FEWEST_WINDOWS} are needed"
        return Trust(False, reason, math.nan, math.nan, math.nan)
    first = fit.observations[0]
    measured = np.array([math.log((seen.z or math.nan) / (first.z or math.nan)) for seen in fit.observations[1:]])
    missed = fit.left_out[1:]
    noise = np.array([math.hypot(seen.error, first.error) for seen in fit.observations[1:]])
    error, blind = float(np.median(np.abs(missed))), float(np.median(np.abs(measured)))
    agreement, wrong = _agreement(measured, missed, noise)
    asked = agreement if wrong > FORGIVEN else 1.0
    guess = blind if len(missed) >= ENOUGH_WINDOWS else math.inf  # with fewer, no skill looks like chance
    objection = _objection(error, asked, guess, float(np.median(noise)))
    return Trust(objection is None, objection or _praise(error, agreement), error, agreement, blind)


def _agreement(measured: Array, missed: Array, noise: Array) -> tuple[float, int]:
    """Of the windows clearly off stock: the share whose sign was predicted (1 if there are none), and how many were
    not."""
    clear = np.abs(measured) > np.maximum(CLEAR * noise, CLEAR_AT_LEAST)
    if not clear.any():
        return 1.0, 0
    right = np.sign(measured[clear] + missed[clear]) == np.sign(measured[clear])
    return float(np.mean(right)), int(np.sum(~right))


def _objection(error: float, agreement: float, blind: float, noise: float) -> str | None:
    if not math.isfinite(error) or error > LARGEST_ERROR:
        return f"do not trust me: Z of an unseen window is off by {error:.1%} in the median, limit {LARGEST_ERROR:.0%}"
    if agreement < LEAST_AGREEMENT:
        return f"do not trust me: I tell better from worse in {agreement:.0%} of windows, limit {LEAST_AGREEMENT:.0%}"
    if error > max(blind, 2.0 * noise, 0.01):
        return f"do not trust me: off by {error:.1%}, where guessing 'no change' is off by {blind:.1%}"
    return None


def _praise(error: float, agreement: float) -> str:
    return f"unseen windows are predicted to {error:.1%} in the median, direction right in {agreement:.0%}"
