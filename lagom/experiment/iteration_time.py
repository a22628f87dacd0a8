# SPDX-License-Identifier: Apache-2.0
"""The median iteration time of a process, from its log, its calls or its output."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from lagom import journal
from lagom.experiment.arm import TrialArm
from lagom.experiment.job_regions import JobRegions
from lagom.experiment.process import Ended, Seen
from lagom.experiment.request import Request

#: Of a run that does not tune: the first part, in which caches, clocks and the allocator settle.
SETTLING_SHARE = 1 / 3


def steady(samples: Sequence[tuple[float, float]], since: float | None) -> list[float]:
    """The values of (wall clock, value) samples that count: those after ``since``, else all but the first third."""
    if since is not None:
        return [value for at, value in samples if at > since]
    return [value for _, value in samples[int(len(samples) * SETTLING_SHARE) :]]


def is_enough(request: Request, seen: Seen, rate: JobRegions | None, arm: TrialArm) -> bool:
    """Whether a process has shown the samples asked for, or never will, or these are clearly worse than others', so
    that it may be ended. Wall time has no samples."""
    measure = request.measure
    if (arm.tunes or arm.pins) and seen.is_passthrough():
        return True
    if measure == "wall":
        return False
    if measure == "metric" and seen.metric.fault:
        return True
    counted = _counted(_samples(measure, seen, rate), seen, arm)
    return len(counted) >= request.samples or request.is_lost(counted)


def value_of(measure: str, ended: Ended, rate: JobRegions | None, arm: TrialArm) -> tuple[float | None, list[float]]:
    """(typical iteration, what it was taken from) by ``measure``; None if the process gave none.

    A run that tunes counts from the end of its search on, one that pins rules from their agreement on; if that never
    came, it gives nothing: it was stock.
    """
    if measure == "wall":
        whole = ended.exit == 0 and ended.ended == "itself" and not arm.tunes
        agreed = not arm.pins or rules_agreed_at(ended.seen) is not None
        seconds = ended.command_seconds if whole and agreed else None
        return (None, []) if seconds is None else (seconds, [seconds])
    counted = _counted(_samples(measure, ended.seen, rate), ended.seen, arm)
    return (statistics.median(counted), counted) if counted else (None, [])


def _samples(measure: str, seen: Seen, rate: JobRegions | None) -> Sequence[tuple[float, float]]:
    if measure == "metric":
        return seen.metric.samples
    return [] if rate is None else rate.samples()


def _counted(samples: Sequence[tuple[float, float]], seen: Seen, arm: TrialArm) -> list[float]:
    """The values measured after the settings of the arm were in force."""
    if arm.tunes:
        return [] if (settled := search_ended_at(seen)) is None else steady(samples, settled)
    if arm.pins:
        agreed = rules_agreed_at(seen)
        samples = [] if agreed is None else [sample for sample in samples if sample[0] > agreed]
    return steady(samples, None)


def search_ended_at(seen: Seen) -> float | None:
    """When the last search ended, wall clock."""
    return max((outcome.t for outcome in seen.outcomes()), default=None)


def rules_agreed_at(seen: Seen) -> float | None:
    """When the ranks first agreed on a plan, wall clock: of a run that only pins rules, on these."""
    return min((event.t for event in seen.events if isinstance(event, journal.PlanCommitted)), default=None)
