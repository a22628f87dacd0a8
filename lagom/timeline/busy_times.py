"""Busy times and overlap of one rank, for any ranges of time: steps, groups, or the whole trace.

With C the set of times when communication runs and K the set when compute runs (README.md has the formulas):
X = |C|, Y = |K|, Z = length, overlap = |C n K|, exposed = X - overlap, idle = Z - |C u K|.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lagom.timeline.intervals import IntervalSet, intersect, merge, within
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

    def between(self, begin: ArrayLike, end: ArrayLike) -> Times:
        """The times of each range ``begin[i] .. end[i]`` (any shape)."""
        low, high = np.asarray(begin, np.int64), np.asarray(end, np.int64)
        parts = (within(part, low, high) for part in (self.communication, self.compute, self.both))
        return Times((high - low).astype(float), *(part.astype(float) for part in parts))


@dataclass(frozen=True, slots=True)
class Times:
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

    def oef(self, quiet_y: Floats | None = None) -> Floats:
        """DHelix Eq. 1, OEF = (T_i + T_j - P_ij) / min(T_i, T_j), with P the time when either runs.

        Without ``quiet_y`` both T are the busy times as measured (then it is overlap / min(X, Y)); with it, T_j is the
        compute's time when quiet, which is what the equation means. NaN where either is 0.
        """
        y = self.y if quiet_y is None else quiet_y
        return _ratio(self.x + y - (self.x + self.y - self.overlap), np.minimum(self.x, y))

    def typical(self) -> Times:
        """Medians over the first axis."""
        return Times(*(np.median(part, axis=0) for part in (self.z, self.x, self.y, self.overlap)))


def _ratio(part: Floats, whole: Floats) -> Floats:
    whole = np.asarray(whole, float)
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)
