# SPDX-License-Identifier: Apache-2.0
"""The one sentence of a profile: is communication slowing the compute, which kernels, and by how much."""

from __future__ import annotations

import math

import numpy as np

from lagom.format import format_factor, format_percent, format_time
from lagom.timeline.job_profile import Profile
from lagom.timeline.kernel_names import NAMELESS, label
from lagom.timeline.slowdowns import FamilySlowdown, KernelSlowdown
from lagom.timeline.trace_coverage import resembling_kernels

#: Below this share of compute time the contention overhead is called none.
_NEGLIGIBLE = 0.005
#: A factor that is written as more than 1.00.
_SLOWED_FROM = 1.005
#: So many kernels are named in a sentence.
_NAMED = 3


def describe_verdict(profile: Profile) -> str:
    """Is NCCL slowing my matmuls, and by how much: one sentence."""
    if unseen := _what_is_not_seen(profile):
        return unseen
    overhead, slowed = profile.overhead, _slowed(profile)
    share = f"{format_percent(overhead.share)} of compute time"
    cost = f"{format_time(overhead.ns)} of each {format_time(profile.z_max)} step, {share}"
    if not math.isfinite(overhead.high):
        if overhead.share < _NEGLIGIBLE:
            return "No, not measurably in the one step seen: compute is no slower beside communication; record more."
        return f"Perhaps: overlap costs {share} in the one step seen; record more."
    interval = f"95 % interval {100 * overhead.low:.1f} to {format_percent(overhead.high)}"
    if overhead.low <= 0 and slowed:
        return (
            f"No, not in sum: {slowed}. All compute together is not measurably slower (difference {cost}; {interval})."
        )
    if overhead.share <= 0:
        return f"No: compute is no slower beside communication (difference {cost}; {interval})."
    if overhead.high < _NEGLIGIBLE or overhead.low <= 0:
        below = "less than its uncertainty, " if overhead.low <= 0 else ""
        return f"No, not measurably: overlap costs your compute {cost} ({below}{interval})."
    cost = f"{'at least ' if overhead.is_lower_bound else ''}{cost} ({interval})"
    return f"Yes: {slowed}. Overlap costs {cost}." if slowed else f"Yes: overlap costs your compute {cost}."


def _what_is_not_seen(profile: Profile) -> str:
    """The answer where communication, compute, or both at once are not seen; else nothing."""
    overhead = profile.overhead
    if not profile.has_communication:
        if looks := list(resembling_kernels([rank.table for rank in profile.ranks]))[:_NAMED]:
            return (
                "Unknown: no communication of a library that is known here is in this trace, but kernels that look "
                f"like communication: {', '.join(looks)}."
            )
        return "There is no communication in this trace, so nothing slows your compute."
    if not profile.sees_compute:
        return "Unknown: only communication was recorded, so what computes beside it cannot be seen."
    if overhead.overlapped < _NEGLIGIBLE:
        return "No: compute and communication never run at the same time here, so neither can slow the other."
    if overhead.unmatched >= overhead.overlapped and not overhead.share:
        return (
            "Unknown: each kernel that runs beside communication always does, so there is nothing to compare it with."
        )
    return ""


def _slowed(profile: Profile) -> str:
    """The sorts of kernels that have most of the extra time, each more than its uncertainty, and how much longer they
    run; and that matmuls do not, where they run beside communication too. Nothing if no sort is slowed for certain."""
    named = _most_slowed(profile)
    factors = " and ".join(f"{_who_run(one)} {format_factor(one.slowdown)}" for one in named)
    spared = any(one.family == "matmul" and one.slowdown < _SLOWED_FROM for one in profile.families)
    also = ", matmuls do not" if spared else ""
    return f"{factors} as long beside communication as without it{also}" if named else ""


def _most_slowed(profile: Profile) -> list[FamilySlowdown | KernelSlowdown]:
    """Those with at least half of the extra time that is certain, most first; what is of no sort one by one. None where
    that is next to nothing."""
    every: list[FamilySlowdown | KernelSlowdown] = [one for one in profile.families if one.family != "other"]
    every += [one for one in profile.slowdowns if one.family == "other" and not one.name.startswith(NAMELESS)]
    sure = [one for one in every if one.extra_low_ns > 0 and one.slowdown >= _SLOWED_FROM]
    if sum(one.extra_ns for one in sure) < _NEGLIGIBLE * profile.y:
        return []
    sure.sort(key=lambda one: -one.extra_ns)
    earlier = np.cumsum([0.0, *(one.extra_ns for one in sure)])
    return sure[: min(int(np.searchsorted(earlier, earlier[-1] / 2)), _NAMED)]


def _who_run(one: FamilySlowdown | KernelSlowdown) -> str:
    if isinstance(one, KernelSlowdown):
        return f"{label(one.name)} runs"
    return {"matmul": "matmuls", "reduce": "reductions"}.get(one.family, f"{one.family} kernels") + " run"
