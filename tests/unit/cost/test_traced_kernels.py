# SPDX-License-Identifier: Apache-2.0
"""Reading who waits for whom from one iteration's kernels, and what a traced program is worth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lagom.cost import Kernel, KernelTraceError, compare, fit, model_of, program_of, traced_program
from lagom.cost.iteration import FREE
from lagom.records import Assignment, CommConfig

from .synthetic import STOCK, WORKLOADS, Fsdp, observe, windows

US = 1e3


def trace(workload: Fsdp) -> list[Kernel]:
    ran = workload.timeline(STOCK)
    comms = [Kernel(start, end, site) for start, end, site in ran.comms]
    return [*comms, *(Kernel(start, end) for start, end in ran.compute)]


def test_compute_that_resumes_when_a_communication_ends_was_waiting_for_it() -> None:
    """Compute 0-100, idle, 200-300 us; the gather runs 0-200."""
    program = traced_program([Kernel(0, 100 * US), Kernel(200 * US, 300 * US), Kernel(0, 200 * US, 0)], 1)
    assert program.schedule.segment_after == (FREE, 0)


def test_a_communication_that_starts_at_a_kernels_end_was_set_off_by_it() -> None:
    kernels = [Kernel(0, 100 * US), Kernel(100 * US, 300 * US), Kernel(100 * US, 150 * US, 0)]
    program = traced_program(kernels, 1)
    assert program.schedule.comm_after == (0,)
    assert program.under[1, 0] == pytest.approx(50 * US)
    assert program.alone.tolist() == pytest.approx([100 * US, 150 * US])


def test_back_to_back_communications_could_have_started_with_the_first() -> None:
    kernels = [Kernel(0, 500 * US), Kernel(0, 100 * US, 0), Kernel(101 * US, 200 * US, 0)]
    assert traced_program(kernels, 1).schedule.comm_after == (FREE, FREE)


def test_a_result_that_lasts_is_waited_for_only_where_that_shows() -> None:
    """A scatter (site 1) ends while compute goes on: nobody waited. One ends where compute resumes: somebody did."""
    kernels = [
        Kernel(0, 100 * US, 0),
        Kernel(100 * US, 300 * US),
        Kernel(350 * US, 450 * US),
        Kernel(450 * US, 500 * US),
    ]
    unseen = [*kernels, Kernel(150 * US, 200 * US, 1), Kernel(450 * US, 480 * US, 0)]
    seen = [*kernels, Kernel(150 * US, 350 * US, 1), Kernel(450 * US, 480 * US, 0)]
    assert traced_program(unseen, 2, lasting={1}).schedule.segment_after[-1] == 0
    assert traced_program(unseen, 2).schedule.segment_after[-1] == 1
    assert traced_program(seen, 2, lasting={1}).schedule.segment_after[2] == 1


def test_an_iteration_too_long_to_simulate_is_refused() -> None:
    kernels = [Kernel(100 * US * at, 100 * US * at + 50 * US, 0) for at in range(700)]
    with pytest.raises(KernelTraceError, match="go on without"):
        traced_program([*kernels, Kernel(0, 70_000 * US)], 1)


def test_a_reduce_scatter_lasts() -> None:
    workload = WORKLOADS["compute-bound"]
    problem = workload.problem()
    assert program_of(problem, trace(workload)).schedule == traced_program(trace(workload), 2, lasting={1}).schedule


def test_launch_gaps_are_idle_and_not_compute() -> None:
    kernels = [Kernel(0, 100 * US), Kernel(104 * US, 200 * US), Kernel(0, 50 * US, 0)]
    program = traced_program(kernels, 1)
    assert program.idle.sum() == pytest.approx(4 * US)
    assert program.alone.sum() + program.under.sum() == pytest.approx(196 * US)


def test_kernels_of_two_compute_streams_are_merged() -> None:
    kernels = [Kernel(0, 100 * US), Kernel(50 * US, 120 * US), Kernel(0, 60 * US, 0)]
    program = traced_program(kernels, 1)
    assert program.alone.sum() + program.under.sum() == pytest.approx(120 * US)


def test_shares_of_a_site_add_up() -> None:
    program = traced_program(trace(Fsdp()), 2)
    site = np.array(program.comm_site)
    assert [program.comm_share[site == each].sum() for each in (0, 1)] == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("kernels", "why"),
    [
        ([Kernel(0, 1)], "no communication"),
        ([Kernel(0, 1, 0)], "no compute"),
        ([Kernel(0, 1), Kernel(5, 2, 0)], "ends before"),
        ([Kernel(0, 1), Kernel(0, 1, 1)], "each of the 1 sites"),
    ],
)
def test_a_useless_trace_is_refused_in_one_sentence(kernels: list[Kernel], why: str) -> None:
    with pytest.raises(KernelTraceError, match=why):
        traced_program(kernels, 1)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_traced_program_replays_its_own_trace(name: str) -> None:
    """Fitted to stock alone, Z of stock comes out to 1.5 %: the dependencies read from the trace are enough."""
    workload = WORKLOADS[name]
    program = traced_program(trace(workload), 2)
    fitted = fit(model_of(workload.problem(), program), observe(workload, [STOCK], noise=0.0))
    assert abs(fitted.errors[0]) < 0.015


@pytest.mark.parametrize("name", WORKLOADS)
def test_half_of_the_windows_predict_the_other_half(name: str) -> None:
    workload = WORKLOADS[name]
    program = traced_program(trace(workload), 2)
    seen = observe(workload, windows(workload, 17))
    fitted = fit(model_of(workload.problem(), program), seen[:9])
    changes = compare(fitted, [each.assignment for each in seen[9:]], STOCK)
    stock = workload.truth(STOCK).z
    off = [
        abs(math.log(change.ratio * stock / workload.truth(each.assignment).z))
        for change, each in zip(changes, seen[9:], strict=True)
    ]
    assert np.median(off) < 0.05


def test_a_config_for_one_site_is_told_from_one_for_the_other() -> None:
    """The gathers are four fifths of communication in this trace's forward: starving them costs more."""
    workload = WORKLOADS["comm-bound"]
    program = traced_program(trace(workload), 2)
    fitted = fit(model_of(workload.problem(), program), observe(workload, windows(workload, 9)))
    slow = CommConfig(channels=3)
    gather, scatter = compare(fitted, [STOCK.with_config(0, slow), STOCK.with_config(1, slow)], Assignment.stock(2))
    assert gather.ratio > scatter.ratio > 1.0
