# SPDX-License-Identifier: Apache-2.0
"""From an assignment to Z, Y and every x_j: the equations put together for one tuning problem.

A :class:`CostModel` holds what is known for sure (the sites, their bytes and calls, NCCL's own pick, the program); the
parameters are passed in. It evaluates many parameter sets on many assignments at once, which is what makes a Jacobian,
or a search over the ladders, one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lagom.cost import equations
from lagom.cost.iteration import IterationModel, LumpedIteration, SimulatedTimes
from lagom.cost.parameters import Array, Pair, Parameters, decode
from lagom.records import Algorithm, Assignment, Problem, Protocol


@dataclass(frozen=True, slots=True)
class Times:
    """Predicted times of an iteration in ns: ``z`` and ``y`` (q, windows), ``x`` (q, windows, sites)."""

    z: Array
    y: Array
    x: Array

    @property
    def logs(self) -> Array:
        """All logarithms side by side, shape (q, windows, 2 + sites): z, y, x_1 ... x_n."""
        return np.log(np.concatenate([self.z[..., None], self.y[..., None], self.x], axis=-1))


@dataclass(frozen=True, slots=True)
class Resources:
    """What each site really runs with: NC, C in bytes, and the place of its (A, P) in ``CostModel.pairs`` plus 1 (0 =
    NCCL's own pick). Shape (windows, sites) each."""

    nc: Array
    chunk: Array
    pair: npt.NDArray[np.intp]

    def __getitem__(self, windows: slice) -> Resources:
        return Resources(self.nc[windows], self.chunk[windows], self.pair[windows])


@dataclass(frozen=True, slots=True)
class CostModel:
    """The model of one problem. ``wire`` and ``passes`` are W_j and kappa_j, ``calls`` the calls of an iteration,
    ``pairs`` the algorithms and protocols that may be tried besides NCCL's own pick, at one site at least."""

    contexts: tuple[str, ...]
    wire: Array
    passes: Array
    calls: Array
    stock: Resources
    pairs: tuple[Pair, ...]
    nc_ceiling: float
    chunk_ceiling: float
    program: IterationModel

    @property
    def sites(self) -> int:
        return len(self.contexts)

    def resources(self, assignments: Sequence[Assignment]) -> Resources:
        """What would really run; open knobs take NCCL's own pick.

        NCCL never exceeds the channels and the buffers it built, so larger values are cut to the ceilings.
        """
        nc = [[config.channels or 0 for config in assignment.configs] for assignment in assignments]
        chunk = [[config.chunk_bytes or 0 for config in assignment.configs] for assignment in assignments]
        places: dict[object, int] = {pair: place for place, pair in enumerate(self.pairs, start=1)}
        pair = [
            [places.get((config.algorithm, config.protocol), 0) for config in assignment.configs]
            for assignment in assignments
        ]
        channels, chunks = np.array(nc, dtype=float), np.array(chunk, dtype=float)
        return Resources(
            np.where(channels > 0, np.minimum(channels, self.nc_ceiling), self.stock.nc),
            np.where(chunks > 0, np.minimum(chunks, self.chunk_ceiling), self.stock.chunk),
            np.array(pair, dtype=np.intp),
        )

    def times(self, theta: Array, resources: Resources) -> Times:
        """Times for parameter sets ``theta`` (q, coordinates) on every window of ``resources``."""
        parameters = decode(theta, self.sites)
        x, slow = self.beside(parameters, resources)
        run = self.run(parameters, x, slow)
        return Times(run.z, run.y, x)

    def beside(self, p: Parameters, resources: Resources) -> tuple[Array, Array]:
        """Each site's time in an iteration in ns, and the factor by which compute is slower beside it; both of shape
        (q, windows, sites). They depend on nothing but the site's own config."""
        nc = resources.nc[None]
        chunk = resources.chunk * p.pair_chunk[:, resources.pair]
        per_call = self._call_time(p, nc, chunk, p.pair_speed[:, resources.pair])
        return per_call * self.calls, self._slowdown(p, nc, chunk, per_call)

    def run(self, p: Parameters, x: Array, slow: Array) -> SimulatedTimes:
        """Z and Y of the whole from what :meth:`beside` says of the parts."""
        return self.program.run(x, slow, p, lambda: self.beside(p, self.stock)[1])

    def _call_time(self, p: Parameters, nc: Array, chunk: Array, speed: Array) -> Array:
        per_channel = equations.channel_bandwidth(chunk, p.per_site("channel"), p.per_site("half_chunk"))
        bandwidth = equations.link_bandwidth(nc, per_channel, p.per_site("link"), p.per_site("knee"))
        bandwidth = bandwidth / equations.spill(nc, chunk, p.per_site("spill"), p.per_site("footprint")) * speed / p.eta
        return equations.communication_time(self.wire, nc, chunk, bandwidth, p.per_site("t0"), p.per_site("fill"))

    def _slowdown(self, p: Parameters, nc: Array, chunk: Array, per_call: Array) -> Array:
        use = equations.bandwidth_use(
            self.wire, per_call, chunk, self.passes, p.per_site("memory"), p.per_site("cache")
        )
        rho = equations.sm_loss(nc, p.per_site("sm"))
        return equations.slowdown(rho, nc, use, p.per_site("step"), p.per_site("bound"))


def model_of(problem: Problem, program: IterationModel | None = None) -> CostModel:
    """The cost model of ``problem``; without a traced ``program`` only the sites are known and the model is lumped."""
    sites = problem.sites
    others = {
        (Algorithm(a), Protocol(p))
        for pick, pairs in zip(problem.stock, problem.usable, strict=False)  # none offered: ()
        for a, p in pairs
        if (a, p) != (pick.algorithm, pick.protocol)
    }
    chunk = [pick.chunk_bytes or problem.chunk_ceiling for pick in problem.stock]
    return CostModel(
        contexts=tuple(site.context for site in sites),
        wire=np.array([equations.wire_bytes(site.function, site.bytes) for site in sites]),
        passes=np.array([equations.MEMORY_PASSES.get(site.function, 2.0) for site in sites]),
        calls=np.array([float(max(1, site.calls_per_iteration)) for site in sites]),
        stock=Resources(
            np.array([problem.stock_channels], dtype=float),
            np.array([chunk], dtype=float),
            np.zeros((1, len(sites)), dtype=np.intp),
        ),
        pairs=tuple(sorted(others)),
        nc_ceiling=float(problem.channels_ceiling),
        chunk_ceiling=float(problem.chunk_ceiling),
        program=program if program is not None else LumpedIteration(len(sites)),
    )
