# SPDX-License-Identifier: Apache-2.0
"""The iterations of a recorded tuning run under one config after another, and X, Y and Z of each overlap pattern there.

A window alternates between two assignments every few iterations, so a recording is a mixture of both. The call records
name the config of each call; an iteration belongs to an assignment if all its calls do and those of the iteration
before it did, too: the first one after a change still has kernels of the old config beside it.

Groups are cut once, on the stock timeline. If they were cut under each config, runs of communication that merge would
change the patterns from candidate to candidate. So a cut is stored as *positions* of the program
(which call begins each group), and an iteration under any config is cut where the kernels of these calls start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.records import STOCK, CommConfig
from lagom.timeline.busy_times import Busy
from lagom.timeline.groups import describe_pattern
from lagom.timeline.job_profile import Profile
from lagom.timeline.kernel_table import KernelTable
from lagom.wire.layout import CALL_APPLIED, CALL_PROGRAM, LEAVE

#: Iterations taken at most, and at least: with fewer, differences are lost in noise.
MOST, LEAST = 40, 4
_ORIGIN = 1_000_000_000

Ranges = NDArray[np.int64]  # iterations x (begin, end), ns


def select_iterations(
    tables: Sequence[KernelTable],
    calls: Mapping[int, Mapping[int, NDArray[Any]]],
    wanted: Sequence[CommConfig],
    least: int = LEAST,
) -> list[KernelTable]:
    """Of every rank its iterations under ``wanted`` (one config a site; none = stock), one after the other. Empty if
    some rank has fewer than ``least``, or if several of its communicators were tuned."""
    found = []
    for table in tables:
        slot = _tuned_slot(calls.get(table.rank, {}))
        if slot is None:
            return []
        ranges = _ranges(table, slot, find_iterations(calls[table.rank][slot], wanted))
        if len(ranges) < least:
            return []
        found.append(concatenate_ranges(table, ranges[-MOST:]))
    return found


def _tuned_slot(calls: Mapping[int, NDArray[Any]]) -> int | None:
    if len(calls) == 1:
        return next(iter(calls))
    tuned = [slot for slot, records in calls.items() if (records["flags"] & CALL_APPLIED).any()]
    return tuned[0] if len(tuned) == 1 else None


def find_iterations(records: NDArray[Any], wanted: Sequence[CommConfig]) -> NDArray[np.int64]:
    """Call numbers (iterations x 2) of each wanted iteration's position 0 and of the next one's."""
    records = np.sort(records[(records["flags"] & CALL_PROGRAM) != 0], order="call")
    starts = np.flatnonzero(records["position"] == 0)
    if starts.size < 2:
        return np.zeros((0, 2), np.int64)
    fits = np.logical_and.reduceat(_fits(records, wanted), starts)[:-1]
    number, epoch = records["iteration"][starts].astype(np.int64), records["epoch"][starts]
    whole = (np.diff(number) == 1) & (epoch[1:] == epoch[:-1])
    after_its_like = np.concatenate([[False], fits[:-1] & whole[:-1]])
    kept = np.flatnonzero(fits & whole & after_its_like)
    call = records["call"][starts].astype(np.int64)
    return np.column_stack([call[kept], call[kept + 1]])


def _fits(records: NDArray[Any], wanted: Sequence[CommConfig]) -> NDArray[np.bool_]:
    """Whether each call ran with the config wanted at its site."""
    configs = np.array([_key(config) for config in (*wanted, STOCK)], np.int64)
    expected = configs[np.minimum(records["site"].astype(np.int64), len(wanted))]
    fields = ("algorithm", "protocol", "channels", "threads", "chunk_bytes")
    ran = np.column_stack([records["chosen"][name].astype(np.int64) for name in fields])
    return np.asarray((ran == expected).all(axis=1))


def _key(config: CommConfig) -> tuple[int, ...]:
    algorithm = LEAVE if config.algorithm is None else int(config.algorithm)
    protocol = LEAVE if config.protocol is None else int(config.protocol)
    return (algorithm, protocol, config.channels or 0, config.threads or 0, config.chunk_bytes or 0)


def _ranges(table: KernelTable, slot: int, calls: NDArray[np.int64]) -> Ranges:
    """When the kernels of these calls started; calls whose kernels were not seen are left out."""
    mine = np.flatnonzero((table.slot == slot) & (table.call >= 0))
    order = mine[np.argsort(table.call[mine], kind="stable")]
    if not order.size or not len(calls):
        return np.zeros((0, 2), np.int64)
    place = np.minimum(np.searchsorted(table.call[order], calls), order.size - 1)
    seen = (table.call[order][place] == calls).all(axis=1)
    return np.asarray(table.start[order][place][seen])


def concatenate_ranges(table: KernelTable, ranges: Ranges) -> KernelTable:
    """The kernels that start within the ranges (in order of time), moved so that each range begins where the one
    before ends."""
    first, last = (np.searchsorted(table.start, ranges[:, edge]) for edge in (0, 1))
    begins = _ORIGIN + np.concatenate([[0], np.cumsum(ranges[:, 1] - ranges[:, 0])[:-1]])
    shift = np.repeat(begins - ranges[:, 0], last - first)
    rows = np.concatenate([np.arange(low, high) for low, high in zip(first, last, strict=True)] or [np.empty(0, int)])
    part = table.only(rows.astype(np.int64))
    return replace(part, start=part.start + shift, end=part.end + shift)


@dataclass(frozen=True, slots=True)
class PatternCut:
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


def cut_patterns(stock: Profile, records: NDArray[Any]) -> PatternCut | None:
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
    names = tuple(describe_pattern(groups, pattern) for pattern in range(len(groups.patterns)))
    return PatternCut(tuple(at), tuple(at.values()), names)


def measure_patterns(
    table: KernelTable, records: NDArray[Any], wanted: Sequence[CommConfig], cut: PatternCut
) -> PatternTimes | None:
    """The patterns' times in one rank's iterations under ``wanted``; ``None`` if not one of them was seen whole."""
    edges = _edges(table, records, find_iterations(records, wanted), cut)
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


def _edges(table: KernelTable, records: NDArray[Any], ranges: NDArray[np.int64], cut: PatternCut) -> NDArray[np.int64]:
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
