# SPDX-License-Identifier: Apache-2.0
"""The reference of each compute kernel that runs beside communication: the same kernel running without it.

A reference kernel runs the same problem: kernels of one name, grid and block often do not. The role of a place
is the sequence of kernels around it on its stream; the same role comes back in every layer and every step. In order of
preference: the same role in the same step (the GPU's clock drifts by some percent from step to step), the same role in
any step. A kernel without a reference is left out, not
estimated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lagom.timeline.busy_times import Busy, Floats
from lagom.timeline.intervals import weight_before, within
from lagom.timeline.kernel_period import signatures
from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.steps import Steps

#: A kernel runs alone if communication runs during at most this share of it, and is overlapped from OVERLAPPED_FROM on.
ALONE_UP_TO = 0.01
OVERLAPPED_FROM = 0.99
#: How many kernels before and after must agree for two places to have one role. Tried in this order: the one-sided
#: ones are for the first and the last layer, which have other neighbours on one side.
WINDOWS = ((3, 3), (2, 2), (0, 4), (4, 0))
#: Bits of a number that is sorted by: those of an int64 without its sign.
_WIDEST = 63


@dataclass(frozen=True, slots=True)
class TraceReferences:
    """How good the references taken from a reference trace (:mod:`lagom.timeline.reference_trace`) are.

    ``used``: steps x places that have such a reference; ``error``: relative standard error of each place's. ``share``
    of compute time in those kernels; ``pressure``: communication pressure of the reference trace over that of this one;
    ``matched``: share of places found there; ``clock_ratio``: how much longer kernels without communication take here
    than there (the GPU's clock), by ``compared`` kernels.
    """

    used: NDArray[np.bool_]
    error: Floats
    share: float
    pressure: float
    matched: float
    clock_ratio: float
    compared: int


@dataclass(frozen=True, slots=True)
class Contention:
    """Every compute kernel of every step: rows = steps, columns = ``places`` (columns of ``Steps.index``).

    ``overlap_share`` is the share of the kernel with communication beside it, ``reference`` the duration of the same
    kernel without communication (NaN: unknown), both steps x places; ``channels`` the mean number of channels running
    during the overlap; ``role`` a number for each place (-1: no reference). ``from_trace`` is set if a reference trace
    was given. Durations in ns.
    """

    places: NDArray[np.int64]
    duration: Floats
    overlap_share: Floats
    reference: Floats
    channels: Floats
    role: NDArray[np.int64]
    from_trace: TraceReferences | None = None

    @property
    def extra(self) -> Floats:
        """Extra time compared with the same kernel running without communication, ns; 0 without a reference."""
        return np.where(
            (self.overlap_share > ALONE_UP_TO) & ~np.isnan(self.reference), self.duration - self.reference, 0.0
        )

    @property
    def unmatched(self) -> Floats:
        """Time of each step spent in kernels beside communication that have no reference, ns."""
        return np.where((self.overlap_share > ALONE_UP_TO) & np.isnan(self.reference), self.duration, 0.0).sum(axis=1)


def measure_contention(table: KernelTable, steps: Steps, busy: Busy) -> Contention:
    """Durations, overlap and references of all compute kernels of the steps."""
    places = np.flatnonzero(table.is_compute[steps.index[0]])
    rows = steps.index[:, places]
    start, end = table.start[rows], table.end[rows]
    duration = (end - start).astype(float)
    beside = within(busy.communication, start, end).astype(float)
    overlap_share = np.divide(beside, duration, out=np.zeros_like(duration), where=duration > 0)
    reference, role = _references(
        signatures(table, steps.exact), table, steps, places, duration, overlap_share <= ALONE_UP_TO
    )
    return Contention(places, duration, overlap_share, reference, _channels(table, start, end, beside), role)


def _channels(table: KernelTable, start: NDArray, end: NDArray, beside: Floats) -> Floats:
    comm = table.is_communication
    begun, ended, weight = table.start[comm], table.end[comm], table.channels[comm].astype(float)
    area = weight_before(begun, ended, weight, end) - weight_before(begun, ended, weight, start)
    return np.divide(area, beside, out=np.zeros_like(beside), where=beside > 0)


def _references(
    codes: NDArray, table: KernelTable, steps: Steps, places: NDArray, duration: Floats, alone: NDArray[np.bool_]
) -> tuple[Floats, NDArray[np.int64]]:
    """Each kernel's reference, ns, and each place's role. ``alone``: which kernels run without communication."""
    candidates = [roles(codes, table, steps, *window)[places] for window in WINDOWS]
    found = np.full(duration.shape, np.nan)
    for medians_of in (_medians_in_step, _medians_ever) if steps.exact else (_medians_in_step,):
        for role in candidates:
            wanted = np.isin(role, role[np.isnan(found).any(axis=0)])  # the places of every role that one lacks
            medians = medians_of(duration[:, wanted], alone[:, wanted], role[wanted])
            found[:, wanted] = np.where(np.isnan(found[:, wanted]), medians, found[:, wanted])
    return found, _joined_roles(candidates, np.asarray(alone.any(axis=0)))


def roles(codes: NDArray, table: KernelTable, steps: Steps, before: int, after: int) -> NDArray[np.int64]:
    """A number for each place of a step: equal where the kernel, the ``before`` kernels ahead of it on its stream and
    the ``after`` kernels behind it are equal, going round at the step's ends."""
    spelled = codes[steps.index[0]]
    streams = table.stream[steps.index[0]]
    windows = np.zeros((spelled.size, before + after + 2), np.int64)
    for stream in np.unique(streams):
        mine = np.flatnonzero(streams == stream)
        around = (np.arange(mine.size)[:, None] + np.arange(-before, after + 1)) % mine.size
        windows[mine] = np.column_stack([np.full(mine.size, stream), spelled[mine][around]])
    return np.unique(windows, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def _joined_roles(candidates: list[NDArray[np.int64]], ever_alone: NDArray[np.bool_]) -> NDArray[np.int64]:
    """One role a place: that of the first window after the widest under which some place of the role ever ran alone; -1
    if none."""
    base = candidates[1]
    known = np.bincount(base, ever_alone) > 0
    role = np.where(known[base], base, -1)
    for candidate in candidates[2:]:
        of_class = np.full(int(candidate.max(initial=0)) + 1, -1, np.int64)
        of_class[candidate[role >= 0]] = role[role >= 0]
        role = np.where(role < 0, of_class[candidate], role)
    return role


def _medians_in_step(duration: Floats, alone: NDArray[np.bool_], role: NDArray[np.int64]) -> Floats:
    """Steps x places: the median of the kernels of the same role that run alone in the same step; NaN where there is
    none."""
    steps, count = duration.shape[0], int(role.max(initial=0)) + 1
    group = np.arange(steps)[:, None] * count + role
    return _medians(duration[alone], group[alone], steps * count).reshape(steps, count)[:, role]


def _medians_ever(duration: Floats, alone: NDArray[np.bool_], role: NDArray[np.int64]) -> Floats:
    """Places: the median of the kernels of the same role that run alone in any step; NaN where there is none."""
    group = np.broadcast_to(role, duration.shape)
    return _medians(duration[alone], group[alone], int(role.max(initial=0)) + 1)[role]


def _medians(values: Floats, group: NDArray[np.int64], count: int) -> Floats:
    """The median of the values (whole ns, none below 0) of each group 0 .. count-1; NaN for an empty one."""
    values, sizes = _sorted_by_group(values, group, count), np.bincount(group, minlength=count)
    first = np.cumsum(sizes) - sizes
    filled = sizes > 0
    low, high = first + (sizes - 1) // 2, first + sizes // 2
    medians = np.full(count, np.nan)
    medians[filled] = (values[low[filled]] + values[high[filled]]) / 2
    return medians


def _sorted_by_group(values: Floats, group: NDArray[np.int64], count: int) -> Floats:
    """The values of group 0, sorted, then those of group 1, ... Where both fit into one number that is sorted, which is
    many times as fast as sorting by two keys."""
    bits = int(values.max(initial=0)).bit_length()
    if count.bit_length() + bits > _WIDEST:
        return values[np.lexsort([values, group])]
    both = np.sort((group << bits) | values.astype(np.int64))
    return (both & ((1 << bits) - 1)).astype(float)
