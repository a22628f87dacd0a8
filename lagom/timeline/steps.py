# SPDX-License-Identifier: Apache-2.0
"""The iterations of one rank: by the marks of its trace, else by its kernels alone.

``ProfilerStep#n`` marks are the steps where a trace has several (:mod:`lagom.timeline.step_marks`). Ranges named like a
step and ``Optimizer.step`` are hints, which count where the kernels do not repeat themselves, and so is a single mark.

By the kernels: a training step launches the same kernels on each stream, so each stream's sequence of (name, grid,
block) is periodic, exactly; the order *across* streams is not. The steps are cut in three moves:

1. The period of the stream whose repetition lasts longest (:mod:`lagom.timeline.kernel_period`) says how long a step
   is.
2. Position 0, where a step starts, is a communication kernel: the first one of the longest stretch without a
   reduction (forward passes gather, backward passes reduce); among equals the one after the longest pause. This does
   not depend on where the recording began. Z is the time between two starts of position 0.
3. Every stream is cut by *index*, not by time, so that a kernel that drifts over the boundary stays in its step.

The result is a dense matrix: row = step, column = place (stream, index in that stream's step). Steps that do not have
exactly the usual kernels (a checkpoint, an evaluation, records lost) are counted as irregular and left out. Marked
steps all count, and the places are then the kernels that each of them has, unless these are few.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lagom.records import Function
from lagom.timeline.kernel_period import (
    MIN_REPEATS,
    RepeatedRun,
    Stream,
    StreamPeriod,
    find_repeated_run,
    signatures,
    split_streams,
    step_periods,
    window_hashes,
)
from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.step_marks import PROFILER_STEP, StepMarks

#: What tells steps where no marks do.
REPETITION = "the repetition of the kernels"
#: Steps whose lengths differ by at most this share are the same steps, whatever tells them.
_SAME_LENGTH = 0.1
#: Marked steps whose kernels differ are compared by those that all have, if these are at least this share.
_COMMON_FROM = 0.5
_REDUCTIONS = (int(Function.ALL_REDUCE), int(Function.REDUCE_SCATTER), int(Function.REDUCE))


@dataclass(frozen=True, slots=True)
class Steps:
    """``index[k, p]`` is the kernel (row of the table) at place p of step k; steps in order of time.

    ``begin[k] .. end[k]`` is step k, ns: from its position 0 to the next. ``found_by`` is the source of the marks, or
    :data:`REPETITION`; empty where nothing says what a step is: the whole trace is then one step. ``exact`` is False
    where shapes change from step to step. ``number``: of each step, by the profiler. ``others``: what else in the trace
    tells steps, of another length.
    """

    index: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    found_by: str = ""
    irregular: int = 0
    collectives: tuple[tuple[str, int], ...] = ()
    exact: bool = True
    number: NDArray[np.int64] | None = None
    others: tuple[Steps, ...] = ()

    @property
    def periodic(self) -> bool:
        """Whether steps were found."""
        return bool(self.found_by)

    @property
    def length(self) -> float:
        """Median length of a step, ns."""
        return float(np.median(self.end - self.begin))

    @property
    def count(self) -> int:
        """Whole, regular steps."""
        return self.begin.size

    @property
    def places(self) -> int:
        """Kernels a step."""
        return self.index.shape[1]

    def only(self, rows: NDArray[np.int64]) -> Steps:
        """The same with the named steps alone."""
        number = None if self.number is None else self.number[rows]
        return replace(self, index=self.index[rows], begin=self.begin[rows], end=self.end[rows], number=number)


def find_steps(table: KernelTable, other: Steps | None = None) -> Steps:
    """The steps of ``table``; ``other`` is another rank's result, whose position 0 is taken over where it fits.

    Where shapes change from step to step, kernels are compared by name alone. If nothing marks steps and nothing
    repeats, everything is one step.
    """
    certain: list[Steps] = []
    hints: list[Steps] = []
    for marks in table.marks:
        if (marked := _by_marks(table, marks)) is not None:
            (certain if marks.is_certain else hints).append(marked)
    hints.sort(key=lambda one: one.count == 1)  # a single mark may be the whole recording
    repeated = _by_repetition(table, other)
    found = [*certain, *([repeated] if repeated is not None else []), *hints]
    if not found:
        return _one_step(table)
    longest = max(1.0, found[0].length) * _SAME_LENGTH
    differ = tuple(one for one in found[1:] if abs(one.length - found[0].length) > longest)
    return replace(found[0], others=differ)


def _by_repetition(table: KernelTable, other: Steps | None) -> Steps | None:
    for exact in (True, False):
        streams = split_streams(table, signatures(table, exact))
        for longest in step_periods(streams):
            if (found := _cut_by(longest, table, streams, other, exact)) is not None:
                return found
    return None


def _by_marks(table: KernelTable, marks: StepMarks) -> Steps | None:
    """The marked steps that have kernels; None if none has."""
    row = np.searchsorted(marks.begin, table.start, side="right") - 1
    inside = np.where((row >= 0) & (table.start < marks.end[row]), row, -1)
    kept = np.unique(inside[inside >= 0])
    if not kept.size:
        return None
    number, begin, end = marks.number[kept], marks.begin[kept], marks.end[kept]
    number = number if marks.source == PROFILER_STEP and (np.diff(number) > 0).all() else None
    found = Steps(np.empty((kept.size, 0), np.int64), begin, end, marks.source, number=number)
    cuts = np.union1d(begin, end)
    whole = np.isin(cuts[:-1], begin)
    step = np.where(inside >= 0, np.searchsorted(kept, inside), -1)
    for least in (1.0, 1 / 2):  # all steps as they are; what most of them have in common; those that are alike
        for exact in (True, False):
            cut = _cut(split_streams(table, signatures(table, exact)), cuts, whole)
            if cut.convincing and cut.rows.size >= least * kept.size:
                alike = found.only(np.searchsorted(begin, cuts[cut.rows]))
                return _with_places(table, alike, cut.index, exact, kept.size - alike.count)
        for exact in (True, False):
            index = _common_places(table, signatures(table, exact), step, kept.size)
            if index.size >= _COMMON_FROM * np.count_nonzero(step >= 0):
                return _with_places(table, found, index, exact)
    return _with_places(table, found, index, exact)


def _with_places(table: KernelTable, steps: Steps, index: NDArray[np.int64], exact: bool, irregular: int = 0) -> Steps:
    names = _collectives(table, index)[1]
    return replace(steps, index=index, exact=exact, irregular=irregular, collectives=names)


def _common_places(
    table: KernelTable, codes: NDArray[np.int64], step: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Steps x places: the n-th kernel of a signature on a stream, for all that each of the ``count`` steps has.
    ``step``: of each kernel, -1 for none."""
    rows = np.flatnonzero(step >= 0)
    streams = np.unique(table.stream, return_inverse=True)[1].astype(np.int64)
    kind = (streams * (int(codes.max(initial=0)) + 1) + codes)[rows]
    order = np.lexsort([rows, kind, step[rows]])
    rows, kind = rows[order], kind[order]
    first = np.flatnonzero((np.diff(step[rows], prepend=-1) != 0) | (np.diff(kind, prepend=-1) != 0))
    turn = np.arange(rows.size) - np.repeat(first, np.diff(np.append(first, rows.size)))
    place = np.unique(kind * (int(turn.max(initial=0)) + 1) + turn, return_inverse=True)[1]
    common = np.flatnonzero(np.bincount(place) == count)
    kept = np.isin(place, common)
    index = np.empty((count, common.size), np.int64)
    index[step[rows[kept]], np.searchsorted(common, place[kept])] = rows[kept]
    return index[:, np.lexsort([index[0], table.stream[index[0]]])]


def _cut_by(
    longest: StreamPeriod, table: KernelTable, streams: list[Stream], other: Steps | None, exact: bool
) -> Steps | None:
    ticks, whole = _ticks(longest.stream, find_repeated_run(longest.stream.codes, longest.period))
    rough = _cut(streams, ticks, whole)
    if not rough.convincing:
        return None
    order, names = _collectives(table, rough.index)
    if not order.size:
        return _steps(rough, ticks, (), exact)
    turn = _rotation(table, rough.index[:, order], other)
    cuts, whole = _cuts_at(table, streams, rough, int(order[turn]), ticks, whole)
    fine = _cut(streams, cuts, whole)
    return _steps(fine, cuts, names[turn:] + names[:turn], exact) if fine.convincing else None


@dataclass(frozen=True, slots=True)
class _Cut:
    """All streams cut at the same times: the regular steps (``rows`` of the cuts), of how many ``windows``, the
    ``share`` of the time that they are, their kernels, their streams' edges."""

    rows: NDArray[np.int64]
    windows: int
    share: float
    index: NDArray[np.int64]
    edges: list[tuple[NDArray[np.int64], int, NDArray[np.bool_]]]

    @property
    def convincing(self) -> bool:
        """True if it is steps that were found: at least two, with kernels, and most of the windows and of the time."""
        enough = self.rows.size >= max(MIN_REPEATS - 1, self.windows / 2)
        return self.index.shape[1] > 0 and enough and self.share >= 1 / 2


def _cut(streams: list[Stream], cuts: NDArray[np.int64], whole: NDArray[np.bool_]) -> _Cut:
    edges = [_edges(stream, cuts, whole) for stream in streams]
    rows = np.flatnonzero(whole & np.logical_and.reduce([fits for _, _, fits in edges]))
    parts = [
        stream.rows[first[rows][:, None] + np.arange(length)]
        for stream, (first, length, _) in zip(streams, edges, strict=True)
    ]
    share = float(np.diff(cuts)[rows].sum()) / max(int(cuts[-1] - cuts[0]), 1)
    return _Cut(rows, int(whole.sum()), share, np.hstack(parts), edges)


def _steps(cut: _Cut, cuts: NDArray[np.int64], collectives: tuple[tuple[str, int], ...], exact: bool) -> Steps:
    irregular = int(cuts.size - 1 - cut.rows.size)
    return Steps(cut.index, cuts[cut.rows], cuts[cut.rows + 1], REPETITION, irregular, collectives, exact)


def _one_step(table: KernelTable) -> Steps:
    """Everything as a single step, streams one after the other."""
    order = np.argsort(table.stream, kind="stable")
    begin = table.start.min(initial=np.iinfo(np.int64).max) if len(table) else 0
    end = table.end.max(initial=0)
    return Steps(order[None, :], np.array([begin]), np.array([end]))


def _ticks(stream: Stream, run: RepeatedRun) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Starts of the repetitions of ``run`` on its stream, the end of each run of them included."""
    ends = run.starts + run.length
    places = np.union1d(run.starts, ends[ends < stream.start.size])
    return stream.start[places], np.isin(places[:-1], run.starts) & (np.diff(places) == run.length)


def _collectives(table: KernelTable, index: NDArray[np.int64]) -> tuple[NDArray[np.int64], tuple[tuple[str, int], ...]]:
    """The places of communication kernels in their usual order of start, and what they are."""
    places = np.flatnonzero(table.is_communication[index[0]])
    base = table.start[index].min(axis=1, keepdims=True, initial=np.iinfo(np.int64).max)
    offset = np.median(table.start[index[:, places]] - base, axis=0)
    order = places[np.argsort(offset, kind="stable")]
    return order, _name_kernels(table, index[0, order])


def _cuts_at(
    table: KernelTable,
    streams: list[Stream],
    rough: _Cut,
    place: int,
    ticks: NDArray[np.int64],
    whole: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Starts of the kernel at ``place`` in every step, one before the first tick and one after the last included."""
    lengths = np.array([length for _, length, _ in rough.edges])
    which = int(np.searchsorted(np.cumsum(lengths), place, side="right"))
    stream, (first, length, _) = streams[which], rough.edges[which]
    inside = first + place - int(lengths[:which].sum())
    index = np.concatenate([[inside[0] - length], inside, [inside[-1] + length]])
    usual = stream.codes[np.searchsorted(stream.rows, rough.index[0, place])]
    there = (index >= 0) & (index < stream.codes.size)
    there[there] = stream.codes[index[there]] == usual
    joined = np.concatenate([[True], whole])  # the two added ones are judged by their kernels, as all are
    kept = np.flatnonzero(there)
    adjacent = np.array([joined[left:right].all() for left, right in pairwise(kept.tolist())], bool)
    return stream.start[index[kept]], adjacent & (np.diff(kept) == 1)


def _rotation(table: KernelTable, usual: NDArray[np.int64], other: Steps | None) -> int:
    """Which of the usual communication kernels (steps x kernels, in order) is position 0."""
    candidates = _after_reductions(table.function[usual[0]])
    if other is not None and other.collectives:
        names = _name_kernels(table, usual[0])
        same_kind = [turn for turn in range(len(names)) if names[turn] == other.collectives[0]]
        away = {}  # how far a kernel's starts are from the nearest starts of the other rank's steps, ns (median)
        for turn in same_kind:
            distances = np.abs(table.start[usual[:, turn]][:, None] - other.begin[None, :])
            away[turn] = float(np.median(distances.min(axis=1)))
        if away and min(away.values()) < np.median(other.end - other.begin) / 4:  # the clocks agree
            return min(away, key=lambda turn: away[turn])
        candidates = [turn for turn in same_kind if names[turn:] + names[:turn] == other.collectives] or candidates
    pause = _pauses(table, usual)
    return max(candidates, key=lambda turn: pause[turn])


def _name_kernels(table: KernelTable, rows: NDArray[np.int64]) -> tuple[tuple[str, int], ...]:
    """Names and sizes of these communication kernels: the same on every rank."""
    names = [table.names[name] for name in table.name[rows]]
    return tuple(zip(names, table.bytes[rows].tolist(), strict=True))


def _pauses(table: KernelTable, usual: NDArray[np.int64]) -> NDArray[np.float64]:
    """Median time without communication before each kernel of a typical step (cyclic), ns."""
    start, end = table.start[usual], np.maximum.accumulate(table.end[usual], axis=1)
    pause = np.zeros(usual.shape[1])
    pause[1:] = np.median(start[:, 1:] - end[:, :-1], axis=0)
    if usual.shape[0] > 1:
        pause[0] = float(np.median(start[1:, 0] - end[:-1, -1]))
    return pause


def _after_reductions(functions: NDArray[np.uint8]) -> list[int]:
    """Starts of the longest stretches without a reduction, circularly; every place if all or none reduce."""
    reduces = np.isin(functions, _REDUCTIONS)
    count = reduces.size
    if reduces.all() or not reduces.any():
        return list(range(count))
    starts = [turn for turn in range(count) if not reduces[turn] and reduces[turn - 1]]
    lengths = [int(np.argmax(np.roll(reduces, -turn))) for turn in starts]
    return [turn for turn, length in zip(starts, lengths, strict=True) if length == max(lengths)]


def _edges(
    stream: Stream, cuts: NDArray[np.int64], whole: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], int, NDArray[np.bool_]]:
    """For each step: index of this stream's first kernel, kernels a step, and whether they are the usual ones."""
    first = np.searchsorted(stream.start, cuts)
    counts = np.diff(first)[whole]
    length = int(np.median(counts)) if counts.size else 0
    runs = window_hashes(stream.codes, length)
    first = _steady(first, length, stream.codes, runs, whole)
    ends = first[:-1] + length
    taken = np.maximum.accumulate(np.where(whole, ends, 0))
    free_from = np.concatenate([[0], np.maximum(taken, 0)[:-1]])  # no kernel is in two steps
    usable = whole & (first[:-1] >= free_from) & (ends <= stream.codes.size)
    if not length or not usable.any():
        return first[:-1], length, usable
    return first[:-1], length, usable & (_at(runs, first[:-1]) == _usual(runs, first[:-1][usable]))


def _steady(
    first: NDArray[np.int64], length: int, codes: NDArray[np.int64], runs: NDArray[np.uint64], whole: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """First kernels with the jitter of single cuts taken out: a kernel that drifted over a cut goes back to its
    step. Each step then begins where the usual run of kernels begins that is nearest to its cut."""
    if not length or not whole.any():
        return first
    if codes.size > length and bool((codes[length:] == codes[:-length]).all()):  # then any run is the usual one
        steps = np.where(whole, 1, np.round(np.diff(first) / length)).astype(np.int64)
        before = length * np.concatenate([[0], np.cumsum(steps)])
        return before + int(np.median(first - before))
    places = np.flatnonzero(runs == _usual(runs, first[:-1][whole]))
    after = np.searchsorted(places, first).clip(0, places.size - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(places[before] - first) < np.abs(places[after] - first), places[before], places[after])
    return np.where(np.abs(nearest - first) <= length // 2, nearest, first)


def _at(runs: NDArray[np.uint64], index: NDArray[np.int64]) -> NDArray[np.uint64]:
    return runs[np.minimum(index, runs.size - 1)]


def _usual(runs: NDArray[np.uint64], index: NDArray[np.int64]) -> np.uint64:
    """The run that most often begins at one of these kernels."""
    kinds, votes = np.unique(_at(runs, index), return_counts=True)
    return np.uint64(kinds[np.argmax(votes)])
