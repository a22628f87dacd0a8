# SPDX-License-Identifier: Apache-2.0
"""Contention overhead where the truth is known: hand-made slowdowns, and the simulator's own durations without
communication."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from timeline_helpers import table

from lagom.sim import Simulator, machine, workloads
from lagom.sim.contention import alone_ns
from lagom.sim.simulated_trace import build_kernel_table
from lagom.timeline import KernelTable, profile
from lagom.timeline.busy_times import Busy
from lagom.timeline.reference_kernels import ALONE_UP_TO, Contention, measure_contention
from lagom.timeline.slowdowns import measure_overhead
from lagom.timeline.steps import find_steps

GATHER = "ncclDevKernel_AllGather_RING_LL"


def job(slow: float, steps: int = 5, drift: tuple[float, ...] = (1.0,), seed: int | None = None) -> KernelTable:
    """Six layers of three kernels; in odd ones a gather runs beside the GEMM and slows it by ``slow``. Step k runs at
    the pace ``drift[k]``. 100 µs GEMM alone, 20 µs norms, which always run alone."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[float, float, int, str]] = []
    now = 0.0
    for step in range(steps):
        pace = drift[step % len(drift)]
        for layer in range(6):
            noise = 1.0 if seed is None else 1.0 + 0.01 * rng.standard_normal()
            length = 100 * pace * noise * (slow if layer % 2 else 1.0)
            rows += [
                (now, now + 20 * pace, 1, "norm"),
                (now + 20 * pace, now + 20 * pace + length, 1, "gemm"),
            ]
            if layer % 2:
                rows.append((now + 20 * pace, now + 20 * pace + length, 2, GATHER))
            now += 20 * pace + length
            rows.append((now, now + 20 * pace, 1, "residual"))
            now += 20 * pace + 1
        rows.append((now, now + 30, 1, "adam"))
        now += 40
    return table(*rows, grid=132, sms=132, channels=24)


def measured(of: KernelTable) -> tuple[Contention, object]:
    steps = find_steps(of)
    contention = measure_contention(of, steps, Busy.of(of))
    return contention, measure_overhead(of, steps, contention)


def test_a_known_slow_down_is_found_exactly() -> None:
    _, overhead = measured(job(1.4))
    lost, total = 3 * 40, 6 * 140 + 3 * 40 + 30
    assert overhead.share == pytest.approx(lost / total, rel=1e-6)  # type: ignore[attr-defined]
    assert overhead.ns == pytest.approx(lost * 1000, rel=1e-6)  # type: ignore[attr-defined]
    assert overhead.unmatched == 0  # type: ignore[attr-defined]
    assert overhead.overlapped == pytest.approx(3 * 140 / total, rel=1e-6)  # type: ignore[attr-defined]


def test_a_drifting_clock_is_no_overhead() -> None:
    """Steps at 100 % and 92 % of the clock: kernels are compared within a step, so nothing is left over."""
    _, overhead = measured(job(1.0, steps=9, drift=(1.0, 1.08, 1.04)))
    assert abs(overhead.share) < 1e-4  # type: ignore[attr-defined]


def test_the_interval_covers_the_truth_under_noise() -> None:
    truth = 3 * 40 / (6 * 140 + 3 * 40 + 30)
    inside = 0
    for seed in range(20):
        _, overhead = measured(job(1.4, steps=8, seed=seed))
        inside += overhead.low <= truth <= overhead.high  # type: ignore[attr-defined]
        assert overhead.high - overhead.low < 0.02  # type: ignore[attr-defined]
    assert inside >= 17


def gemms(*alone: float, steps: int) -> KernelTable:
    """So many whole steps (one more is recorded, and lacks its end) of one GEMM of 140 µs beside a gather, then the
    ``alone`` ones, µs; all run the same problem."""
    rows, now = [], 0.0
    for _ in range(steps + 1):
        rows += [(now, now + 140, 1, "gemm"), (now, now + 140, 2, GATHER)]
        now += 150
        for length in alone:
            rows.append((now, now + length, 1, "gemm"))
            now += length + 10
    return table(*rows)


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_of_a_hundred_intervals_ninety_five_hold_the_truth(count: int) -> None:
    """The overlapped GEMM of each step is 140 µs ± 2 %, its reference 100 µs, so 40 / 240 of a step is lost. The
    reference is exact, which leaves the steps' own spread. 2000 jobs: 0.95 ± 0.005, so 0.015 is three sigma. With 1.96
    standard errors 0.70, 0.81, 0.86 and 0.90 of them would hold the truth."""
    of = gemms(100, steps=count)
    steps = find_steps(of)
    clean = measure_contention(of, steps, Busy.of(of))
    assert clean.duration.tolist() == [[140_000, 100_000]] * count
    dice = np.random.default_rng(count)
    inside = 0
    for _ in range(2000):
        noise = np.column_stack([0.02 * dice.standard_normal(count), np.zeros(count)])
        overhead = measure_overhead(of, steps, replace(clean, duration=clean.duration * (1 + noise)))
        inside += overhead.low <= 40 / 240 <= overhead.high
    assert inside / 2000 == pytest.approx(0.95, abs=0.015)


def test_two_steps_by_hand() -> None:
    """140 and 150 µs beside communication, 100 µs alone: 40 / 240 and 50 / 250 are lost, mean 11 / 60, and half their
    difference, 1 / 60, is the standard error. Student's t of one degree of freedom is 12.7062."""
    of = gemms(100, steps=2)
    steps = find_steps(of)
    longer = np.array([[140_000.0, 100_000.0], [150_000.0, 100_000.0]])
    overhead = measure_overhead(of, steps, replace(measure_contention(of, steps, Busy.of(of)), duration=longer))
    assert overhead.share == pytest.approx(11 / 60)
    assert overhead.high - overhead.share == pytest.approx(12.7062 / 60, rel=1e-5)
    assert overhead.share - overhead.low == pytest.approx(12.7062 / 60, rel=1e-5)


def test_one_step_has_no_interval() -> None:
    of = table((0, 140, 1, "gemm"), (0, 140, 2, GATHER), (150, 250, 1, "gemm"))
    contention, overhead = measured(of)
    assert contention.duration.shape[0] == 1
    assert overhead.share == pytest.approx(40 / 240)  # type: ignore[attr-defined]
    assert (overhead.low, overhead.high) == (-math.inf, math.inf)  # type: ignore[attr-defined]


def test_the_noise_of_the_references_by_hand() -> None:
    """Five equal steps, so nothing spreads but the references: 99, 100 and 101 µs, median 100. Of the 15 ratios to it
    ten are off by 0.01: s² = 10 * 1e-4 / 14. The error of a median is 1.25 s / √15; 100 µs of 440 a step hang on it."""
    _, overhead = measured(gemms(99, 100, 101, steps=5))
    error = 1.25 * math.sqrt(10 * 1e-4 / 14 / 15) * 100 / 440
    assert overhead.share == pytest.approx(40 / 440)  # type: ignore[attr-defined]
    assert overhead.high - overhead.share == pytest.approx(1.96 * error)  # type: ignore[attr-defined]
    assert overhead.share - overhead.low == pytest.approx(1.96 * error)  # type: ignore[attr-defined]


def test_two_overlapped_kernels_share_the_error_of_their_reference() -> None:
    """As above with two GEMMs beside the gather: 200 µs of 580 a step hang on the one median, so their errors add up
    and not the squares."""
    rows, now = [], 0.0
    for _ in range(6):
        rows.append((now, now + 290, 2, GATHER))
        for length in (140, 140, 99, 100, 101):
            rows.append((now, now + length, 1, "gemm"))
            now += length + 10
    _, overhead = measured(table(*rows))
    error = 1.25 * math.sqrt(10 * 1e-4 / 14 / 15) * 200 / 580
    assert overhead.high - overhead.share == pytest.approx(1.96 * error)  # type: ignore[attr-defined]


def test_kernels_without_a_reference_are_not_guessed() -> None:
    rows = [
        row
        for step in range(5)
        for row in (
            (100.0 * step, 100.0 * step + 40, 2, GATHER),
            (100.0 * step, 100.0 * step + 40, 1, "gemm"),
            (100.0 * step + 50, 100.0 * step + 60, 1, "norm"),
        )
    ]
    contention, overhead = measured(table(*rows))
    assert np.isnan(contention.reference).any()
    assert overhead.share == 0  # type: ignore[attr-defined]
    assert overhead.unmatched == pytest.approx(40 / 50)  # type: ignore[attr-defined]


def test_kernels_without_a_reference_are_taken_to_be_slowed_down_as_those_beside_communication_are() -> None:
    """Four kernels: one beside communication, one during 1 % of it, which is alone, one just above, and one without a
    reference. 60 of 260 µs of the first and the third are extra, and the last is 200 of 560."""
    of = gemms(100, 100, 100, steps=2)
    steps = find_steps(of)
    by_hand = {
        "duration": [140e3, 100e3, 120e3, 200e3],
        "overlap_share": [1.0, ALONE_UP_TO, ALONE_UP_TO + 0.001, 1.0],
        "reference": [100e3, 100e3, 100e3, np.nan],
    }
    contention = measure_contention(of, steps, Busy.of(of))
    contention = replace(contention, **{name: np.array([values] * 2) for name, values in by_hand.items()})
    overhead = measure_overhead(of, steps, contention)
    assert (overhead.share, overhead.unmatched) == (pytest.approx(60 / 560), pytest.approx(200 / 560))
    assert overhead.extrapolated == pytest.approx(60 / 560 + 200 / 560 * 60 / 260)


def test_kernels_of_one_name_in_another_place_are_not_alike() -> None:
    """Two GEMMs of one name and grid in a layer, 100 and 200 µs: only the long one ever runs under communication, by
    which nothing slows down. By name alone it would look 2x slower."""
    rows, now = [], 0.0
    for _ in range(5):
        for layer in range(4):
            rows += [(now, now + 20, 1, "norm"), (now + 20, now + 120, 1, "gemm"), (now + 120, now + 130, 1, "rope")]
            rows += [(now + 130, now + 330, 1, "gemm"), (now + 330, now + 340, 1, "add")]
            if layer in (1, 2):
                rows.append((now + 130, now + 330, 2, GATHER))
            now += 341
        rows.append((now, now + 5, 1, "adam"))
        now += 6
    _, overhead = measured(table(*rows))
    assert overhead.share == pytest.approx(0)  # type: ignore[attr-defined]
    assert overhead.unmatched == 0  # type: ignore[attr-defined]


def test_the_split_needs_the_number_of_sms() -> None:
    _, overhead = measured(job(1.4))
    assert overhead.sm == pytest.approx(overhead.share)  # type: ignore[attr-defined]  # 132 blocks do not fit beside 24 channels
    _, memory_bound = measured(table(*[(0.0, 1.0, 1, "x")] * 1))
    assert memory_bound.sm is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("preset", sorted(machine.PRESETS))
def test_references_are_the_simulator_s_own_durations(preset: str) -> None:
    """The simulator knows how long each kernel takes alone; every reference found from the trace must be that."""
    host = machine.PRESETS[preset]
    simulator = Simulator(workloads.fsdp("llama3_8b"), host)
    kernels = {op.kernel for group in simulator.groups for segment in group.segments for op in segment.compute}
    truth = {kernel.name: alone_ns(host, kernel) + host.launch_ns for kernel in kernels}
    trace = build_kernel_table(simulator, 5, noise=0.0)
    steps = find_steps(trace)
    contention = measure_contention(trace, steps, Busy.of(trace))
    names = [trace.names[name] for name in trace.name[steps.index[0, contention.places]]]
    expected = np.array([truth[name] for name in names])
    known = ~np.isnan(contention.reference[0])
    assert known.sum() > 200
    assert contention.reference[0][known] == pytest.approx(expected[known], rel=0.01)
    overhead = measure_overhead(trace, steps, contention)
    lost = float((contention.duration[0] - expected).sum() / contention.duration[0].sum())
    assert overhead.share <= lost * 1.02 + 1e-6
    assert (
        overhead.share == pytest.approx(lost, rel=0.02) or overhead.unmatched > 0.02
    )  # a lower bound where some have no like


def test_sufferers_come_worst_first_and_add_up() -> None:
    found = profile([job(1.4)])
    assert found.slowdowns[0].name == "gemm"
    assert found.slowdowns[0].slowdown == pytest.approx(1.4, rel=1e-3)
    assert sum(one.extra_ns for one in found.slowdowns) == pytest.approx(found.overhead.ns)
    assert sum(row.overhead for row in found.patterns) == pytest.approx(found.overhead.ns, rel=1e-6)
