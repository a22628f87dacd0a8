# SPDX-License-Identifier: Apache-2.0
"""An evaluation passes; another iteration stays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lagom.controller.workload_change import ITERATIONS, SECONDS, WorkloadChange
from lagom.records import Function
from lagom.wire.layout import CALL_RECORD

MB = 1 << 20
OLD = ((Function.ALL_GATHER, 8 * MB), (Function.REDUCE_SCATTER, 8 * MB))
NEW = [(2, 4 * MB)] * 3 + [(3, 4 * MB)]


def calls(shapes: list[tuple[int, int]], first: int, call_ns: int) -> NDArray[np.void]:
    rows = np.zeros(len(shapes), CALL_RECORD)
    rows["call"] = first + np.arange(len(shapes))
    rows["time_ns"] = rows["call"] * call_ns
    rows["function"], rows["bytes"] = zip(*shapes, strict=True)
    return rows


def replaced_after(shapes: list[tuple[int, int]], iterations: int, call_ns: int) -> int | None:
    change = WorkloadChange(OLD, slot=3)
    for number in range(iterations):
        change.add_calls(1, calls(NEW, 0, 1)[:0])
        change.add_calls(3, calls(shapes, number * len(shapes), call_ns))
        if change.has_replaced_it():
            return number
    return None


def test_other_calls_for_long_are_another_job() -> None:
    slow = int(2e9 * SECONDS / ITERATIONS / len(NEW))  # long enough before often enough
    found = replaced_after(NEW, 3 * ITERATIONS, slow)
    assert found is not None
    assert ITERATIONS <= found <= ITERATIONS + 100
    fast = int(0.5e9 * SECONDS / ITERATIONS / len(NEW))
    found = replaced_after(NEW, 3 * ITERATIONS, fast)
    assert found is not None
    assert found >= 1.9 * ITERATIONS, "often, but not for long yet"


def test_an_evaluation_of_a_hundred_batches_is_none() -> None:
    assert replaced_after(NEW, 100, 100_000_000) is None


def test_the_old_calls_at_another_place_are_the_old_job() -> None:
    assert replaced_after([(3, 8 * MB), (2, 8 * MB)], 3 * ITERATIONS, 100_000_000) is None


def test_calls_without_a_pattern_are_no_job() -> None:
    dice = np.random.default_rng(1)
    shapes = [(2, int(size) * MB) for size in dice.integers(1, 50, 2000)]
    assert replaced_after(shapes, 3, 1_000_000_000) is None
