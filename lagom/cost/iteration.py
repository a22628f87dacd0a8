# SPDX-License-Identifier: Apache-2.0
"""What one iteration does: which compute runs beside which communication. Two ways to know it.

:class:`LumpedIteration` knows only the sites. Of each site a fitted share ``e_j`` is exposed, the rest runs beside
compute in a few overlap groups whose balance of X and Y is spread out; groups are simulated one by one and added up.

:class:`TracedIteration` knows the kernels of one typical iteration (read by ``traced_kernels.py``) and simulates all of
it.

Both turn communication times and slow-downs into Z and Y by simulating two queues with dependencies, where the paper's
Eq. 1 takes max(sum y, sum x).

One queue holds the communications (a communicator runs them one after another), the other the compute segments. Each
item waits for the one before it in its queue and for one item of the other. While a communication is in flight, compute
advances at 1/slowdown of its speed. Nothing else happens, so time jumps from one end to the next.

Many runs are simulated side by side (one a row): the order of events may differ from row to row, but every step ends at
least one item in every unfinished row, so as many steps as there are items suffice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lagom.cost.parameters import Array, Parameters
from lagom.errors import LagomError

GROUPS = np.array([-1.2816, -0.5244, 0.0, 0.5244, 1.2816])  # normal quantiles 10, 30, 50, 70, 90 %
FREE = -1

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]


class DependencyError(LagomError):
    """A schedule whose items wait for each other in a circle, or for items that do not exist."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who waits for whom. ``comm_after[k]``: the segment that must end before communication k starts;
    ``segment_after[s]``: the communication that must end before segment s starts. ``FREE`` = nobody."""

    comm_after: tuple[int, ...]
    segment_after: tuple[int, ...]

    def __post_init__(self) -> None:
        comms, segments = len(self.comm_after), len(self.segment_after)
        if any(not FREE <= after < segments for after in self.comm_after):
            raise DependencyError(f"a communication waits for a segment outside 0..{segments - 1}; check comm_after.")
        if any(not FREE <= after < comms for after in self.segment_after):
            raise DependencyError(f"a segment waits for a communication outside 0..{comms - 1}; check segment_after.")
        self._refuse_circles()

    def _refuse_circles(self) -> None:
        comm = segment = 0
        while comm < len(self.comm_after) or segment < len(self.segment_after):
            if comm < len(self.comm_after) and self.comm_after[comm] < segment:
                comm += 1
            elif segment < len(self.segment_after) and self.segment_after[segment] < comm:
                segment += 1
            else:
                raise DependencyError(
                    f"communication {comm} and segment {segment} wait for each other; one of the two must start first."
                )


@dataclass(frozen=True, slots=True)
class SimulatedTimes:
    """What happened, one row a simulated run: ``z`` makespan and ``y`` compute busy time, both in ns, shape (rows,)."""

    z: Array
    y: Array


def two_queues(schedule: Schedule, x: Array, quiet: Array, slow: Array) -> SimulatedTimes:
    """Simulate ``rows`` runs of ``schedule``.

    x      (rows, comms)     ns each communication takes
    quiet  (rows, segments)  ns each segment takes when nothing runs beside it
    slow   (rows, comms)     factor >= 1 by which compute is slower while that communication is in flight
    """
    return _Simulation(schedule, x, quiet, slow).run()


def one_segment(x: Array, quiet: Array, slow: Array) -> SimulatedTimes:
    """The same for one segment beside communications that nobody waits for, in closed form: what fits run a lot.

    x, slow (..., comms); quiet (...). Each communication lets compute do x/slow of its work; what is left over runs
    alone. Equal to :func:`two_queues` with ``Schedule((FREE,) * comms, (FREE,))``.
    """
    work = x / slow
    before = np.cumsum(work, axis=-1) - work
    beside = np.clip((quiet[..., None] - before) / work, 0.0, 1.0) * x
    y = beside.sum(-1) + np.maximum(0.0, quiet - work.sum(-1))
    return SimulatedTimes(np.maximum(x.sum(-1), y), y)


class _Simulation:
    """The state of all rows between two events. Queues end in a sentinel that nobody can start."""

    def __init__(self, schedule: Schedule, x: Array, quiet: Array, slow: Array) -> None:
        self.rows = np.arange(x.shape[0])
        self.x, self.quiet = _with_sentinel(x, np.inf), _with_sentinel(quiet, np.inf)
        self.slow = _with_sentinel(slow, 1.0)
        never = len(schedule.comm_after) + len(schedule.segment_after) + 1
        self.comm_after = np.array((*schedule.comm_after, never))
        self.segment_after = np.array((*schedule.segment_after, never))
        self.comm: Places = np.zeros(len(self.rows), dtype=np.intp)  # number of ended ones
        self.segment: Places = np.zeros(len(self.rows), dtype=np.intp)
        self.left_comm, self.left_segment = self.x[:, 0].copy(), self.quiet[:, 0].copy()
        self.steps = x.shape[1] + quiet.shape[1]

    def run(self) -> SimulatedTimes:
        z, y = np.zeros(len(self.rows)), np.zeros(len(self.rows))
        for _ in range(self.steps):
            elapsed, computing = self._advance()
            z += elapsed
            y += np.where(computing, elapsed, 0.0)
        return SimulatedTimes(z, y)

    def _advance(self) -> tuple[Array, Flags]:
        """Move every row to its next event; returns the time that passed and where compute was busy."""
        flying = self.comm_after[self.comm] < self.segment
        computing = self.segment_after[self.segment] < self.comm
        pace = np.where(flying, self.slow[self.rows, self.comm], 1.0)
        until_comm = np.where(flying, self.left_comm, np.inf)
        until_segment = np.where(computing, self.left_segment * pace, np.inf)
        elapsed = np.minimum(until_comm, until_segment)
        elapsed = np.where(np.isfinite(elapsed), elapsed, 0.0)
        self.left_comm = np.where(flying, self.left_comm - elapsed, self.left_comm)
        self.left_segment = np.where(computing, self.left_segment - elapsed / pace, self.left_segment)
        ended = flying & (until_comm <= until_segment)
        self.comm = self.comm + ended
        self.left_comm = np.where(ended, self.x[self.rows, self.comm], self.left_comm)
        ended = computing & (until_segment <= until_comm)
        self.segment = self.segment + ended
        self.left_segment = np.where(ended, self.quiet[self.rows, self.segment], self.left_segment)
        return elapsed, computing


def _with_sentinel(values: Array, last: float) -> Array:
    """``values`` with one more column, so that the head of an empty queue can be looked at."""
    return np.concatenate([np.asarray(values, dtype=float), np.full((values.shape[0], 1), last)], axis=1)


class IterationModel(Protocol):
    """What the model needs to know about an iteration. Arrays have the axes (parameter set, window[, site])."""

    def run(self, x: Array, slow: Array, parameters: Parameters, stock_slow: Callable[[], Array]) -> SimulatedTimes:
        """Z and Y in ns, shape (q, w), from each site's time in one iteration and its slow-down, shape (q, w, sites).

        ``stock_slow`` says, if asked, the slow-down under NCCL's own configs, shape (q, 1, sites).
        """
        ...


@dataclass(frozen=True, slots=True)
class LumpedIteration:
    """An iteration of which only the number of sites is known."""

    sites: int

    def run(self, x: Array, slow: Array, parameters: Parameters, stock_slow: Callable[[], Array]) -> SimulatedTimes:
        groups = len(GROUPS)
        balance = np.exp(parameters["unlike"][:, :, None] * GROUPS)
        quiet = parameters["compute"][:, :, None] * balance / balance.sum(-1, keepdims=True)
        hidden = x * (1.0 - parameters.exposed) / groups
        run = one_segment(hidden[:, :, None, :], quiet, slow[:, :, None, :])
        exposed = (x * parameters.exposed).sum(-1)
        return SimulatedTimes(run.z.sum(-1) + exposed, run.y.sum(-1))


@dataclass(frozen=True, slots=True)
class TracedIteration:
    """An iteration as traced once, under NCCL's own configs.

    schedule    who waits for whom
    comm_site   (comms,)          the site of each communication
    comm_share  (comms,)          its part of that site's time in one iteration (sums to 1 a site)
    alone       (segments,)       ns of each segment that ran with nothing beside it
    under       (segments, sites) ns of it that ran beside each site, as measured, so slowed down
    idle        (segments,)       ns inside a segment in which nothing ran and nothing was awaited (launch gaps)
    """

    schedule: Schedule
    comm_site: tuple[int, ...]
    comm_share: Array
    alone: Array
    under: Array
    idle: Array

    def run(self, x: Array, slow: Array, parameters: Parameters, stock_slow: Callable[[], Array]) -> SimulatedTimes:
        shape = x.shape[:2]
        site = np.array(self.comm_site, dtype=np.intp)
        quiet, idle = self._quiet(stock_slow(), parameters)
        run = two_queues(
            self.schedule,
            (x[..., site] * self.comm_share).reshape(-1, len(site)),
            np.broadcast_to(quiet, (*shape, len(self.alone))).reshape(-1, len(self.alone)),
            slow[..., site].reshape(-1, len(site)),
        )
        return SimulatedTimes(run.z.reshape(shape), run.y.reshape(shape) - idle.sum(-1))

    def _quiet(self, stock_slow: Array, parameters: Parameters) -> tuple[Array, Array]:
        """y_i0 of each segment, launch gaps included, and the gaps alone; shape (q, 1, segments).

        The traced time with its slow-down taken out, scaled so that the work adds up to the fitted Y0.
        """
        work = self.alone + (self.under / stock_slow[:, :, None, :]).sum(-1)
        scale = parameters["compute"][:, :, None] / work.sum(-1, keepdims=True)
        return (work + self.idle) * scale, self.idle * scale
