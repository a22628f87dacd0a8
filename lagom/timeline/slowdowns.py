# SPDX-License-Identifier: Apache-2.0
"""Contention overhead: the extra time of compute kernels that run beside communication, in total and by kernel.

    overhead = sum over compute kernels beside communication of (duration - duration without communication)
    share = overhead / total duration of compute kernels
    slowdown of a kernel = duration beside communication / duration without

The duration without communication is that of the reference kernel (:mod:`lagom.timeline.reference_kernels`). Two other
causes are included in the overhead: other compute beside the kernel (copies on a second stream), and a GPU clock that
is lower because of the communication itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lagom.timeline.busy_times import Floats
from lagom.timeline.kernel_names import SM_BOUND, family
from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.reference_kernels import ALONE_UP_TO, OVERLAPPED_FROM, Contention
from lagom.timeline.steps import Steps

#: A share of compute time that is worth mentioning.
NOTEWORTHY = 0.02
#: Half a 95 % interval in standard errors that are known, or rest on so many values that they are as good as known.
_NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class ContentionOverhead:
    """The overhead of a step: ns, and as shares of compute time; ``low``..``high`` is a 95 % interval of ``share``:
    -inf..inf for a single step, which has no spread.

    ``overlapped`` is the share of compute time with communication beside it; ``unmatched`` the share in kernels beside
    communication that have no reference: ``share`` is then a lower bound, and ``extrapolated`` what it would be if
    those were slowed down as the others are. ``sm`` and ``bandwidth`` split ``share``; ``None`` where SMs or blocks are
    unknown. ``from_reference_trace`` is the share of compute time in kernels whose reference is a reference trace's,
    which has ``pressure`` of this trace's communication pressure; ``extrapolated`` corrects for it in proportion.
    """

    ns: float
    share: float
    low: float
    high: float
    overlapped: float
    unmatched: float
    extrapolated: float
    sm: float | None = None
    bandwidth: float | None = None
    from_reference_trace: float = 0.0
    pressure: float = 0.0

    @property
    def is_lower_bound(self) -> bool:
        """Whether kernels worth mentioning have no reference, or one that is itself slowed down by communication."""
        return self.unmatched > NOTEWORTHY or self.from_reference_trace * self.pressure > NOTEWORTHY / 2


def measure_overhead(table: KernelTable, steps: Steps, contention: Contention) -> ContentionOverhead:
    """The overhead of one rank: mean over steps, with its uncertainty."""
    total = np.maximum(contention.duration.sum(axis=1), 1.0)
    share = contention.extra.sum(axis=1) / total
    mean = float(share.mean()) if share.size else 0.0
    half = _half_interval(share, _error(contention) / float(total.mean()))
    overlapped = contention.duration * contention.overlap_share
    unmatched = float((contention.unmatched / total).mean())
    split = _split(table, steps, contention)
    return ContentionOverhead(
        ns=float(contention.extra.sum(axis=1).mean()),
        share=mean,
        low=mean - half,
        high=mean + half,
        overlapped=float((overlapped.sum(axis=1) / total).mean()),
        unmatched=unmatched,
        extrapolated=mean
        + unmatched * _extra_rate(contention)
        + _extra_hidden_by_pressure(contention) / float(total.mean()),
        sm=None if split is None else float((split.sum(axis=1) / total).mean()),
        bandwidth=None if split is None else mean - float((split.sum(axis=1) / total).mean()),
        from_reference_trace=contention.from_trace.share if contention.from_trace else 0.0,
        pressure=contention.from_trace.pressure if contention.from_trace else 0.0,
    )


def _extra_rate(contention: Contention) -> float:
    """Extra time over duration of the kernels beside communication that have a reference; 0 if there are none."""
    matched = (contention.overlap_share > ALONE_UP_TO) & ~np.isnan(contention.reference)
    time = float(contention.duration[matched].sum())
    return float(contention.extra[matched].sum()) / time if time else 0.0


def _half_interval(share: Floats, reference: float) -> float:
    """Half of the 95 % interval of the steps' mean share; ``reference`` is the error of the references, one sigma.

    Recordings are short, and 1.96 standard errors of 2, 3 or 4 steps contain the true value in only 70, 81 or 85 % of
    cases, so the steps' part is Student's t with one degree of freedom fewer than there are steps (Student 1908,
    Biometrika 6(1)). A single step has no spread, so nothing is excluded: infinity. References rest on many kernels at
    once.
    """
    if share.size < 2:
        return math.inf
    from scipy.special import stdtrit  # imported here: it takes 0.2 s, and scipy.stats more

    steps = float(stdtrit(share.size - 1, 0.975)) * float(share.std(ddof=1)) / math.sqrt(share.size)
    return math.hypot(steps, _NORMAL_95 * reference)


def _error(contention: Contention) -> float:
    """The standard error that all references add to a step's overhead, ns."""
    return float(np.hypot(_reference_error(contention), _trace_reference_error(contention)))


def _reference_error(contention: Contention) -> float:
    """The standard error that the references add to a step's overhead, ns.

    The error of a role's reference, a median (1.25 s / sqrt n) is common to all kernels measured against it, so it is
    added within a role and combined as independent across roles.
    """
    matched = np.broadcast_to(contention.role >= 0, contention.overlap_share.shape) & (contention.reference > 0)
    alone = matched & (contention.overlap_share <= ALONE_UP_TO)
    roles_of = np.broadcast_to(contention.role, alone.shape)
    ratio = contention.duration[alone] / contention.reference[alone]
    size = int(contention.role.max(initial=-1)) + 1
    count, total, squares = (np.bincount(roles_of[alone], part, size) for part in (None, ratio, ratio**2))
    usable = count > 1
    variance = (squares[usable] - total[usable] ** 2 / count[usable]) / (count[usable] - 1)
    overlapped = matched & ~alone
    against = np.bincount(roles_of[overlapped], contention.reference[overlapped], size)[usable] / max(alone.shape[0], 1)
    return float(np.sqrt((1.25**2 * np.maximum(variance, 0) / count[usable] * against**2).sum()))


def _extra_hidden_by_pressure(contention: Contention) -> float:
    """Extra time a step missed because the reference trace has communication too, ns; in proportion to pressure."""
    from_trace = contention.from_trace
    if from_trace is None or from_trace.pressure >= 1 or not from_trace.used.size:
        return 0.0
    seen = float(contention.extra[from_trace.used].sum()) / from_trace.used.shape[0]
    return seen * from_trace.pressure / (1.0 - from_trace.pressure)


def _trace_reference_error(contention: Contention) -> float:
    """The standard error that references from a reference trace add to a step's overhead, ns: common to all steps."""
    from_trace = contention.from_trace
    if from_trace is None or not from_trace.used.size:
        return 0.0
    against = np.where(from_trace.used, contention.reference, 0.0).mean(axis=0)
    return float(np.sqrt(((from_trace.error * against) ** 2).sum()))


def _split(table: KernelTable, steps: Steps, contention: Contention) -> Floats | None:
    """The part of each kernel's extra time that missing SMs explain; ``None`` if SMs or thread blocks are unknown.

    Only matmul and attention kernels that do not fit beside the channels are slowed down by missing SMs: at most the
    waves they need on the SMs that are left over the waves they need on all, during the overlap. The rest is bandwidth
    (memory and cache).
    """
    rows = steps.index[0, contention.places]
    if not table.sms or not table.grid[rows].any():
        return None
    bound = np.array([family(name) in SM_BOUND for name in table.names])[table.name[rows]]
    blocks = np.maximum(table.grid[rows], 1).astype(float)
    left = np.maximum(table.sms - contention.channels, 1.0)
    waves = np.ceil(blocks / left) / np.ceil(blocks / table.sms)
    limit = np.nan_to_num(contention.reference) * contention.overlap_share * (np.maximum(waves, 1.0) - 1.0)
    return np.where(bound, np.clip(contention.extra, 0.0, limit), 0.0)


@dataclass(frozen=True, slots=True)
class KernelSlowdown:
    """One kernel by name: ``calls`` a step, mean duration beside communication (``overlapped_ns``) and of its reference
    kernels (``reference_ns``), ``slowdown`` = the ratio of both, and ``extra_ns``: its extra time a step, at least
    ``extra_low_ns``, the lower end of its 95 % interval (-inf for a single step)."""

    name: str
    calls: int
    reference_ns: float
    overlapped_ns: float
    slowdown: float
    extra_ns: float
    extra_low_ns: float
    family: str


@dataclass(frozen=True, slots=True)
class FamilySlowdown:
    """One sort of work (matmul, attention, ...): time a step, the part of it beside communication, ``slowdown`` of that
    part against its reference kernels (total over total; 1 = none, NaN = unknown), and its extra time a step, with the
    lower end of its 95 % interval (-inf for a single step); ns."""

    family: str
    ns: float
    overlapped_ns: float
    slowdown: float
    extra_ns: float
    extra_low_ns: float


def _only(contention: Contention, mine: NDArray[np.bool_]) -> Contention:
    """The same for some of its places."""
    trace = contention.from_trace
    if trace is not None and trace.used.size:
        trace = replace(trace, used=trace.used[:, mine], error=trace.error[mine])
    of_steps = ("duration", "overlap_share", "reference", "channels")
    columns = {name: getattr(contention, name)[:, mine] for name in of_steps}
    return replace(contention, places=contention.places[mine], role=contention.role[mine], from_trace=trace, **columns)


def _lowest_extra(part: Contention) -> float:
    """The lower end of the 95 % interval of the extra time a step, ns."""
    extra = part.extra.sum(axis=1)
    return float(extra.mean()) - _half_interval(extra, _error(part))


def family_slowdowns(table: KernelTable, steps: Steps, contention: Contention) -> list[FamilySlowdown]:
    """By sort of work, largest time first."""
    words = [family(name) for name in table.names]
    of_place = [words[name] for name in table.name[steps.index[0, contention.places]]]
    found = [
        _family_slowdown(word, contention, np.array([one == word for one in of_place]))
        for word in dict.fromkeys(of_place)
    ]
    return sorted(found, key=lambda one: -one.ns)


def _family_slowdown(word: str, contention: Contention, mine: NDArray[np.bool_]) -> FamilySlowdown:
    part = _only(contention, mine)
    duration, reference, overlap_share = part.duration, part.reference, part.overlap_share
    overlapped = (overlap_share >= OVERLAPPED_FROM) & (reference > 0)
    alone = float(reference[overlapped].sum())
    return FamilySlowdown(
        family=word,
        ns=float(duration.sum(axis=1).mean()),
        overlapped_ns=float((duration * overlap_share).sum(axis=1).mean()),
        slowdown=float(duration[overlapped].sum()) / alone if alone else float("nan"),
        extra_ns=float(part.extra.sum(axis=1).mean()),
        extra_low_ns=_lowest_extra(part),
    )


def kernel_slowdowns(table: KernelTable, steps: Steps, contention: Contention) -> list[KernelSlowdown]:
    """By kernel name, largest extra time first. ``slowdown``: total duration over total reference of those
    overlapped."""
    names = table.name[steps.index[0, contention.places]]
    found = [_kernel_slowdown(table, int(name), contention, names == name) for name in np.unique(names)]
    return sorted((one for one in found if one is not None), key=lambda one: -one.extra_ns)


def _kernel_slowdown(
    table: KernelTable, name: int, contention: Contention, mine: NDArray[np.bool_]
) -> KernelSlowdown | None:
    part = _only(contention, mine)
    duration, reference, overlap_share = part.duration, part.reference, part.overlap_share
    overlapped = (overlap_share >= OVERLAPPED_FROM) & (reference > 0)
    if not overlapped.any():
        overlapped = (overlap_share > ALONE_UP_TO) & (reference > 0)
    if not overlapped.any():
        return None
    return KernelSlowdown(
        name=table.names[name],
        calls=int(mine.sum()),
        reference_ns=float(reference[overlapped].mean()),
        overlapped_ns=float(duration[overlapped].mean()),
        slowdown=float(duration[overlapped].sum() / reference[overlapped].sum()),
        extra_ns=float(part.extra.sum(axis=1).mean()),
        extra_low_ns=_lowest_extra(part),
        family=family(table.names[name]),
    )
