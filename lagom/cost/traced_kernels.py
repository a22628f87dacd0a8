# SPDX-License-Identifier: Apache-2.0
"""From the kernels of one typical iteration, run under NCCL's own configs, to a :class:`TracedIteration`.

Who waits for whom is not written in a timeline, but most of it shows:

- a communication that starts while its queue was idle was set off by the compute that ended just before it;
- compute that resumes after a gap, just after a communication ended, was waiting for it.

Both are *sync points* of the compute queue; what lies between two of them is a segment. The rest is inferred: a
communication that started back to back with the one before it could have started as early as that one, as far as
compute is concerned, and its result is needed by the first segment that begins at a sync point after its end.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from lagom.cost.iteration import FREE, Schedule, TracedIteration
from lagom.cost.parameters import Array
from lagom.errors import LagomError
from lagom.records import Function, Problem

MOST_ITEMS = 600  # a simulation takes about 0.1 ms for each of them
TOLERANCE = 10_000.0  # ns: gaps up to this are launch latency, not waiting (as in the definition of overlap groups)


class KernelTraceError(LagomError):
    """Kernels from which no program can be read."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of the iteration: ``start`` and ``end`` in ns on one clock. ``site`` is the site of a communication,
    ``None`` for compute."""

    start: float
    end: float
    site: int | None = None


@dataclass(frozen=True, slots=True)
class _Busy:
    """Compute busy time as a function of time: ``until(t)`` = ns of compute that ran before t."""

    times: Array
    total: Array

    def until(self, moment: Array) -> Array:
        return np.interp(moment, self.times, self.total)


def traced_program(kernels: Sequence[Kernel], sites: int, lasting: Collection[int] = ()) -> TracedIteration:
    """Read a program from one iteration's kernels.

    ``lasting``: sites whose results compute needs only where it is seen waiting for them (a ReduceScatter of gradients
    is for the optimizer, not for the next layer).
    """
    comms = sorted((kernel for kernel in kernels if kernel.site is not None), key=lambda kernel: kernel.start)
    compute = sorted((kernel for kernel in kernels if kernel.site is None), key=lambda kernel: kernel.start)
    _refuse_nonsense(comms, compute, sites)
    spans = _merge(compute)
    cuts = _sync_points(comms, spans)
    if len(comms) + len(cuts) > MOST_ITEMS:
        raise KernelTraceError(
            f"the iteration has {len(comms)} communications and {len(cuts)} segments, more than {MOST_ITEMS} together: "
            "too long to simulate at every step; go on without a traced program."
        )
    schedule = Schedule(_triggers(comms, cuts), _consumers(comms, cuts, lasting))
    alone, under, idle = _work(comms, spans, cuts, sites)
    site_of = tuple(comm.site for comm in comms if comm.site is not None)
    return TracedIteration(schedule, site_of, _shares(comms, sites), alone, under, idle)


def program_of(problem: Problem, kernels: Sequence[Kernel]) -> TracedIteration:
    """The program of ``problem`` as traced; what its functions say about who needs their results is used."""
    lasting = {site.index for site in problem.sites if site.function == Function.REDUCE_SCATTER}
    return traced_program(kernels, len(problem.sites), lasting)


def _refuse_nonsense(comms: Sequence[Kernel], compute: Sequence[Kernel], sites: int) -> None:
    if not comms or not compute:
        raise KernelTraceError("the trace has no communication or no compute; record at least one whole iteration.")
    if any(kernel.end < kernel.start for kernel in (*comms, *compute)):
        raise KernelTraceError("a kernel ends before it starts; drop it or record again.")
    if {comm.site for comm in comms} != set(range(sites)):
        raise KernelTraceError(f"the trace must show each of the {sites} sites; record a whole iteration.")


def _merge(kernels: Sequence[Kernel]) -> list[tuple[float, float]]:
    """Spans in which at least one kernel runs, ascending (compute may use several streams)."""
    spans: list[tuple[float, float]] = []
    for kernel in kernels:
        if spans and kernel.start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], kernel.end))
        else:
            spans.append((kernel.start, kernel.end))
    return spans


def _sync_points(comms: Sequence[Kernel], spans: Sequence[tuple[float, float]]) -> list[float]:
    """Moments at which one queue waited for the other, ascending; the first is the start of compute."""
    points = {spans[0][0]}
    comm_ends = np.array([comm.end for comm in comms])
    for (_, gap_start), (gap_end, _) in itertools.pairwise(spans):
        if gap_end - gap_start > TOLERANCE and np.any(np.abs(comm_ends - gap_end) <= TOLERANCE):
            points.add(gap_end)
    queue_free = -np.inf
    for comm in comms:
        if comm.start - queue_free > TOLERANCE and comm.start > spans[0][0]:
            points.add(comm.start)
        queue_free = max(queue_free, comm.end)
    return _spaced(sorted(point for point in points if point < spans[-1][1]))


def _spaced(points: Sequence[float]) -> list[float]:
    """Points closer than the tolerance are one point, the first."""
    kept: list[float] = []
    for point in points:
        if not kept or point - kept[-1] > TOLERANCE:
            kept.append(point)
    return kept


def _triggers(comms: Sequence[Kernel], cuts: Sequence[float]) -> tuple[int, ...]:
    """comm_after: the segment that ended where an idle queue's communication started, else as the one before it."""
    after: list[int] = []
    free_at = -np.inf
    for comm in comms:
        ended = int(np.searchsorted(cuts, comm.start + TOLERANCE, side="right")) - 2  # last segment over by then
        visible = comm.start - free_at > TOLERANCE
        after.append(max(FREE, ended) if visible else after[-1])
        free_at = max(free_at, comm.end)
    return tuple(after)


def _consumers(comms: Sequence[Kernel], cuts: Sequence[float], lasting: Collection[int]) -> tuple[int, ...]:
    """segment_after: the last communication that had ended when the segment began, and whose result it may need."""
    ends = np.maximum.accumulate([comm.end for comm in comms])
    keep = np.array([comm.site in lasting for comm in comms])
    after = []
    for cut in cuts:
        over = (ends <= cut + TOLERANCE) & (~keep | (np.abs(ends - cut) <= TOLERANCE))
        after.append(int(np.flatnonzero(over)[-1]) if over.any() else FREE)
    return tuple(after)


def _work(
    comms: Sequence[Kernel], spans: Sequence[tuple[float, float]], cuts: Sequence[float], sites: int
) -> tuple[Array, Array, Array]:
    """ns of each segment alone, beside each site (segments, sites), and idle inside it (waits at its end left out)."""
    busy = _busy(spans)
    bounds = np.array([*cuts, spans[-1][1]])
    under = np.zeros((len(cuts), sites))
    for comm in comms:
        start, end = np.clip(comm.start, bounds[:-1], bounds[1:]), np.clip(comm.end, bounds[:-1], bounds[1:])
        under[:, comm.site] += busy.until(end) - busy.until(start)
    ran = np.diff(busy.until(bounds))
    last = np.array([max((min(e, stop) for s, e in spans if s < stop), default=stop) for stop in bounds[1:]])
    idle = np.maximum(0.0, last - bounds[:-1] - ran)
    return np.maximum(0.0, ran - under.sum(-1)), under, idle


def _busy(spans: Sequence[tuple[float, float]]) -> _Busy:
    times, total = [spans[0][0]], [0.0]
    for start, end in spans:
        times += [start, end]
        total += [total[-1], total[-1] + end - start]
    return _Busy(np.array(times), np.array(total))


def _shares(comms: Sequence[Kernel], sites: int) -> Array:
    """Each communication's part of its site's time."""
    time = np.array([max(comm.end - comm.start, 1e-9) for comm in comms])
    site = np.array([comm.site for comm in comms], dtype=np.intp)
    return time / np.bincount(site, weights=time, minlength=sites)[site]
