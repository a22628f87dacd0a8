# SPDX-License-Identifier: Apache-2.0
"""The log of effective configs finds the first call on which two ranks differ, and nothing where there is none."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagom.records import Algorithm, CommConfig, Protocol
from lagom.sim.virtual.call_log import BLOCK_CALLS, CallLog, compare, compare_folder, load, pack, unpack

ONE = CommConfig(Algorithm.RING, Protocol.SIMPLE, 24, 512, 2 << 20)
OTHER = CommConfig(Algorithm.RING, Protocol.SIMPLE, 3, 512, 2 << 20)

configs = st.builds(
    CommConfig,
    st.none() | st.sampled_from(Algorithm),
    st.none() | st.sampled_from(Protocol),
    st.none() | st.integers(1, 255),
    st.none() | st.integers(1, 65535),
    st.none() | st.integers(1, (1 << 32) - 1),
)


@given(configs)
def test_packing_loses_nothing(config: CommConfig) -> None:
    assert unpack(pack(config)) == config


def ranks(calls: int, ranks_: int = 3) -> list[array[int]]:
    return [array("Q", [pack(ONE)] * calls) for _ in range(ranks_)]


@pytest.mark.parametrize("call", [0, 1, BLOCK_CALLS - 1, BLOCK_CALLS, 5 * BLOCK_CALLS + 17])
def test_first_difference_is_named(call: int) -> None:
    logs = ranks(6 * BLOCK_CALLS)
    for later in (call, call + 3, len(logs[1]) - 1):
        logs[1][min(later, len(logs[1]) - 1)] = pack(OTHER)
    found = compare(0xAB, logs)
    assert found is not None
    assert (found.comm_id, found.call) == (0xAB, call)
    assert found.by_rank == ((0, ONE), (1, OTHER), (2, ONE))
    assert "rank 1: ring simple nc=3" in str(found)


def test_equal_logs_do_not_differ() -> None:
    assert compare(1, ranks(3000)) is None


def test_rank_that_made_fewer_calls_differs_unless_it_was_stopped() -> None:
    logs = ranks(2000)
    logs[2] = logs[2][:1500]
    found = compare(1, logs)
    assert found is not None
    assert found.call == 1500
    assert "rank 2: made no such call" in str(found)
    assert compare(1, logs, same_length=False) is None


def test_files_of_all_ranks_are_compared_by_communicator(tmp_path: Path) -> None:
    for rank in range(2):
        log = CallLog(tmp_path, rank)
        for call in range(100):
            log.add(0xA, ONE)
            log.add(0xB, OTHER if rank and call == 42 else ONE)
            if call % 40 == 39:
                log.save()
        assert log.count(0xA) == 100
        log.save()
        assert log.count(0xA) == 100
    assert len(load(tmp_path, 0xA, 0)) == 100
    (found,) = compare_folder(tmp_path, 2)
    assert (found.comm_id, found.call) == (0xB, 42)
