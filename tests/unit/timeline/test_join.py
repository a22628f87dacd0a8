# SPDX-License-Identifier: Apache-2.0
"""Kernels and calls: exact, grouped, fused, several communicators, and everything that must stay unjoined."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from timeline_helpers import calls, table

from lagom.records import Function
from lagom.timeline import join as joining
from lagom.timeline.join import join
from lagom.timeline.kernel_table import KERNEL_RING

AG, RS = int(Function.ALL_GATHER), int(Function.REDUCE_SCATTER)
GATHER, REDUCE = "ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"


def test_named_calls_are_exact() -> None:
    kernels = table((10, 20, 28, GATHER), (30, 40, 32, REDUCE), (35, 50, 7, "gemm"), call=[7, 8, -1], slot=[0, 0, -1])
    found = join(kernels, {0: calls((7, 1, 100, AG), (8, 2, 200, RS))})
    assert found.call.tolist() == [7, 8, -1]
    assert (found.exact, found.by_order, found.unjoined, found.tunable_share) == (2, 0, {}, 1.0)
    assert (found.calls_joined, found.calls_unjoined) == (2, 0)


def test_named_calls_that_contradict_their_record_are_refused_by_reason() -> None:
    kernels = table(
        (10, 20, 28, GATHER), (30, 40, 28, GATHER), (50, 60, 28, GATHER), (70, 80, 28, GATHER),
        call=[7, 8, 99, 9], slot=[0, 0, 0, 5], size=[100, 400, 100, 100],
    )  # fmt: skip
    found = join(kernels, {0: calls((7, 1, 100, RS), (8, 2, 200, AG))})
    assert (found.call == -1).all()
    assert found.unjoined == {joining.NO_SUCH_CALL: 2, joining.FUNCTION_DIFFERS: 1, joining.BYTES_DIFFER: 1}
    assert found.tunable_share == 0


def test_two_streams_of_one_communicator_by_order() -> None:
    """FSDP2: AllGather on stream 28, ReduceScatter on 32, one communicator; no size known."""
    kernels = table((10, 20, 28, GATHER), (25, 30, 32, REDUCE), (30, 40, 28, GATHER), (45, 50, 32, REDUCE))
    found = join(kernels, {3: calls((0, 1, 9, AG), (1, 2, 8, RS), (2, 3, 9, AG), (3, 4, 8, RS))})
    assert found.call.tolist() == [0, 1, 2, 3]
    assert set(found.slot.tolist()) == {3}
    assert found.by_order == 4


def test_a_group_is_one_call_with_the_summed_size() -> None:
    """_coalescing_manager: three gathers of 10, 20, 30 become one call of 60; a single one follows."""
    kernels = table(*((10 * k, 10 * k + 5, 28, GATHER) for k in range(1, 5)), size=[10, 20, 30, 40])
    found = join(kernels, {0: calls((4, 1, 60, AG), (5, 2, 40, AG))})
    assert found.call.tolist() == [4, 4, 4, 5]
    assert (found.calls_joined, found.calls_unjoined) == (2, 0)


def test_several_calls_in_one_kernel() -> None:
    kernels = table((10, 20, 28, GATHER), (30, 40, 28, GATHER), size=[30, 40])
    found = join(kernels, {0: calls((4, 1, 10, AG), (5, 2, 20, AG), (6, 3, 40, AG))})
    assert found.call.tolist() == [4, 6]
    assert found.calls_joined == 3


def test_groups_that_straddle_each_other_are_not_guessed() -> None:
    kernels = table((10, 20, 28, GATHER), (30, 40, 28, GATHER), (50, 60, 28, GATHER), size=[10, 30, 7])
    found = join(kernels, {0: calls((4, 1, 15, AG), (5, 2, 25, AG), (6, 3, 7, AG))})
    assert found.call.tolist() == [-1, -1, 6]
    assert found.unjoined == {joining.AMBIGUOUS: 2}
    assert (found.calls_joined, found.calls_unjoined) == (1, 2)


def test_point_to_point_and_symmetric_kernels_are_named() -> None:
    kernels = table(
        (0, 5, 1, "ncclDevKernel_SendRecv"), (10, 15, 1, "ncclSymkDevKernel_AllGather_ST"), (20, 25, 1, GATHER)
    )
    found = join(kernels, {0: calls((0, 1, 10, AG))})
    assert found.unjoined == {joining.P2P: 1, joining.SYMMETRIC: 1}
    assert (found.by_order, found.tunable_share) == (1, 1.0)


def test_two_communicators_are_told_apart_by_their_calls() -> None:
    """FSDP and TP, both AllGather, each on its own stream: only one way round do sizes fit."""
    kernels = table(
        (10, 20, 28, GATHER), (12, 18, 40, GATHER), (30, 40, 28, GATHER), (32, 38, 40, GATHER), size=[9, 2, 9, 2]
    )
    found = join(kernels, {0: calls((0, 1, 2, AG), (1, 2, 2, AG)), 1: calls((5, 1, 9, AG), (6, 2, 9, AG))})
    assert found.call.tolist() == [5, 0, 6, 1]
    assert found.slot.tolist() == [1, 0, 1, 0]


def test_two_communicators_that_look_alike_stay_apart() -> None:
    kernels = table((10, 20, 28, GATHER), (12, 18, 40, GATHER))
    found = join(kernels, {0: calls((0, 1, 2, AG)), 1: calls((5, 1, 9, AG))})
    assert (found.call == -1).all()
    assert found.unjoined == {joining.AMBIGUOUS: 2}


def test_a_kernel_never_belongs_to_a_later_call() -> None:
    found = join(table((10, 20, 28, GATHER)), {0: calls((0, 15, 2, AG))})
    assert found.unjoined == {joining.TOO_EARLY: 1}


def test_a_live_kernel_may_seem_to_start_before_its_call() -> None:
    """CUPTI's clock runs off: 63 us in each second of a window were seen."""
    second = 10**9
    spans = ((at, at + 1000, 28, GATHER) for at in (9 * second, 19 * second - 600_000))
    live = replace(table(*spans), source=KERNEL_RING)
    made = calls((0, 9 * second, 2, AG), (1, 19 * second, 2, AG))
    assert join(live, {0: made}).call.tolist() == [0, 1]
    assert join(replace(live, source=""), {0: made}).unjoined == {joining.TOO_EARLY: 2}
    assert join(live, {0: calls((0, 9 * second, 2, AG), (1, 20 * second, 2, AG))}).unjoined == {joining.TOO_EARLY: 2}


def test_more_kernels_than_calls_without_sizes_are_not_guessed() -> None:
    found = join(table((10, 20, 28, GATHER), (30, 40, 28, GATHER)), {0: calls((0, 1, 2, AG))})
    assert found.unjoined == {joining.COUNTS_DIFFER: 2}


def test_more_calls_than_kernels_join_only_at_the_one_offset_that_fits() -> None:
    """The window missed the last kernel: had it missed the first, the first kernel would precede its call."""
    kernels = table((10, 20, 28, GATHER), (30, 40, 28, GATHER))
    assert join(kernels, {0: calls((0, 5, 2, AG), (1, 25, 2, AG), (2, 45, 2, AG))}).call.tolist() == [0, 1]
    late = join(kernels, {0: calls((0, 1, 2, AG), (1, 2, 2, AG), (2, 3, 2, AG))})
    assert late.unjoined == {joining.AMBIGUOUS: 2}  # the host ran ahead: both ways fit


def test_no_calls_at_all() -> None:
    found = join(table((10, 20, 28, GATHER)), {})
    assert found.unjoined == {joining.NO_CALLS: 1}
    assert join(table((10, 20, 7, "gemm")), {}).unjoined == {}


@given(st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=4), min_size=1, max_size=12))
def test_any_grouping_of_known_sizes_is_joined_right_or_not_at_all(groups: list[list[int]]) -> None:
    """Each inner list is one call over several kernels; the true owner of each kernel is known."""
    sizes = [size for group in groups for size in group]
    truth = [number for number, group in enumerate(groups) for _ in group]
    kernels = table(*((10 + 10 * k, 15 + 10 * k, 28, GATHER) for k in range(len(sizes))), size=sizes)
    found = join(kernels, {0: calls(*((n, 1, sum(group), AG) for n, group in enumerate(groups)))})
    assert found.call.tolist() == truth
    assert found.by_order == len(sizes)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.randoms())
def test_the_order_of_records_does_not_matter(sizes: list[int], random: object) -> None:
    order = list(range(len(sizes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    rows = [(10.0 + 10 * k, 15.0 + 10 * k, 28, GATHER) for k in order]
    kernels = table(*rows, size=[sizes[k] for k in order])
    records = calls(*((k, 1, sizes[k], AG) for k in range(len(sizes))))
    found = join(kernels, {0: records[np.array(order)]})
    assert found.call.tolist() == list(range(len(sizes)))


def test_pairs_are_sole_that_share_neither_side() -> None:
    assert joining.sole_pairs([(1, 7), (2, 8), (2, 9), (3, 9)]) == [(1, 7)]
    assert joining.sole_pairs([(1, 7), (2, 7)]) == []
