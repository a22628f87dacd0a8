# SPDX-License-Identifier: Apache-2.0
"""Exposed or hidden, by program position, from kernels joined to calls; and the sites that come of it."""

from __future__ import annotations

import numpy as np
import pytest
from timeline_helpers import calls, table

from lagom.program.detect import CallProgram
from lagom.program.sites import cut_into_sites
from lagom.records import Function
from lagom.timeline import KernelTable
from lagom.timeline.busy_times import hidden_by_position

GATHER = "ncclDevKernel_AllGather_RING_LL"
SIZE = 416 << 20


def rank(steps: int, hidden: tuple[int, ...], named: bool = True) -> tuple[KernelTable, np.ndarray]:
    """Steps of one gather a position, 100 µs each, of which ``hidden`` µs lie beside a GEMM."""
    rows, numbers, records = [], [], []
    for step in range(steps):
        for position, overlap in enumerate(hidden):
            at = 1000.0 * step + 150 * position
            rows += [(at, at + 100, 28, GATHER), (at + 100 - overlap, at + 130, 7, "gemm")]
            numbers += [step * len(hidden) + position, -1]
            records.append((step * len(hidden) + position, at - 5, SIZE, int(Function.ALL_GATHER)))
    made = calls(*records)
    made["position"] = [record[0] % len(hidden) for record in records]
    call = numbers if named else -1
    count = len(numbers) // 2
    return table(*rows, call=call, slot=[3, -1] * count if named else -1, size=[SIZE, 0] * count), made


@pytest.mark.parametrize("named", [True, False])
def test_shares_by_position(named: bool) -> None:
    first, second = rank(4, (0, 100, 60), named), rank(5, (0, 100, 60), named)
    shares = hidden_by_position([first[0], second[0]], [first[1], second[1]], [3, 3], 3)
    assert shares.tolist() == [0.0, 1.0, pytest.approx(0.6)]


def test_a_position_that_was_not_seen_is_unknown() -> None:
    kernels, records = rank(2, (0, 100))
    shares = hidden_by_position([kernels.only(kernels.call != 1)], [records], [3], 4)
    assert shares[:2].tolist() == [0.0, 1.0]  # call 3 has position 1 too
    assert np.isnan(shares[2:]).all()
    assert np.isnan(hidden_by_position([], [], [], 2)).all()


def test_the_program_s_sites_follow() -> None:
    kernels, records = rank(4, (0, 100, 100))
    shares = hidden_by_position([kernels], [records], [3], 3)
    positions = ((Function.ALL_GATHER, SIZE),) * 3
    program = CallProgram(positions, first_call=0, calls_per_iteration=3, iterations_seen=4, iteration_ns=1e6)
    sites = cut_into_sites(program, shares.tolist()).sites
    assert sorted((site.context, site.calls_per_iteration) for site in sites) == [("exposed", 1), ("hidden", 2)]
