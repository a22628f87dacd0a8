# SPDX-License-Identifier: Apache-2.0
"""Several ranks together: which steps are the same step, and the job's times from those of its ranks.

Communication time is the minimum over ranks (the last to arrive waits least, so its time is the true one), compute time
and length are the maximum. A rank that always arrives last never waits: this identifies a straggler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lagom.timeline.busy_times import Busy, Floats, OverlapTimes
from lagom.timeline.groups import Groups
from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.steps import Steps

#: A rank is a straggler if the others wait for it more than this share of a step.
_MIN_WAIT_SHARE = 0.02
#: Its own wait must be below this share of theirs.
_OWN_WAIT_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class RankTimeline:
    """One rank's timeline, cut into steps and groups."""

    table: KernelTable
    steps: Steps
    busy: Busy
    groups: Groups

    @property
    def collective_ns(self) -> NDArray[np.int64]:
        """Steps x communication kernels in order: durations."""
        return self.table.duration[self.steps.index[:, self.groups.places]]

    def step_times(self) -> OverlapTimes:
        """Times of every step."""
        return self.busy.between(self.steps.begin, self.steps.end)

    def group_times(self) -> OverlapTimes:
        """Times of every group of every step (steps x groups)."""
        bounds = self.groups.bounds(self.table, self.steps)
        return self.busy.between(bounds[:, :-1], bounds[:, 1:])


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One step over all ranks, ns.

    ``z_max``: the length on the rank where it is longest. (A search judges by the mean over ranks,
    :class:`lagom.records.Sample`, which has less noise.) ``x``: minimum over ranks of communication busy time; ``y``:
    maximum of compute busy time; ``x_by_site``: time of each site's calls.
    """

    z_max: float
    x: float
    y: float
    x_by_site: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CombinedRanks:
    """All ranks' steps as one: ``samples`` one a step; ``x`` steps x communication kernels of the first rank, minima
    over ranks; ``wait_ns`` for each rank what it waits in communication a step (median; NaN for one that runs other
    collectives); ``straggler`` a rank or None; ``shifted``: by how many steps the ranks' recordings begin apart where
    only their clocks say so."""

    samples: tuple[StepTimes, ...]
    x: Floats
    wait_ns: tuple[float, ...]
    straggler: int | None
    aligned_by: str
    shifted: int = 0

    @property
    def alike(self) -> bool:
        """True if all ranks run the same collectives."""
        return not np.isnan(self.wait_ns).any()


def align(steps: Sequence[Steps], tables: Sequence[KernelTable]) -> tuple[list[NDArray[np.int64]], str]:
    """For each rank the rows of its steps that all ranks have, in the same order, and how they were matched: by call
    number of position 0, by the profiler's number, by time (clocks of one host agree), or by order."""
    calls = [_first_calls(one, table) for one, table in zip(steps, tables, strict=True)]
    for how, numbers in (("call number", calls), ("step number", [one.number for one in steps])):
        if (shared := _by_number(numbers)) is not None:
            return shared, how
    rows = _by_time(steps)
    if rows is not None:
        return rows, "time"
    count = min(one.count for one in steps)
    return [np.arange(count) for _ in steps], "order"


def _by_number(numbers: Sequence[NDArray[np.int64] | None]) -> list[NDArray[np.int64]] | None:
    """Rows of the numbers that all ranks have, ascending; None if a rank has none or none is shared."""
    known = [part for part in numbers if part is not None]
    shared = sorted(set.intersection(*(set(part.tolist()) for part in known))) if len(known) == len(numbers) else []
    return [np.searchsorted(part, shared) for part in known] if shared else None


def _first_calls(steps: Steps, table: KernelTable) -> NDArray[np.int64] | None:
    """Call number of the first communication kernel of each step; ``None`` unless all are known and ascend."""
    places = np.flatnonzero(table.is_communication[steps.index[0]])
    if not places.size:
        return None
    rows = steps.index[:, places]
    first = rows[np.arange(steps.count), np.argmin(table.start[rows], axis=1)]
    calls = table.call[first]
    return calls if (calls >= 0).all() and (np.diff(calls) > 0).all() else None


def _by_time(steps: Sequence[Steps]) -> list[NDArray[np.int64]] | None:
    """Rows by nearest start, if every rank has a step within half a step's length for at least half of those of the
    rank that has fewest."""
    base = min(steps, key=lambda one: one.count)
    half = np.median(base.end - base.begin) / 2
    nearest = [np.array([int(np.argmin(np.abs(one.begin - begin))) for begin in base.begin]) for one in steps]
    close = [np.abs(one.begin[rows] - base.begin) < half for one, rows in zip(steps, nearest, strict=True)]
    both = np.logical_and.reduce(close)
    rows = [part[both] for part in nearest]
    unique = all(np.unique(part).size == part.size for part in rows)
    return rows if unique and both.sum() * 2 >= base.count else None


def combine_ranks(ranks: Sequence[RankTimeline]) -> CombinedRanks:
    """All ranks as one. Ranks whose collectives differ from the first one's add to X, Y and Z of the step only."""
    rows, how = align([rank.steps for rank in ranks], [rank.table for rank in ranks])
    parts = [rank.step_times() for rank in ranks]
    x, y, z = (
        np.array([getattr(part, key)[mine] for part, mine in zip(parts, rows, strict=True)]) for key in ("x", "y", "z")
    )
    collective = np.array([_in_order_of(ranks[0], rank, mine) for rank, mine in zip(ranks, rows, strict=True)])
    least = np.nanmin(collective, axis=0)
    wait = np.median((collective - least).sum(axis=2), axis=1)
    by_site = _by_site(ranks[0].groups, least)
    z_max = z.max(axis=0)
    samples = tuple(
        StepTimes(float(z_max[step]), float(x[:, step].min()), float(y[:, step].max()), tuple(by_site[step].tolist()))
        for step in range(z.shape[1])
    )
    straggler = _straggler(wait, float(np.median(z_max))) if z.size else None
    named = None if straggler is None else ranks[straggler].table.rank
    return CombinedRanks(samples, least, tuple(wait.tolist()), named, how, _shift(rows) if how == "time" else 0)


def _shift(rows: Sequence[NDArray[np.int64]]) -> int:
    """By how many steps the ranks' first matched ones lie apart."""
    first = [int(mine[0]) for mine in rows if mine.size]
    return max(first, default=0) - min(first, default=0)


def _in_order_of(base: RankTimeline, rank: RankTimeline, rows: NDArray[np.int64]) -> Floats:
    """Durations of ``rank``'s communication kernels (steps x kernels), in the order of ``base``'s: the n-th of a kind
    is the n-th of that kind on every rank, whichever stream came first. NaN if the kinds are not the same."""
    wanted, given = _kinds(base), _kinds(rank)
    durations = rank.collective_ns[rows].astype(float)
    if sorted(wanted) != sorted(given):
        return np.full((rows.size, len(wanted)), np.nan)
    places: dict[tuple[str, int], list[int]] = {}
    for place, kind in enumerate(given):
        places.setdefault(kind, []).append(place)
    return durations[:, [places[kind].pop(0) for kind in wanted]]


def _kinds(rank: RankTimeline) -> list[tuple[str, int]]:
    kernels, table = rank.steps.index[0, rank.groups.places], rank.table
    names = [table.names[name] for name in table.name[kernels]]
    return list(zip(names, table.bytes[kernels].tolist(), strict=True))


def _by_site(groups: Groups, least: Floats) -> Floats:
    totals = np.zeros((least.shape[0], len(groups.sites)))
    for site in range(len(groups.sites)):
        totals[:, site] = least[:, groups.site_of == site].sum(axis=1)
    return totals


def _straggler(wait: Floats, step_ns: float) -> int | None:
    if wait.size < 2 or np.isnan(wait).any():
        return None
    last = int(np.argmin(wait))
    others = float(np.median(np.delete(wait, last)))
    return last if others > _MIN_WAIT_SHARE * step_ns and wait[last] < _OWN_WAIT_SHARE * others else None
