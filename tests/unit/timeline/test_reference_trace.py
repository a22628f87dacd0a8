# SPDX-License-Identifier: Apache-2.0
"""A reference trace as the reference: against the simulator's own durations without communication, and where it must
not be believed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from timeline_helpers import table

from lagom.sim import Simulator, machine, workloads
from lagom.sim.contention import alone_ns
from lagom.sim.simulated_trace import build_kernel_table, throttled
from lagom.timeline import KernelTable, profile
from lagom.timeline.reference_kernels import ALONE_UP_TO
from lagom.timeline.reference_trace import _rotation

GATHER = "ncclDevKernel_AllGather_RING_LL"


def job(slow: float, pace: float = 1.0, begin: int = 0, noise: float = 0.0, gather: bool = True) -> KernelTable:
    """Six steps of twelve norms (20 µs, alone) and a GEMM (100 µs alone) that always has a gather beside it."""
    dice = np.random.default_rng(begin + 1)
    rows, now = [], 1000.0 * begin
    for _ in range(6):
        jitter = 1 + noise * dice.standard_normal()
        for kernel in range(12):
            rows.append((now, now + 20 * pace * jitter, 1, f"norm{kernel}"))
            now += 20 * pace * jitter
        length = 100 * slow * pace * jitter * (1 + noise * dice.standard_normal())
        rows.append((now, now + length, 1, "gemm"))
        if gather:
            rows.append((now, now + length, 2, GATHER))
        else:
            rows.append((now - 30, now - 20, 2, GATHER))
        now += length + 10
    return table(*rows, grid=132, sms=132, channels=24)


@pytest.mark.parametrize("preset", sorted(machine.PRESETS))
def test_the_throttled_simulator_tells_durations_within_two_percent(preset: str) -> None:
    host = machine.PRESETS[preset]
    simulator = Simulator(workloads.fsdp("llama3_8b"), host)
    kernels = {op.kernel for group in simulator.groups for segment in group.segments for op in segment.compute}
    truth = {kernel.name: alone_ns(host, kernel) + host.launch_ns for kernel in kernels}
    trace = build_kernel_table(simulator, 4, noise=0.0)
    found = profile([trace], [build_kernel_table(simulator, 4, throttled(simulator), noise=0.0, seed=1)])
    without, contention = profile([trace]), found.contention
    names = trace.name[found.rank.steps.index[0, contention.places]]
    expected = np.array([truth[trace.names[name]] for name in names])
    beside = (contention.overlap_share[0] > ALONE_UP_TO) & ~np.isnan(contention.reference[0])
    reference = contention.reference[0][beside]
    assert reference.sum() == pytest.approx(expected[beside].sum(), rel=0.02)
    assert np.median(np.abs(reference / expected[beside] - 1)) < 0.02
    assert (reference > expected[beside] * 0.999).all()  # never too short: the overhead is a lower bound
    lost = float(1 - expected.sum() / contention.duration[0].sum())
    assert without.overhead.unmatched > 0.09
    assert found.overhead.unmatched < 0.02
    assert without.overhead.share + 0.01 < found.overhead.share <= lost + 1e-6
    assert found.overhead.share > 0.75 * lost
    assert found.overhead.from_reference_trace > 0.09
    assert any("reference trace" in note for note in found.notes)


def test_a_known_slow_down_is_found_though_never_alone() -> None:
    own, alone = job(1.4), job(1.0, gather=False, begin=50)
    assert profile([own]).overhead.unmatched > 0.3
    found = profile([own], [alone])
    assert found.overhead.share == pytest.approx(40 / 380, rel=1e-3)
    assert (found.overhead.unmatched, found.overhead.pressure) == (0, 0)
    assert not found.overhead.is_lower_bound
    assert [one.name for one in found.slowdowns] == ["gemm"]
    assert found.slowdowns[0].slowdown == pytest.approx(1.4, rel=1e-3)


def test_another_clock_is_taken_out_and_told() -> None:
    found = profile([job(1.4)], [job(1.0, pace=1.1, gather=False)])
    assert found.overhead.share == pytest.approx(40 / 380, rel=1e-3)
    assert any("GPU clock differed" in note for note in found.notes)


def test_the_noise_of_the_reference_trace_is_in_the_interval() -> None:
    inside = 0
    for seed in range(20):
        found = profile([job(1.4, noise=0.01, begin=seed)], [job(1.0, noise=0.03, gather=False, begin=100 + seed)])
        inside += found.overhead.low <= 40 / 380 <= found.overhead.high
        assert 0.002 < found.overhead.high - found.overhead.low < 0.06
    assert inside >= 17


def test_an_equally_busy_recording_is_no_reference() -> None:
    own = job(1.4)
    found = profile([own], [job(1.2)])
    assert (found.overhead.share, found.overhead.from_reference_trace) == (0, 0)
    assert found.overhead.unmatched == profile([own]).overhead.unmatched
    assert any("no lighter" in note for note in found.notes)


def test_another_job_is_no_reference() -> None:
    other = table(*[(100.0 * k, 100.0 * k + 50, 1, "conv") for k in range(40)])
    found = profile([job(1.4)], [other])
    assert found.overhead == profile([job(1.4)]).overhead
    assert any("other kernels" in note for note in found.notes)


@pytest.mark.parametrize("name", [GATHER, "Memcpy DtoD (Device -> Device)"])
def test_a_recording_without_compute_is_no_reference(name: str) -> None:
    other = table(*[(100.0 * k, 100.0 * k + 50, 1, name) for k in range(40)])
    found = profile([job(1.4)], [other])
    assert found.overhead == profile([job(1.4)]).overhead
    assert any("other kernels" in note for note in found.notes)


def test_each_rank_has_its_own_reference_else_the_first() -> None:
    ranks = [job(1.4), replace(job(1.8), rank=1)]
    alone = job(1.0, gather=False)
    assert [one.share for one in profile(ranks, [alone]).overheads] == pytest.approx([40 / 380, 80 / 420], rel=1e-3)
    slower = replace(job(1.2, gather=False), rank=1)
    assert profile(ranks, [alone, slower]).overheads[1].share == pytest.approx(60 / 420, rel=1e-3)


def test_steps_that_are_cut_elsewhere_are_turned() -> None:
    word = np.array([1, 2, 3, 1, 4, 5])
    assert _rotation(word, np.roll(word, 2)) == 2
    assert _rotation(word, np.roll(word, -1)) == 5
    assert _rotation(np.array([7, 7, 7]), np.array([7, 7, 7])) == 0
    assert _rotation(word, word[::-1]) is None
    assert _rotation(word, word[:-1]) is None
    assert _rotation(word[:0], word[:0]) is None
    assert _rotation(np.array([256]), np.array([1])) is None  # not by bytes of two numbers
