"""The iterations of one rank, found from its kernels alone.

A training step launches the same kernels on each stream, so each stream's sequence of (name, grid, block) is periodic,
exactly; the order *across* streams is not. The steps are cut in three moves:

1. The period of the stream whose repetition lasts longest (:mod:`lagom.timeline.period`) says how long a step is.
2. Position 0, where a step starts, is a communication kernel: the first one of the longest stretch without a
   reduction (forward passes gather, backward passes reduce); among equals the one after the longest pause. This does
   not depend on where the recording began. Z is the time between two starts of position 0.
3. Every stream is cut by *index*, not by time, so that a kernel that drifts over the boundary stays in its step.

The result is a dense matrix: row = step, column = place (stream, index in that stream's step). Steps that do not have
exactly the usual kernels (a checkpoint, an evaluation, records lost) are counted as irregular and left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lagom.records import Function
from lagom.timeline.period import MIN_REPEATS, Word, find_period, find_word, signatures
from lagom.timeline.table import KernelTable

#: A stream with less of the rank's busy time has no say in what the period is.
_MIN_STREAM_SHARE = 0.01
_REDUCTIONS = (int(Function.ALL_REDUCE), int(Function.REDUCE_SCATTER), int(Function.REDUCE))


@dataclass(frozen=True, slots=True)
class Steps:
    """``index[k, p]`` is the kernel (row of the table) at place p of step k; steps in order of time.

    ``begin[k] .. end[k]`` is step k, ns: from its position 0 to the next. ``periodic`` is False where no period was
    found: the whole trace is then one step. ``exact`` is False where shapes change from step to step.
    """

    index: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    periodic: bool
    irregular: int = 0
    word: tuple[tuple[str, int], ...] = ()
    exact: bool = True

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
        return replace(self, index=self.index[rows], begin=self.begin[rows], end=self.end[rows])


@dataclass(frozen=True, slots=True)
class _Stream:
    """One stream's kernels: rows of the table in order of start, their signatures, starts."""

    rows: NDArray[np.int64]
    codes: NDArray[np.int64]
    start: NDArray[np.int64]


def find_steps(table: KernelTable, like: Steps | None = None) -> Steps:
    """The steps of ``table``; ``like`` is another rank's result, whose position 0 is taken over where it fits.

    Where shapes change from step to step, kernels are told apart by their names alone; where nothing repeats, all is
    one step.
    """
    return _find(table, like, exact=True) or _find(table, like, exact=False) or _one_step(table)


def _find(table: KernelTable, like: Steps | None, exact: bool) -> Steps | None:
    streams = _streams(table, signatures(table, exact))
    ticks, whole = _clock(table, streams)
    if not ticks.size:
        return None
    rough = _cut(streams, ticks, whole)
    if not rough.convincing:
        return None
    order, word = _collectives(table, rough)
    if not order.size:
        return _steps(rough, ticks, (), exact)
    turn = _rotation(table, rough.index[:, order], like)
    cuts, whole = _cuts_at(table, streams, rough, int(order[turn]), ticks, whole)
    fine = _cut(streams, cuts, whole)
    return _steps(fine, cuts, word[turn:] + word[:turn], exact) if fine.convincing else None


@dataclass(frozen=True, slots=True)
class _Cut:
    """All streams cut at the same times: the regular steps (``rows`` of the cuts), their kernels, their streams'
    edges."""

    rows: NDArray[np.int64]
    index: NDArray[np.int64]
    edges: list[tuple[NDArray[np.int64], int, NDArray[np.bool_]]]

    @property
    def convincing(self) -> bool:
        """True if it is steps that were found: at least two, with kernels, and most of the windows."""
        windows = self.edges[0][0].size
        return self.index.shape[1] > 0 and self.rows.size >= max(MIN_REPEATS - 1, windows / 2)


def _cut(streams: list[_Stream], cuts: NDArray[np.int64], whole: NDArray[np.bool_]) -> _Cut:
    edges = [_edges(stream, cuts, whole) for stream in streams]
    rows = np.flatnonzero(whole & np.logical_and.reduce([fits for _, _, fits in edges]))
    parts = [
        stream.rows[first[rows][:, None] + np.arange(length)]
        for stream, (first, length, _) in zip(streams, edges, strict=True)
    ]
    return _Cut(rows, np.hstack(parts), edges)


def _steps(cut: _Cut, cuts: NDArray[np.int64], word: tuple[tuple[str, int], ...], exact: bool) -> Steps:
    irregular = int(cuts.size - 1 - cut.rows.size)
    return Steps(cut.index, cuts[cut.rows], cuts[cut.rows + 1], True, irregular, word, exact)


def _streams(table: KernelTable, codes: NDArray[np.int64]) -> list[_Stream]:
    rows = [np.flatnonzero(table.stream == stream) for stream in np.unique(table.stream)]
    return [_Stream(of, codes[of], table.start[of]) for of in rows]


def _one_step(table: KernelTable) -> Steps:
    """Everything as a single step, streams one after the other."""
    order = np.argsort(table.stream, kind="stable")
    begin = table.start.min(initial=np.iinfo(np.int64).max) if len(table) else 0
    end = table.end.max(initial=0)
    return Steps(order[None, :], np.array([begin]), np.array([end]), False)


def _clock(table: KernelTable, streams: list[_Stream]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Times one period apart, from the stream whose repetition lasts longest, and for each but the last whether the
    next one is its successor. Empty if no stream repeats itself three times."""
    busy = table.duration
    total = max(int(busy.sum()), 1)
    longest, clock = 0.0, None
    for stream in streams:
        if busy[stream.rows].sum() < _MIN_STREAM_SHARE * total or (period := find_period(stream.codes)) is None:
            continue
        lasts = float(np.median(stream.start[period:] - stream.start[:-period]))
        if clock is None or lasts > 1.5 * longest:
            longest, clock = lasts, (stream, period)
    if clock is None:
        return np.empty(0, np.int64), np.empty(0, bool)
    return _ticks(clock[0], find_word(clock[0].codes, clock[1]))


def _ticks(stream: _Stream, word: Word) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Starts of the repetitions of ``word`` on its stream, the end of each run of them included."""
    ends = word.starts + word.length
    places = np.union1d(word.starts, ends[ends < stream.start.size])
    return stream.start[places], np.isin(places[:-1], word.starts) & (np.diff(places) == word.length)


def _collectives(table: KernelTable, rough: _Cut) -> tuple[NDArray[np.int64], tuple[tuple[str, int], ...]]:
    """The places of communication kernels in their usual order of start, and what they are."""
    places = np.flatnonzero(table.is_communication[rough.index[0]])
    base = table.start[rough.index].min(axis=1, keepdims=True)
    offset = np.median(table.start[rough.index[:, places]] - base, axis=0)
    order = places[np.argsort(offset, kind="stable")]
    return order, _spell(table, rough.index[0, order])


def _cuts_at(
    table: KernelTable,
    streams: list[_Stream],
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


def _rotation(table: KernelTable, usual: NDArray[np.int64], like: Steps | None) -> int:
    """Which of the usual communication kernels (steps x kernels, in order) is position 0."""
    candidates = _after_reductions(table.function[usual[0]])
    if like is not None and like.word:
        word = _spell(table, usual[0])
        same_kind = [turn for turn in range(len(word)) if word[turn] == like.word[0]]
        away = {turn: _distance(table.start[usual[:, turn]], like) for turn in same_kind}
        if away and min(away.values()) < np.median(like.end - like.begin) / 4:  # the clocks agree
            return min(away, key=lambda turn: away[turn])
        candidates = [turn for turn in same_kind if word[turn:] + word[:turn] == like.word] or candidates
    pause = _pauses(table, usual)
    return max(candidates, key=lambda turn: pause[turn])


def _distance(times: NDArray[np.int64], like: Steps) -> float:
    """How far ``times`` are from the nearest starts of the other rank's steps, ns (median)."""
    return float(np.median(np.abs(times[:, None] - like.begin[None, :]).min(axis=1)))


def _spell(table: KernelTable, rows: NDArray[np.int64]) -> tuple[tuple[str, int], ...]:
    """What these communication kernels are, in words that hold on every rank."""
    names = [table.names[name] for name in table.name[rows]]
    return tuple(zip(names, table.bytes[rows].tolist(), strict=True))


def _pauses(table: KernelTable, usual: NDArray[np.int64]) -> NDArray[np.float64]:
    """Median time without communication before each of the usual kernels, circularly; ns."""
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
    stream: _Stream, cuts: NDArray[np.int64], whole: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], int, NDArray[np.bool_]]:
    """For each step: index of this stream's first kernel, kernels a step, and whether they are the usual ones."""
    first = np.searchsorted(stream.start, cuts)
    counts = np.diff(first)[whole]
    length = int(np.median(counts)) if counts.size else 0
    first = _steady(first, length, stream.codes)
    ends = first[:-1] + length
    free_from = np.concatenate([[0], np.maximum.accumulate(ends)[:-1]])  # no kernel is in two steps
    usable = whole & (first[:-1] >= free_from) & (ends <= stream.codes.size)
    if not length or not usable.any():
        return first[:-1], length, usable
    sums = find_word(stream.codes, length).hashes
    values = sums[np.minimum(first[:-1], sums.size - 1)]
    kinds, votes = np.unique(values[usable], return_counts=True)
    return first[:-1], length, usable & (values == kinds[np.argmax(votes)])


def _steady(first: NDArray[np.int64], length: int, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """First kernels with the jitter of single cuts taken out: a kernel that drifted over a cut goes back to its
    step."""
    residual = first - length * np.arange(first.size)
    exact = length and codes.size > length and bool((codes[length:] == codes[:-length]).all())
    if exact:
        return length * np.arange(first.size) + int(np.median(residual))
    padded = np.pad(residual, 2, mode="edge")
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1).astype(np.int64)
    return length * np.arange(first.size) + smooth
