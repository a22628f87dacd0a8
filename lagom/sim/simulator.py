# SPDX-License-Identifier: Apache-2.0
"""The simulator: a workload on a machine under a set of knobs, with noise-free results cached.

``run`` is exact arithmetic and cached by group and by the configs of that group's sites (a group starts and ends with
both queues empty, so nothing else matters to it); noise is put on top of cached results by ``sample``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lagom.errors import LagomError
from lagom.records import STOCK, Algorithm, Assignment, CommConfig, Function, Knobs, Problem, Protocol, Sample, Site
from lagom.sim.contention import transfer
from lagom.sim.group_simulator import GroupSimulator
from lagom.sim.half_batches import ALL_TO_ALL
from lagom.sim.machine import MachineModel
from lagom.sim.operations import Applied, GroupTimes, OverlapGroup, Span, Workload

#: One iteration in this many has a straggler, which adds up to :data:`_STRAGGLER` of Z.
_STRAGGLER_EVERY = 100
_STRAGGLER = 0.3


def noisy(times: Iteration, rng: np.random.Generator, noise: float) -> Sample:
    """``noise``: one standard deviation as a share of Z; X, Y and x by site jitter half as much again around it."""
    if noise <= 0.0:
        return Sample(times.z, times.x, times.y, times.x_by_site)
    count = len(times.x_by_site)
    jitter = rng.standard_normal(3 + count).tolist()
    whole = 1.0 + noise * jitter[0]
    late = rng.random()
    if late * _STRAGGLER_EVERY < 1.0:
        whole += _STRAGGLER * late * _STRAGGLER_EVERY
    part = 0.5 * noise
    by_site = tuple(x * whole * (1.0 + part * j) for x, j in zip(times.x_by_site, jitter[3:], strict=True))
    return Sample(
        times.z * whole, times.x * whole * (1.0 + part * jitter[1]), times.y * whole * (1.0 + part * jitter[2]), by_site
    )


#: What may be set, and how many channels at most (``None``: what NCCL built).
KNOB_SETS: dict[str, tuple[Knobs, int | None]] = {
    "fork": (Knobs(channels=True, algorithm=True, chunk=True, threads=True), 64),
    "stock_2_30": (Knobs(channels=True, algorithm=True, chunk=True, threads=False), None),
    "stock_2_30_nt": (Knobs(channels=True, algorithm=True, chunk=True, threads=True), None),
    "stock_2_28": (Knobs(channels=True, algorithm=True, chunk=False, threads=False), None),
}


class SimulatorError(LagomError):
    """Raised when the simulator is asked for something that no NCCL could run."""


@dataclass(slots=True)
class Iteration:
    """One noise-free iteration, ns. ``x_by_site`` follows the problem's sites (its sum is less than ``x`` where some
    collectives are not tunable). ``kernels`` are made on first use."""

    z: float
    x: float
    y: float
    x_by_site: tuple[float, ...]
    _spans: Callable[[], list[Span]] = field(repr=False)

    @property
    def kernels(self) -> list[Span]:
        """Every kernel's span, in order of its end, times from the iteration's start."""
        return self._spans()


@dataclass(frozen=True, slots=True)
class OpCall:
    """A collective call of the iteration. ``site`` is the problem's site, or -1 where no tuner can reach it."""

    site: int
    function: Function
    bytes: int
    ranks: int


class Simulator:
    """One workload on one machine under one knob set. Deterministic but for :meth:`sample`."""

    def __init__(self, workload: Workload, machine: MachineModel, knobs: str = "stock_2_30", seed: int = 0) -> None:
        """``seed`` seeds the generator that :meth:`sample` uses when it is given none."""
        if knobs not in KNOB_SETS:
            raise SimulatorError(f"no knob set named {knobs!r}; use one of {', '.join(KNOB_SETS)}")
        self.workload, self.machine, self.knobs = workload, machine, knobs
        self.groups: tuple[OverlapGroup, ...] = workload.build(machine)
        self.ceiling = KNOB_SETS[knobs][1] or machine.built_channels
        self._rng = np.random.default_rng(seed)
        reached = ("tuner", "fork") if knobs == "fork" else ("tuner",)
        self._visible = [i for i, s in enumerate(workload.sites) if s.reach in reached]
        self._groups_simulated = [GroupSimulator(group, machine) for group in self.groups]
        self._runs: dict[Assignment, Iteration] = {}
        self._op_runs: dict[tuple[CommConfig, ...], Iteration] = {}
        self._ops = tuple(c for g in self.groups for _ in range(g.repeats) for c in g.collectives)
        self._call_of = {op.site: op for op in self._ops}
        for call in self._call_of.values():
            transfer(machine, call, self.applied(STOCK, call.function))  # refuses what this machine cannot connect

    # --- what is to be tuned --------------------------------------------------------------------------------------

    def problem(self) -> Problem:
        """The tuning problem: sites as a controller would name them, NCCL's own picks, and what is legal."""
        calls = [op.site for op in self._ops]
        shapes = [self.workload.sites[index] for index in self._visible]
        sites = tuple(
            Site(n, s.function, s.bytes, calls.count(i), s.context)
            for n, (i, s) in enumerate(zip(self._visible, shapes, strict=True))
        )
        algorithm = KNOB_SETS[self.knobs][0].algorithm
        usable = tuple(self._usable(s.function) if algorithm else () for s in shapes)
        stock = tuple(self.stock_config(s.function) for s in shapes)
        return Problem(sites, stock, self.ceiling, KNOB_SETS[self.knobs][0], usable, self.machine.default_chunk)

    def _usable(self, function: Function) -> tuple[tuple[int, int], ...]:
        """Algorithm and protocol pairs that NCCL offers for large calls (trees for AllReduce only; LL never pays)."""
        algorithms = (Algorithm.RING, Algorithm.TREE) if function == Function.ALL_REDUCE else (Algorithm.RING,)
        fast = self.machine.ll128 and function != ALL_TO_ALL
        protocols = (Protocol.SIMPLE, Protocol.LL128) if fast else (Protocol.SIMPLE,)
        return tuple((int(a), int(p)) for a in algorithms for p in protocols)

    def stock_config(self, function: Function) -> CommConfig:
        """What NCCL picks by itself for every large call of ``function``."""
        m = self.machine
        channels = m.p2p_channels if function == ALL_TO_ALL else m.built_channels
        return CommConfig(Algorithm.RING, Protocol.SIMPLE, channels, m.default_threads, m.default_chunk)

    @property
    def comm_ops(self) -> tuple[OpCall, ...]:
        """The collectives of one iteration in NCCL's order of calls."""
        place = {site: n for n, site in enumerate(self._visible)}
        return tuple(OpCall(place.get(op.site, -1), op.function, op.bytes, op.ranks) for op in self._ops)

    # --- running it -----------------------------------------------------------------------------------------------

    def run(self, assignment: Assignment) -> Iteration:
        """One noise-free iteration with one config for each site of :meth:`problem`; cached."""
        found = self._runs.get(assignment)
        if found is None:
            found = self._runs[assignment] = self._run(assignment)
        return found

    def run_ops(self, configs: tuple[CommConfig, ...]) -> Iteration:
        """The same with one config for each call of :attr:`comm_ops`; cached by the tuple."""
        if len(configs) != len(self._ops):
            raise SimulatorError(f"an iteration has {len(self._ops)} collectives; got {len(configs)} configs")
        found = self._op_runs.get(configs)
        if found is None:
            found = self._op_runs[configs] = self._run_ops(configs)
        return found

    def sample(self, assignment: Assignment, rng: np.random.Generator | None = None, noise: float = 0.02) -> Sample:
        """One iteration as a real job would measure it: the cached result under ``noise`` (a share of Z, one sigma)."""
        return noisy(self.run(assignment), rng or self._rng, noise)

    # --- parts of it, for the oracle ------------------------------------------------------------------------------

    @property
    def sites_by_group(self) -> tuple[tuple[int, ...], ...]:
        """For each group the problem's sites that matter to it; no site of ours matters to two."""
        place = {site: n for n, site in enumerate(self._visible)}
        return tuple(tuple(place[s] for s in group.sites if s in place) for group in self.groups)

    def run_group(self, number: int, configs: Mapping[int, CommConfig]) -> GroupTimes:
        """Noise-free times of one group with these configs, by the problem's sites; the others stock."""
        return self._groups_simulated[number].run(self._applied_by_site(configs))

    def effects(self, site: int, config: CommConfig) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """All that a config at this site of the problem does: the call's time alone and beside each kernel of its group
        (ns), and the slow-down of each kernel beside it. Equal effects: the configs run alike."""
        index = self._visible[site]
        applied = self.applied(config, self.workload.sites[index].function)
        group = next(sim for sim in self._groups_simulated if index in sim.group.sites)
        return group.effects(self._call_of[index], applied)

    def stock(self) -> Assignment:
        """NCCL untouched."""
        return Assignment.stock(len(self._visible))

    # --- inside -----------------------------------------------------------------------------------------------------

    def applied(self, config: CommConfig, function: Function) -> Applied:
        """``config`` on top of NCCL's pick, held to what the machine and the knob set can do."""
        stock = self.stock_config(function)
        full = config.over(stock)
        assert full.channels is not None
        assert full.threads is not None
        assert full.chunk_bytes is not None
        ceiling = max(self.ceiling, stock.channels or 0)
        chunk = min(full.chunk_bytes, self.machine.default_chunk)
        return Applied(full, max(1, min(full.channels, ceiling)), full.threads, chunk)

    def _run(self, assignment: Assignment) -> Iteration:
        if len(assignment) != len(self._visible):
            raise SimulatorError(f"the problem has {len(self._visible)} sites; got {len(assignment)} configs")
        by_site = self._applied_by_site(dict(enumerate(assignment.configs)))
        times = [sim.run(by_site) for sim in self._groups_simulated]
        return self._iteration(times, lambda: self._spans([by_site[op.site] for op in self._ops]))

    def _applied_by_site(self, configs: Mapping[int, CommConfig]) -> list[Applied]:
        """For each of the workload's sites what runs there, from configs by the problem's sites."""
        shapes = self.workload.sites
        by_site = [self.applied(STOCK, shape.function) for shape in shapes]
        for site, config in configs.items():
            index = self._visible[site]
            by_site[index] = self.applied(config, shapes[index].function)
        return by_site

    def _run_ops(self, configs: tuple[CommConfig, ...]) -> Iteration:
        applied = [self.applied(c, op.function) for c, op in zip(configs, self._ops, strict=True)]
        times, start = [], 0
        for sim in self._groups_simulated:
            count = sim.calls_per_run * sim.group.repeats
            times.append(sim.run_calls(applied[start : start + count]))
            start += count
        return self._iteration(times, lambda: self._spans(applied))

    def _iteration(self, times: Sequence[GroupTimes], spans: Callable[[], list[Span]]) -> Iteration:
        by_site = [0.0] * len(self.workload.sites)
        for group in times:
            for site, ns in group.x_by_site:
                by_site[site] += ns
        visible = tuple(by_site[index] for index in self._visible)
        z, x, y = (sum(getattr(t, key) for t in times) for key in ("z", "x", "y"))
        return Iteration(z, x, y, visible, spans)

    def _spans(self, applied: Sequence[Applied]) -> list[Span]:
        spans: list[Span] = []
        now, start, place = 0.0, 0, {site: n for n, site in enumerate(self._visible)}
        for sim in self._groups_simulated:
            for _ in range(sim.group.repeats):
                times = sim.spans(applied[start : start + sim.calls_per_run])
                kernels = sum(s.queue == "compute" for s in spans)
                spans.extend(
                    _shifted(span, now, start if span.queue == "comm" else kernels, place) for span in times.spans
                )
                now += times.z
                start += sim.calls_per_run
        return spans


def _shifted(span: Span, by_ns: float, by_op: int, place: dict[int, int]) -> Span:
    site: Any = place.get(span.site, -1)
    return Span(
        span.queue, span.name, span.start + by_ns, span.end + by_ns, span.op + by_op, site, span.grid, span.block
    )
