"""The typical iteration of a process, from what it showed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from lagom.bench.process import Ended, Seen
from lagom.bench.rates import CallRate

#: Of a run that does not tune: the first part, in which caches, clocks and the allocator settle.
SETTLING_SHARE = 1 / 3


def steady(samples: Sequence[tuple[float, float]], since: float | None) -> list[float]:
    """The values of (wall clock, value) samples that count: those after ``since``, else all but the first third."""
    if since is not None:
        return [value for at, value in samples if at > since]
    return [value for _, value in samples[int(len(samples) * SETTLING_SHARE) :]]


def is_enough(measure: str, seen: Seen, rate: CallRate | None, wanted: int, *, tunes: bool) -> bool:
    """Whether a process has shown ``wanted`` samples that count, so that it may be ended. Wall time has no samples."""
    if measure == "wall" or (tunes and settled_at(seen) is None):
        return False
    samples = seen.metric if measure == "metric" else rate.samples() if rate is not None else []
    return len(steady(samples, settled_at(seen) if tunes else None)) >= wanted


def value_of(measure: str, ended: Ended, rate: CallRate | None, *, tunes: bool) -> tuple[float | None, list[float]]:
    """(typical iteration, what it was taken from) by ``measure``; None if the process gave none.

    A run that tunes counts from the end of its search on; if that never came, it gives nothing.
    """
    since = settled_at(ended.seen) if tunes else None
    if tunes and since is None:
        return None, []
    if measure == "wall":
        whole = ended.exit == 0 and ended.ended == "itself" and not tunes
        return (ended.seconds, [ended.seconds]) if whole else (None, [])
    samples = ended.seen.metric if measure == "metric" else rate.samples() if rate is not None else []
    counted = steady(samples, since)
    return (statistics.median(counted), counted) if counted else (None, [])


def settled_at(seen: Seen) -> float | None:
    """When the last search ended, wall clock."""
    return max((outcome.t for outcome in seen.outcomes()), default=None)
