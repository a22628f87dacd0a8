# SPDX-License-Identifier: Apache-2.0
"""Steps, from hand-made jobs: the period, position 0, and what happens to what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timeline_helpers import dump, table, training

from lagom.timeline import KernelTable, build
from lagom.timeline.kernel_period import find_period, find_repeated_run, shorter_period
from lagom.timeline.steps import find_steps

GATHER = "ncclDevKernel_AllGather_RING_LL"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def codes(text: str) -> np.ndarray:
    return np.array([ord(letter) - ord("a") for letter in text])


def period_of(sequence: np.ndarray, rare_ns: int = 1000) -> int | None:
    """Where every kernel takes a microsecond, but those that are called x."""
    period = find_period(sequence)
    rare = np.where(sequence == ord("x") - ord("a"), rare_ns, 1000)
    return None if period is None else shorter_period(sequence, rare, period)


@pytest.mark.parametrize(
    ("sequence", "period"),
    [
        ("abc" * 3, 3),
        ("abc" * 2, None),  # two repeats prove nothing
        ("aaaaab" * 5, 6),  # not the run of a's
        ("aaaa", 1),
        (("fghfghfghfgh" + "xyzxyzxyzxyz" + "o") * 4, 25),  # not the layer
        ("abcd" * 6 + "abXcd".lower() + "abcd" * 6, 4),  # one irregular repeat is forgiven
        ("abcdefghij", None),
    ],
)
def test_period(sequence: str, period: int | None) -> None:
    assert period_of(codes(sequence)) == period


STEP = "abcdefghijklmnopqrstuvw" * 2 + "bdfhjl"


@pytest.mark.parametrize("every", [3, 5, 10])
def test_what_is_done_every_few_steps_makes_no_longer_step(every: int) -> None:
    """A flag that is asked for, a loss that is logged; not an optimizer after several micro-batches."""
    logged = codes((STEP * every + "x") * 6)
    assert period_of(logged, rare_ns=10) == len(STEP)
    assert period_of(logged, rare_ns=10_000) == every * len(STEP) + 1
    assert period_of(codes((STEP * every + "x" * 9) * 6), rare_ns=10) == every * len(STEP) + 9


@pytest.mark.parametrize("step", ["a" * 100 + "x", "ab" * 20 + "x", "abc" * 4 + "x", STEP * 11 + "x"])
def test_a_step_that_repeats_something_and_ends_with_something_short_stays_one(step: str) -> None:
    """Layers, gathers of one size: they repeat, and are no steps. (The last: so often that it may be layers.)"""
    assert period_of(codes(step * 5), rare_ns=10) == len(step)


@given(st.text("abc", min_size=1, max_size=12), st.integers(3, 8), st.integers(0, 11))
def test_any_cut_of_a_repeated_word_has_a_period_that_explains_it(word: str, repeats: int, cut: int) -> None:
    begin = cut % len(word)
    sequence = codes((word * (repeats + 1))[begin : begin + len(word) * repeats])
    period = period_of(sequence)
    assert period is not None
    assert len(word) % period == 0 or (sequence[period:] == sequence[:-period]).all()


def test_word_starts_do_not_overlap() -> None:
    word = find_repeated_run(codes("ababababc" * 3), 9)
    assert word.starts.tolist() == [0, 9, 18]


def test_steps_of_a_regular_job() -> None:
    job = training(6)
    steps = find_steps(job)
    kernels = len(job) // 6
    assert (steps.count, steps.places, steps.irregular) == (5, kernels, 0)
    assert np.diff(steps.begin).tolist() == (steps.end - steps.begin).tolist()[:-1]
    assert np.unique(steps.index).size == 5 * kernels  # every kernel of five steps exactly once
    assert (np.sort(job.name[steps.index], axis=1) == np.sort(job.name[steps.index[0]])).all()


@pytest.mark.parametrize("every", [5, 8])
def test_steps_between_which_a_loss_is_logged(every: int) -> None:
    steps, usual = find_steps(training(6 * every, log_every=every)), find_steps(training(6))
    assert steps.places == usual.places
    assert steps.count >= 5 * (every - 2)  # without those beside which it was logged
    assert np.median(steps.end - steps.begin) == np.median(usual.end - usual.begin)


@pytest.mark.parametrize("every", [2, 3])
def test_a_loss_that_is_logged_at_most_steps_belongs_to_a_longer_one(every: int) -> None:
    steps = find_steps(training(6 * every, log_every=every))
    assert (steps.periodic, steps.count) == (True, 5)
    assert steps.places == every * find_steps(training(6)).places + 2


def test_position_zero_is_the_first_gather_wherever_recording_began() -> None:
    job = training(8)
    whole = find_steps(job)
    gathers = np.flatnonzero(job.function == 2)
    for skipped in (0, 3, 10, 17, 25):
        cut = sub(job, np.arange(len(job)) >= skipped)
        steps = find_steps(cut)
        assert set(steps.begin.tolist()) <= set(whole.begin.tolist())
        assert steps.count >= whole.count - 1
    assert whole.begin[0] == job.start[gathers[0]]


def test_a_kernel_that_drifts_over_the_cut_stays_in_its_step() -> None:
    rows = []
    for step in range(6):
        at = 1000.0 * step
        rows += [(at, at + 100, 2, GATHER), (at + 100, at + 600, 1, "gemm"), (at + 700, at + 800, 2, REDUCE)]
        late = 1020 if step in (1, 4) else 960  # a copy at the step's end, twice after the next step began
        rows.append((at + late, at + late + 10, 3, "copy"))
    steps = find_steps(table(*rows))
    copies = [row[3] for row in rows].count("copy")
    assert steps.count == 5
    assert copies == 6
    assert steps.places == 4
    assert steps.irregular == 0


def test_steps_are_the_same_while_channels_are_being_tried() -> None:
    """A trial window: 24 channels in two steps, 4 in the next two. Grid and block of collectives are no signature."""
    job = training(8)
    step = np.searchsorted(job.start[job.function == 2][::4], job.start, side="right")
    tried = np.where(job.is_communication, np.where(step // 2 % 2, 4, 24), 1)
    names = job.name, job.names
    trial = build(job.start, job.end, job.stream, names[1], names[0], grid=tried, channels=tried, block=tried * 32)
    assert find_steps(trial).index.tolist() == find_steps(job).index.tolist()


def test_shapes_that_change_from_step_to_step_leave_the_names() -> None:
    """Packed sequences: every step another grid. Names repeat; what is alike is then known within a step only."""
    job = training(7)
    step = np.searchsorted(job.start[job.function == 2][::4], job.start, side="right")
    packed = build(job.start, job.end, job.stream, job.names, job.name, grid=100 + step)
    steps = find_steps(packed)
    assert (steps.periodic, steps.exact, steps.count) == (True, False, 6)
    assert steps.index.tolist() == find_steps(job).index.tolist()


def test_an_irregular_step_is_left_out_and_counted() -> None:
    job, extra = training(9), table((3_500.0, 3_501.0, 1, "checkpoint"), (3_502.0, 3_503.0, 1, "checkpoint"))
    mixed = joined(job, extra)
    steps = find_steps(mixed)
    assert steps.periodic
    assert steps.irregular >= 1
    assert steps.count >= 8 - steps.irregular
    names = {mixed.names[name] for name in np.unique(mixed.name[steps.index])}
    assert "checkpoint" not in names


def test_without_communication_the_period_is_still_found() -> None:
    rows = [(100.0 * k + at, 100.0 * k + at + 20, 1, name) for k in range(5) for at, name in ((0, "a"), (30, "b"))]
    steps = find_steps(table(*rows))
    assert steps.periodic
    assert steps.places == 2


def test_no_period_means_one_step() -> None:
    steps = find_steps(table((0, 10, 1, "a"), (20, 30, 1, "b"), (30, 60, 2, GATHER)))
    assert (steps.periodic, steps.count, steps.places) == (False, 1, 3)
    assert steps.end[0] - steps.begin[0] == 60_000


def test_tensor_parallel_with_one_size_still_has_a_step() -> None:
    """All collectives alike: the compute stream alone tells how long a step is."""
    rows = []
    for step in range(5):
        for layer in range(8):
            at = 1000.0 * step + 100 * layer
            rows += [(at, at + 60, 1, "attention" if layer % 2 else "mlp"), (at + 60, at + 90, 2, REDUCE)]
        rows.append((1000.0 * step + 900, 1000.0 * step + 950, 1, "adam"))
    steps = find_steps(table(*rows))
    assert (steps.count, steps.places) == (4, 17)
    assert set((steps.end - steps.begin).tolist()) == {1_000_000}


def test_a_stream_that_does_next_to_nothing_has_no_say_in_what_a_step_is() -> None:
    """A loss that is copied every eighth step, on a stream of its own: it repeats too, and lasts longest."""
    rows: list[tuple[float, float, int, str]] = []
    for step in range(48):
        at = 500.0 * step
        rows += [(at, at + 400, 1, "gemm"), (at + 400, at + 450, 2, GATHER), (at + 460, at + 480, 1, "adam")]
        if step % 8 == 5:
            rows += [(at + 200, at + 201, 3, "loss"), (at + 210, at + 211, 3, "copy")]
    steps = find_steps(table(*rows))
    assert set((steps.end - steps.begin).tolist()) == {500_000}
    assert steps.places == 3


@settings(max_examples=25)
@given(st.integers(0, 10**15), st.randoms())
def test_shift_and_order_of_records_do_not_matter(shift: int, random: object) -> None:
    job = training(5)
    order = list(range(len(job)))
    random.shuffle(order)  # type: ignore[attr-defined]
    moved = sub(job, np.array(order), shift)
    a, b = find_steps(job), find_steps(moved)
    assert (b.begin - shift).tolist() == a.begin.tolist()
    assert b.index.tolist() == a.index.tolist()
    assert a.collectives == b.collectives


def test_position_zero_is_taken_over_from_another_rank() -> None:
    base = find_steps(dump(2048))
    other = find_steps(dump(4096), other=base)
    assert other.collectives == base.collectives


def sub(job: KernelTable, rows: np.ndarray, shift: int = 0) -> KernelTable:
    """Some rows of a table, as a loader would build them anew, in the order given."""
    start, end = job.start[rows] + shift, job.end[rows] + shift
    return build(start, end, job.stream[rows], job.names, job.name[rows], grid=job.grid[rows])


def joined(a: KernelTable, b: KernelTable) -> KernelTable:
    """Both tables' kernels."""
    names = a.names + b.names
    columns = (np.concatenate([getattr(a, key), getattr(b, key)]) for key in ("start", "end", "stream"))
    return build(*columns, names, np.concatenate([a.name, b.name + len(a.names)]))
