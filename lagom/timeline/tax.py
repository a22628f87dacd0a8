"""Contention tax: what overlap costs compute, with like compared with like.

    tax = sum over compute kernels under communication of (duration - duration of its like when quiet)
    share = tax / total duration of compute kernels

Its *like* is a kernel that runs the same problem: kernels of one name, grid and block often do not. The role of a place
is the sequence of kernels around it on its stream; the same role comes back in every layer and every step. In order of
preference: the same role in the same step (the GPU's clock drifts by some percent from step to step), the same role in
any step. A kernel without a quiet like is not guessed: its time is reported as unmatched.

What a quiet like cannot see: other compute running beside both (copies on a second stream), and a clock that drops
because of the communication itself. Both are in the tax.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lagom.timeline.account import Busy, Floats
from lagom.timeline.intervals import weight_before, within
from lagom.timeline.names import SM_BOUND, family
from lagom.timeline.period import signatures
from lagom.timeline.steps import Steps
from lagom.timeline.table import KernelTable

#: A kernel is quiet if communication runs during at most this share of it, and loud from LOUD_FROM on.
QUIET_UP_TO = 0.01
LOUD_FROM = 0.99
#: How many kernels before and after must agree for two places to have one role. Tried in this order: the one-sided
#: ones are for the first and the last layer, which have other neighbours on one side.
WINDOWS = ((3, 3), (2, 2), (0, 4), (4, 0))


@dataclass(frozen=True, slots=True)
class Contention:
    """Every compute kernel of every step: rows = steps, columns = ``places`` (columns of ``Steps.index``).

    ``covered`` is the share of the kernel with communication beside it, ``quiet`` the duration of its like (NaN where
    there is none), ``channels`` the mean number of channels running while covered, ``role`` a number for each place
    (-1: no like).
    """

    places: NDArray[np.int64]
    duration: Floats
    covered: Floats
    quiet: Floats
    channels: Floats
    role: NDArray[np.int64]

    @property
    def loss(self) -> Floats:
        """Duration minus quiet duration where communication runs beside the kernel, 0 elsewhere and where unmatched."""
        return np.where((self.covered > QUIET_UP_TO) & ~np.isnan(self.quiet), self.duration - self.quiet, 0.0)

    @property
    def unmatched(self) -> Floats:
        """Time of each step spent in kernels under communication that have no quiet like, ns."""
        return np.where((self.covered > QUIET_UP_TO) & np.isnan(self.quiet), self.duration, 0.0).sum(axis=1)


@dataclass(frozen=True, slots=True)
class Tax:
    """The tax of a step: ns, and as shares of compute time; ``low``..``high`` is a 95 % interval of ``share``.

    ``under`` is the share of compute time with communication beside it; ``unmatched`` the share in kernels beside
    communication that have no quiet like: ``share`` is then a lower bound, and ``extrapolated`` what it would be if
    those suffered as the others do. ``sm`` and ``bandwidth`` split ``share``; ``None`` where the number of SMs is
    unknown.
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


@dataclass(frozen=True, slots=True)
class Sufferer:
    """One kernel by name: how many a step, mean ns under communication and of their likes when quiet, the ratio of
    both, and its tax a step."""

    name: str
    calls: int
    quiet_ns: float
    loud_ns: float
    slowdown: float
    tax_ns: float
    family: str


def measure(table: KernelTable, steps: Steps, busy: Busy) -> Contention:
    """Durations, coverage and quiet references of all compute kernels of the steps."""
    places = np.flatnonzero(table.is_compute[steps.index[0]])
    rows = steps.index[:, places]
    start, end = table.start[rows], table.end[rows]
    duration = (end - start).astype(float)
    beside = within(busy.communication, start, end).astype(float)
    covered = np.divide(beside, duration, out=np.zeros_like(duration), where=duration > 0)
    quiet, role = _references(signatures(table), table, steps, places, duration, covered <= QUIET_UP_TO)
    return Contention(places, duration, covered, quiet, _channels(table, start, end, beside), role)


def _channels(table: KernelTable, start: NDArray, end: NDArray, beside: Floats) -> Floats:
    comm = table.is_communication
    begun, ended, weight = table.start[comm], table.end[comm], table.channels[comm].astype(float)
    area = weight_before(begun, ended, weight, end) - weight_before(begun, ended, weight, start)
    return np.divide(area, beside, out=np.zeros_like(beside), where=beside > 0)


def _references(
    codes: NDArray, table: KernelTable, steps: Steps, places: NDArray, duration: Floats, quiet: NDArray[np.bool_]
) -> tuple[Floats, NDArray[np.int64]]:
    """The quiet duration of each kernel's like, and each place's role."""
    candidates = [roles(codes, table, steps, *window)[places] for window in WINDOWS]
    found = np.full(duration.shape, np.nan)
    for medians_of in (_medians_in_step, _medians_ever):
        for role in candidates:
            found = np.where(np.isnan(found), medians_of(duration, quiet, role), found)
    return found, _joined_roles(candidates, np.asarray(quiet.any(axis=0)))


def roles(codes: NDArray, table: KernelTable, steps: Steps, before: int, after: int) -> NDArray[np.int64]:
    """A number for each place of a step: equal where the kernel, the ``before`` kernels ahead of it on its stream and
    the ``after`` kernels behind it are equal, going round at the step's ends."""
    spelled = codes[steps.index[0]]
    streams = table.stream[steps.index[0]]
    windows = np.zeros((spelled.size, before + after + 2), np.int64)
    for stream in np.unique(streams):
        mine = np.flatnonzero(streams == stream)
        around = (np.arange(mine.size)[:, None] + np.arange(-before, after + 1)) % mine.size
        windows[mine] = np.column_stack([np.full(mine.size, stream), spelled[mine][around]])
    return np.unique(windows, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def _joined_roles(candidates: list[NDArray[np.int64]], ever_quiet: NDArray[np.bool_]) -> NDArray[np.int64]:
    """One role a place: that of the first window under which some place of the role was ever quiet; -1 if none."""
    base = candidates[1]
    heard = np.bincount(base, ever_quiet) > 0
    role = np.where(heard[base], base, -1)
    for candidate in candidates[2:]:
        of_class = np.full(int(candidate.max(initial=0)) + 1, -1, np.int64)
        of_class[candidate[role >= 0]] = role[role >= 0]
        role = np.where(role < 0, of_class[candidate], role)
    return role


def _medians_in_step(duration: Floats, quiet: NDArray[np.bool_], role: NDArray[np.int64]) -> Floats:
    """Steps x places: the median of the quiet kernels of the same role in the same step; NaN where there is none."""
    steps, count = duration.shape[0], int(role.max(initial=0)) + 1
    group = np.arange(steps)[:, None] * count + role
    return _medians(duration[quiet], group[quiet], steps * count).reshape(steps, count)[:, role]


def _medians_ever(duration: Floats, quiet: NDArray[np.bool_], role: NDArray[np.int64]) -> Floats:
    """Places: the median of the quiet kernels of the same role in any step; NaN where there is none."""
    group = np.broadcast_to(role, duration.shape)
    return _medians(duration[quiet], group[quiet], int(role.max(initial=0)) + 1)[role]


def _medians(values: Floats, group: NDArray[np.int64], count: int) -> Floats:
    """The median of the values of each group 0 .. count-1; NaN for an empty one."""
    order = np.lexsort([values, group])
    values, sizes = values[order], np.bincount(group, minlength=count)
    first = np.cumsum(sizes) - sizes
    filled = sizes > 0
    low, high = first + (sizes - 1) // 2, first + sizes // 2
    medians = np.full(count, np.nan)
    medians[filled] = (values[low[filled]] + values[high[filled]]) / 2
    return medians


def summarise(table: KernelTable, steps: Steps, contention: Contention) -> Tax:
    """The tax of one rank, a step's mean, with its uncertainty."""
    total = np.maximum(contention.duration.sum(axis=1), 1.0)
    share = contention.loss.sum(axis=1) / total
    spread = float(np.hypot(_standard_error(share), _reference_error(contention) / total.mean()))
    mean = float(share.mean()) if share.size else 0.0
    under = contention.duration * contention.covered
    unmatched = float((contention.unmatched / total).mean())
    split = _split(table, steps, contention)
    return Tax(
        ns=float(contention.loss.sum(axis=1).mean()),
        share=mean,
        low=mean - 1.96 * spread,
        high=mean + 1.96 * spread,
        under=float((under.sum(axis=1) / total).mean()),
        unmatched=unmatched,
        extrapolated=mean + unmatched * _loss_rate(contention),
        sm=None if split is None else float((split.sum(axis=1) / total).mean()),
        bandwidth=None if split is None else mean - float((split.sum(axis=1) / total).mean()),
    )


def _loss_rate(contention: Contention) -> float:
    """Loss over duration of the kernels under communication that have a quiet like; 0 if there are none."""
    matched = (contention.covered > QUIET_UP_TO) & ~np.isnan(contention.quiet)
    time = float(contention.duration[matched].sum())
    return float(contention.loss[matched].sum()) / time if time else 0.0


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0


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


def _split(table: KernelTable, steps: Steps, contention: Contention) -> Floats | None:
    """The part of each kernel's loss that missing SMs explain; ``None`` if the number of SMs is unknown.

    Only matmul and attention kernels that do not fit beside the channels lose to SMs: at most the waves they need on
    the SMs that are left over the waves they need on all, while covered. The rest is bandwidth (memory and cache).
    """
    if not table.sms:
        return None
    rows = steps.index[0, contention.places]
    bound = np.array([family(name) in SM_BOUND for name in table.names])[table.name[rows]]
    blocks = np.maximum(table.grid[rows], 1).astype(float)
    left = np.maximum(table.sms - contention.channels, 1.0)
    waves = np.ceil(blocks / left) / np.ceil(blocks / table.sms)
    limit = np.nan_to_num(contention.quiet) * contention.covered * (np.maximum(waves, 1.0) - 1.0)
    return np.where(bound, np.clip(contention.loss, 0.0, limit), 0.0)


@dataclass(frozen=True, slots=True)
class FamilyTax:
    """One sort of work (matmul, attention, ...): a step's time, the part of it under communication, how much slower
    that part is than its likes when quiet (total over total; 1 = not at all, NaN = unknown), and its tax a step, ns."""

    family: str
    ns: float
    under_ns: float
    slowdown: float
    tax_ns: float


def families(table: KernelTable, steps: Steps, contention: Contention) -> list[FamilyTax]:
    """Tax by sort of work, largest time first."""
    words = [family(name) for name in table.names]
    of_place = [words[name] for name in table.name[steps.index[0, contention.places]]]
    found = [
        _family_tax(word, contention, np.array([one == word for one in of_place])) for word in dict.fromkeys(of_place)
    ]
    return sorted(found, key=lambda one: -one.ns)


def _family_tax(word: str, contention: Contention, mine: NDArray[np.bool_]) -> FamilyTax:
    duration, quiet, covered = (part[:, mine] for part in (contention.duration, contention.quiet, contention.covered))
    loud = (covered >= LOUD_FROM) & (quiet > 0)
    reference = float(quiet[loud].sum())
    return FamilyTax(
        family=word,
        ns=float(duration.sum(axis=1).mean()),
        under_ns=float((duration * covered).sum(axis=1).mean()),
        slowdown=float(duration[loud].sum()) / reference if reference else float("nan"),
        tax_ns=float(contention.loss[:, mine].sum(axis=1).mean()),
    )


def sufferers(table: KernelTable, steps: Steps, contention: Contention) -> list[Sufferer]:
    """Kinds of kernels by tax, worst first. Slow-down: total over its kernels under communication of duration /
    quiet."""
    names = table.name[steps.index[0, contention.places]]
    found = [_sufferer(table, int(name), contention, names == name) for name in np.unique(names)]
    return sorted((one for one in found if one is not None), key=lambda one: -one.tax_ns)


def _sufferer(table: KernelTable, name: int, contention: Contention, mine: NDArray[np.bool_]) -> Sufferer | None:
    duration, quiet, covered = (part[:, mine] for part in (contention.duration, contention.quiet, contention.covered))
    loud = (covered >= LOUD_FROM) & (quiet > 0)
    if not loud.any():
        loud = (covered > QUIET_UP_TO) & (quiet > 0)
    if not loud.any():
        return None
    return Sufferer(
        name=table.names[name],
        calls=int(mine.sum()),
        quiet_ns=float(quiet[loud].mean()),
        loud_ns=float(duration[loud].mean()),
        slowdown=float(duration[loud].sum() / quiet[loud].sum()),
        tax_ns=float(contention.loss[:, mine].sum(axis=1).mean()),
        family=family(table.names[name]),
    )


@dataclass(frozen=True, slots=True)
class RoleSlowdown:
    """One role (the same kernel in every layer): places seen loud, and how much slower those were.

    ``paired``: mean of duration / quiet like of the same step, over all loud kernels. ``by_place``: mean over the loud
    places of their median over steps, over the median of the quiet ones: blind to the clock's drift, but the way such
    ratios are usually quoted.
    """

    role: int
    name: str
    loud: int
    quiet: int
    paired: float
    by_place: float


def role_slowdowns(table: KernelTable, steps: Steps, contention: Contention) -> list[RoleSlowdown]:
    """Every role that was seen both quiet and under communication throughout, in order of place."""
    known = contention.role[contention.role >= 0]
    found = [_role_slowdown(table, steps, contention, int(role)) for role in dict.fromkeys(known.tolist())]
    return [one for one in found if one is not None]


def _role_slowdown(table: KernelTable, steps: Steps, contention: Contention, role: int) -> RoleSlowdown | None:
    mine = np.flatnonzero(contention.role == role)
    duration, covered = contention.duration[:, mine], contention.covered[:, mine]
    loud, quiet = covered >= LOUD_FROM, covered <= QUIET_UP_TO
    if not loud.any() or not quiet.any():
        return None
    at_place = [np.median(duration[loud[:, one], one]) for one in np.flatnonzero(loud.any(axis=0))]
    return RoleSlowdown(
        role=role,
        name=table.names[table.name[steps.index[0, contention.places[mine[0]]]]],
        loud=int(loud.sum()),
        quiet=int(quiet.sum()),
        paired=float(np.mean(duration[loud] / contention.quiet[:, mine][loud])),
        by_place=float(np.mean(at_place) / np.median(duration[quiet])),
    )
