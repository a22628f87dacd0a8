# SPDX-License-Identifier: Apache-2.0
"""The ratio of means of whole processes, and its interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from lagom.experiment.estimate import estimate_speedup

CASES = 2000


def test_it_is_the_ratio_of_means_over_all_processes() -> None:
    found = estimate_speedup([2.0, 4.0, 6.0], [1.0, 3.0])
    assert found is not None
    assert found.value == pytest.approx(2.0)
    assert found.count == (3, 2)
    assert found.low < found.value < found.high
    assert found.low * found.high == pytest.approx(found.value**2), "the interval is one of the logarithm"
    assert found.detectable == pytest.approx(found.high / found.value - 1)
    assert found.text == f"2.00x [{found.low:.2f}, {found.high:.2f}]"


def test_the_other_way_round_it_is_the_inverse() -> None:
    plain, ours = [3.0, 3.1, 2.9, 3.05], [2.0, 2.2, 2.1]
    forth, back = estimate_speedup(plain, ours), estimate_speedup(ours, plain)
    assert forth is not None
    assert back is not None
    assert (forth.value * back.value, forth.low * back.high) == pytest.approx((1.0, 1.0))
    assert forth.is_faster
    assert not back.is_faster


def test_fewer_than_two_processes_of_either_say_nothing() -> None:
    assert estimate_speedup([1.0], [1.0, 1.0]) is None
    assert estimate_speedup([1.0, 1.0], [1.0]) is None
    assert estimate_speedup([], []) is None


def test_processes_that_do_not_differ_leave_no_doubt() -> None:
    found = estimate_speedup([2.0, 2.0, 2.0], [1.0, 1.0])
    assert found is not None
    assert (found.low, found.value, found.high, found.detectable) == (2.0, 2.0, 2.0, 0.0)
    alike = estimate_speedup([2.0, 2.0], [2.0, 2.0])
    assert alike is not None
    assert not alike.is_faster, "as fast is not faster"
    one_sided = estimate_speedup([2.0, 2.1], [1.0, 1.0])
    assert one_sided is not None
    assert one_sided.low < one_sided.value < one_sided.high


@pytest.mark.parametrize(("plain_noise", "noise"), [(0.01, 0.01), (0.03, 0.03), (0.01, 0.05), (0.10, 0.10)])
@pytest.mark.parametrize("count", [6, 12])
def test_nineteen_of_twenty_intervals_hold_the_truth(count: int, plain_noise: float, noise: float) -> None:
    """Lognormal processes, plain NCCL twice as often, as in a search. By luck alone the bounds, at 93 and 97 %, would
    be passed less than once in ten thousand."""
    generator, truth = np.random.default_rng(count), 1.3
    held = 0
    for _ in range(CASES):
        plain = truth * generator.lognormal(-(plain_noise**2) / 2, plain_noise, 2 * count)
        found = estimate_speedup(list(plain), list(generator.lognormal(-(noise**2) / 2, noise, count)))
        assert found is not None
        held += found.low <= truth <= found.high
    assert stats.binom.ppf(1e-4, CASES, 0.945) <= held <= stats.binom.ppf(1 - 1e-4, CASES, 0.955)
    assert 0.93 <= held / CASES <= 0.97
