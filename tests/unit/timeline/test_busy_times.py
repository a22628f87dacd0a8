# SPDX-License-Identifier: Apache-2.0
"""X, Y, Z, overlap and OEF on small timelines, groups and sites on hand-made jobs."""

from __future__ import annotations

import numpy as np
import pytest
from timeline_helpers import table, training

from lagom.records import Function
from lagom.timeline.busy_times import Busy
from lagom.timeline.groups import describe_pattern, find_groups
from lagom.timeline.steps import find_steps

GATHER = "ncclDevKernel_AllGather_RING_LL"
SEND = "ncclDevKernel_SendRecv"


def test_times_of_a_small_timeline() -> None:
    """Communication 10..30 and 28..40, compute 20..35 and 50..60: X 30, Y 25, overlap 15, all in µs of 0..70."""
    busy = Busy.of(table((10, 30, 2, GATHER), (28, 40, 3, SEND), (20, 35, 1, "gemm"), (50, 60, 1, "gemm")))
    times = busy.between(1_000_000_000, 1_000_070_000)
    assert (times.x, times.y, times.z, times.overlap) == (30_000, 25_000, 70_000, 15_000)
    assert (times.exposed, times.idle) == (15_000, 30_000)
    assert times.overlap_ratio == pytest.approx(15 / 30)
    assert times.oef() == pytest.approx((30 + 25 - 40) / 25)  # DHelix Eq. 1 with P = the 40 µs when either runs


def test_copies_are_neither_communication_nor_compute() -> None:
    busy = Busy.of(table((0, 10, 1, "Memcpy DtoD (Device -> Device)"), (5, 8, 2, GATHER)))
    assert (busy.communication.length, busy.compute.length) == (3_000, 0)


def test_nothing_at_all_gives_nan_and_no_crash() -> None:
    times = Busy.of(table((0, 0, 1, "gemm"))).between([0, 5], [0, 9])
    assert np.isnan(times.overlap_ratio).all()
    assert np.isnan(times.oef()).all()
    assert times.z.tolist() == [0, 4]


def test_groups_and_sites_of_a_training_job() -> None:
    job = training(6)
    steps, busy = find_steps(job), Busy.of(job)
    groups = find_groups(job, steps, busy)
    functions = [(site.function, site.context.split()[0], site.calls) for site in groups.sites]
    assert (Function.ALL_GATHER, "exposed", 1) in functions
    assert sum(calls for f, context, calls in functions if f == Function.ALL_GATHER and context == "hidden") == 3
    assert sum(calls for f, _, calls in functions if f == Function.REDUCE_SCATTER) == 4
    assert groups.count == 7  # 4 gathers and 4 reductions; the first two gathers are 10 µs apart: one run
    bounds = groups.bounds(job, steps)
    assert (np.diff(bounds, axis=1) > 0).all()
    assert (bounds[:, 0] == steps.begin).all()
    assert (bounds[:, -1] == steps.end).all()
    times = busy.between(bounds[:, :-1], bounds[:, 1:])
    assert times.z.sum() == (steps.end - steps.begin).sum()
    assert times.x.sum() == busy.between(steps.begin, steps.end).x.sum()


def test_point_to_point_is_named_and_not_taken_for_a_collective() -> None:
    rows = [
        row
        for step in range(4)
        for row in (
            (100.0 * step, 100.0 * step + 20, 2, SEND),
            (100.0 * step + 40, 100.0 * step + 60, 2, GATHER),
            (100.0 * step + 5, 100.0 * step + 90, 1, "gemm"),
        )
    ]
    job = table(*rows)
    groups = find_groups(job, find_steps(job), Busy.of(job))
    assert sorted(str(site) for site in groups.sites) == ["allgather hidden", "p2p hidden"]


def test_a_gap_that_wavers_around_the_tolerance_does_not_move_the_groups() -> None:
    rows = []
    for step, gap in enumerate((8, 12, 8, 9, 13, 7)):  # µs; the median is below 10
        at = 1000.0 * step
        rows += [(at, at + 100, 2, GATHER), (at + 100 + gap, at + 200, 2, GATHER), (at + 10, at + 800, 1, "gemm")]
    job = table(*rows)
    steps = find_steps(job)
    groups = find_groups(job, steps, Busy.of(job))
    assert groups.count == 1
    assert groups.bounds(job, steps).shape == (steps.count, 2)
    assert describe_pattern(groups, 0) == "2× allgather hidden"


def test_no_communication_means_no_groups() -> None:
    job = table(*[(100.0 * step, 100.0 * step + 50, 1, "gemm") for step in range(6)])
    groups = find_groups(job, find_steps(job), Busy.of(job))
    assert (groups.count, groups.sites, groups.patterns) == (0, (), ())
