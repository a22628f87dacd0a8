# SPDX-License-Identifier: Apache-2.0
"""What the candidates of a run have cost against stock, in stock iterations, and what is not theirs.

A job also loses time by itself: an evaluation or a checkpoint between two iterations makes one iteration many times as
long, in whichever arm it falls. That pair is left out of the mean; the candidate's iterations are counted all the same.
Of a candidate whose pairs were all interrupted, what its kernels explain is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lagom.records import Assignment, Sample
from lagom.search.moves import Pairs
from lagom.search.statistics import OUTLIER_MADS, outlier_mask

#: Two pairs have no majority. The one further from equal is left out where its ln(Z / Z) is so many times the other's,
#: and larger by as much as an outlier is, or by ``LEAST``.
FURTHER, LEAST = 2.0, math.log(1.1)
#: Kernels that are not seen take the same time in every iteration, up to this fraction.
ALIKE = 0.2


class TimeLost:
    """Add every window of a candidate. ``lost`` and ``gained`` only grow: a gain does not pay for a loss."""

    def __init__(self) -> None:
        self.lost = 0.0
        self.gained = 0.0
        self._seen: dict[Assignment, list[_Ratio]] = {}

    def add(self, candidate: Assignment, pairs: Pairs, iterations: int, *, sigma: float, level: float = 1.0) -> None:
        """One window, which has pairs: ``iterations`` ran with ``candidate`` in force and as many with the incumbent,
        whose Z is ``level`` times stock's. ``sigma``: standard deviation of a pair's ln(Z / Z)."""
        self.gained += max(0.0, 1.0 - level) * iterations
        seen = self._seen.setdefault(candidate, [])
        seen += [_Ratio.of(beside, tried, level) for beside, tried in pairs]
        excess = float(np.mean(np.expm1(_counted(seen, len(pairs), sigma)))) * iterations
        self.lost += max(0.0, excess)
        self.gained += max(0.0, -excess)

    def payback(self, speedup: float) -> float | None:
        """Iterations of the tuned job that make up for what the search has lost and not gained; ``None`` where nothing
        is left to make up for, or nothing does. Each such iteration takes 1 / ``speedup`` of a stock iteration."""
        missing = self.lost - self.gained
        return missing / (1.0 - 1.0 / speedup) if missing > 0.0 and speedup > 1.0 else None


@dataclass(frozen=True, slots=True)
class _Ratio:
    """One pair. ``log``: its ln(Z / Z of stock). ``idle``: by how much its longer iteration is longer than the kernels
    explain, below 0 where that is stock's; 0 where they explain it. ``busy``: ``log`` without the idle time."""

    log: float
    idle: float
    busy: float

    @classmethod
    def of(cls, beside: Sample, tried: Sample, level: float) -> _Ratio:
        log = math.log(level * tried.z / beside.z)
        if tried.z > beside.z:
            explained = _explained(beside, tried)
            return cls(log, tried.z - explained, math.log(level * explained / beside.z))
        explained = _explained(tried, beside)
        return cls(log, explained - beside.z, math.log(level * tried.z / explained))


def _explained(short: Sample, long: Sample) -> float:
    """How much of the longer iteration of a pair its kernels explain. All of it where the rest is no more than the
    shorter one's whole length, or where kernels are not seen."""
    if short.x is None or long.x is None:
        return long.z
    longer = long.x - short.x
    if long.z - short.z - max(0.0, longer) <= short.z:
        return long.z
    # No iteration is shorter than its communication or its computation; what interrupted it may have computed as well.
    return max(long.x, short.y or 0.0, short.z + longer) or short.z


def _counted(seen: list[_Ratio], new: int, sigma: float) -> np.ndarray:
    """ln(Z / Z of stock) by which the last ``new`` pairs of a candidate count: theirs; of a window that was interrupted
    throughout, those before it; where all were interrupted, what their kernels explain."""
    logs, good = np.array([pair.log for pair in seen]), ~_interrupted(seen, sigma)
    if good[-new:].any():
        return logs[-new:][good[-new:]]
    return logs[good] if good.any() else np.array([pair.busy for pair in seen[-new:]])


def _interrupted(seen: list[_Ratio], sigma: float) -> np.ndarray:
    """True for pairs in which the job did something else as well: those that were idle, and those far from a
    candidate's other pairs."""
    logs, idle = np.array([pair.log for pair in seen]), _idle(np.array([pair.idle for pair in seen]))
    bad = idle.copy()
    bad[~idle] = _is_far(logs[~idle], sigma)
    return bad


def _idle(times: np.ndarray) -> np.ndarray:
    """Which pairs were idle. A candidate that always seems idle, and for about as long, may use calls whose kernels are
    not seen; interruptions take now more of a pair and now less."""
    middle = np.median(times)
    alike = np.abs(times - middle) <= ALIKE * abs(middle)
    if len(times) > 1 and times.all() and np.mean(alike) > 0.5:
        return np.zeros(len(times), dtype=bool)
    return times != 0.0


def _is_far(logs: np.ndarray, sigma: float) -> np.ndarray:
    """True for outliers, of two values too."""
    if len(logs) != 2:
        return outlier_mask(logs, sigma)
    near, far = sorted(np.abs(logs))
    is_far = far > FURTHER * near and far - near > max(LEAST, OUTLIER_MADS * sigma)
    return (np.abs(logs) == far) & is_far
