# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on sets of half-open time intervals ``[start, end)``, whole arrays at a time.

A *set* is a pair of equally long int64 arrays, sorted, disjoint and not touching: what :func:`merge` returns.
Everything else takes sets and returns sets or lengths; nothing is changed in place. Times are nanoseconds. Checked
against a brute-force sweep over single nanoseconds in ``tests/unit/timeline/test_intervals.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]


class IntervalSet(NamedTuple):
    """Disjoint intervals in ascending order; ``start[i] < end[i] < start[i + 1]``."""

    start: Nanoseconds
    end: Nanoseconds

    @property
    def length(self) -> int:
        """Sum of all lengths, ns."""
        return int((self.end - self.start).sum())


def empty() -> IntervalSet:
    """The set without any interval."""
    return IntervalSet(np.empty(0, np.int64), np.empty(0, np.int64))


def merge(start: Nanoseconds, end: Nanoseconds, gap: int = 0) -> IntervalSet:
    """The union of intervals in any order, with holes of up to ``gap`` ns closed. Intervals of no length add
    nothing."""
    real = end > start
    start, end = start[real], end[real]
    if not start.size:
        return empty()
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.ones(start.size, bool)
    first[1:] = start[1:] > reach[:-1] + gap
    last = np.append(first[1:], True)
    return IntervalSet(start[first], reach[last])


def intersect(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """Time in both sets."""
    low = np.searchsorted(b.end, a.start, side="right")
    high = np.searchsorted(b.start, a.end, side="left")
    partners = np.maximum(high - low, 0)
    if not partners.sum():
        return empty()
    left = np.repeat(np.arange(a.start.size), partners)
    first = np.repeat(low - np.cumsum(partners) + partners, partners)
    right = first + np.arange(left.size)
    return IntervalSet(np.maximum(a.start[left], b.start[right]), np.minimum(a.end[left], b.end[right]))


def before(intervals: IntervalSet, times: Nanoseconds) -> Nanoseconds:
    """How much of the set lies before each of ``times``, ns; all other lengths are computed from this.

    The part of the set within ``[u, v)`` is ``before(set, v) - before(set, u)``. Shape of ``times``, ns.
    """
    if not intervals.start.size:
        return np.zeros(np.shape(times), np.int64)
    total = np.concatenate([[0], np.cumsum(intervals.end - intervals.start)])
    index = np.searchsorted(intervals.start, times, side="right")
    begun = np.maximum(index - 1, 0)
    overshoot = np.maximum(intervals.end[begun] - np.asarray(times), 0)
    return np.where(index > 0, total[index] - overshoot, 0)


def within(intervals: IntervalSet, start: Nanoseconds, end: Nanoseconds) -> Nanoseconds:
    """How much of the set lies in each ``[start[i], end[i])``, ns."""
    return before(intervals, end) - before(intervals, start)


def weight_before(
    start: Nanoseconds, end: Nanoseconds, weight: NDArray[np.float64], times: Nanoseconds
) -> NDArray[np.float64]:
    """Integral up to each of ``times`` of the sum of ``weight[i]`` over the intervals that are open; they may overlap.

    With ``weight`` = channels of a communication kernel: SM-nanoseconds taken from compute so far.
    """
    moment = np.concatenate([start, end])
    step = np.concatenate([weight, -weight])
    order = np.argsort(moment, kind="stable")
    moment, level = moment[order], np.cumsum(step[order])
    if not moment.size:
        return np.zeros(np.shape(times), np.float64)
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(moment))])
    index = np.maximum(np.searchsorted(moment, times, side="right") - 1, 0)
    return np.where(np.asarray(times) < moment[0], 0.0, area[index] + level[index] * (times - moment[index]))
