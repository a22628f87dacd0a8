# SPDX-License-Identifier: Apache-2.0
"""Overlap groups, sites and patterns: the step cut at its communication.

A *run* is a stretch of communication kernels with gaps of at most :data:`TOLERANCE_NS`; a *group* is everything from
the start of a run to the start of the next. The cut is made once, on the medians over the steps, and then holds for
every step by the kernels' places, so that a gap that is 9 us in one step and 11 us in the next does not move it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from lagom.format import format_bytes
from lagom.timeline.busy_times import Busy
from lagom.timeline.intervals import within
from lagom.timeline.kernel_names import function_word
from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.steps import Steps

#: Back-to-back NCCL kernels are 2-3 us apart; without a tolerance each one would be a group of its own.
TOLERANCE_NS = 10_000
#: A site is hidden if at least this share of its time has compute beside it.
HIDDEN_FROM = 0.5
#: Groups whose compute differs less than this (cosine of time by kernel name) have the same pattern of compute.
SAME_COMPUTE = 0.5


@dataclass(frozen=True, slots=True)
class SiteView:
    """Calls that share a config. ``function`` as in a KernelTable; ``bytes`` 0 where unknown;
    ``hidden`` the share of its time with compute beside it; ``context`` as in :class:`lagom.records.Site`; ``apart``
    what separates it from others of the same name."""

    index: int
    function: int
    bytes: int
    slot: int
    context: str
    compute: int
    calls: int
    hidden: float
    apart: str = ""

    def __str__(self) -> str:
        parts = (function_word(self.function), format_bytes(self.bytes) if self.bytes else "", self.context)
        return " ".join(part for part in parts if part) + self.apart


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a step. ``places`` are the communication kernels' columns of ``Steps.index`` in order of start;
    ``first[g]`` says where in it group g begins; ``site_of`` runs along ``places``, ``pattern_of`` along the groups."""

    places: NDArray[np.int64]
    first: NDArray[np.int64]
    sites: tuple[SiteView, ...]
    site_of: NDArray[np.int64]
    patterns: tuple[tuple[int, ...], ...]
    pattern_of: NDArray[np.int64]

    @property
    def count(self) -> int:
        """Groups a step."""
        return self.first.size

    def bounds(self, table: KernelTable, steps: Steps) -> NDArray[np.int64]:
        """Steps x (groups + 1): where each group starts, and the step's end, ns. Never descending along a row."""
        return _bounds(table, steps, self.places, self.first)

    def sequence(self, group: int) -> tuple[int, ...]:
        """Site indices of the collectives of one group, in order."""
        return tuple(self.site_of[members(self.first, self.places.size)[group]].tolist())


def find_groups(table: KernelTable, steps: Steps, busy: Busy) -> Groups:
    """The groups, sites and patterns of one rank's steps."""
    places = _in_order(table, steps)
    if not places.size:
        return Groups(places, np.empty(0, np.int64), (), np.empty(0, np.int64), (), np.empty(0, np.int64))
    first = _first_of_runs(table, steps, places)
    compute = _compute_classes(table, steps, _bounds(table, steps, places, first))
    class_of = np.repeat(compute, np.diff(np.append(first, places.size)))
    sites, site_of = _sites(table, steps, busy, places, class_of)
    sequences = [tuple(site_of[part].tolist()) for part in members(first, places.size)]
    patterns = tuple(dict.fromkeys(sequences))
    return Groups(places, first, sites, site_of, patterns, np.array([patterns.index(one) for one in sequences]))


def members(first: NDArray[np.int64], count: int) -> list[slice]:
    """Which of ``count`` kernels in order belong to each group."""
    return [slice(int(low), int(high)) for low, high in zip(first, np.append(first[1:], count), strict=True)]


def _in_order(table: KernelTable, steps: Steps) -> NDArray[np.int64]:
    places = np.flatnonzero(table.is_communication[steps.index[0]])
    offset = np.median(table.start[steps.index[:, places]] - steps.begin[:, None], axis=0)
    return places[np.argsort(offset, kind="stable")]


def _first_of_runs(table: KernelTable, steps: Steps, places: NDArray[np.int64]) -> NDArray[np.int64]:
    rows = steps.index[:, places]
    reach = np.maximum.accumulate(table.end[rows], axis=1)
    gap = np.median(table.start[rows[:, 1:]] - reach[:, :-1], axis=0)
    return np.concatenate([[0], np.flatnonzero(gap > TOLERANCE_NS) + 1])


def _bounds(table: KernelTable, steps: Steps, places: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int64]:
    start = table.start[steps.index[:, places]]
    starts = np.minimum.reduceat(start, first, axis=1) if first.size else start[:, :0]
    bounds = np.hstack([starts, steps.end[:, None]])
    bounds[:, 0] = steps.begin
    return np.minimum(np.maximum.accumulate(bounds, axis=1), steps.end[:, None])


def _compute_classes(table: KernelTable, steps: Steps, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each group a number: equal for groups with the same mix of compute, -1 without compute."""
    row = int(np.argsort(steps.end - steps.begin, kind="stable")[steps.count // 2])
    edges = bounds[row]
    kernels = np.flatnonzero(table.is_compute & (table.start < edges[-1]) & (table.end > edges[0]))
    names, name = np.unique(table.name[kernels], return_inverse=True)
    first = np.clip(np.searchsorted(edges, table.start[kernels], side="right") - 1, 0, edges.size - 2)
    last = np.clip(np.searchsorted(edges, table.end[kernels], side="left") - 1, first, edges.size - 2)
    spread = last - first + 1
    part = np.repeat(np.arange(kernels.size), spread)
    group = np.repeat(first - np.cumsum(spread) + spread, spread) + np.arange(part.size)
    start, end = table.start[kernels[part]], table.end[kernels[part]]
    shared = np.minimum(end, edges[group + 1]) - np.maximum(start, edges[group])
    cell = group * names.size + name[part]
    mix = np.bincount(cell, np.maximum(shared, 0), (edges.size - 1) * names.size).astype(float)
    return _clusters(mix.reshape(edges.size - 1, names.size))


def _clusters(mix: NDArray[np.float64]) -> NDArray[np.int64]:
    leaders: list[NDArray[np.float64]] = []
    classes = np.full(mix.shape[0], -1, np.int64)
    for index, row in enumerate(mix):
        size = float(np.linalg.norm(row))
        if not size:
            continue
        alike = [place for place, leader in enumerate(leaders) if leader @ row / size >= SAME_COMPUTE]
        if not alike:
            leaders.append(row / size)
        classes[index] = alike[0] if alike else len(leaders) - 1
    return classes


def _sites(
    table: KernelTable, steps: Steps, busy: Busy, places: NDArray[np.int64], class_of: NDArray[np.int64]
) -> tuple[tuple[SiteView, ...], NDArray[np.int64]]:
    rows = steps.index[:, places]
    length = np.maximum(table.duration[rows], 1)
    hidden = np.median(within(busy.compute, table.start[rows], table.end[rows]) / length, axis=0)
    hides = hidden >= HIDDEN_FROM
    compute = np.where(hides, class_of, -1)
    head = rows[0]
    keys = list(
        zip(*(part.tolist() for part in (table.function[head], table.bytes[head], table.slot[head])), compute.tolist(),
            hides.tolist(), strict=True)
    )  # fmt: skip
    distinct = list(dict.fromkeys(keys))
    site_of = np.array([distinct.index(key) for key in keys])
    contexts = _contexts(distinct) if table.is_compute.any() else [""] * len(distinct)  # else it is unknown
    sites = [
        SiteView(index, function, size, slot, contexts[index], behind, int((site_of == index).sum()),
                 float(hidden[site_of == index].mean()))
        for index, (function, size, slot, behind, _) in enumerate(distinct)
    ]  # fmt: skip
    return _with_unique_names(sites), site_of


def _contexts(keys: Sequence[tuple[int, int, int, int, bool]]) -> list[str]:
    """``exposed`` or ``hidden``; with a letter for each pattern of compute that something hides behind, if several."""
    behind = list(dict.fromkeys(key[3] for key in keys if key[4]))
    letters = ["" if len(behind) < 2 else f" {chr(ord('a') + min(place, 25))}" for place in range(len(behind))]
    return [f"hidden{letters[behind.index(key[3])]}" if key[4] else "exposed" for key in keys]


def _with_unique_names(sites: Sequence[SiteView]) -> tuple[SiteView, ...]:
    """Sites of the same name, with the exact size or the slot added to it."""
    sizes: dict[str, set[int]] = {}
    slots: dict[str, set[int]] = {}
    for site in sites:
        sizes.setdefault(str(site), set()).add(site.bytes)
        slots.setdefault(str(site), set()).add(site.slot)
    by_size = [f" ({site.bytes:,} B)" if len(sizes[str(site)]) > 1 else "" for site in sites]
    by_slot = [f" #{site.slot}" if len(slots[str(site)]) > 1 else "" for site in sites]
    return tuple(replace(site, apart=size + slot) for site, size, slot in zip(sites, by_size, by_slot, strict=True))


def describe_pattern(groups: Groups, pattern: int) -> str:
    """A pattern in words: its sites in order, equal neighbours counted, at most four of them named."""
    names = [str(groups.sites[site]) for site in groups.patterns[pattern]]
    parts = [(name, len(list(same))) for name, same in groupby(names)]
    spelled = [f"{count}× {name}" if count > 1 else name for name, count in parts[:4]]
    hidden = sum(count for _, count in parts[4:])
    return " + ".join(spelled) + (f" + {hidden} more" if hidden else "")
