# SPDX-License-Identifier: Apache-2.0
"""What the candidates of a run have cost against stock, in stock iterations, and what is not theirs.

A job also loses time by itself: an evaluation or a checkpoint between two iterations makes one iteration many times as
long, in whichever arm it falls. That pair is left out of the mean; the candidate's iterations are counted all the same.
"""

from __future__ import annotations

import math

import numpy as np

from lagom.records import Assignment, Sample
from lagom.search.moves import Pairs
from lagom.search.statistics import OUTLIER_MADS, outlier_mask

#: Two pairs have no majority. The one further from equal is left out where its ln(Z / Z) is so many times the other's,
#: and larger by as much as an outlier is, or by ``LEAST``.
FURTHER, LEAST = 2.0, math.log(1.1)


class TimeLost:
    """Add every window of a candidate. ``lost`` and ``gained`` only grow: a gain does not pay for a loss."""

    def __init__(self) -> None:
        self.lost = 0.0
        self.gained = 0.0
        self._seen: dict[Assignment, list[tuple[float, bool]]] = {}  # each pair's ln(Z / Z of stock), was it idle?

    def add(self, candidate: Assignment, pairs: Pairs, iterations: int, *, sigma: float, level: float = 1.0) -> None:
        """One window, which has pairs: ``iterations`` ran with ``candidate`` in force and as many with the incumbent,
        whose Z is ``level`` times stock's. ``sigma``: standard deviation of a pair's ln(Z / Z)."""
        self.gained += max(0.0, 1.0 - level) * iterations
        seen = self._seen.setdefault(candidate, [])
        seen += [(math.log(level * tried.z / beside.z), _was_idle(beside, tried)) for beside, tried in pairs]
        logs, good = np.array([log for log, _ in seen]), ~_interrupted(seen, sigma)
        new = logs[-len(pairs) :][good[-len(pairs) :]]
        counted = new if len(new) else logs[good]  # of a window that was interrupted throughout: those before it
        excess = float(np.mean(np.expm1(counted))) * iterations if len(counted) else 0.0
        self.lost += max(0.0, excess)
        self.gained += max(0.0, -excess)

    def payback(self, speedup: float) -> float | None:
        """Iterations of the tuned job that make up for what the search has lost and not gained; ``None`` where nothing
        is left to make up for, or nothing does. Each such iteration takes 1 / ``speedup`` of a stock iteration."""
        missing = self.lost - self.gained
        return missing / (1.0 - 1.0 / speedup) if missing > 0.0 and speedup > 1.0 else None


def _was_idle(one: Sample, other: Sample) -> bool:
    """Whether one iteration of a pair was longer than the other by more than that one's whole length, and its
    communication explains none of it. False where kernels are not seen."""
    short, long = sorted((one, other), key=lambda sample: sample.z)
    if short.x is None or long.x is None:
        return False
    return long.z - short.z - max(0.0, long.x - short.x) > short.z


def _interrupted(seen: list[tuple[float, bool]], sigma: float) -> np.ndarray:
    """True for pairs in which the job did something else as well: those that were idle, and those far from a
    candidate's other pairs. A candidate that always seems idle may use calls whose kernels are not seen."""
    logs, idle = np.array([log for log, _ in seen]), np.array([was_idle for _, was_idle in seen])
    if idle.all() and len(seen) > 1:
        idle[:] = False
    bad = idle.copy()
    bad[~idle] = _is_far(logs[~idle], sigma)
    return bad


def _is_far(logs: np.ndarray, sigma: float) -> np.ndarray:
    """True for outliers, of two values too."""
    if len(logs) != 2:
        return outlier_mask(logs, sigma)
    near, far = sorted(np.abs(logs))
    is_far = far > FURTHER * near and far - near > max(LEAST, OUTLIER_MADS * sigma)
    return (np.abs(logs) == far) & is_far
