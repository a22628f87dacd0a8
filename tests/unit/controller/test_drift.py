# SPDX-License-Identifier: Apache-2.0
"""When is a job that was left alone no longer the same? And when is it only noisy?"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from lagom.controller.drift import LEAST, REFERENCE_BLOCKS, VOTES, DriftDetector

MS = 1e6
DAY = 8640  # blocks of ten seconds


def blocks_until_drift(values: np.ndarray, drift: DriftDetector | None = None) -> int | None:
    drift = drift or DriftDetector()
    return next((number for number, z in enumerate(values) if drift.add(z)), None)


def noisy(count: int, sigma: float, seed: int) -> np.ndarray:
    return 200 * MS * np.exp(np.random.default_rng(seed).normal(0.0, sigma, count))


@pytest.mark.parametrize("factor", [1.12, 0.85])
@pytest.mark.parametrize("sigma", [0.0, 0.005, 0.02])
def test_a_lasting_change_is_noticed_within_minutes(sigma: float, factor: float) -> None:
    values = noisy(200, sigma, 1)
    values[100:] *= factor
    drift = DriftDetector()
    found = blocks_until_drift(values, drift)
    assert found is not None
    assert 100 + VOTES - 1 <= found <= 100 + 4 * VOTES
    assert drift.latest / drift.reference == pytest.approx(factor, abs=0.03)


@pytest.mark.parametrize("sigma", [0.001, 0.01, 0.03])
@pytest.mark.parametrize("seed", range(2))
def test_a_week_of_noise_is_no_drift(sigma: float, seed: int) -> None:
    assert blocks_until_drift(noisy(7 * DAY, sigma, seed)) is None


def test_what_wanders_by_less_than_is_worth_a_search_is_no_drift() -> None:
    hours = np.arange(3 * DAY) / 360.0
    wander = 1.0 + 0.8 * LEAST * np.sin(2 * math.pi * hours / 3.0)
    assert blocks_until_drift(noisy(3 * DAY, 0.01, 2) * wander) is None


def test_pauses_are_one_vote_each_however_long() -> None:
    """An evaluation of twenty minutes every two hundred seconds, and checkpoints in one block of four."""
    values = noisy(DAY, 0.01, 3)
    values[20::20] *= 120.0
    values[22::4] *= 3.0
    assert blocks_until_drift(values) is None


def test_bursts_shorter_than_the_votes_needed_are_no_drift() -> None:
    values = noisy(DAY, 0.01, 4)
    for start in range(100, DAY - 20, 40):
        values[start : start + VOTES - 2] *= 1.3
    assert blocks_until_drift(values) is None


def test_the_bound_of_the_head_comment_holds() -> None:
    """(p / (1 - p))^h a block, tried where it can be counted: p = 1/4, h = 4."""
    dice = np.random.default_rng(5)
    bound, alarms, blocks = (1 / 3) ** 4, 0, 50_000
    drift = DriftDetector(4)
    for z in np.where(dice.random(blocks) < 0.25, 300.0, 200.0) * MS:
        if math.isnan(drift.sigma) or len(drift._first) < REFERENCE_BLOCKS:
            drift.add(200.0 * MS)
        elif drift.add(z):
            alarms += 1
            drift._slower = 0
    assert 0 < alarms <= 1.1 * bound * blocks


def test_a_noisy_reference_widens_what_counts() -> None:
    drift = DriftDetector()
    for number in range(REFERENCE_BLOCKS):
        drift.add((200 + 30 * (-1) ** number) * MS)
    assert drift.threshold > 4 * LEAST
    steps = [abs(b - a) for a, b in pairwise([math.log(170), math.log(230)])]
    assert drift.sigma == pytest.approx(1.4826 * steps[0] / math.sqrt(2), rel=0.05)
