# SPDX-License-Identifier: Apache-2.0
"""Several ranks: alignment, minima and maxima, stragglers, and what must not matter."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timeline_helpers import table, training

from lagom.timeline import KernelTable, TraceError, build, profile
from lagom.timeline.ranks import align
from lagom.timeline.steps import find_steps

GATHER = "ncclDevKernel_AllGather_RING_LL"


def late(rank: int, delay: float, steps: int = 6) -> KernelTable:
    """A collective that ends for all at 400 µs of each step; this rank enters it ``delay`` µs after 100."""
    rows = []
    for step in range(steps):
        at = 1000.0 * step
        rows += [(at, at + 100 + delay, 1, "gemm"), (at + 100 + delay, at + 400, 2, GATHER)]
        rows.append((at + 400, at + 900, 1, "mlp"))
    return table(*rows, rank=rank)


def test_x_is_the_minimum_y_and_z_the_maximum() -> None:
    merged = profile([late(0, 0), late(1, 120), late(2, 40)]).combined
    assert {sample.x for sample in merged.samples} == {180_000.0}
    assert {sample.y for sample in merged.samples} == {720_000.0}
    assert {sample.z_max for sample in merged.samples} == {1_000_000.0}
    assert {sample.x_by_site for sample in merged.samples} == {(180_000.0,)}
    assert merged.wait_ns == (120_000.0, 0.0, 80_000.0)


def test_the_straggler_is_the_one_that_never_waits() -> None:
    assert profile([late(0, 0), late(1, 120), late(2, 0), late(3, 5)]).combined.straggler == 1
    assert profile([late(0, 0), late(1, 2), late(2, 1)]).combined.straggler is None
    assert profile([late(0, 0)]).combined.straggler is None
    notes = profile([late(0, 0), late(1, 120), late(2, 0)]).notes
    assert any("rank 1 arrives last" in note for note in notes)


def test_the_order_of_the_ranks_does_not_matter() -> None:
    ranks = [late(0, 0), late(1, 120), late(2, 40)]
    expected = profile(ranks)
    for seed in range(3):
        mixed = random.Random(seed).sample(ranks, 3)
        found = profile(mixed)
        assert found.combined.samples == expected.combined.samples
        assert found.combined.straggler == expected.combined.straggler
        assert (found.z_max, found.x, found.y, found.exposed) == (
            expected.z_max,
            expected.x,
            expected.y,
            expected.exposed,
        )
        assert found.rank.table.rank == expected.rank.table.rank


@settings(max_examples=20)
@given(st.integers(-900_000_000, 10**14), st.integers(0, 2**32))
def test_shift_and_record_order_do_not_matter(shift: int, seed: int) -> None:
    ranks = [training(5, rank=0), training(5, rank=1, start=900)]
    moved = [mixed(one, shift, seed) for one in ranks]
    a, b = profile(ranks), profile(moved)
    assert a.combined.samples == b.combined.samples
    assert a.patterns == b.patterns or repr(a.patterns) == repr(b.patterns)
    assert a.overhead == b.overhead


def test_steps_are_matched_by_time_when_one_rank_was_recorded_later() -> None:
    early, later = training(8, rank=0), training(8, rank=1, start=700)
    cut = build(*(getattr(later, key)[40:] for key in ("start", "end", "stream")), later.names, later.name[40:], rank=1)
    steps = [find_steps(early), find_steps(cut)]
    rows, how = align(steps, [early, cut])
    assert how == "time"
    gap = steps[1].begin[rows[1]] - steps[0].begin[rows[0]]
    assert set(gap.tolist()) == {700}


def test_steps_are_matched_by_call_number_where_it_is_known() -> None:
    def numbered(first: int, steps: int, rank: int, shift: float) -> KernelTable:
        rows = [
            row
            for step in range(steps)
            for row in (
                (shift + 100.0 * step, shift + 100.0 * step + 20, 2, GATHER),
                (shift + 100.0 * step + 30, shift + 100.0 * step + 80, 1, "gemm"),
            )
        ]
        numbers = [number for step in range(steps) for number in (first + step, -1)]
        return table(*rows, rank=rank, call=numbers, slot=[0, -1] * steps)

    a, b = numbered(5, 8, 0, 0.0), numbered(7, 8, 1, 1e6)  # other clocks, and rank 1 began two steps later
    steps = [find_steps(a), find_steps(b)]
    rows, how = align(steps, [a, b])
    assert how == "call number"
    assert [part.tolist() for part in rows] == [[2, 3, 4, 5, 6], [0, 1, 2, 3, 4]]


def test_clocks_that_do_not_agree_are_said() -> None:
    found = profile([training(5, rank=0), training(5, rank=1, start=10**12)])
    assert found.combined.aligned_by == "order"
    assert any("clocks do not agree" in note for note in found.notes)


def test_clocks_that_may_differ_by_whole_steps_are_said() -> None:
    """A clock that is wrong by 1.2 steps looks like a recording that began a step later."""
    step = int(np.diff(find_steps(training(8)).begin)[0])
    for shift, expected in ((0, False), (step * 3 // 10, False), (step * 12 // 10, True), (-step * 32 // 10, True)):
        found = profile([training(8, rank=0, start=10 * step), training(8, rank=1, start=10 * step + shift)])
        assert found.combined.aligned_by == "time"
        assert any("steps apart" in note for note in found.notes) == expected


def test_ranks_whose_streams_start_in_another_order_are_still_compared() -> None:
    """Gather and reduce-scatter on two streams; which one starts first differs between the ranks."""
    reduce = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"

    def rank(number: int, gather_at: float) -> KernelTable:
        rows = []
        for step in range(5):
            at = 1000.0 * step
            rows += [(at + gather_at, at + 300, 2, GATHER), (at + 100, at + 350, 3, reduce), (at, at + 900, 1, "gemm")]
            rows.append((at + 500, at + 520, 2, GATHER))
        return table(*rows, rank=number)

    found = profile([rank(0, 90), rank(1, 110)])
    assert not any("same collectives" in note for note in found.notes)
    assert found.combined.x.min(axis=0).tolist() == [20_000, 190_000, 250_000]  # a step begins with the second gather


def test_no_rank_or_no_kernel_is_one_sentence() -> None:
    with pytest.raises(TraceError, match="no usable kernel record"):
        profile([])
    with pytest.raises(TraceError, match="no usable kernel record"):
        profile([build([], [], [], ["x"], [])])


def mixed(of: KernelTable, shift: int, seed: int) -> KernelTable:
    """The same kernels at another time, in another order."""
    rows = np.random.default_rng(seed).permutation(len(of))
    start, end = of.start[rows] + shift, of.end[rows] + shift
    return build(start, end, of.stream[rows], of.names, of.name[rows], rank=of.rank)
