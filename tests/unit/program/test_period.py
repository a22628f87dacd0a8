# SPDX-License-Identifier: Apache-2.0
"""Periods: what is one, what only looks like one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lagom.program.period import (
    explained_by,
    inner_loop,
    is_rotation,
    is_typical,
    match_lengths,
    pause_spacing,
    smallest_period,
    stationary_multiple,
    unbroken_run,
)


def fsdp(layers: int) -> list[str]:
    """Forward gathers, then a gather and a scatter a layer: the false sub-period AR lies inside."""
    return ["A"] * (layers + 1) + ["A", "R"] * layers + ["R"]


@given(st.lists(st.sampled_from("ab"), max_size=40))
def test_match_lengths_agree_with_the_definition(calls: list[str]) -> None:
    for index, length in enumerate(match_lengths(calls)):
        naive = 0
        while index and index + naive < len(calls) and calls[naive] == calls[index + naive]:
            naive += 1
        assert length == naive


@given(st.lists(st.sampled_from("ab"), max_size=40), st.integers(0, 50))
def test_match_lengths_up_to_a_limit_are_the_first_of_all(calls: list[str], limit: int) -> None:
    assert match_lengths(calls, limit) == match_lengths(calls)[: limit + 1]


@pytest.mark.parametrize("layers", [2, 6, 32])
def test_the_loop_inside_a_backward_pass_is_no_period(layers: int) -> None:
    iteration = fsdp(layers)
    first_scatter = iteration.index("R") + 1
    for seen in range(first_scatter, 3 * len(iteration)):
        found = smallest_period((iteration * 3)[:seen], limit=4096)
        assert found is None or found == len(iteration), f"after {seen} calls"
    assert smallest_period(iteration * 3, limit=4096) == len(iteration)


def test_three_whole_repeats_are_needed() -> None:
    assert smallest_period(list("xyz") * 3, limit=8) == 3
    assert smallest_period((list("xyz") * 3)[1:], limit=8) is None


def test_an_irregular_beginning_is_outgrown() -> None:
    assert smallest_period(list("qqq") + list("xyz") * 3, limit=8) is None
    # "q" was seen, so the period must explain it or the history must have moved on.
    assert smallest_period(list("xyz") * 30, limit=8) == 3


def test_the_limit_is_kept() -> None:
    assert smallest_period(list(range(10)) * 3, limit=9) is None


@given(st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_accumulation_is_found_from_durations(micro_batches: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    durations = np.tile([1.0] * (micro_batches - 1) + [1.5], 6) * rng.normal(1, 0.005, micro_batches * 6)
    assert stationary_multiple(durations) == micro_batches


@given(st.integers(0, 2**32 - 1))
def test_plain_noise_has_no_phases(seed: int) -> None:
    durations = np.random.default_rng(seed).normal(1, 0.02, 60)
    assert stationary_multiple(durations) == 1


def test_tensor_parallelism_is_paced_by_the_hosts_pauses() -> None:
    """All calls alike: period 1; the optimiser's pause after every 128 calls marks the iteration."""
    assert smallest_period(["S"] * 600, limit=4096) == 1
    durations = np.tile([1.0] * 127 + [20.0], 5)
    assert stationary_multiple(durations) == 128


def paced(steps: int = 30, calls: int = 64, first: Sequence[float] = (), **pauses: float) -> NDArray[np.float64]:
    """Durations of a tensor-parallel job: each step ends with a long one. ``pauses``: more of them, by place."""
    step = np.full(calls, 0.2)
    step[-1] = 40.0
    for place, length in pauses.items():
        step[int(place.removeprefix("at_"))] = length
    return np.r_[first, np.tile(step, steps)]


def slow_step(calls: int, odd: int = 10) -> NDArray[np.float64]:
    """The first one: all of it slower than later steps, and pauses wherever something is loaded."""
    rng = np.random.default_rng(calls)
    step = np.full(calls, 1.5)
    step[rng.choice(calls - 1, odd, replace=False)] = rng.uniform(20, 400, odd)
    return step


@pytest.mark.parametrize("calls", [40, 64, 70, 640])
def test_a_slow_first_step_does_not_hide_the_pace(calls: int) -> None:
    """Eight steps on, it is outgrown; a longer one takes as long again."""
    durations = paced(first=slow_step(calls))
    assert {pause_spacing(durations[:seen]) for seen in range(2 * calls + 8 * 64, len(durations))} == {64}


@pytest.mark.parametrize("hiccups", [0.3, 1.0, 2.0])
def test_hiccups_within_steps_do_not_hide_the_pace(hiccups: float) -> None:
    """So many a step, at odd places. One checkpoint changes nothing either: it is at a step's end."""
    durations = paced()
    durations[np.random.default_rng(1).random(len(durations)) < hiccups / 64] += 3.0
    durations[64 * 17 - 1] += 5000.0
    assert {pause_spacing(durations[:seen]) for seen in range(6 * 64, len(durations))} == {64}


@pytest.mark.parametrize("pauses", [{"at_20": 4.0}, {"at_20": 4.0, "at_40": 4.0}, {"at_31": 4.0}])
def test_a_step_may_have_pauses_of_its_own(pauses: dict[str, float]) -> None:
    """Between its passes, for one; with as many calls in each, half a step looks like a step."""
    durations = paced(**pauses)
    assert {pause_spacing(durations[:seen]) for seen in range(7 * 64, len(durations))} == {64}


@pytest.mark.parametrize("share", [0.003, 0.01, 0.05])
def test_pauses_at_odd_places_are_no_pace(share: float) -> None:
    rng = np.random.default_rng(5)
    durations = np.where(rng.random(3000) < share, 10.0, 1.0) * rng.normal(1, 0.02, 3000)
    assert {pause_spacing(durations[:seen]) for seen in range(40, 3000, 7)} == {None}


def test_a_burst_of_pauses_is_no_pace() -> None:
    """A neighbour on the machine for a moment: every third call waits, and then none any more."""
    durations = np.r_[np.ones(100), np.tile([1.0, 1.0, 9.0], 12), np.ones(1000)]
    assert pause_spacing(durations) is None
    assert pause_spacing(paced(first=durations)) == 64


def test_an_evaluation_every_so_many_iterations_is_no_part_of_the_iteration() -> None:
    iteration = list("AAARARAR")
    assert inner_loop(iteration * 40 + list("AAAM") * 5) == iteration
    assert inner_loop(list("AAAM") * 2 + iteration * 40) == iteration


@given(
    st.integers(9, 20),
    st.lists(st.tuples(st.integers(12, 40), st.lists(st.sampled_from([0, 1, 99]), min_size=1, max_size=9)), min_size=1),
    st.integers(0, 1000),
)
def test_an_iteration_is_found_between_several_interruptions(
    length: int, parts: list[tuple[int, list[int]]], turn: int
) -> None:
    """Evaluations every 90 iterations and a checkpoint every 90, 43 later: no run is most of the period."""
    iteration = list(range(length))
    calls = [call for repeats, odd in parts for call in [*iteration * repeats, *odd, 98]]
    turned = calls[turn % len(calls) :] + calls[: turn % len(calls)]
    loop = inner_loop(turned)
    assert loop is not None
    assert is_rotation(loop, iteration)


def test_layers_between_the_ends_of_micro_batches_are_no_iterations() -> None:
    """Nor where a pass repeats a pair of calls: two shapes, parted by something eight times a step."""
    assert inner_loop((list("S") * 64 + ["M"]) * 8 + ["G"]) is None
    assert inner_loop((list("AR") * 64 + ["M"]) * 8 + ["G"]) is None
    assert inner_loop((fsdp(60) + ["M"]) * 8 + ["G"]) is None
    assert inner_loop((list("abc") * 15 + ["M"]) * 6 + ["G"]) is None, "nor is a layer taken three times"
    assert inner_loop(list("xyxz") * 13 + list("zxyx") * 13) is None, "nor one that is its own mirror"


@pytest.mark.parametrize(
    ("step", "steps", "evaluation"),
    [
        (["S"] * 64 + ["M"], 30, ["G"] * 5),
        (["X", *"B" * 14, "Y", *"B" * 14], 20, ["E"] * 3),
        (list("abcdefghi") * 16 + ["M"], 20, ["E"] * 3),
    ],
)
def test_what_fills_the_circle_in_one_run_comes_first(step: list[str], steps: int, evaluation: list[str]) -> None:
    """Its layers fill as much of it in many."""
    assert inner_loop(step * steps + evaluation) == step


@pytest.mark.parametrize("step", [list("GR") * 64 + ["G"], list("abc") * 13 + list("ab")])
def test_a_loop_that_one_call_too_many_breaks_is_part_of_a_step(step: list[str]) -> None:
    assert inner_loop(step) is None


def test_loops_of_a_period_count_apart_and_one_counts_wherever_it_begins() -> None:
    one, other = list("abcdefghi"), list("abcdefgxy")
    assert inner_loop([*one * 20, "M", *other * 20, "M"]) is None, "a forward pass and a backward pass"
    loop = inner_loop([*one * 20, "E", *one[4:], *one * 20, "E", "F", *one[:4]])
    assert loop is not None
    assert is_rotation(loop, one), "an evaluation in the midst of an iteration"


@given(st.lists(st.sampled_from("ab"), max_size=40), st.integers(1, 8))
def test_what_a_period_explains_is_the_longest_end_that_repeats(calls: list[str], period: int) -> None:
    ends = [n for n in range(period + 1, len(calls) + 1) if all(
        calls[i] == calls[i - period] for i in range(len(calls) - n + period, len(calls)))]  # fmt: skip
    assert explained_by(calls, period) == max(ends, default=0)


@given(st.lists(st.sampled_from("ab"), max_size=8), st.lists(st.sampled_from("ab"), max_size=8))
def test_rotations_agree_with_the_definition(one: list[str], other: list[str]) -> None:
    turns = [other[n:] + other[:n] for n in range(max(1, len(other)))]
    assert is_rotation(one, other) == (one in turns)


@pytest.mark.parametrize("layers", [2, 30, 80])
def test_the_loop_inside_a_backward_pass_is_no_iteration(layers: int) -> None:
    assert inner_loop(list("A") * layers + list("AR") * layers) is None


def test_micro_batches_are_no_iterations_and_what_repeats_wholly_has_no_inner_loop() -> None:
    assert inner_loop(list("ABCB") * 8 + list("ARBRCRBR")) is None
    assert inner_loop(list("S") * 64) is None


def test_the_newest_run_is_what_one_period_explains() -> None:
    calls = list("ABAC") * 10 + list("zz") + list("ABAC") * 5
    assert unbroken_run(calls, limit=16) == 20
    assert unbroken_run(list("abcdefgh"), limit=16) == 0


def test_a_run_is_typical_if_its_calls_are_those_of_the_whole() -> None:
    iteration = list("A" * 8 + "AR" * 8)
    assert is_typical(iteration, iteration * 20 + list("A" * 40))
    assert not is_typical(list("AR") * 8, iteration * 20)


def test_pauses_of_a_job_with_long_periods_are_checkpoints() -> None:
    durations = ([10.0] * 9 + [200.0]) * 6
    assert stationary_multiple(durations) == 10
    assert stationary_multiple(durations, paced=False) == 1
