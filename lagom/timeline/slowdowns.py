"""Contention tax: what overlap costs compute, in total, by kernel and by sort of kernel.

    tax = sum over compute kernels under communication of (duration - duration of its like when quiet)
    share = tax / total duration of compute kernels

What a quiet like (:mod:`lagom.timeline.reference_kernels`) cannot see: other compute running beside both (copies on
a second stream), and a clock that drops because of the communication itself. Both are in the tax.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lagom.timeline.busy_times import Floats
from lagom.timeline.kernel_names import SM_BOUND, family
from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.reference_kernels import LOUD_FROM, QUIET_UP_TO, Contention
from lagom.timeline.steps import Steps

#: A share of compute time that deserves a word.
NOTEWORTHY = 0.02
#: Half a 95 % interval in standard errors that are known, or rest on so many values that they are as good as known.
_NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class Tax:
    """The tax of a step: ns, and as shares of compute time; ``low``..``high`` is a 95 % interval of ``share``:
    -inf..inf for a single step, which has no spread to judge by.

    ``under`` is the share of compute time with communication beside it; ``unmatched`` the share in kernels beside
    communication that have no quiet like: ``share`` is then a lower bound, and ``extrapolated`` what it would be if
    those suffered as the others do. ``sm`` and ``bandwidth`` split ``share``; ``None`` where SMs or blocks are
    unknown. ``outside`` is the share of compute time in kernels whose reference is a quiet recording's, in which
    ``pressure`` of the communication pressure was left; ``extrapolated`` makes up for it in proportion.
    """

    ns: float
    share: float
    low: float
    high: float
    under: float
    unmatched: float
    extrapolated: float
    sm: float | None = None
    bandwidth: float | None = None
    outside: float = 0.0
    pressure: float = 0.0

    @property
    def is_lower_bound(self) -> bool:
        """Whether enough could not be compared, or not with true quiet, to say "at least"."""
        return self.unmatched > NOTEWORTHY or self.outside * self.pressure > NOTEWORTHY / 2


def summarise(table: KernelTable, steps: Steps, contention: Contention) -> Tax:
    """The tax of one rank, a step's mean, with its uncertainty."""
    total = np.maximum(contention.duration.sum(axis=1), 1.0)
    share = contention.loss.sum(axis=1) / total
    reference = float(np.hypot(_reference_error(contention), _outside_error(contention)))
    mean = float(share.mean()) if share.size else 0.0
    half = _half_interval(share, reference / float(total.mean()))
    under = contention.duration * contention.covered
    unmatched = float((contention.unmatched / total).mean())
    split = _split(table, steps, contention)
    return Tax(
        ns=float(contention.loss.sum(axis=1).mean()),
        share=mean,
        low=mean - half,
        high=mean + half,
        under=float((under.sum(axis=1) / total).mean()),
        unmatched=unmatched,
        extrapolated=mean + unmatched * _loss_rate(contention) + _still_hidden(contention) / float(total.mean()),
        sm=None if split is None else float((split.sum(axis=1) / total).mean()),
        bandwidth=None if split is None else mean - float((split.sum(axis=1) / total).mean()),
        outside=contention.outside.share if contention.outside else 0.0,
        pressure=contention.outside.pressure if contention.outside else 0.0,
    )


def _loss_rate(contention: Contention) -> float:
    """Loss over duration of the kernels under communication that have a quiet like; 0 if there are none."""
    matched = (contention.covered > QUIET_UP_TO) & ~np.isnan(contention.quiet)
    time = float(contention.duration[matched].sum())
    return float(contention.loss[matched].sum()) / time if time else 0.0


def _half_interval(share: Floats, reference: float) -> float:
    """Half of the 95 % interval of the steps' mean share; ``reference`` is the error of the references, one sigma.

    Recordings are short, and 1.96 standard errors of 2, 3 or 4 steps hold the truth in only 70, 81 or 85 % of cases,
    so the steps' part is Student's t with one degree of freedom fewer than there are steps (Student 1908, Biometrika
    6(1)). A single step has no spread, so nothing is excluded: infinity. References rest on many kernels at once.
    """
    if share.size < 2:
        return math.inf
    from scipy.special import stdtrit  # 0.2 s that only a profile pays; scipy.stats would be more

    steps = float(stdtrit(share.size - 1, 0.975)) * float(share.std(ddof=1)) / math.sqrt(share.size)
    return math.hypot(steps, _NORMAL_95 * reference)


def _reference_error(contention: Contention) -> float:
    """What the noise of the quiet durations adds to a step's tax, ns, one sigma.

    The error of a role's quiet median (1.25 s / sqrt n) is common to all kernels measured against it, so it is added
    within a role and combined as independent across roles.
    """
    matched = np.broadcast_to(contention.role >= 0, contention.covered.shape) & (contention.quiet > 0)
    quiet = matched & (contention.covered <= QUIET_UP_TO)
    roles_of = np.broadcast_to(contention.role, quiet.shape)
    ratio = contention.duration[quiet] / contention.quiet[quiet]
    size = int(contention.role.max(initial=-1)) + 1
    count, total, squares = (np.bincount(roles_of[quiet], part, size) for part in (None, ratio, ratio**2))
    usable = count > 1
    variance = (squares[usable] - total[usable] ** 2 / count[usable]) / (count[usable] - 1)
    loud = matched & ~quiet
    against = np.bincount(roles_of[loud], contention.quiet[loud], size)[usable] / max(quiet.shape[0], 1)
    return float(np.sqrt((1.25**2 * np.maximum(variance, 0) / count[usable] * against**2).sum()))


def _still_hidden(contention: Contention) -> float:
    """The loss a step that the pressure left in the quiet recording hides, if loss is in proportion to pressure; ns."""
    outside = contention.outside
    if outside is None or outside.pressure >= 1 or not outside.used.size:
        return 0.0
    seen = float(contention.loss[outside.used].sum()) / outside.used.shape[0]
    return seen * outside.pressure / (1.0 - outside.pressure)


def _outside_error(contention: Contention) -> float:
    """What the noise of references from a quiet recording adds to a step's tax, ns, one sigma: common to all steps."""
    outside = contention.outside
    if outside is None or not outside.used.size:
        return 0.0
    against = np.where(outside.used, contention.quiet, 0.0).mean(axis=0)
    return float(np.sqrt(((outside.error * against) ** 2).sum()))


def _split(table: KernelTable, steps: Steps, contention: Contention) -> Floats | None:
    """The part of each kernel's loss that missing SMs explain; ``None`` if SMs or thread blocks are unknown.

    Only matmul and attention kernels that do not fit beside the channels lose to SMs: at most the waves they need on
    the SMs that are left over the waves they need on all, while covered. The rest is bandwidth (memory and cache).
    """
    rows = steps.index[0, contention.places]
    if not table.sms or not table.grid[rows].any():
        return None
    bound = np.array([family(name) in SM_BOUND for name in table.names])[table.name[rows]]
    blocks = np.maximum(table.grid[rows], 1).astype(float)
    left = np.maximum(table.sms - contention.channels, 1.0)
    waves = np.ceil(blocks / left) / np.ceil(blocks / table.sms)
    limit = np.nan_to_num(contention.quiet) * contention.covered * (np.maximum(waves, 1.0) - 1.0)
    return np.where(bound, np.clip(contention.loss, 0.0, limit), 0.0)


@dataclass(frozen=True, slots=True)
class KernelSlowdown:
    """One kernel by name: how many a step, mean ns under communication and of their likes when quiet, the ratio of
    both, and its tax a step."""

    name: str
    calls: int
    quiet_ns: float
    loud_ns: float
    slowdown: float
    tax_ns: float
    family: str


@dataclass(frozen=True, slots=True)
class FamilySlowdown:
    """One sort of work (matmul, attention, ...): a step's time, the part of it under communication, how much slower
    that part is than its likes when quiet (total over total; 1 = not at all, NaN = unknown), and its tax a step, ns."""

    family: str
    ns: float
    under_ns: float
    slowdown: float
    tax_ns: float


def families(table: KernelTable, steps: Steps, contention: Contention) -> list[FamilySlowdown]:
    """Tax by sort of work, largest time first."""
    words = [family(name) for name in table.names]
    of_place = [words[name] for name in table.name[steps.index[0, contention.places]]]
    found = [
        _family_tax(word, contention, np.array([one == word for one in of_place])) for word in dict.fromkeys(of_place)
    ]
    return sorted(found, key=lambda one: -one.ns)


def _family_tax(word: str, contention: Contention, mine: NDArray[np.bool_]) -> FamilySlowdown:
    duration, quiet, covered = (part[:, mine] for part in (contention.duration, contention.quiet, contention.covered))
    loud = (covered >= LOUD_FROM) & (quiet > 0)
    reference = float(quiet[loud].sum())
    return FamilySlowdown(
        family=word,
        ns=float(duration.sum(axis=1).mean()),
        under_ns=float((duration * covered).sum(axis=1).mean()),
        slowdown=float(duration[loud].sum()) / reference if reference else float("nan"),
        tax_ns=float(contention.loss[:, mine].sum(axis=1).mean()),
    )


def sufferers(table: KernelTable, steps: Steps, contention: Contention) -> list[KernelSlowdown]:
    """Kinds of kernels by tax, worst first. Slow-down: total over its kernels under communication of duration /
    quiet."""
    names = table.name[steps.index[0, contention.places]]
    found = [_sufferer(table, int(name), contention, names == name) for name in np.unique(names)]
    return sorted((one for one in found if one is not None), key=lambda one: -one.tax_ns)


def _sufferer(table: KernelTable, name: int, contention: Contention, mine: NDArray[np.bool_]) -> KernelSlowdown | None:
    duration, quiet, covered = (part[:, mine] for part in (contention.duration, contention.quiet, contention.covered))
    loud = (covered >= LOUD_FROM) & (quiet > 0)
    if not loud.any():
        loud = (covered > QUIET_UP_TO) & (quiet > 0)
    if not loud.any():
        return None
    return KernelSlowdown(
        name=table.names[name],
        calls=int(mine.sum()),
        quiet_ns=float(quiet[loud].mean()),
        loud_ns=float(duration[loud].mean()),
        slowdown=float(duration[loud].sum() / quiet[loud].sum()),
        tax_ns=float(contention.loss[:, mine].sum(axis=1).mean()),
        family=family(table.names[name]),
    )
