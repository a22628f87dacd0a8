"""A small machine to try the cost model on, built on other equations than the model's.

FSDP of a few layers. Compute is a list of kernels with grids (waves with ceilings; or persistent ones), each slowed by
the communication that runs when it starts; links saturate with a tanh, chunks cost a latency a step. Nothing here is
imported by, or imports, ``lagom.cost``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lagom.records import Assignment, CommConfig, Function, Sample, Site
from lagom.search.session import Knobs, Problem

LADDER_NC = (1, 2, 3, 4, 6, 8, 12, 16, 24)
LADDER_C = tuple(32 << (10 + power) for power in range(7))


@dataclass(frozen=True)
class Machine:
    sms: int = 132
    link: float = 300.0  # B/ns
    channel: float = 22.0  # B/ns
    step_ns: float = 4000.0  # latency of one chunk step
    memory: float = 4000.0  # B/ns
    thrash: float = 0.0  # slow-down of the link for each doubling of NC*C beyond 2 MiB


@dataclass(frozen=True)
class Fsdp:
    machine: Machine = Machine()
    layers: int = 4
    layer_bytes: int = 416 << 20
    kernel_ns: float = 400e3
    kernels: int = 6  # a layer's forward; backward has twice as many
    blocks: int = 500  # of a kernel's grid
    persistent: bool = False
    stock_nc: int = 24
    memory_share: float = 0.3

    def problem(self, knobs: Knobs | None = None) -> Problem:
        sites = (
            Site(0, Function.ALL_GATHER, self.layer_bytes, 2 * self.layers, "hidden"),
            Site(1, Function.REDUCE_SCATTER, self.layer_bytes, self.layers, "hidden"),
        )
        stock = (CommConfig(channels=self.stock_nc, chunk_bytes=2 << 20),) * 2
        return Problem(sites, stock, self.stock_nc, knobs or Knobs())

    def call(self, site: int, config: CommConfig) -> float:
        m, nc, c = self.machine, config.channels or self.stock_nc, config.chunk_bytes or 2 << 20
        one = m.channel * c / (c + m.channel * m.step_ns)
        rate = m.link * math.tanh(nc * one / m.link) / (1 + m.thrash * max(0.0, math.log2(nc * c / (2 << 20))))
        return 20e3 + (1.0 + 0.1 * site) * self.layer_bytes / rate

    def slow(self, site: int, config: CommConfig) -> float:
        m, nc = self.machine, config.channels or self.stock_nc
        if self.persistent:
            rho = 1.08 + nc / m.sms
        else:
            rho = math.ceil(self.blocks / (m.sms - nc)) / math.ceil(self.blocks / m.sms)
        used = (2 + site) * self.layer_bytes / self.call(site, config) / m.memory
        return rho * (1 + self.memory_share * used / (1 - used))

    def run(self, assignment: Assignment) -> Sample:
        """One iteration without noise: forward layer l needs gather l; backward likewise, then scatters."""
        comms, needs = self._comms()
        compute_free, link_free, busy, x = 0.0, 0.0, 0.0, [0.0, 0.0]
        ends: list[tuple[float, float, int]] = []
        done_segment: list[float] = []
        pending = list(comms)
        for segment, gather in enumerate(needs):
            link_free = self._issue(pending, len(done_segment), done_segment, link_free, ends, x, assignment)
            start = max(compute_free, ends[gather][1])
            end = start
            for _ in range(self.kernels * (1 if segment < self.layers else 2)):
                beside = next((site for begin, stop, site in ends if begin <= end < stop), None)
                slow = 1.0 if beside is None else self.slow(beside, assignment[beside])
                end += self.kernel_ns * slow
            busy += end - start
            compute_free = end
            done_segment.append(end)
        link_free = self._issue(pending, len(done_segment), done_segment, link_free, ends, x, assignment)
        return Sample(max(compute_free, link_free), sum(x), busy, (x[0], x[1]))

    def _comms(self) -> tuple[list[tuple[int, int]], list[int]]:
        """Communications as (site, segments that must be done first), and the gather each segment needs."""
        comms = [(0, 0)] + [(0, layer) for layer in range(self.layers)]
        needs = list(range(self.layers))
        for layer in range(self.layers):
            needs.append(next(i for i, c in enumerate(comms) if c == (0, self.layers + layer - 1)) if layer else self.layers)
            if layer < self.layers - 1:
                comms.append((0, self.layers + layer))
            comms.append((1, self.layers + layer + 1))
        return comms, needs

    def _issue(self, pending, done, ends_of, link_free, ends, x, assignment) -> float:  # type: ignore[no-untyped-def]
        while pending and pending[0][1] <= done:
            site, after = pending.pop(0)
            start = max(link_free, ends_of[after - 1] if after else 0.0)
            took = self.call(site, assignment[site])
            ends.append((start, start + took, site))
            x[site] += took
            link_free = start + took
        return link_free


def noisy(sample: Sample, rng, noise: float) -> Sample:  # type: ignore[no-untyped-def]
    """A measured median: all times off by one common factor, each x by a little of its own."""
    common = math.exp(rng.normal(0.0, noise))
    scaled = sample.scaled(common)
    x = tuple(time * math.exp(rng.normal(0.0, noise)) for time in scaled.x_by_site or ())
    return Sample(scaled.z, sum(x), scaled.y, x)
