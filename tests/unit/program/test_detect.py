# SPDX-License-Identifier: Apache-2.0
"""Programs from call records, as a controller drains them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from lagom.program import CallHistory, cut_into_sites, find_latest_start, find_positions, find_program
from lagom.records import Assignment, CommConfig, Function
from lagom.wire.layout import CALL_RECORD

GATHER, SCATTER = int(Function.ALL_GATHER), int(Function.REDUCE_SCATTER)
BIG, SMALL, TINY = 400 << 20, 30 << 20, 4


def records(shapes: list[tuple[int, int]], first: int = 0, step_ns: int = 1000, pause: int = 0) -> NDArray[np.void]:
    """Consecutive calls; every ``pause``-th call comes after a long pause of the host."""
    rows = np.zeros(len(shapes), CALL_RECORD)
    rows["call"] = np.arange(first, first + len(shapes))
    rows["function"], rows["bytes"] = zip(*shapes, strict=True)
    gaps = np.full(len(shapes), step_ns)
    if pause:
        gaps[::pause] *= 50
    rows["time_ns"] = np.cumsum(gaps)
    return rows


def iteration(layers: int = 3) -> list[tuple[int, int]]:
    forward = [(GATHER, SMALL)] + [(GATHER, BIG)] * layers
    return forward + [(GATHER, BIG), (SCATTER, BIG)] * layers + [(SCATTER, SMALL)]


def history_of(shapes: list[tuple[int, int]], pause: int = 0, step_ns: int = 1000) -> CallHistory:
    history = CallHistory()
    history.extend(records(shapes, pause=pause, step_ns=step_ns))
    return history


def test_the_iteration_begins_after_the_longest_pause() -> None:
    one = iteration()
    program = find_program(history_of(one * 5, pause=len(one)))
    assert program is not None
    assert program.positions == tuple((Function(f), size) for f, size in one)
    assert program.first_call % len(one) == 0
    assert program.next_start(program.first_call, program.first_call + 1) == program.first_call + len(one)
    assert program.next_start(program.first_call, program.first_call) == program.first_call


def test_small_calls_do_not_count_but_are_numbered() -> None:
    one = [*iteration(), (int(Function.ALL_REDUCE), TINY), (int(Function.BROADCAST), BIG)]
    program = find_program(history_of(one * 5, pause=len(one)))
    assert program is not None
    assert len(program.positions) == len(one) - 2
    assert program.calls_per_iteration == len(one)


def test_a_gap_in_the_records_starts_afresh() -> None:
    history = CallHistory()
    history.extend(records(iteration() * 2))
    history.extend(records(iteration(), first=1000))
    assert len(history.numbers) == len(iteration())


def test_an_irregular_phase_has_no_start() -> None:
    one = iteration()
    history = history_of(one * 5, pause=len(one))
    program = find_program(history)
    assert program is not None
    assert find_latest_start(history, program) == 4 * len(one)
    history.extend(records([(GATHER, 1 << 20)] * (2 * len(one)), first=5 * len(one)))
    assert find_latest_start(history, program) is None


def test_where_all_calls_look_alike_the_phase_is_kept() -> None:
    history = history_of([(int(Function.ALL_REDUCE), BIG)] * 300, pause=50)
    program = find_program(history)
    assert program is not None
    assert len(program.positions) == 50
    assert program.first_call % 50 == 0
    history.extend(records([(int(Function.ALL_REDUCE), BIG)] * 20, first=300))
    start = find_latest_start(history, program)
    assert start is not None
    assert start % 50 == 0


def test_sites_are_heaviest_first_and_the_light_ones_stay_stock() -> None:
    one = [*iteration(), (GATHER, 1 << 20)]
    program = find_program(history_of(one * 5, pause=len(one)))
    assert program is not None
    tuned = cut_into_sites(program)
    assert [(site.function, site.bytes) for site in tuned.sites[: tuned.tuned]] == [
        (Function.ALL_GATHER, BIG),
        (Function.REDUCE_SCATTER, BIG),
    ]
    wide = tuned.widen(Assignment((CommConfig(channels=2),) * tuned.tuned))
    assert len(wide) == len(tuned.sites)
    assert all(config.is_stock for config in wide.configs[tuned.tuned :])
    assert [tuned.sites[s].bytes for s in tuned.positions] == [size for _, size in one]


def test_exposed_and_hidden_calls_of_one_shape_are_two_sites() -> None:
    one = iteration()
    program = find_program(history_of(one * 5, pause=len(one)))
    assert program is not None
    shares = [0.0, 0.1] + [0.9] * (len(one) - 2)
    tuned = cut_into_sites(program, shares)
    gathers = {site.context for site in tuned.sites if site.bytes == BIG and site.function is Function.ALL_GATHER}
    scatters = {site.context for site in tuned.sites if site.bytes == BIG and site.function is Function.REDUCE_SCATTER}
    assert gathers == {"exposed", "hidden"}
    assert scatters == {"hidden"}


def test_positions_seen_go_back_as_far_as_the_program_does() -> None:
    one = iteration()
    history = history_of([*one[3:], (GATHER, 7 << 20), *one * 4], pause=0)
    program = find_program(history_of(one * 5, pause=len(one)))
    assert program is not None
    where = find_positions(history, program)
    assert all(program.positions[position] == history.shapes[call] for call, position in where.items())
    assert min(where) > len(one) - 3  # not past the odd call
    assert len(where) >= 3 * len(one)
    assert find_positions(history_of(one[:4]), program) == {}


def test_positions_seen_leave_transparent_calls_out() -> None:
    one = [*iteration(), (int(Function.ALL_REDUCE), TINY)]
    history = history_of(one * 4, pause=len(one))
    program = find_program(history)
    assert program is not None
    where = find_positions(history, program)
    assert all(history.shapes[call][1] != TINY for call in where)
    assert sorted(set(where.values())) == list(range(len(one) - 1))


def evaluation(batches: int = 4) -> list[tuple[int, int]]:
    return ([(GATHER, SMALL), *[(GATHER, BIG)] * 3, (int(Function.ALL_REDUCE), 1 << 20)]) * batches


def test_a_job_that_evaluates_is_known_by_its_iteration() -> None:
    """From the first iterations on, whether evaluations come regularly or not, and once enough of a run was seen."""
    one = iteration()
    for spacing in ([45] * 8, [30, 47, 61, 33]):
        shapes = [call for iterations in spacing for call in (*one * iterations, *evaluation())]
        program = find_program(history_of([*shapes, *one * 20], step_ns=2_000_000))
        assert program is not None, spacing
        assert sorted(program.positions) == sorted((Function(f), size) for f, size in one)
        assert program.iterations_seen >= 12


def test_iterations_between_irregular_calls_count_together() -> None:
    """A job that is interrupted every 13 to 19 iterations never makes 20 in a row."""
    one = iteration()
    shapes = [call for iterations in (13, 19, 14, 17) for call in (*evaluation(1), *one * iterations)]
    program = find_program(history_of(shapes, step_ns=2_000_000))
    assert program is not None
    assert sorted(program.positions) == sorted((Function(f), size) for f, size in one)
    assert 13 + 19 + 14 + 17 - 4 <= program.iterations_seen <= 13 + 19 + 14 + 17


@pytest.mark.parametrize("micro_batches", [13, 16, 19])
def test_micro_batches_are_not_believed_before_the_step_is_known(micro_batches: int) -> None:
    """Gradients are reduced in each, the parameters gathered after the last: 20 micro-batches in all, in two or three
    steps, are no 20 iterations."""
    reduce, gather = [
        [(function, BIG + 4096 * n) for n in range(12)] for function in (int(Function.ALL_REDUCE), GATHER)
    ]
    one = [*reduce * micro_batches, *gather]
    shapes = one * 5
    for calls in range(6 * len(reduce), len(shapes), 12):
        program = find_program(history_of(shapes[:calls], step_ns=2_000_000))
        assert program is None or len(program.positions) == len(one) or program.iterations_seen < 20, calls
    assert program is not None
    assert len(program.positions) == len(one)


def test_the_backward_pass_after_an_evaluation_is_not_taken_for_an_iteration() -> None:
    one = iteration(layers=60)
    history = history_of([*one * 8, *evaluation(), *one[: 61 + 2 * 45]])
    assert find_program(history) is None
    training = history_of([*one * 8, *evaluation(40)])
    assert find_program(training) is None, "nor are the batches of the evaluation"


def test_layers_within_an_iteration_are_no_iterations() -> None:
    """Tensor parallelism with one large call that marks the iteration: short layers, longer ones on the way back."""
    layer, mark = [(GATHER, SMALL), (SCATTER, SMALL)], (int(Function.ALL_REDUCE), 1 << 20)
    one = [*layer * 64, mark]
    for step_ns in (1_000_000, 20_000_000):
        rows = records(one * 8, step_ns=step_ns)
        backward = np.arange(len(rows)) % len(one) >= 64
        rows["time_ns"] = np.cumsum(np.where(backward, 2 * step_ns, step_ns))
        history = CallHistory()
        history.extend(rows)
        program = find_program(history)
        assert program is not None
        assert len(program.positions) == len(one), step_ns


def test_the_layers_after_an_evaluation_are_no_iterations() -> None:
    one = [*[(GATHER, SMALL), (SCATTER, SMALL)] * 64, (int(Function.ALL_REDUCE), 1 << 20)]
    assert find_program(history_of([*one * 6, *evaluation(), *one[:120]], step_ns=1_000_000)) is None


def tensor_parallel(layer: list[tuple[int, int]], first: int, steps: int, calls: int = 64) -> CallHistory:
    """Steps of so many calls, each after a pause of the host, and before them a first one of ``first``, which is slow
    and begins without one; it pauses wherever something is loaded."""
    rng = np.random.default_rng(first)
    rows = records((layer * (first + steps * calls))[-first - steps * calls :])
    slow, step = np.full(first, 1_500_000), np.full(calls, 200_000)
    slow[rng.choice(first, 10, replace=False)] += rng.integers(20_000_000, 400_000_000, 10)
    step[0] = 40_000_000
    rows["time_ns"] = np.cumsum(np.r_[slow, np.tile(step, steps)] * rng.lognormal(0, 0.1, len(rows))).astype(int)
    history = CallHistory()
    history.extend(rows)
    return history


ONE_SIZE, SEQUENCE = [(int(Function.ALL_REDUCE), SMALL)], [(GATHER, SMALL), (SCATTER, SMALL)]


@pytest.mark.parametrize("layer", [ONE_SIZE, SEQUENCE, [SEQUENCE[0]] * 2 + [SEQUENCE[1]] * 2])
@pytest.mark.parametrize("first", [40, 64, 100])
@pytest.mark.parametrize("steps", [9, 30, 100])
def test_steps_of_tensor_parallelism_begin_after_their_pause(
    layer: list[tuple[int, int]], first: int, steps: int
) -> None:
    """However many calls the first step had, and whichever of a layer's calls comes first in a step."""
    program = find_program(tensor_parallel(layer, first, steps))
    assert program is not None
    assert len(program.positions) == program.calls_per_iteration == 64
    assert (program.first_call - first) % 64 == 0
    assert program.positions[: len(layer)] == tuple((Function(f), size) for f, size in layer)


@pytest.mark.parametrize("steps", [4, 17])
def test_steps_begin_where_the_newest_begin(steps: int) -> None:
    """After a warm-up of 1,000 calls that paused in step with nothing that follows: four of the newest eight steps are
    enough where their pauses are longer."""
    history = CallHistory()
    rows = records(ONE_SIZE * (1000 + steps * 64), step_ns=200_000)
    gaps = np.full(len(rows), 200_000)
    gaps[1000::64] = 40_000_000
    gaps[10:1000:64] = 5_000_000
    rows["time_ns"] = np.cumsum(gaps)
    history.extend(rows)
    program = find_program(history)
    assert program is not None
    assert len(program.positions) == 64
    assert (program.first_call - 1000) % 64 == 0
