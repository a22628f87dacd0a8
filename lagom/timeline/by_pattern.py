"""X, Y and Z of each overlap pattern under one config after another, with the cut of the stock timeline.

Groups are cut once, on the stock timeline, and stay: cut anew under each config, runs of communication that grow
together would change the patterns from candidate to candidate. So a cut is remembered by *positions* of the program
(which call begins each group), and an iteration under any config is cut where the kernels of these calls start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.records import CommConfig
from lagom.timeline.busy_times import Busy
from lagom.timeline.config_times import starts_under
from lagom.timeline.groups import describe
from lagom.timeline.job_profile import Profile
from lagom.timeline.kernel_table import KernelTable
from lagom.wire.layout import CALL_PROGRAM


@dataclass(frozen=True, slots=True)
class Cut:
    """``positions`` at which a group begins, ascending from 0; ``pattern_of`` each group; ``names`` of the patterns."""

    positions: tuple[int, ...]
    pattern_of: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PatternTimes:
    """One entry a pattern: all its groups of an iteration together, medians over iterations, ns."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    z: tuple[float, ...]
    iterations: int


def cut_of(stock: Profile, records: NDArray[Any]) -> Cut | None:
    """The cut of a stock timeline whose calls are ``records``; ``None`` where a group begins with a kernel whose call
    is not one of the program's."""
    rank = stock.rank
    groups = rank.groups
    rows = rank.steps.index[0, groups.places[groups.first]]
    program = np.sort(records[(records["flags"] & CALL_PROGRAM) != 0], order="call")
    place = np.searchsorted(program["call"], rank.table.call[rows].astype(np.uint64))
    known = place < len(program)
    if not groups.count or not (known & (program["call"][np.minimum(place, len(program) - 1)] ==
                                         rank.table.call[rows].astype(np.uint64))).all():  # fmt: skip
        return None
    begins = program["position"][place].astype(int).tolist()
    at = dict(sorted(zip(begins, groups.pattern_of.tolist(), strict=True)))
    if 0 not in at:  # the stretch before the first one belongs to the group that runs over the iteration's end
        at = {0: at[max(at)], **at}
    names = tuple(describe(groups, pattern) for pattern in range(len(groups.patterns)))
    return Cut(tuple(at), tuple(at.values()), names)


def by_pattern(
    table: KernelTable, records: NDArray[Any], wanted: Sequence[CommConfig], cut: Cut
) -> PatternTimes | None:
    """The patterns' times in one rank's iterations under ``wanted``; ``None`` if not one of them was seen whole."""
    edges = _edges(table, records, starts_under(records, wanted), cut)
    if not len(edges):
        return None
    times = Busy.of(table).between(edges[:, :-1], edges[:, 1:])
    pattern_of = np.array(cut.pattern_of)
    sums = [
        [float(np.median(part[:, pattern_of == pattern].sum(axis=1))) for pattern in range(len(cut.names))]
        for part in (times.x, times.y, times.z)
    ]
    x, y, z = (tuple(column) for column in sums)
    return PatternTimes(x, y, z, len(edges))


def _edges(table: KernelTable, records: NDArray[Any], ranges: NDArray[np.int64], cut: Cut) -> NDArray[np.int64]:
    """Iterations x (groups + 1): when each group starts, and the next iteration."""
    program = np.sort(records[(records["flags"] & CALL_PROGRAM) != 0], order="call")
    seen = table.call >= 0
    start_of = dict(zip(table.call[seen].tolist(), table.start[seen].tolist(), strict=True))
    rows = []
    for first, following in ranges.tolist():
        inside = program[(program["call"] >= first) & (program["call"] < following)]
        call_at = dict(zip(inside["position"].tolist(), inside["call"].tolist(), strict=True))
        calls = [call_at.get(position) for position in cut.positions] + [following]
        times = [start_of.get(call) if call is not None else None for call in calls]
        if None not in times:
            rows.append(np.maximum.accumulate(np.array(times, np.int64)))
    return np.array(rows, np.int64).reshape(len(rows), len(cut.positions) + 1)
