# SPDX-License-Identifier: Apache-2.0
"""The equations one by one: limits, directions, and the figures they must reproduce."""

from __future__ import annotations

import numpy as np
import pytest

from lagom.cost import equations
from lagom.records import Function


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)


def test_sm_term_alone_reproduces_the_papers_headline_contention() -> None:
    """Fig. 3: on 84 SMs, NC 16 against 32 differs by 30.2 % in compute; (84-16)/(84-32) = 1.308."""
    loss = equations.sm_loss(array(16, 32), np.array(1 / 84))
    assert loss[1] / loss[0] == pytest.approx(1.302, abs=0.01)


def test_a_persistent_kernel_steps_from_0_to_1_channel_and_is_flat_after() -> None:
    assert equations.persistent_step(array(0, 1, 8, 24), np.array(0.1)).tolist() == [0.0, 0.1, 0.1, 0.1]


def test_small_chunks_starve_a_channel() -> None:
    half = equations.channel_bandwidth(array(64 << 10), np.array(20.0), np.array(64 << 10))
    full = equations.channel_bandwidth(array(1 << 30), np.array(20.0), np.array(64 << 10))
    assert half == 10.0
    assert full == pytest.approx(20.0, rel=1e-3)


def test_the_link_caps_the_sum_of_the_channels_with_a_rounded_corner() -> None:
    nc = array(1, 12, 1000)
    bandwidth = equations.link_bandwidth(nc, np.array(20.0), np.array(240.0), np.array(2.5))
    assert bandwidth[0] == pytest.approx(20.0, rel=0.01)
    assert bandwidth[2] == pytest.approx(240.0, rel=0.01)
    assert 0.6 * 240 < bandwidth[1] < 240  # at the corner both limits act


def test_a_large_chunk_costs_a_small_message_its_pipeline_fill() -> None:
    fixed = {"nc": array(8), "bandwidth": np.array(100.0), "t0": np.array(0.0), "fill": np.array(2.0)}
    small = equations.communication_time(array(1 << 20), chunk=array(2 << 20), **fixed)
    large = equations.communication_time(array(1 << 30), chunk=array(2 << 20), **fixed)
    assert small / ((1 << 20) / 100) > 30
    assert large / ((1 << 30) / 100) < 1.04


def test_bytes_in_flight_beyond_the_footprint_slow_the_path() -> None:
    """8xH200, host path: NC=2 with 2 MiB and NC=4 with 1 MiB are alike, 1.16 of what 2 MiB in flight take."""
    chunk = array(2 << 20, 1 << 20, 512 << 10, 1 << 20)
    slow = equations.spill(array(2, 4, 4, 1), chunk, np.array(0.19), np.array(2 << 20))
    assert slow[0] == slow[1] == pytest.approx(1.19)
    assert slow[2] == slow[3] == 1.0


def test_bandwidth_use_grows_with_chunk_and_falls_with_time_and_saturates() -> None:
    args = {"passes": np.array(2.0), "memory": np.array(1e-3), "zeta": np.array(0.3)}
    small = equations.bandwidth_use(array(1e6), array(1e4), array(64 << 10), **args)
    large = equations.bandwidth_use(array(1e6), array(1e4), array(2 << 20), **args)
    slower = equations.bandwidth_use(array(1e6), array(2e4), array(2 << 20), **args)
    assert small < large == 2 * slower == pytest.approx(0.2)
    assert equations.bandwidth_use(array(1e9), array(1.0), array(2 << 20), **args) == equations.MOST_BUSY


@pytest.mark.parametrize("nc", [1.0, 8.0, 24.0])
def test_slowdown_never_speeds_compute_up(nc: float) -> None:
    sigma, bound = np.array(0.02), np.array(0.5)
    rho = equations.sm_loss(array(nc), np.array(0.01))
    assert equations.slowdown(rho, array(nc), array(0.3), sigma, bound) > rho
    assert equations.slowdown(array(1.0), array(0.0), array(0.0), sigma, bound) == 1.0


def test_a_ring_all_reduce_sends_everything_twice() -> None:
    assert equations.wire_bytes(Function.ALL_REDUCE, 100) == 2 * equations.wire_bytes(Function.ALL_GATHER, 100)
