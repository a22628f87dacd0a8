# SPDX-License-Identifier: Apache-2.0
"""A simulated job's kernels as the timeline's own table, as if one rank had recorded them."""

from __future__ import annotations

import numpy as np

from lagom.records import Assignment, CommConfig
from lagom.sim.simulator import Simulator
from lagom.timeline.kernel_names import NO_FUNCTION
from lagom.timeline.kernel_table import KernelTable, build

SMALLEST_CHUNK = 32 << 10
_INTEGERS = ("stream", "name", "grid", "block", "function", "bytes")
_ROW = np.dtype([("start", float), ("end", float), *((name, np.int64) for name in _INTEGERS)])


def build_kernel_table(
    simulator: Simulator,
    iterations: int = 8,
    assignment: Assignment | None = None,
    *,
    rank: int = 0,
    noise: float = 0.01,
    seed: int = 0,
) -> KernelTable:
    """``iterations`` iterations of a simulated job, one after the other, as one rank's kernels would be recorded.

    Each iteration's clock runs faster or slower by ``noise`` (one sigma, a share), the same on every rank for the same
    ``seed``, as a GPU's does; ranks differ by a few µs, by ``rank``.
    """
    spans = simulator.run(assignment or simulator.stock()).kernels
    length = max(span.end for span in spans)
    pace = 1.0 + noise * np.random.default_rng(seed).standard_normal(iterations).clip(-3, 3)
    begin = 1_000_000_000 + np.concatenate([[0.0], np.cumsum(pace * (length + simulator.machine.launch_ns))[:-1]])
    jitter = np.random.default_rng([seed, rank + 1]).uniform(0, 2_000, iterations)
    names = tuple(sorted({span.name for span in spans}))
    place = {name: index for index, name in enumerate(names)}
    calls = [(int(call.function), call.bytes) for call in simulator.comm_ops]
    rows = [
        (span.start, span.end, span.queue == "comm", place[span.name], span.grid, span.block,
         *(calls[span.op] if span.queue == "comm" else (NO_FUNCTION, 0)))
        for span in spans
    ]  # fmt: skip
    one = np.array(rows, _ROW)
    edges = (one["start"], one["end"])
    start, end = (np.rint((begin + jitter)[:, None] + np.outer(pace, edge)).ravel() for edge in edges)
    every = np.tile(one, iterations)
    return build(
        start, end, every["stream"], names, every["name"], grid=every["grid"], block=every["block"],
        channels=every["grid"], function=every["function"], slot=every["stream"] - 1, size=every["bytes"],
        rank=rank, sms=simulator.machine.sms, source=f"simulated {simulator.workload.name} on {simulator.machine.name}",
    )  # fmt: skip


def throttled(simulator: Simulator) -> Assignment:
    """Communication that hardly presses on compute: one channel, the smallest chunks. For a quiet recording."""
    return Assignment((CommConfig(channels=1, chunk_bytes=SMALLEST_CHUNK),) * len(simulator.stock()))
