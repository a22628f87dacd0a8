# SPDX-License-Identifier: Apache-2.0
"""May the fitted model be trusted? If not, why not, in one sentence; the search then measures instead of believing.

Three questions, all asked of windows that the fit has not seen (leave-one-out):
1. is Z predicted to within 10 % in the median;
2. does it say "better" and "worse" where the measurement did, at least four times in five;
3. do its predictions follow the measurements up and down, or would "like all the others" do as well?
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lagom.cost.fit import ModelFit
from lagom.cost.parameters import Array

LARGEST_ERROR = 0.10
LEAST_AGREEMENT = 0.80
FEWEST_WINDOWS = 3  # besides stock
SURE_WINDOWS = 5  # with fewer, each window teaches something of its own and leaving it out proves little: the first
# limit is doubled and the second question not asked
CLEAR, CLEAR_AT_LEAST = 2.5, 0.015  # standard errors, and the fraction of Z, by which a window must be off stock
FORGIVEN = 1  # wrong directions: one is chance
LEAST_CORRELATION = 0.3
SKILL_WINDOWS = 12  # for the third question: with fewer, no skill looks like chance
NO_SKILL_NEEDED = 0.01  # nor is any needed where the windows scatter by less, or by less than three standard errors


@dataclass(frozen=True, slots=True)
class Trust:
    """The gate's answer. ``error``: median of |log(predicted/measured)| of Z, left out; ``agreement``: share of the
    clearly better or worse windows whose direction was predicted."""

    trusted: bool
    reason: str
    error: float
    agreement: float


def judge(fit: ModelFit) -> Trust:
    """Ask the three questions of ``fit``. The first observation must be stock: the others are compared with it."""
    first, others = fit.observations[0], fit.observations[1:]
    if len(others) < FEWEST_WINDOWS:
        reason = f"only {len(others)} windows besides stock, {FEWEST_WINDOWS} are needed"
        return Trust(False, reason, math.nan, math.nan)
    measured = np.array([math.log((seen.z or math.nan) / (first.z or math.nan)) for seen in others])
    noise = np.array([math.hypot(seen.error, first.error) for seen in others])
    missed = fit.left_out[1:]
    error = float(np.median(np.abs(missed)))
    agreement, wrong = _directions(measured, missed, fit.doubt[1:], noise)
    correlation = _following(measured, missed, float(np.median(noise)))
    objection = (
        _too_far_off(error, len(others)) or _turned_round(agreement, wrong, len(others)) or _without_skill(correlation)
    )
    praise = f"left-out windows: predicted with a median error of {error:.1%}, direction correct for {agreement:.0%}"
    reason = f"the model is not trusted: {objection}" if objection else praise
    return Trust(objection is None, reason, error, agreement)


def _directions(measured: Array, missed: Array, doubt: Array, noise: Array) -> tuple[float, int]:
    """Of the windows clearly off stock: the share whose sign was predicted (1 if there are none), and how many were
    not. A window that the fit without it said it knew nothing about (two standard deviations reach it) is not held
    against it."""
    clear = np.abs(measured) > np.maximum(CLEAR * noise, CLEAR_AT_LEAST)
    if not clear.any():
        return 1.0, 0
    right = np.sign(measured + missed) == np.sign(measured)
    sorry = np.abs(missed) < 2.0 * doubt
    return float(np.mean((right | sorry)[clear])), int(np.sum(~(right | sorry)[clear]))


def _following(measured: Array, missed: Array, noise: float) -> float:
    """Correlation of predicted and measured log Z; 1 where the windows differ too little, or are too few, to ask.

    Misses are cut at three of their own scale: leaving out a window that nothing else resembles can miss by any amount.
    """
    if len(measured) < SKILL_WINDOWS or np.std(measured) < max(3.0 * noise, NO_SKILL_NEEDED):
        return 1.0
    most = 3.0 * 1.4826 * float(np.median(np.abs(missed)))
    return float(np.corrcoef(measured, measured + np.clip(missed, -most, most))[0, 1])


def _too_far_off(error: float, windows: int) -> str | None:
    limit = LARGEST_ERROR * (1.0 if windows >= SURE_WINDOWS else 2.0)
    if math.isfinite(error) and error <= limit:
        return None
    return f"the median error of Z is {error:.1%} for windows left out of the fit, limit {limit:.0%}"


def _turned_round(agreement: float, wrong: int, windows: int) -> str | None:
    if agreement >= LEAST_AGREEMENT or wrong <= FORGIVEN or windows < SURE_WINDOWS:
        return None
    return f"better or worse is predicted correctly for {agreement:.0%} of windows, limit {LEAST_AGREEMENT:.0%}"


def _without_skill(correlation: float) -> str | None:
    if correlation >= LEAST_CORRELATION:
        return None
    return f"predicted and measured Z have a correlation of {correlation:.2f}, limit {LEAST_CORRELATION}"
