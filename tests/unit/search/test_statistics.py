# SPDX-License-Identifier: Apache-2.0
"""The paired statistics against brute force, and their behaviour under outliers and drift."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagom.search import statistics

FINITE = st.floats(-1.0, 1.0, allow_nan=False)


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_signed_rank_distribution_is_exact(count: int) -> None:
    """Against all 2^n sign patterns."""
    sums = [
        sum(r for r, up in zip(range(1, count + 1), signs, strict=True) if up)
        for signs in itertools.product((0, 1), repeat=count)
    ]
    expected = [sum(s <= w for s in sums) / 2**count for w in range(count * (count + 1) // 2 + 1)]
    assert statistics.signed_rank_cdf(count) == pytest.approx(expected)


def test_p_value_of_the_best_and_the_worst_case() -> None:
    faster = np.linspace(-0.02, -0.01, 8)
    assert statistics.signed_rank_p(faster) == pytest.approx(1 / 256)
    assert statistics.signed_rank_p(-faster) == pytest.approx(1.0)
    assert statistics.signed_rank_p(np.zeros(8)) == 1.0
    assert statistics.fewest_pairs(1 / 256) == 8


def test_hodges_lehmann_shrugs_off_a_straggler() -> None:
    values = np.array([-0.01] * 7 + [1.1])
    assert statistics.hodges_lehmann(values) == pytest.approx(-0.01)


@given(st.lists(FINITE, min_size=1, max_size=20), st.floats(-0.5, 0.5))
def test_hodges_lehmann_moves_with_the_data(values: list[float], shift: float) -> None:
    data = np.asarray(values)
    assert statistics.hodges_lehmann(data + shift) == pytest.approx(statistics.hodges_lehmann(data) + shift, abs=1e-9)
    assert data.min() - 1e-9 <= statistics.hodges_lehmann(data) <= data.max() + 1e-9


def test_interval_covers_the_truth_as_often_as_it_says() -> None:
    """95 % intervals of skewed, heavy-tailed times: the difference of two like times is symmetric all the same."""
    rng = np.random.default_rng(1)
    times = np.exp(0.02 * rng.standard_t(3, size=(600, 12, 2)) + 0.05 * rng.exponential(size=(600, 12, 2)))
    differences = np.log(times[..., 1] / times[..., 0]) - 0.03
    inside = sum(low <= -0.03 <= high for low, high in map(statistics.shift_interval, differences))
    assert 0.93 <= inside / 600 <= 0.985
    assert statistics.shift_interval(np.array([0.1, 0.2])) == (-math.inf, math.inf)  # two pairs prove nothing


def test_levels_of_a_run_never_sum_above_alpha() -> None:
    confirmations = sum(statistics.confirmation_level(0.05, k) for k in range(1, 10_000))
    assert confirmations + 2 * statistics.final_level(0.05) <= 0.05


def test_pooled_noise_is_blind_to_stragglers_and_effects() -> None:
    rng = np.random.default_rng(2)
    clean, dirty = statistics.Noise(), statistics.Noise()
    for shift in (0.0, 0.5, -0.3):
        window = shift + 0.02 * rng.standard_normal(100)
        clean.add(list(window))
        window[::12] += 1.1
        dirty.add(list(window))
    assert clean.sigma == pytest.approx(0.02, rel=0.15)
    assert dirty.sigma == pytest.approx(0.02, rel=0.35)


def test_pooled_noise_is_that_of_the_pairs_without_a_pause() -> None:
    """Two pairs in five hold a pause, so more than half of the steps between neighbours do."""
    rng = np.random.default_rng(3)
    noise, interrupted = statistics.Noise(), 0
    for _ in range(400):
        pauses = (rng.random(2) < 0.4) * rng.choice([-4.0, 3.0], 2)
        noise.add(list(0.01 * rng.standard_normal(2) + pauses))
        interrupted += bool(pauses.any())
    assert interrupted > 200, "too few of the steps are interrupted: this test shows nothing"
    assert noise.sigma == pytest.approx(0.01, rel=0.25)


@given(st.integers(10, 60), st.integers(0, 1000))
def test_no_step_of_noise_alone_is_left_out(windows: int, seed: int) -> None:
    steps = 0.01 * np.abs(np.diff(np.random.default_rng(seed).standard_normal((windows, 4)))).ravel()
    noise = statistics.Noise()
    for three in steps.reshape(windows, 3):
        noise.add([0.0, *np.cumsum(three)])
    assert noise.sigma == pytest.approx(statistics.scatter(steps))


def test_stragglers_are_set_aside_and_counted_on_both_sides() -> None:
    values = [0.001, -0.002, 0.0, 1.1, 0.002, -1.1, -0.001, 1.0]
    found = statistics.estimate(values, 0.002)
    assert (found.count, found.dropped_slow, found.dropped_fast) == (5, 2, 1)
    assert found.value == pytest.approx(0.0, abs=1e-3)


def test_two_pairs_that_disagree_are_not_certain() -> None:
    assert statistics.estimate([0.0, 1.1], 0.01).se > 0.1
    assert statistics.estimate([0.0, 0.01], 0.01).se < 0.01


def test_a_candidate_that_has_more_outliers_is_noticed() -> None:
    assert statistics.has_more_outliers(7, 0)
    assert not statistics.has_more_outliers(3, 3)
    assert not statistics.has_more_outliers(0, 0)
    assert not statistics.has_more_outliers(4, 0)  # 1 in 16: chance
