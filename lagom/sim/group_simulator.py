# SPDX-License-Identifier: Apache-2.0
"""One group of an iteration on one machine: what its collectives and kernels do to each other; its times, cached."""

from __future__ import annotations

from collections.abc import Sequence

from lagom.records import Algorithm, Function
from lagom.sim.contention import alone_ns, arrival_ns, contended_ns, contended_transfer_ns, transfer
from lagom.sim.engine import Head, KernelRow, Script, play, play_spans, write_out
from lagom.sim.machine import MachineModel
from lagom.sim.operations import Applied, Collective, ComputeKernel, GroupTimes, OverlapGroup


class GroupSimulator:
    """One group on one machine: its script, its kernels alone, and heads and results by config, cached."""

    def __init__(self, group: OverlapGroup, machine: MachineModel) -> None:
        self.group, self.machine = group, machine
        kernels = list(dict.fromkeys(op.kernel for s in group.segments for op in s.compute))
        self._kernels: list[ComputeKernel] = kernels
        self._rows = [KernelRow(alone_ns(machine, k) + machine.launch_ns, arrival_ns(machine, k), k) for k in kernels]
        self._script: Script = write_out(group, {kernel: n for n, kernel in enumerate(kernels)})
        self._collectives = group.collectives
        self._heads: dict[tuple[Collective, Applied], Head] = {}
        self._results: dict[tuple[Applied, ...], GroupTimes] = {}

    @property
    def calls_per_run(self) -> int:
        return len(self._collectives)

    def run(self, by_site: Sequence[Applied]) -> GroupTimes:
        key = tuple(by_site[site] for site in self.group.sites)
        found = self._results.get(key)
        if found is None:
            heads = [self._head(c, by_site[c.site]) for c in self._collectives]
            once = play(self._script, self._rows, heads)
            found = self._results[key] = _times(once, self.group.repeats)
        return found

    def run_calls(self, applied: Sequence[Applied]) -> GroupTimes:
        """One config a call; falls back on the cache if every site's calls agree."""
        by_site: dict[int, Applied] = {}
        calls = self._collectives * self.group.repeats
        if all(by_site.setdefault(c.site, a) == a for c, a in zip(calls, applied, strict=True)):
            table = [applied[0]] * (max(by_site) + 1) if by_site else []
            for site, config in by_site.items():
                table[site] = config
            return self.run(table)
        size = self.calls_per_run
        return _sum([self._played(applied[n * size : (n + 1) * size]) for n in range(self.group.repeats)])

    def effects(self, collective: Collective, applied: Applied) -> tuple[tuple[float, ...], tuple[float, ...]]:
        head = self._head(collective, applied)
        return (head.ns, *(head.ns * s for s in head.stretch)), head.burden

    def spans(self, applied: Sequence[Applied]) -> GroupTimes:
        heads = [self._head(c, a) for c, a in zip(self._collectives, applied, strict=True)]
        return play_spans(self._script, self._rows, heads)

    def _played(self, applied: Sequence[Applied]) -> GroupTimes:
        heads = [self._head(c, a) for c, a in zip(self._collectives, applied, strict=True)]
        return play(self._script, self._rows, heads, skip=False)

    def _head(self, collective: Collective, applied: Applied) -> Head:
        key = (collective, applied)
        found = self._heads.get(key)
        if found is None:
            found = self._heads[key] = self._make_head(collective, applied)
        return found

    def _make_head(self, collective: Collective, applied: Applied) -> Head:
        alone = transfer(self.machine, collective, applied)
        m = self.machine
        stretch = tuple(contended_transfer_ns(m, k, alone) / alone.ns for k in self._kernels)
        burden = tuple(contended_ns(m, k, alone) / alone_ns(m, k) for k in self._kernels)
        warp = 32 if applied.config.algorithm in (None, Algorithm.RING) else 128  # the extra warps NCCL adds
        name = f"ncclDevKernel_{_KERNEL_NAMES.get(collective.function, 'SendRecv')}_RING_LL"
        return Head(alone.ns, stretch, burden, name, applied.channels, applied.threads + warp)


_KERNEL_NAMES = {
    Function.ALL_GATHER: "AllGather",
    Function.REDUCE_SCATTER: "ReduceScatter_Sum_bf16",
    Function.ALL_REDUCE: "AllReduce_Sum_bf16",
}


def _times(once: GroupTimes, repeats: int) -> GroupTimes:
    by_site = tuple((site, ns * repeats) for site, ns in once.x_by_site)
    return GroupTimes(once.z * repeats, once.x * repeats, once.y * repeats, by_site)


def _sum(parts: Sequence[GroupTimes]) -> GroupTimes:
    by_site: dict[int, float] = {}
    for part in parts:
        for site, ns in part.x_by_site:
            by_site[site] = by_site.get(site, 0.0) + ns
    z, x, y = (sum(getattr(p, key) for p in parts) for key in ("z", "x", "y"))
    return GroupTimes(z, x, y, tuple(sorted(by_site.items())))
