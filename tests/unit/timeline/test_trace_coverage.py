# SPDX-License-Identifier: Apache-2.0
"""The tier of measurement and the counts of joined kernels, over ranks and by reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from timeline_helpers import calls, table

from lagom.records import Function
from lagom.timeline import KernelTable, TraceError, profile
from lagom.timeline.join import NO_SUCH_CALL, P2P
from lagom.timeline.trace_coverage import TIERS, measure_coverage, z_by_calls

GATHER, SEND = "ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_SendRecv"
SIZE = 64 << 20


def rank(steps: int = 4) -> tuple[KernelTable, np.ndarray]:
    """A GEMM, a gather with its call number and a send in every step."""
    rows, numbers, records = [], [], []
    for step in range(steps):
        at = 100.0 * step
        rows += [(at, at + 40, 1, "gemm"), (at + 10, at + 50, 2, GATHER), (at + 60, at + 70, 2, SEND)]
        numbers += [-1, step, -1]
        records.append((step, at + 5, SIZE, int(Function.ALL_GATHER)))
    return table(*rows, call=numbers, slot=[-1, 6, -1] * steps, size=[0, SIZE, 0] * steps), calls(*records)


def test_counts_are_over_ranks_and_by_reason() -> None:
    first, records = rank()
    second = replace(first, rank=1)
    seen = profile([second, first], calls={0: {6: records}, 1: {6: records[:3]}}).coverage
    assert seen.tier == "timeline"
    assert seen.calls_known
    assert (seen.exact, seen.by_order) == (7, 0)
    assert (seen.calls_joined, seen.calls_unjoined) == (7, 0)
    assert seen.unjoined == {P2P: 8, NO_SUCH_CALL: 1}
    assert seen.tunable_share == pytest.approx(7 / 8)  # sends are out of every tuner's reach


def test_a_rank_without_calls_is_counted_not_lost() -> None:
    kernels, records = rank()
    seen = measure_coverage([kernels, replace(kernels, rank=1)], {0: {6: records}})
    assert seen.exact == 4
    assert sum(seen.unjoined.values()) == 4 + 8


def test_without_calls_nothing_is_claimed() -> None:
    seen = profile([rank()[0]]).coverage
    assert (seen.calls_known, seen.exact, seen.unjoined) == (False, 0, {})


@pytest.mark.parametrize(("kept", "tier"), [("gemm", "compute kernels"), (GATHER, "nccl kernels")])
def test_tiers(kept: str, tier: str) -> None:
    kernels = rank()[0]
    rows = np.flatnonzero(kernels.name == kernels.names.index(kept))
    assert measure_coverage([kernels.only(rows)]).tier == tier
    assert tier in TIERS


def test_the_last_tier_tells_z_by_when_calls_are_made() -> None:
    """Four gathers and a reduction every 100 µs; another communicator is called less often."""
    steps = [(5 * step + n, 100.0 * step + 10 * n, SIZE, int(function)) for step in range(6)
             for n, function in enumerate([Function.ALL_GATHER] * 4 + [Function.REDUCE_SCATTER])]  # fmt: skip
    seldom = calls((0, 0, 8, int(Function.ALL_REDUCE)), (1, 7, 8, int(Function.ALL_REDUCE)))
    known = {0: {1: seldom, 6: calls(*steps)}}
    assert z_by_calls(known) == 100_000
    assert z_by_calls({}) is None
    assert z_by_calls({0: {6: calls(*steps[:9])}}) is None, "less than three repeats prove nothing"
    nothing = table()
    with pytest.raises(TraceError, match=r"no usable kernel record, only calls, 0.1 ms an iteration \(tier host"):
        profile([nothing], calls=known)
    with pytest.raises(TraceError, match="no usable kernel record; record at least three"):
        profile([nothing])
