"""What one iteration does: which compute runs beside which communication. Two ways to know it.

:class:`LumpedProgram` knows only the sites. Of each site a fitted share ``e_j`` is exposed, the rest runs beside
compute in a few overlap groups whose balance of X and Y is spread out; groups are simulated one by one and added up.

:class:`TracedProgram` knows the kernels of one typical iteration (``kernels.py`` reads them) and simulates all of it.

Both turn communication times and slow-downs into Z and Y by simulating the two queues (``events.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lagom.cost import model
from lagom.cost.events import Run, Schedule, one_segment, two_queues
from lagom.cost.parameters import Array, Parameters

GROUPS = np.array([-1.2816, -0.5244, 0.0, 0.5244, 1.2816])  # normal quantiles 10, 30, 50, 70, 90 %


class IterationModel(Protocol):
    """What the model needs to know about an iteration. Arrays have the axes (parameter set, window[, site])."""

    def sm_loss(self, nc: Array, share: Array) -> Array:
        """rho of the compute that runs beside each site, for NC channels of which each takes ``share`` of the SMs."""
        ...

    def run(self, x: Array, slow: Array, parameters: Parameters, stock_slow: Callable[[], Array]) -> Run:
        """Z and Y in ns, shape (q, w), from each site's time in one iteration and its slow-down, shape (q, w, sites).

        ``stock_slow`` says, if asked, the slow-down under NCCL's own configs, shape (q, 1, sites).
        """
        ...


@dataclass(frozen=True, slots=True)
class LumpedProgram:
    """An iteration of which only the number of sites is known."""

    sites: int

    def sm_loss(self, nc: Array, share: Array) -> Array:
        return model.sm_loss(nc, share)

    def run(self, x: Array, slow: Array, parameters: Parameters, stock_slow: Callable[[], Array]) -> Run:
        groups = len(GROUPS)
        balance = np.exp(parameters["unlike"][:, :, None] * GROUPS)
        quiet = parameters["compute"][:, :, None] * balance / balance.sum(-1, keepdims=True)
        hidden = x * (1.0 - parameters.exposed) / groups
        run = one_segment(hidden[:, :, None, :], quiet, slow[:, :, None, :])
        exposed = (x * parameters.exposed).sum(-1)
        return Run(run.z.sum(-1) + exposed, run.y.sum(-1))


@dataclass(frozen=True, slots=True)
class TracedProgram:
    """An iteration as traced once, under NCCL's own configs.

    schedule    who waits for whom
    comm_site   (comms,)          the site of each communication
    comm_share  (comms,)          its part of that site's time in one iteration (sums to 1 a site)
    alone       (segments,)       ns of each segment that ran with nothing beside it
    under       (segments, sites) ns of it that ran beside each site, as measured, so slowed down
    idle        (segments,)       ns inside a segment in which nothing ran and nothing was awaited (launch gaps)
    rho         (sites, taken)    wave loss of the kernels beside each site when 0, 1, 2... SMs are taken; None where
                                  grids are unknown
    sms         lambda, 0 where unknown
    """

    schedule: Schedule
    comm_site: tuple[int, ...]
    comm_share: Array
    alone: Array
    under: Array
    idle: Array
    rho: Array | None = None
    sms: int = 0

    def sm_loss(self, nc: Array, share: Array) -> Array:
        if self.rho is None:
            return model.sm_loss(nc, share)
        taken = np.broadcast_to(share * self.sms * nc, np.broadcast_shapes(share.shape, nc.shape))
        columns = np.arange(self.rho.shape[1])
        return np.stack([np.interp(taken[..., site], columns, row) for site, row in enumerate(self.rho)], axis=-1)

    def run(self, x: Array, slow: Array, parameters: Parameters, stock_slow: Callable[[], Array]) -> Run:
        shape = x.shape[:2]
        site = np.array(self.comm_site, dtype=np.intp)
        quiet, idle = self._quiet(stock_slow(), parameters)
        run = two_queues(
            self.schedule,
            (x[..., site] * self.comm_share).reshape(-1, len(site)),
            np.broadcast_to(quiet, (*shape, len(self.alone))).reshape(-1, len(self.alone)),
            slow[..., site].reshape(-1, len(site)),
        )
        return Run(run.z.reshape(shape), run.y.reshape(shape) - idle.sum(-1))

    def _quiet(self, stock_slow: Array, parameters: Parameters) -> tuple[Array, Array]:
        """y_i0 of each segment, launch gaps included, and the gaps alone; shape (q, 1, segments).

        The traced time with its slow-down taken out, scaled so that the work adds up to the fitted Y0.
        """
        work = self.alone + (self.under / stock_slow[:, :, None, :]).sum(-1)
        scale = parameters["compute"][:, :, None] / work.sum(-1, keepdims=True)
        return (work + self.idle) * scale, self.idle * scale
