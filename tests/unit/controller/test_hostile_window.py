# SPDX-License-Identifier: Apache-2.0
"""What the ranks recorded may be anything: a window comes to pairs of finite samples, or to none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lagom.controller.measure import Tier, WindowMeter
from lagom.wire.layout import CALL_CANDIDATE, CALL_PROGRAM, CALL_RECORD, KERNEL_SPAN
from lagom.wire.views import plausible

EPOCH, SITES = 7, 2
LARGE = [0, 1, (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
numbers = st.one_of(st.integers(0, 400), st.sampled_from(LARGE))


def records_from(seed: int, count: int, honest: float, block: int) -> NDArray[np.void]:
    """Call records of which the share ``honest`` is as a rank writes them, in order, and the rest noise."""
    random = np.random.default_rng(seed)
    rows = random.integers(0, 256, count * CALL_RECORD.itemsize, dtype=np.uint8).view(CALL_RECORD)
    good = random.random(count) < honest
    index = np.arange(count)
    rows["function"], rows["stock_algorithm"], rows["stock_protocol"] = (
        np.where(good, value, rows[name])
        for name, value in (("function", 2), ("stock_algorithm", 1), ("stock_protocol", 2))
    )
    rows["epoch"] = np.where(good | (random.random(count) < 0.9), EPOCH, rows["epoch"])
    for name, values in (("call", index), ("position", index % 3), ("iteration", index // 3), ("time_ns", index * 100)):
        rows[name] = np.where(good, values, rows[name])
    labels = ((index // 3) // block) % 4
    flags = CALL_PROGRAM | np.where((labels == 1) | (labels == 2), CALL_CANDIDATE, 0)
    rows["flags"] = np.where(good, flags, rows["flags"])
    return rows[plausible(rows)]


def spans_from(seed: int, count: int, honest: float) -> NDArray[np.void]:
    """Kernel spans likewise."""
    random = np.random.default_rng(seed)
    rows = random.integers(0, 256, count * KERNEL_SPAN.itemsize, dtype=np.uint8).view(KERNEL_SPAN)
    good = random.random(count) < honest
    index = np.arange(count)
    for name, values in (("start_ns", index * 100), ("end_ns", index * 100 + 60), ("call", index), ("slot", 0)):
        rows[name] = np.where(good, values, rows[name])
    rows["kind"] = np.where(good, index % 2, rows["kind"])
    rows["source"] = np.where(good, 4, rows["source"])
    return rows


@pytest.mark.parametrize("tier", list(Tier))
@settings(max_examples=30)
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(0, 600), st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0])), min_size=1, max_size=3),
)
def test_any_records_come_to_finite_samples(tier: Tier, seed: int, batches: list[tuple[int, float]]) -> None:
    meter = WindowMeter(EPOCH, {0: 0, 1: 1}, SITES, tier)
    for number, (count, honest) in enumerate(batches):
        for slot in (0, 1, 2):
            meter.add_calls(slot, records_from(seed + number, count, honest, meter.pacing.block))
            meter.add_spans(slot, spans_from(seed + number, count, honest))
        for pair in meter.pairs():
            for sample in pair:
                assert math.isfinite(sample.z)
                assert sample.z > 0
                assert all(value is None or (math.isfinite(value) and value >= 0) for value in (sample.x, sample.y))
    assert meter.candidate_iterations >= 0
    assert meter.discarded >= 0
