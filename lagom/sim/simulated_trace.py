# SPDX-License-Identifier: Apache-2.0
"""A simulated job's kernels as the timeline's own table, as if one rank had recorded them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lagom.records import Assignment, CommConfig
from lagom.sim.operations import Span
from lagom.sim.simulator import Simulator
from lagom.timeline.kernel_names import NO_FUNCTION
from lagom.timeline.kernel_table import KernelTable, build

SMALLEST_CHUNK = 32 << 10


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
    one = _Simulated(spans, simulator)
    start, end = (np.rint((begin + jitter)[:, None] + np.outer(pace, edge)).ravel() for edge in (one.start, one.end))
    return build(
        start, end, np.tile(one.stream, iterations), one.names, np.tile(one.name, iterations),
        grid=np.tile(one.grid, iterations), block=np.tile(one.block, iterations),
        channels=np.tile(one.grid, iterations), function=np.tile(one.function, iterations),
        slot=np.tile(np.where(one.stream == 1, 0, -1), iterations), size=np.tile(one.bytes, iterations),
        rank=rank, sms=simulator.machine.sms, source=f"simulated {simulator.workload.name} on {simulator.machine.name}",
    )  # fmt: skip


def throttled(simulator: Simulator) -> Assignment:
    """Communication that hardly presses on compute: one channel, the smallest chunks. For a quiet recording."""
    return Assignment((CommConfig(channels=1, chunk_bytes=SMALLEST_CHUNK),) * len(simulator.stock()))


class _Simulated:
    """The columns of one simulated iteration."""

    def __init__(self, spans: Sequence[Span], simulator: Simulator) -> None:
        calls = simulator.comm_ops
        self.names = tuple(sorted({span.name for span in spans}))
        place = {name: index for index, name in enumerate(self.names)}
        self.start = np.array([span.start for span in spans])
        self.end = np.array([span.end for span in spans])
        self.stream = np.array([int(span.queue == "comm") for span in spans])
        self.name = np.array([place[span.name] for span in spans])
        self.grid = np.array([int(span.grid) for span in spans])
        self.block = np.array([int(span.block) for span in spans])
        ops = [calls[span.op] if span.queue == "comm" else None for span in spans]
        self.bytes = np.array([op.bytes if op else 0 for op in ops])
        self.function = np.array([int(op.function) if op else NO_FUNCTION for op in ops])
