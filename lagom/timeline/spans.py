"""Kernel spans as the rest of Lagom hands them over: records of the shared kernel ring, and the simulator's.

Ring records are ``struct lagom_kernel_span`` (``lagom.wire.layout.KERNEL_SPAN``): a numpy array straight from the
drain, possibly garbage. Names are hashes there; ``names`` translates those that are known. Records that only announce a
collective (source NCCL_EVENT, no GPU time) are no kernels and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lagom.records import Assignment, CommConfig, Function
from lagom.timeline.classify import NO_FUNCTION, Kind
from lagom.timeline.table import KERNEL_RING, NO_CALL, KernelTable, build
from lagom.wire import layout

if TYPE_CHECKING:
    from lagom.sim import Simulator
    from lagom.sim.program import Span

SMALLEST_CHUNK = 32 << 10


def from_ring(spans: NDArray[Any], names: Mapping[int, str] | None = None, rank: int = 0, sms: int = 0) -> KernelTable:
    """A table from ring records of one process. Kind and function are taken from the record, not from the name."""
    spans = spans[spans["source"] != layout.SPAN_NCCL_EVENT]
    kind = np.where(spans["kind"] <= max(Kind), spans["kind"], Kind.OTHER)
    function = np.where(spans["function"] <= max(Function), spans["function"], NO_FUNCTION)
    spellings, index = _spelled(spans, function, dict(names or {}))
    bad = (spans["kind"] > max(Kind)) | (spans["source"] > layout.SPAN_SIMULATED)
    keep = np.flatnonzero(~bad)
    return build(
        spans["start_ns"][keep], spans["end_ns"][keep], spans["stream"][keep], spellings, index[keep],
        grid=_blocks(spans)[keep], block=spans["threads"][keep], channels=spans["channels"][keep],
        kind=kind[keep], function=np.where(kind == Kind.COLLECTIVE, function, NO_FUNCTION)[keep],
        slot=_minus_one(spans["slot"], layout.UNKNOWN_RANK)[keep], call=_minus_one(spans["call"], layout.NO_CALL)[keep],
        size=spans["bytes"][keep], rank=rank, sms=sms, source=KERNEL_RING, malformed=int(bad.sum()),
    )  # fmt: skip


def _spelled(
    spans: NDArray[Any], function: NDArray[Any], known: Mapping[int, str]
) -> tuple[list[str], NDArray[np.int64]]:
    """The names, and the index of each span's. NCCL's own events have none: such a collective is called by its
    function, as NCCL's kernels are, so that whoever reads the name knows what it is."""
    hashes, index = np.unique(spans["name"], return_inverse=True)
    spellings = [known.get(int(value), f"kernel#{value:08x}") for value in hashes]
    nameless = (spans["name"] == 0) & (spans["kind"] == Kind.COLLECTIVE) & (function != NO_FUNCTION)
    for one in (one for one in Function if (nameless & (function == one)).any()):
        index = np.where(nameless & (function == one), len(spellings), index)
        spellings.append(f"ncclDevKernel_{one.name.title().replace('_', '')}")
    return spellings, index.astype(np.int64)


def _blocks(spans: NDArray[Any]) -> NDArray[Any]:
    """Thread blocks of each kernel; 0 = unknown, where the record holds the grid's x alone."""
    return spans["blocks"] if "blocks" in (spans.dtype.names or ()) else np.zeros(spans.size, np.int64)


def _minus_one(values: NDArray[Any], nothing: int) -> NDArray[np.int64]:
    """``values`` with the marker for "not known" turned into -1, and garbage past int64 into it as well."""
    wide = values.astype(np.uint64)
    unknown = (wide == np.uint64(nothing)) | (wide > np.uint64(2**63 - 1))
    return np.where(unknown, np.uint64(0), wide).astype(np.int64) + np.where(unknown, np.int64(NO_CALL), 0)


def from_simulator(
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
