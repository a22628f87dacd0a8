# SPDX-License-Identifier: Apache-2.0
"""Two queues with dependencies: hand-worked cases, the closed form, and random schedules against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagom.cost.iteration import FREE, DependencyError, Schedule, SimulatedTimes, one_segment, two_queues


def simulate(schedule: Schedule, x: list[float], quiet: list[float], slow: list[float]) -> SimulatedTimes:
    return two_queues(schedule, np.array([x]), np.array([quiet]), np.array([slow]))


def test_nothing_waits_z_is_the_longer_queue() -> None:
    run = simulate(Schedule((FREE,), (FREE,)), [30.0], [100.0], [1.0])
    assert run.z == 100.0
    assert run.y == 100.0


def test_compute_is_slower_only_while_a_communication_is_in_flight() -> None:
    """30 ns at half speed do 15 ns of work; the other 85 run alone."""
    run = simulate(Schedule((FREE,), (FREE,)), [30.0], [100.0], [2.0])
    assert run.z == 115.0


def test_compute_time_is_eq_4_with_waves_weighed_by_the_share_run_under_each_communication() -> None:
    """y = y0 * [(1 - w1 - w2) + w1*S1 + w2*S2]: 20 ns at 2x do 10 of work, 30 ns at 3x do 10, of 100."""
    run = simulate(Schedule((FREE, FREE), (FREE,)), [20.0, 30.0], [100.0], [2.0, 3.0])
    assert run.y == pytest.approx(100.0 * (0.8 + 0.1 * 2.0 + 0.1 * 3.0))


def test_a_segment_waits_for_its_communication() -> None:
    run = simulate(Schedule((FREE,), (0,)), [30.0], [100.0], [2.0])
    assert run.z == 130.0
    assert run.y == 100.0


def test_max_of_sums_would_be_wrong_head_and_tail_are_exposed() -> None:
    """Gather, compute, scatter: nothing overlaps, so Z is the sum; the paper's Eq. 1 says 60."""
    run = simulate(Schedule((FREE, 0), (0,)), [30.0, 30.0], [50.0], [1.0, 1.0])
    assert run.z == 110.0


def test_prefetch_hides_all_but_the_first_gather() -> None:
    schedule = Schedule(comm_after=(FREE, FREE, 0), segment_after=(0, 1, 2))
    run = simulate(schedule, [20.0] * 3, [50.0] * 3, [1.0] * 3)
    assert run.z == 20.0 + 3 * 50.0


def test_tuning_one_communication_moves_what_comes_after_it() -> None:
    """The paper's Fig. 1: the first communication made shorter, the second one now contends with the second segment."""
    schedule = Schedule(comm_after=(FREE, 0), segment_after=(FREE, FREE))
    before = simulate(schedule, [95.0, 40.0], [50.0, 50.0], [1.0, 2.0])
    after = simulate(schedule, [20.0, 40.0], [50.0, 50.0], [1.0, 2.0])
    assert (before.y, after.y) == (105.0, 120.0)
    assert (before.z, after.z) == (135.0, 120.0)


@pytest.mark.parametrize(
    ("comm_after", "segment_after"), [((0,), (0,)), ((1, FREE), (FREE, 0)), ((5,), (FREE,)), ((FREE,), (3,))]
)
def test_circles_and_strangers_are_refused(comm_after: tuple[int, ...], segment_after: tuple[int, ...]) -> None:
    with pytest.raises(DependencyError):
        Schedule(comm_after, segment_after)


times = st.floats(0.1, 100.0)


@given(st.lists(st.tuples(times, st.floats(1.0, 3.0)), min_size=1, max_size=5), times)
@settings(max_examples=60)
def test_the_closed_form_equals_the_simulation(comms: list[tuple[float, float]], quiet: float) -> None:
    x, slow = (np.array([column]) for column in zip(*comms, strict=True))
    run = two_queues(Schedule((FREE,) * len(comms), (FREE,)), x, np.array([[quiet]]), slow)
    closed = one_segment(x, np.array([quiet]), slow)
    assert closed.z == pytest.approx(run.z)
    assert closed.y == pytest.approx(run.y)


@given(st.data())
@settings(max_examples=60)
def test_random_schedules_agree_with_a_step_by_step_clock(data: st.DataObject) -> None:
    schedule, x, quiet, slow = data.draw(schedules())
    run = simulate(schedule, x, quiet, slow)
    z, y = slow_clock(schedule, x, quiet, slow)
    assert float(run.z[0]) == pytest.approx(z, rel=1e-6)
    assert float(run.y[0]) == pytest.approx(y, rel=1e-6)


def test_rows_do_not_disturb_each_other() -> None:
    schedule = Schedule((FREE, 0), (FREE, 0))
    x, quiet, slow = np.array([[5.0, 9.0], [50.0, 1.0]]), np.array([[7.0, 7.0], [2.0, 30.0]]), np.full((2, 2), 1.5)
    both = two_queues(schedule, x, quiet, slow)
    alone = [two_queues(schedule, x[row : row + 1], quiet[row : row + 1], slow[row : row + 1]).z[0] for row in (0, 1)]
    assert both.z.tolist() == alone


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Schedule, list[float], list[float], list[float]]:
    """Legal by construction: items are put in one global order and may wait for what precedes them."""
    order = draw(st.lists(st.booleans(), min_size=2, max_size=8).filter(lambda kinds: len(set(kinds)) == 2))
    comm_after: list[int] = []
    segment_after: list[int] = []
    for is_comm in order:
        mine, other = (comm_after, segment_after) if is_comm else (segment_after, comm_after)
        mine.append(draw(st.integers(FREE, len(other) - 1)))
    several = (
        draw(st.lists(kind, min_size=len(items), max_size=len(items)))
        for kind, items in ((times, comm_after), (times, segment_after), (st.floats(1.0, 3.0), comm_after))
    )
    return (Schedule(tuple(comm_after), tuple(segment_after)), *several)  # type: ignore[return-value]


def slow_clock(schedule: Schedule, x: list[float], quiet: list[float], slow: list[float]) -> tuple[float, float]:
    """The same with plain Python lists and one event at a time."""
    left_x, left_q, comm, segment, z, y = list(x), list(quiet), 0, 0, 0.0, 0.0
    while comm < len(x) or segment < len(quiet):
        flying = comm < len(x) and schedule.comm_after[comm] < segment
        computing = segment < len(quiet) and schedule.segment_after[segment] < comm
        pace = slow[comm] if flying else 1.0
        step = min(left_x[comm] if flying else np.inf, left_q[segment] * pace if computing else np.inf)
        z, y = z + step, y + step * computing
        if flying:
            left_x[comm] -= step
        if computing:
            left_q[segment] -= step / pace
        comm += flying and left_x[comm] <= 1e-9
        segment += computing and left_q[segment] <= 1e-9
    return z, y
