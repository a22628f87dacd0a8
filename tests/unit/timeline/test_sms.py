# SPDX-License-Identifier: Apache-2.0
"""The split of the overhead into missing SMs and bandwidth, on tables small enough to count waves by hand.

132 SMs and a GEMM of 528 blocks: four waves alone. A gather of 24 channels leaves 108 SMs: ceil(528 / 108) = 5 waves,
so at most 5 / 4 - 1 = a quarter of the time alone can be the SMs'.
"""

from __future__ import annotations

import pytest
from timeline_helpers import table

from lagom.timeline.busy_times import Busy
from lagom.timeline.reference_kernels import measure_contention
from lagom.timeline.slowdowns import ContentionOverhead, measure_overhead
from lagom.timeline.steps import find_steps

#: The first and the second of a step: were they alike, one would pass for a step.
COLLECTIVES = ("ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_Broadcast_RING_LL")
BLOCKS = 528
Gathers = tuple[tuple[float, float, int], ...]  # from, to (µs after the step's start), channels


def overhead(
    overlapped: float, gathers: Gathers = (), name: str = "gemm", blocks: int = BLOCKS, sms: int = 132
) -> ContentionOverhead:
    """Four whole steps of one kernel of ``overlapped`` µs beside the gathers (one of 24 channels all along unless
    given), and the same kernel without communication, 100 µs."""
    rows: list[tuple[float, float, int, str]] = []
    channels: list[int] = []
    for step in range(5):
        now = 1000.0 * step
        beside = gathers or ((0.0, overlapped, 24),)
        rows += [(now, now + overlapped, 1, name), (now + 500, now + 600, 1, name)]
        rows += [(now + begin, now + end, 2, word) for (begin, end, _), word in zip(beside, COLLECTIVES, strict=False)]
        channels += [0, 0, *(width for _, _, width in beside)]
    grid = [blocks if row[3] == name else width for row, width in zip(rows, channels, strict=True)]
    of = table(*rows, grid=grid, channels=channels, sms=sms)
    steps = find_steps(of)
    assert steps.count == 4
    return measure_overhead(of, steps, measure_contention(of, steps, Busy.of(of)))


def shares(of: ContentionOverhead) -> tuple[float, float]:
    assert of.sm is not None
    assert of.bandwidth is not None
    return of.sm, of.bandwidth


def test_missing_sms_explain_no_more_than_the_waves_they_cost() -> None:
    """40 µs lost of 240: the fifth wave explains 25, bandwidth the other 15. With twice the channels there would be
    ceil(528 / 84) = 7 waves, which could explain all of it."""
    assert shares(overhead(140)) == pytest.approx((25 / 240, 15 / 240))


def test_missing_sms_explain_no_more_than_the_loss() -> None:
    """10 µs lost, of 25 that SMs could explain."""
    assert shares(overhead(110)) == pytest.approx((10 / 210, 0))


def test_a_kernel_that_runs_faster_beside_communication_loses_no_sms() -> None:
    assert shares(overhead(95)) == pytest.approx((0, -5 / 195))


def test_only_the_time_beside_communication_counts() -> None:
    """Covered for 70 of 140 µs: half of the 25."""
    assert shares(overhead(140, ((0, 70, 24),))) == pytest.approx((12.5 / 240, 27.5 / 240))


def test_the_channels_are_the_mean_while_covered() -> None:
    """84 µs of 16 channels, then 56 µs of 36: (84 * 16 + 56 * 36) / 140 = 24. 16 would leave 116 SMs and 36 leave 96:
    five and six waves."""
    assert shares(overhead(140, ((0, 84, 16), (84, 140, 36)))) == pytest.approx((25 / 240, 15 / 240))
    assert shares(overhead(140, ((0, 140, 36),))) == pytest.approx((40 / 240, 0))  # six waves: half, more than was lost


def test_a_kernel_that_fits_beside_the_channels_loses_no_sms() -> None:
    """100 blocks are one wave on 132 SMs and on 108."""
    assert shares(overhead(140, blocks=100)) == pytest.approx((0, 40 / 240))


def test_kernels_bound_by_memory_lose_no_sms() -> None:
    assert shares(overhead(140, name="rms_norm")) == pytest.approx((0, 40 / 240))
    assert shares(overhead(140, name="flash_fwd")) == pytest.approx((25 / 240, 15 / 240))


def test_no_split_without_sms_or_blocks() -> None:
    for without in (overhead(140, sms=0), overhead(140, blocks=0)):
        assert (without.sm, without.bandwidth) == (None, None)
