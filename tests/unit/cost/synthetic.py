# SPDX-License-Identifier: Apache-2.0
"""A small machine to try the cost model on, built on other equations than the model's.

FSDP of a few layers, kernel by kernel: waves with ceilings (or persistent kernels), each kernel slowed by whatever
communication runs when it starts; links saturate with a tanh, and every chunk costs a latency. Of ``lagom.cost``
only :class:`Observation` is used, to hand the measurements over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from lagom.records import Assignment, CommConfig, Function, Knobs, Observation, Problem, Sample, Site

LADDER_NC = (1, 2, 3, 4, 6, 8, 12, 16, 24)
LADDER_C = tuple(32 << (10 + power) for power in range(7))
MIB = 1 << 20


@dataclass(frozen=True)
class Machine:
    """``link`` and ``channel`` B/ns; ``chunk_ns`` latency of one chunk; ``memory`` B/ns; ``thrash`` slow-down of the
    link for each doubling of NC*C beyond 2 MiB."""

    sms: int = 132
    link: float = 300.0
    channel: float = 22.0
    chunk_ns: float = 4000.0
    memory: float = 4000.0
    thrash: float = 0.0


NVLINK = Machine()
HOST = Machine(link=25.0, channel=12.0, thrash=0.19)


@dataclass
class Timeline:
    """What ran: communications as (start, end, site), compute as (start, end)."""

    comms: list[tuple[float, float, int]] = field(default_factory=list)
    compute: list[tuple[float, float]] = field(default_factory=list)
    segment_ends: list[float] = field(default_factory=list)

    def sample(self, sites: int) -> Sample:
        x = [sum(end - start for start, end, site in self.comms if site == wanted) for wanted in range(sites)]
        y = sum(end - start for start, end in self.compute)
        z = max(*(end for _, end, _ in self.comms), *(end for _, end in self.compute))
        return Sample(z, sum(x), y, tuple(x))


@dataclass(frozen=True)
class Fsdp:
    """AllGather (site 0) is prefetched one layer ahead; ReduceScatter (site 1) follows each backward layer."""

    machine: Machine = NVLINK
    layers: int = 4
    layer_bytes: int = 416 * MIB
    kernel_ns: float = 400e3
    kernels: int = 6  # of a forward layer; a backward layer has twice as many
    blocks: int = 500
    persistent: bool = False
    stock_nc: int = 24
    memory_share: float = 0.3

    def problem(self, knobs: Knobs | None = None) -> Problem:
        sites = (
            Site(0, Function.ALL_GATHER, self.layer_bytes, 2 * self.layers, "hidden"),
            Site(1, Function.REDUCE_SCATTER, self.layer_bytes, self.layers, "hidden"),
        )
        stock = (CommConfig(channels=self.stock_nc, chunk_bytes=2 * MIB),) * 2
        return Problem(sites, stock, self.stock_nc, knobs or Knobs())

    def truth(self, assignment: Assignment) -> Sample:
        """One iteration without noise."""
        return self.timeline(assignment).sample(2)

    def timeline(self, assignment: Assignment) -> Timeline:
        """Segment by segment; before each, the communications whose turn has come are put on the link."""
        ran, pending = Timeline(), self._comms()
        for segment in range(2 * self.layers):
            self._put_on_link(ran, pending, segment, assignment)
            _, gathered, _ = ran.comms[self._gather_of(segment)]
            self._compute(ran, gathered, self.kernels * (1 if segment < self.layers else 2), assignment)
        self._put_on_link(ran, pending, 2 * self.layers, assignment)
        return ran

    def _comms(self) -> list[tuple[int, int]]:
        """(site, number of segments that must be over), in issue order."""
        forward = [(0, 0)] + [(0, max(0, layer - 1)) for layer in range(1, self.layers)]
        backward = [(0, self.layers - 1)]
        for layer in range(self.layers):
            backward += [(0, self.layers + layer)] if layer < self.layers - 1 else []
            backward += [(1, self.layers + layer + 1)]
        return forward + backward

    def _gather_of(self, segment: int) -> int:
        gathers = [place for place, (site, _) in enumerate(self._comms()) if site == 0]
        return gathers[segment]

    def _put_on_link(self, ran: Timeline, pending: list[tuple[int, int]], over: int, assignment: Assignment) -> None:
        while pending and pending[0][1] <= over:
            site, after = pending.pop(0)
            free = ran.comms[-1][1] if ran.comms else 0.0
            start = max(free, ran.segment_ends[after - 1] if after else 0.0)
            ran.comms.append((start, start + self.call(site, assignment[site]), site))

    def _compute(self, ran: Timeline, ready: float, kernels: int, assignment: Assignment) -> None:
        end = max(ready, ran.segment_ends[-1] if ran.segment_ends else 0.0)
        for _ in range(kernels):
            beside = next((site for begin, stop, site in ran.comms if begin <= end < stop), None)
            slow = 1.0 if beside is None else self.slow(beside, assignment[beside])
            ran.compute.append((end, end + self.kernel_ns * slow))
            end += self.kernel_ns * slow
        ran.segment_ends.append(end)

    def call(self, site: int, config: CommConfig) -> float:
        """ns of one call."""
        m, nc, c = self.machine, config.channels or self.stock_nc, config.chunk_bytes or 2 * MIB
        one = m.channel * c / (c + m.channel * m.chunk_ns)
        thrashing = 1.0 + m.thrash * max(0.0, math.log2(nc * c / (2 * MIB)))
        return 20e3 + (1.0 + 0.1 * site) * self.layer_bytes * thrashing / (m.link * math.tanh(nc * one / m.link))

    def slow(self, site: int, config: CommConfig) -> float:
        """How much longer a kernel takes beside that communication."""
        m, nc = self.machine, config.channels or self.stock_nc
        rho = math.ceil(self.blocks / (m.sms - nc)) / math.ceil(self.blocks / m.sms)
        if self.persistent:
            rho = 1.08 + nc / m.sms
        used = (2 + site) * self.layer_bytes / self.call(site, config) / m.memory
        return rho * (1.0 + self.memory_share * used / (1.0 - used))


def noisy(sample: Sample, random: np.random.Generator, noise: float) -> Sample:
    """A measured median: everything off by one factor, each x by a little of its own."""
    scaled = sample.scaled(math.exp(random.normal(0.0, noise)))
    x = tuple(time * math.exp(random.normal(0.0, noise)) for time in scaled.x_by_site or ())
    return Sample(scaled.z, sum(x), scaled.y, x)


def configs(stock_nc: int) -> list[CommConfig]:
    """Every NC and C of one site."""
    return [CommConfig(channels=nc, chunk_bytes=c) for nc in LADDER_NC if nc <= stock_nc for c in LADDER_C]


STOCK = Assignment.stock(2)
WORKLOADS = {
    "nvlink": Fsdp(),
    "comm-bound": Fsdp(kernel_ns=150e3),
    "compute-bound": Fsdp(kernel_ns=800e3),
    "persistent": Fsdp(persistent=True),
    "host": Fsdp(machine=HOST, kernel_ns=3e6, stock_nc=4),
}


def windows(workload: Fsdp, count: int, seed: int = 0) -> list[Assignment]:
    """Stock, and random configs whose NC and C are within a factor of 8 of stock's."""
    random = np.random.default_rng(seed)
    near = [c for c in configs(workload.stock_nc) if c.channels * 8 >= workload.stock_nc and c.chunk_bytes >= 256 << 10]
    picks = random.integers(len(near), size=(count - 1, 2))
    return [STOCK, *(Assignment((near[a], near[b])) for a, b in picks)]


def observe(workload: Fsdp, assignments: list[Assignment], noise: float = 0.004, seed: int = 1) -> list[Observation]:
    random = np.random.default_rng(seed)
    samples = ((a, noisy(workload.truth(a), random, noise)) for a in assignments)
    return [Observation(a, s.z, s.y, s.x_by_site, max(noise, 1e-3)) for a, s in samples]
