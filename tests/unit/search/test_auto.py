# SPDX-License-Identifier: Apache-2.0
"""When ``auto`` leaves its second part out: only where it is known that nothing can be gained."""

from __future__ import annotations

import pytest

from lagom.records import Assignment, Sample
from lagom.search import Answer, Measurements
from lagom.search.strategies.auto import _nothing_to_gain
from tests.unit.search.test_session import GOOD, OTHER

STOCK = Assignment.stock(2)


def measured(z: float, noise: float, y: float = 5e7) -> Measurements:
    """GOOD takes ``z`` of stock's Z, OTHER 3 % more than stock: four pairs each, and so for the baseline."""
    measurements = Measurements(STOCK)
    wobble = [1.0 + noise * step for step in (1.0, -1.0, 0.4, -0.4)]
    measurements.set_baseline(tuple((Sample(1e8, 2e7, 5e7), Sample(1e8 * each, 2e7, 5e7)) for each in wobble))
    for assignment, level, compute in ((GOOD, z, y), (OTHER, 1.03, 5e7)):
        pairs = tuple((Sample(1e8, 2e7, 5e7), Sample(1e8 * level * each, 2e7, compute)) for each in wobble)
        measurements.add(assignment, STOCK, pairs)
    return measurements


def test_nothing_is_to_be_gained_where_every_config_is_surely_no_faster() -> None:
    assert _nothing_to_gain(measured(1.01, 0.003), Answer(STOCK, ""))


@pytest.mark.parametrize(
    ("measurements", "leader"),
    [
        (measured(0.98, 0.05), GOOD),  # 2 % faster, which five percent of noise hide
        (measured(0.96, 0.05), STOCK),  # stock leads by the model, and 4 % are not excluded
        (measured(1.01, 0.003, y=4.5e7), STOCK),  # contention to win back
    ],
)
def test_a_lack_of_power_is_no_proof_that_nothing_can_be_gained(measurements: Measurements, leader: Assignment) -> None:
    assert not _nothing_to_gain(measurements, Answer(leader, ""))
