# SPDX-License-Identifier: Apache-2.0
"""Busy times and overlap of one rank, for any ranges of time: steps, groups, or the whole trace.

With C the set of times when communication runs and K the set when compute runs (README.md has the formulas):
X = |C|, Y = |K|, Z = length, overlap = |C n K|, exposed = X - overlap, idle = Z - |C u K|.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lagom.timeline.intervals import IntervalSet, intersect, merge, within
from lagom.timeline.join import join
from lagom.timeline.kernel_table import KernelTable

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Busy:
    """When one rank's GPU ran communication, compute, and both."""

    communication: IntervalSet
    compute: IntervalSet
    both: IntervalSet

    @classmethod
    def of(cls, table: KernelTable) -> Busy:
        """From a kernel table."""
        comm, compute = table.is_communication, table.is_compute
        communication = merge(table.start[comm], table.end[comm])
        computing = merge(table.start[compute], table.end[compute])
        return cls(communication, computing, intersect(communication, computing))

    def between(self, begin: ArrayLike, end: ArrayLike) -> OverlapTimes:
        """The times of each range ``begin[i] .. end[i]`` (any shape)."""
        low, high = np.asarray(begin, np.int64), np.asarray(end, np.int64)
        parts = (within(part, low, high) for part in (self.communication, self.compute, self.both))
        return OverlapTimes((high - low).astype(float), *(part.astype(float) for part in parts))


@dataclass(frozen=True, slots=True)
class OverlapTimes:
    """X, Y, Z and overlap of one or many ranges; arrays of one shape, ns."""

    z: Floats
    x: Floats
    y: Floats
    overlap: Floats

    @property
    def exposed(self) -> Floats:
        """Communication with no compute beside it."""
        return self.x - self.overlap

    @property
    def idle(self) -> Floats:
        """Neither communication nor compute."""
        return self.z - self.x - self.y + self.overlap

    @property
    def overlap_ratio(self) -> Floats:
        """HolisticTraceAnalysis: time in compute while communicating / time in communication. NaN without any."""
        return _ratio(self.overlap, self.x)

    def oef(self) -> Floats:
        """DHelix Eq. 1, OEF = (T_i + T_j - P_ij) / min(T_i, T_j), with P the time when either runs.

        Both T are the busy times as measured, so it is overlap / min(X, Y). NaN where either is 0.
        """
        return _ratio(self.overlap, np.minimum(self.x, self.y))

    def typical(self) -> OverlapTimes:
        """Medians over the first axis."""
        return OverlapTimes(*(np.median(part, axis=0) for part in (self.z, self.x, self.y, self.overlap)))


def _ratio(part: Floats, whole: Floats) -> Floats:
    whole = np.asarray(whole, float)
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)


def hidden_by_position(
    tables: Sequence[KernelTable], calls: Sequence[NDArray[Any]], slots: Sequence[int], period: int
) -> Floats:
    """Share of each position's communication time with compute beside it, 0 .. 1: the median over ranks and iterations,
    NaN for a position of which no kernel was seen. This separates exposed sites from hidden ones; sizes do not: the
    first AllGather of an FSDP pass is as large as the others, and no compute runs beside it.

    ``tables[r]`` and ``calls[r]`` are rank r's kernels and call records (with ``position``) of the communicator that is
    ``slots[r]`` in its table. Kernels that cannot be joined to a call do not count, nor do calls past the period.
    """
    of_rank = zip(tables, calls, slots, strict=True)
    seen = [_hidden_of_rank(table, records, slot, period) for table, records, slot in of_rank]
    found = np.full(period, np.nan)
    place = np.concatenate([position for position, _ in seen] or [np.empty(0, np.int64)])
    share = np.concatenate([part for _, part in seen] or [np.empty(0)])
    for position in np.unique(place).tolist():
        found[position] = np.median(share[place == position])
    return found


def _hidden_of_rank(
    table: KernelTable, records: NDArray[Any], slot: int, period: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Position and hidden share of every call whose kernels were seen; several kernels of a call count together."""
    joined = join(table, {slot: records})
    rows = np.flatnonzero((joined.call >= 0) & (table.duration > 0))
    numbers, call = np.unique(joined.call[rows], return_inverse=True)
    busy = Busy.of(table)
    hidden = np.bincount(call, within(busy.compute, table.start[rows], table.end[rows]), numbers.size)
    length = np.bincount(call, table.duration[rows], numbers.size)
    order = np.argsort(records["call"], kind="stable")
    index = order[np.searchsorted(records["call"][order], numbers.astype(np.uint64))]
    position = records["position"][index].astype(np.int64)
    known = position < period
    return position[known], (hidden / length)[known]
