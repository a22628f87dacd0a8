# SPDX-License-Identifier: Apache-2.0
"""The test on fresh samples: what its looks may spend, and which candidates it turns down although they look faster."""

from __future__ import annotations

import numpy as np
import pytest

from lagom.records import STOCK, Assignment, CommConfig, Sample
from lagom.search import WindowResult, statistics
from lagom.search.sequential_test import SequentialTest, pairs_to_prove

CANDIDATE, REFERENCE = Assignment((CommConfig(channels=2),)), Assignment((STOCK,))
SIGMA = 0.01


def test_less_gain_needs_more_pairs() -> None:
    looks = (10, 32, 96)
    assert [pairs_to_prove(gain, 0.02, 0.0125, looks) for gain in (0.1, 0.015, 0.008, 0.001, 0.0)] == [
        10,
        32,
        96,
        96,
        96,
    ]


def sequential_test(level: float, looks: tuple[int, ...]) -> SequentialTest:
    return SequentialTest("confirm", REFERENCE, CANDIDATE, level, looks, epsilon=0.001)


def window(*ratios: float) -> WindowResult:
    return WindowResult(tuple((Sample(100.0), Sample(100.0 * ratio)) for ratio in ratios))


def test_every_look_spends_its_share_of_the_level_only() -> None:
    """Five of six pairs faster: p = 2/64, within the whole level, beyond a third of it."""
    pairs = (0.950, 0.951, 0.949, 0.952, 0.948, 1.002)
    p = statistics.signed_rank_p(np.log(pairs))
    assert 0.05 / 3 < p <= 0.05
    test = sequential_test(0.05, (6, 12, 24))
    test.add(window(*pairs), SIGMA)
    assert test.open
    assert not test.passed
    alone = sequential_test(0.05, (6,))
    alone.add(window(*pairs), SIGMA)
    assert alone.passed, "one look may spend it all"


def test_a_candidate_whose_iterations_are_spoilt_more_often_is_turned_down() -> None:
    """Faster in the median and in the mean, but seven of sixty iterations stall, and none of the reference's does."""
    steady = [0.90, 0.901, 0.899, 0.902, 0.898] * 11
    test = sequential_test(0.05, (60,))
    test.add(window(*steady[:53], *([1.5] * 7)), SIGMA)
    assert test.found is not None
    assert test.found.dropped_slow == 7
    assert test._total < 1.0, "the mean alone would let it pass"
    assert not test.passed
    assert not test.open
    assert "outliers" in test.sentence
    calm = sequential_test(0.05, (60,))
    calm.add(window(*steady, *steady[:5]), SIGMA)
    assert calm.passed


@pytest.mark.parametrize("looks", [(6,), (6, 12), (6, 12, 24, 48)])
def test_the_shares_of_all_looks_sum_to_the_level(looks: tuple[int, ...]) -> None:
    test = sequential_test(0.04, looks)
    assert test._share * len(looks) == pytest.approx(0.04)


def test_one_pause_of_the_job_takes_more_pairs_and_fails_no_proof() -> None:
    """A pause is an outlier to the estimate and counts in the mean: of ten iterations it is too much, of thirty not."""
    test = sequential_test(0.05, (10, 30))
    test.add(window(*[0.95, 0.951, 0.949] * 3, 2.0), SIGMA)
    assert test._total > 1.0
    assert (test.passed, test.open) == (False, True)
    test.add(window(*[0.95, 0.951, 0.949, 0.952] * 5), SIGMA)
    assert test._total < 1.0
    assert test.passed


@pytest.mark.parametrize(("last", "is_open"), [(12, False), (96, True)])
def test_the_next_look_is_paid_for_only_where_the_last_one_would_show_the_gain(last: int, is_open: bool) -> None:
    """0.3 % at a standard error of 0.3 %: of interest, and nothing that two more pairs would prove."""
    test = sequential_test(0.0125, (10, last))
    test.add(window(*np.exp(-0.003 + 0.01 * np.array([1, -1, 0.5, -0.5, 1.2, -1.2, 0.8, -0.8, 0.3, -0.3]))), SIGMA)
    assert test.found is not None
    assert test.found.value - test.found.se < -test._worthwhile
    assert test.open == is_open
