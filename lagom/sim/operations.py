# SPDX-License-Identifier: Apache-2.0
"""What a simulated iteration consists of: kernels, collectives, segments, groups, workloads.

A GPU runs two in-order queues, compute and communication. A dependency across them therefore needs one number only:
"the other queue has finished its n-th operation". Operations are listed per repetition of a :class:`Segment` (a layer,
say), and the number is relative to that repetition: 0 is its first operation of the other queue, -1 the last one
before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lagom.records import CommConfig, Function
from lagom.sim.machine import MachineModel


@dataclass(frozen=True, slots=True)
class ComputeKernel:
    """A compute kernel as the scheduler and the memory see it; all of it follows from layer shapes.

    ``blocks`` threadblocks (for a persistent kernel: output tiles) of ``block_ns`` each, alone on an SM slot;
    ``per_sm`` of them fit one SM; ``threads`` in each. ``memory_bytes`` is the DRAM traffic with a clean L2, of which
    a share ``reuse`` more would be fetched if the L2 held nothing. ``pair`` is true for kernels scheduled as clusters
    of two SMs (Hopper GEMMs): one foreign block then costs them two SMs.
    """

    name: str
    blocks: int
    block_ns: float
    per_sm: int = 1
    threads: int = 256
    memory_bytes: float = 0.0
    reuse: float = 0.0
    persistent: bool = False
    pair: bool = False


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective; ``bytes`` is what NCCL hands a tuner (for AllGather and ReduceScatter the whole, over all ranks).

    ``sharers`` > 0: its ranks are on different hosts, and that many such communicators share a host's network.
    """

    site: int
    function: Function
    bytes: int
    ranks: int
    sharers: int = 0


@dataclass(frozen=True, slots=True)
class ComputeOp:
    """A kernel, and the operation of the communication queue that must have ended before it (``None``: none)."""

    kernel: ComputeKernel
    after_comm: int | None = None


@dataclass(frozen=True, slots=True)
class CommOp:
    """A collective, and the operation of the compute queue that must have ended before it (``None``: none)."""

    collective: Collective
    after_compute: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """``repeats`` equal repetitions of a stretch of both queues."""

    compute: tuple[ComputeOp, ...]
    comm: tuple[CommOp, ...]
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class OverlapGroup:
    """A stretch that starts and ends with both queues empty: nothing in one group can influence another.

    ``pattern`` names the overlap pattern; ``repeats`` is how often an iteration runs the group (micro-batches).
    """

    pattern: str
    segments: tuple[Segment, ...]
    repeats: int = 1

    @property
    def sites(self) -> tuple[int, ...]:
        """The sites whose configs matter to this group, ascending."""
        return tuple(sorted({op.collective.site for segment in self.segments for op in segment.comm}))

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """Every collective of one run of this group, in NCCL's order of calls."""
        return tuple(op.collective for segment in self.segments for _ in range(segment.repeats) for op in segment.comm)


@dataclass(frozen=True, slots=True)
class SiteShape:
    """What is common to the calls of one site, whatever the machine. ``reach`` says who can tune it: any tuner
    (``"tuner"``), only the paper's fork (``"fork"``: AlltoAll, for which stock NCCL calls no tuner), or nobody here
    (``"none"``: it belongs to another communicator)."""

    name: str
    function: Function
    bytes: int
    ranks: int
    context: str = ""
    reach: str = "tuner"


@dataclass(frozen=True, slots=True)
class Workload:
    """One training iteration on one of ``ranks`` equal GPUs. ``build`` turns the layer shapes into kernels for a
    machine (tiles, waves and memory traffic depend on it); its collectives index ``sites``."""

    name: str
    ranks: int
    sites: tuple[SiteShape, ...]
    build: Callable[[MachineModel], tuple[OverlapGroup, ...]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """One kernel as a timeline would show it. ``op`` counts the operations of its queue; ``site`` is -1 for compute.
    ``start`` and ``end`` in ns from the start of the iteration."""

    queue: str
    name: str
    start: float
    end: float
    op: int
    site: int
    grid: int
    block: int


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """Noise-free times of one run of a group, ns: length, both busy times, and communication time by site."""

    z: float
    x: float
    y: float
    x_by_site: tuple[tuple[int, float], ...]
    spans: tuple[Span, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Applied:
    """A config with every knob filled in: what NCCL would really run."""

    config: CommConfig
    channels: int
    threads: int
    chunk_bytes: int
