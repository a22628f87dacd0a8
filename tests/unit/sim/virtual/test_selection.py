# SPDX-License-Identifier: Apache-2.0
"""NCCL's arithmetic, against figures seen on real machines or read in its source."""

from __future__ import annotations

import pytest

from lagom.records import Algorithm, Function, Protocol
from lagom.sim.virtual.selection import (
    Fabric,
    UnknownNcclVersion,
    block_threads,
    channel_parts,
    cost_table,
    default_channels_and_threads,
    final_chunk,
    largest_chunk,
    nccl_version,
    used_channels,
)

RING, TREE, SIMPLE, LL = Algorithm.RING, Algorithm.TREE, Protocol.SIMPLE, Protocol.LL
H200 = Fabric(channels=24, bandwidth_gbs=335.0)


def best(table: list[float]) -> tuple[int, int]:
    index = nccl_version("2.30").pick(table, table)
    assert index is not None
    return index // 3, index % 3


def test_large_messages_run_ring_simple_and_tiny_ones_ll() -> None:
    assert best(cost_table(Function.ALL_GATHER, 416 << 20, 8, H200)) == (RING, SIMPLE)
    assert best(cost_table(Function.ALL_REDUCE, 8, 8, H200))[1] == LL


def test_only_all_reduce_has_trees() -> None:
    assert cost_table(Function.ALL_GATHER, 1 << 20, 8, H200)[TREE * 3 : TREE * 3 + 3] == [-1.0] * 3
    assert min(cost_table(Function.ALL_REDUCE, 1 << 20, 8, H200)[TREE * 3 : TREE * 3 + 3]) > 0


def test_large_messages_take_every_channel_and_a_block_of_544() -> None:
    """As measured on 8xH200: grid 24, block 544 for a 416 MB AllGather."""
    channels, threads = default_channels_and_threads(RING, SIMPLE, 416 << 20, 8, H200)
    assert (channels, threads, block_threads(RING, SIMPLE, threads)) == (24, 512, 544)


def test_small_messages_shrink_channels_before_threads() -> None:
    assert default_channels_and_threads(RING, SIMPLE, 64 << 10, 8, H200) == (2, 512)
    channels, threads = default_channels_and_threads(RING, SIMPLE, 16 << 10, 8, H200)
    assert channels == 1
    assert threads < 512


def test_tree_blocks_are_640_whatever_is_asked() -> None:
    assert block_threads(TREE, SIMPLE, 128) == 640


@pytest.mark.parametrize(("size", "used"), [(1 << 20, 24), (256 << 10, 8), (1 << 10, 1)])
def test_no_channel_runs_with_less_than_a_cell(size: int, used: int) -> None:
    assert used_channels(Function.ALL_GATHER, SIMPLE, size, 24, 24) == used


def test_ll_counts_its_traffic_four_times() -> None:
    assert used_channels(Function.ALL_GATHER, LL, 64 << 10, 24, 24) == 8


def test_default_chunks() -> None:
    assert largest_chunk(Function.ALL_GATHER, RING, SIMPLE) == 2 << 20
    assert largest_chunk(Function.BROADCAST, RING, SIMPLE) == 512 << 10
    assert largest_chunk(Function.ALL_GATHER, RING, LL) == 32 << 10
    assert largest_chunk(Function.ALL_REDUCE, Algorithm.NVLS, SIMPLE) == 128 << 10


@pytest.mark.parametrize(
    ("protocol", "asked", "final"),
    [(SIMPLE, 1000, 512), (LL, 1000, 992), (Protocol.LL128, 5000, 3840), (SIMPLE, 511, 0)],
)
def test_chunk_rounds_down_to_the_grain(protocol: Protocol, asked: int, final: int) -> None:
    assert final_chunk(asked, 1 << 20, protocol) == final


def test_parts_add_up_to_the_message() -> None:
    first, last, middle = channel_parts(24 << 20, 24)
    assert first + last + 22 * middle == 24 << 20
    assert channel_parts(100, 1) == (100,)


def test_pick_up_to_2_30_ignores_negative_entries_and_ties_go_low() -> None:
    pick = nccl_version("2.30").pick
    assert pick([-1.0, 5.0, 5.0], [-1.0, 5.0, 5.0]) == 1
    assert pick([-1.0, 5.0, 3.0], [0.0, 5.0, 3.0]) == 0, "a -1 overwritten by 0 is chosen: not re-validated"
    assert pick([-1.0], [-1.0]) is None


def test_pick_from_2_31_reads_back_valid_entries_only_and_ties_go_high() -> None:
    pick = nccl_version("2.31").pick
    assert pick([-1.0, 5.0, 5.0], [-1.0, 5.0, 5.0]) == 2
    assert pick([-1.0, 5.0, 3.0], [0.0, 5.0, 3.0]) == 2
    assert pick([4.0, 5.0], [4.0, -1.0]) == 1, "-1 written over a valid entry wins there"


def test_channels_replace_up_to_2_30_and_cap_from_2_31() -> None:
    assert nccl_version("2.30").channels(stock=4, asked=8) == 8
    assert nccl_version("2.31").channels(stock=4, asked=8) == 4
    assert nccl_version("2.31").channels(stock=4, asked=2) == 2
    assert nccl_version("2.31").channels(stock=4, asked=0) == 4


def test_unknown_release_is_refused_with_what_there_is() -> None:
    with pytest.raises(UnknownNcclVersion, match=r"2\.30"):
        nccl_version("1.0")
