# SPDX-License-Identifier: Apache-2.0
"""Iterations under one assignment, cut out of a recording that alternates between two."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from timeline_helpers import spans

from lagom.records import CommConfig, Function
from lagom.timeline import KernelTable, from_ring, profile
from lagom.timeline.config_times import select_iterations
from lagom.wire.layout import CALL_RECORD

GATHER, BIG, SLOT = int(Function.ALL_GATHER), 64 << 20, 3
TUNED = CommConfig(channels=2)
#: ABBA blocks of two iterations, three times, in two windows.
LABELS = ([False, False, True, True, True, True, False, False] * 3, [True, True, False, False])


def recording() -> tuple[KernelTable, NDArray[np.void]]:
    """A gather and a GEMM beside it in each iteration: 100 + 160 µs under stock, 150 + 120 µs as tuned."""
    rows, records, now, call = [], [], 1_000_000_000, 0
    for epoch, labels in enumerate(LABELS, start=1):
        for iteration, tuned in enumerate(labels):
            gather, gemm = (150_000, 120_000) if tuned else (100_000, 160_000)
            rows += [
                {"start_ns": now, "end_ns": now + gather, "kind": 1, "call": call, "slot": SLOT, "stream": 28,
                 "function": GATHER, "bytes": BIG, "name": 2},
                {"start_ns": now + 5_000, "end_ns": now + 5_000 + gemm, "stream": 7, "name": 1},
            ]  # fmt: skip
            records.append((call, epoch, iteration, tuned))
            call, now = call + 1, now + 200_000
    made = np.zeros(len(records), CALL_RECORD)
    made["call"], made["epoch"], made["iteration"], tuned_calls = zip(*records, strict=True)
    made["function"], made["bytes"] = GATHER, BIG
    made["flags"] = np.where(tuned_calls, 7, 1)
    made["chosen"]["algorithm"] = made["chosen"]["protocol"] = -1
    made["chosen"]["channels"] = np.where(tuned_calls, 2, 0)
    return from_ring(spans(*rows), {1: "gemm", 2: "ncclDevKernel_AllGather_RING_LL"}), made


@pytest.mark.parametrize(("wanted", "x", "y", "count"), [((), 100_000, 160_000, 7), ((TUNED,), 150_000, 120_000, 10)])
def test_iterations_are_those_that_ran_so(wanted: tuple[CommConfig, ...], x: float, y: float, count: int) -> None:
    kernels, records = recording()
    (part,) = select_iterations([kernels], {0: {SLOT: records}}, wanted)
    assert len(part) == 2 * count  # the first after a change, and the last of a window, are left out
    found = profile([part])
    assert (found.x, found.y, found.z_max) == (x, y, 200_000)
    assert (np.diff(part.start) >= 0).all()


def test_nothing_is_made_up() -> None:
    kernels, records = recording()
    assert select_iterations([kernels], {0: {SLOT: records}}, (CommConfig(channels=5),)) == []
    assert select_iterations([kernels], {0: {}}, ()) == []
    assert select_iterations([kernels], {0: {SLOT: records, 9: records}}, ()) == []  # two communicators were tuned
    assert select_iterations([kernels.only(np.flatnonzero(kernels.call < 6))], {0: {SLOT: records}}, (TUNED,)) == []
    assert select_iterations([kernels], {0: {SLOT: records[:0]}}, ()) == []


def test_an_iteration_whose_kernels_were_lost_is_left_out() -> None:
    kernels, records = recording()
    (part,) = select_iterations([kernels.only(np.flatnonzero(kernels.call != 5))], {0: {SLOT: records}}, (TUNED,))
    assert len(part) == 2 * 8  # iterations 4 and 5 both need call 5
