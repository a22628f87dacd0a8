# SPDX-License-Identifier: Apache-2.0
"""From kernel tables to everything that a report shows.

``profile(tables)`` is what ``lagom profile`` prints, draws and writes; the controller uses the parts directly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lagom.records import Function
from lagom.timeline.busy_times import Busy
from lagom.timeline.groups import Groups, describe_pattern, find_groups
from lagom.timeline.kernel_names import is_foreign, is_symmetric
from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.ranks import CombinedRanks, RankTimeline, combine_ranks
from lagom.timeline.reference_kernels import Contention, measure_contention
from lagom.timeline.reference_trace import MeasuredTrace, fill_references
from lagom.timeline.slowdowns import (
    ContentionOverhead,
    FamilySlowdown,
    KernelSlowdown,
    family_slowdowns,
    kernel_slowdowns,
    measure_overhead,
)
from lagom.timeline.steps import find_steps
from lagom.timeline.trace_coverage import (
    HOST,
    NCCL_ALONE,
    TIERS,
    Calls,
    TraceCoverage,
    measure_coverage,
    note_communication,
    note_limits,
    note_reference_trace,
    z_by_calls,
)
from lagom.timeline.trace_file import TraceError


@dataclass(frozen=True, slots=True)
class PatternRow:
    """One pattern of one step: its groups together, medians over steps, ns. ``oef`` and ``overlap_ratio`` are NaN where
    the pattern has no compute or no communication; ``oef_alone`` uses compute as it would be without contention.
    ``overhead`` is the contention overhead."""

    name: str
    groups: int
    z: float
    x: float
    y: float
    overlap: float
    exposed: float
    overlap_ratio: float
    oef: float
    oef_alone: float
    overhead: float


@dataclass(frozen=True, slots=True)
class SiteRow:
    """One site: calls a step, communication time (minimum over ranks), and how much of that is exposed on the rank
    shown; ns a step. ``exposed`` and ``hidden`` are NaN where no compute was recorded."""

    name: str
    calls: int
    x: float
    exposed: float
    hidden: float
    tunable: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """The overlap of a job. ``ranks[shown]`` is the rank shown in pictures and patterns: the one with the median step.
    Times in ns; ``z_max``, ``x``, ``y`` are medians over steps of the ranks together
    (:class:`~lagom.timeline.ranks.StepTimes`), ``own_x``, ``overlap_ratio``, ``exposed``, ``idle`` of the rank shown;
    shares are of 1. What cannot be seen is NaN: without compute kernels everything but Z max and X. ``reference``: the
    kernels of the reference trace that the rank shown was compared with."""

    ranks: tuple[RankTimeline, ...]
    combined: CombinedRanks
    shown: int
    steps: int
    irregular: int
    z_max: float
    x: float
    y: float
    own_x: float
    overlap_ratio: float
    exposed: float
    idle: float
    overhead: ContentionOverhead
    overheads: tuple[ContentionOverhead, ...]
    patterns: tuple[PatternRow, ...]
    sites: tuple[SiteRow, ...]
    slowdowns: tuple[KernelSlowdown, ...]
    families: tuple[FamilySlowdown, ...]
    contention: Contention
    coverage: TraceCoverage
    notes: tuple[str, ...]
    reference: KernelTable | None = None

    @property
    def sees_compute(self) -> bool:
        """True if compute kernels were recorded, or if there was no communication to hide."""
        return self.coverage.tier != NCCL_ALONE

    @property
    def has_communication(self) -> bool:
        return bool(self.own_x) or any(rank.table.is_communication.any() for rank in self.ranks)

    @property
    def rank(self) -> RankTimeline:
        """The rank shown."""
        return self.ranks[self.shown]

    @property
    def typical_step(self) -> int:
        """The step of the shown rank with the median length."""
        steps = self.rank.steps
        return int(np.argsort(steps.end - steps.begin, kind="stable")[steps.count // 2])


def profile(
    tables: Sequence[KernelTable], reference: Sequence[KernelTable] = (), calls: Calls | None = None
) -> Profile:
    """Everything about the job whose ranks' kernels are in ``tables``. Raises TraceError if there is nothing to see.

    ``reference``: the same job's kernels with little or no communication, of the same ranks or of one for all; for
    kernels that always have communication beside them in ``tables``. ``calls``: what the ranks' communicators were
    called for, to count the kernels whose call is known.
    """
    tables = sorted((table for table in tables if len(table)), key=lambda table: table.rank)
    if not tables:
        z = z_by_calls(calls)
        seen = "" if z is None else f", only calls, {z / 1e6:.3g} ms an iteration (tier {HOST}: {TIERS[HOST]})"
        raise TraceError(f"there is no usable kernel record{seen}; record at least three iterations of a GPU job.")
    ranks = _ranks(tables)
    contentions = _contentions(ranks, reference)
    overheads = [measure_overhead(rank.table, rank.steps, one) for rank, one in zip(ranks, contentions, strict=True)]
    merged = combine_ranks(ranks)
    times = [rank.step_times() for rank in ranks]
    lengths = [float(np.median(part.z)) for part in times]
    shown = int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])
    rank, contention = ranks[shown], contentions[shown]
    z_max, x, y = (_median([getattr(sample, time) for sample in merged.samples]) for time in ("z_max", "x", "y"))
    found = Profile(
        ranks=tuple(ranks),
        combined=merged,
        shown=shown,
        steps=len(merged.samples),
        irregular=sum(one.steps.irregular for one in ranks),
        z_max=z_max,
        x=x,
        y=y,
        own_x=_median(times[shown].x),
        overlap_ratio=_median(times[shown].overlap_ratio),
        exposed=_median(times[shown].exposed),
        idle=_median(times[shown].idle),
        overhead=overheads[shown],
        overheads=tuple(overheads),
        patterns=_patterns(rank, contention),
        sites=_sites(rank, merged),
        slowdowns=tuple(kernel_slowdowns(rank.table, rank.steps, contention)),
        families=tuple(family_slowdowns(rank.table, rank.steps, contention)),
        contention=contention,
        coverage=measure_coverage(tables, calls),
        notes=(*note_limits(ranks, overheads, merged), *note_communication(tables), *note_reference_trace(contention)),
        reference=_reference_of(rank.table.rank, reference),
    )
    return found if found.sees_compute else _without_compute(found)


def _without_compute(found: Profile) -> Profile:
    """The same with NaN for what cannot be known: only NCCL's kernels were recorded."""
    nan = math.nan
    unknown = ContentionOverhead(nan, nan, nan, nan, nan, nan, nan)
    return replace(
        found, y=nan, overlap_ratio=nan, exposed=nan, idle=nan, overhead=unknown,
        overheads=(unknown,) * len(found.overheads),
        patterns=tuple(
            replace(row, y=nan, overlap=nan, exposed=nan, overlap_ratio=nan, oef=nan, oef_alone=nan, overhead=nan)
            for row in found.patterns
        ),
        sites=tuple(replace(row, exposed=nan, hidden=nan) for row in found.sites),
    )  # fmt: skip


def _contentions(ranks: Sequence[RankTimeline], reference: Sequence[KernelTable]) -> list[Contention]:
    """The ranks' contention, missing references filled in from the reference trace, if there is one, of the same rank,
    else of its first."""
    contentions = [measure_contention(rank.table, rank.steps, rank.busy) for rank in ranks]
    if not reference:
        return contentions
    measured: dict[int, MeasuredTrace] = {}
    filled = []
    for rank, one in zip(ranks, contentions, strict=True):
        table = _reference_of(rank.table.rank, reference)
        if table is None:
            raise TraceError(
                "the reference trace holds no usable kernel record; record at least three iterations of it."
            )
        if table.rank not in measured:
            steps = find_steps(table)
            measured[table.rank] = (table, steps, measure_contention(table, steps, Busy.of(table)))
        filled.append(fill_references((rank.table, rank.steps, one), measured[table.rank]))
    return filled


def _reference_of(rank: int, reference: Sequence[KernelTable]) -> KernelTable | None:
    """The reference trace of that rank, else the first."""
    usable = [table for table in reference if len(table)]
    return next((table for table in usable if table.rank == rank), usable[0] if usable else None)


def _ranks(tables: Sequence[KernelTable]) -> list[RankTimeline]:
    """Every rank cut; position 0 and, where the sequence of collectives is the same, the groups are the first
    rank's."""
    ranks: list[RankTimeline] = []
    for table in tables:
        first = ranks[0] if ranks else None
        steps = find_steps(table, first.steps if first else None)
        busy = Busy.of(table)
        ranks.append(RankTimeline(table, steps, busy, find_groups(table, steps, busy)))
    return ranks


def _patterns(rank: RankTimeline, contention: Contention) -> tuple[PatternRow, ...]:
    if not rank.groups.count:
        return ()
    times, extra = rank.group_times(), _extra_by_group(rank, contention)
    rows = []
    for index in range(len(rank.groups.patterns)):
        mine = rank.groups.pattern_of == index
        z, x, y, both = (_median(part[:, mine].sum(axis=1)) for part in (times.z, times.x, times.y, times.overlap))
        lost = _median(extra[:, mine].sum(axis=1))
        y_alone = max(y - lost, 0.0)
        row = PatternRow(
            name=describe_pattern(rank.groups, index), groups=int(mine.sum()), z=z, x=x, y=y, overlap=both,
            exposed=_median((times.x - times.overlap)[:, mine].sum(axis=1)), overlap_ratio=_over(both, x),
            oef=_over(both, min(x, y)), oef_alone=_over(both - lost, min(x, y_alone)), overhead=lost,
        )  # fmt: skip
        rows.append(row)
    return tuple(rows)


def _extra_by_group(rank: RankTimeline, contention: Contention) -> np.ndarray:
    """Steps x groups: extra time of the compute kernels that start in each group, ns."""
    bounds = rank.groups.bounds(rank.table, rank.steps)
    start = rank.table.start[rank.steps.index[:, contention.places]]
    lost = np.zeros((bounds.shape[0], rank.groups.count))
    for step in range(bounds.shape[0]):
        group = np.clip(np.searchsorted(bounds[step], start[step], side="right") - 1, 0, rank.groups.count - 1)
        lost[step] = np.bincount(group, contention.extra[step], rank.groups.count)
    return lost


def _sites(rank: RankTimeline, merged: CombinedRanks) -> tuple[SiteRow, ...]:
    groups: Groups = rank.groups
    rows = rank.steps.index[:, groups.places]
    start, end = rank.table.start[rows], rank.table.end[rows]
    exposed = (end - start) - rank.busy.between(start, end).y
    names = [rank.table.names[name] for name in rank.table.name[rows[0]]]
    asked = np.array([not is_foreign(name) and not is_symmetric(name) for name in names], bool)
    found = []
    for site in groups.sites:
        mine = groups.site_of == site.index
        least = merged.x[:, mine] if merged.x.shape[1:] == mine.shape else (end - start)[:, mine]
        x = _median(least.sum(axis=1))
        row = SiteRow(
            name=str(site), calls=site.calls, x=x, exposed=min(_median(exposed[:, mine].sum(axis=1)), x),
            hidden=site.hidden, tunable=site.function <= max(Function) and bool(asked[mine].all()),
        )  # fmt: skip
        found.append(row)
    return tuple(found)


def _median(values: object) -> float:
    array = np.asarray(values, float)
    return float(np.median(array)) if array.size else 0.0


def _over(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float("nan")
