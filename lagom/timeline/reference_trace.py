# SPDX-License-Identifier: Apache-2.0
"""References from a second trace: the same job with little or no communication.

A fifth to two fifths of a job's compute is at places that always have communication beside them; its own trace does not
show how long those kernels take alone. A reference trace does: without communication, or with it throttled to one
channel and small chunks. Places correspond by the order of kernels on the stream. The GPU's clock in each step is taken
from the kernels that run alone in both traces.

Only kernels without a reference in their own trace get one from here, and only where the pressure in the reference
trace is at most half of that in their own. The pressure that remains makes the reference too long, so the overhead is
then a lower bound.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lagom.timeline.busy_times import Floats
from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.reference_kernels import ALONE_UP_TO, Contention, TraceReferences
from lagom.timeline.steps import Steps

#: Pressure (channels x share of the kernel's time) of the reference trace over that of the other, at most.
LESS_PRESSURE = 0.5
#: So many kernels must run alone in both traces for their clocks to be compared.
_ENOUGH_KERNELS = 8

MeasuredTrace = tuple[KernelTable, Steps, Contention]


def fill_references(own: MeasuredTrace, quieter: MeasuredTrace) -> Contention:
    """The contention of ``own``, with missing references filled in from ``quieter``; both as
    :func:`measure_contention` made them. Unchanged but for ``from_trace`` if the two do not run the same kernels."""
    here, there = own[2], quieter[2]
    if not there.places.size:
        return replace(here, from_trace=_nothing(here))
    place = _same_places(own, quieter)
    length = np.where(np.isnan(there.reference), there.duration, there.reference)
    alone, error = np.median(length, axis=0), _error_of_median(length)
    known = place >= 0
    at = np.maximum(place, 0)
    clock_ratio, compared = _clock_ratio(here, there, place, alone)
    wanted = np.isnan(here.reference) & (here.overlap_share > ALONE_UP_TO)
    lighter = _pressure(there)[at] <= LESS_PRESSURE * _pressure(here)
    used = wanted & known & lighter
    filled = np.where(used, alone[at] * clock_ratio[:, None], here.reference)
    time = float(here.duration.sum()) or 1.0
    found = TraceReferences(
        used=used,
        error=error[at],
        share=float(here.duration[used].sum()) / time,
        pressure=_pressure_left(used, here, there, at),
        matched=float(known.mean()) if known.size else 0.0,
        clock_ratio=float(np.median(clock_ratio)) if clock_ratio.size else 1.0,
        compared=compared,
    )
    return replace(here, reference=filled, from_trace=found)


def _nothing(here: Contention) -> TraceReferences:
    """Of a reference trace without any compute."""
    used, error = np.zeros(here.duration.shape, bool), np.zeros(here.places.size)
    return TraceReferences(used, error, share=0.0, pressure=0.0, matched=0.0, clock_ratio=1.0, compared=0)


def _pressure(contention: Contention) -> Floats:
    """Places: channel-time beside each kernel over its own time, mean over steps."""
    channels = np.where(contention.channels > 0, contention.channels, 1.0)
    return np.asarray((contention.overlap_share * channels).mean(axis=0))


def _pressure_left(used: NDArray[np.bool_], here: Contention, there: Contention, at: NDArray[np.int64]) -> float:
    """Pressure of the reference trace over that here, on the kernels whose reference it is."""
    weight = np.where(used, here.duration, 0.0).sum(axis=0)
    full = float((_pressure(here) * weight).sum())
    return float((_pressure(there)[at] * weight).sum()) / full if full else 0.0


def _error_of_median(length: Floats) -> Floats:
    """Relative standard error of each place's median over steps, the steps' common pace taken out."""
    median = np.maximum(np.median(length, axis=0), 1.0)
    ratio = length / median
    ratio = ratio / np.median(ratio, axis=1, keepdims=True)
    count = length.shape[0]
    return np.asarray(1.25 * ratio.std(axis=0, ddof=1) / np.sqrt(count)) if count > 1 else np.zeros(length.shape[1])


def _clock_ratio(here: Contention, there: Contention, place: NDArray[np.int64], alone: Floats) -> tuple[Floats, int]:
    """How much longer kernels of each step here take than there, by those that run alone in both; and how many."""
    both = (place >= 0) & (here.overlap_share.max(axis=0, initial=0) <= ALONE_UP_TO)
    both[both] = there.overlap_share[:, place[both]].max(axis=0, initial=0) <= ALONE_UP_TO
    both &= here.duration.min(axis=0, initial=np.inf) > 0
    if both.sum() < _ENOUGH_KERNELS:
        return np.ones(here.duration.shape[0]), 0
    ratio = here.duration[:, both] / np.maximum(alone[place[both]], 1.0)
    order = np.argsort(ratio, axis=1)
    weight = np.take_along_axis(np.broadcast_to(alone[place[both]], ratio.shape), order, axis=1).cumsum(axis=1)
    middle = (weight >= weight[:, -1:] / 2).argmax(axis=1)
    ranked = np.take_along_axis(ratio, order, axis=1)
    return ranked[np.arange(len(ranked)), middle], int(both.sum())


def _same_places(own: MeasuredTrace, quieter: MeasuredTrace) -> NDArray[np.int64]:
    """For each place of ``own`` the same kernel's place in ``quieter``; -1 where its stream runs other kernels
    there."""
    exact = own[1].exact and quieter[1].exact
    words: dict[tuple[object, ...], int] = {}
    ours, theirs = (_streams(seen, exact, words) for seen in (own, quieter))
    found = np.full(own[2].places.size, -1, np.int64)
    for mine, codes in ours:
        for index, (other, spelled) in enumerate(theirs):
            if (turn := _rotation(codes, spelled)) is not None:
                found[mine] = np.roll(other, -turn)
                del theirs[index]
                break
    return found


def _streams(
    seen: MeasuredTrace, exact: bool, words: dict[tuple[object, ...], int]
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The compute kernels of each stream: their columns in the contention, and what they are as numbers; ``words``
    translates."""
    table, steps, contention = seen
    rows = steps.index[0, contention.places]
    columns = [table.name[rows], table.grid[rows] * exact, table.block[rows] * exact]
    spelled = zip(*(column.tolist() for column in columns), strict=True)
    codes = np.array([words.setdefault((table.names[name], *shape), len(words)) for name, *shape in spelled], np.int64)
    streams = table.stream[rows]
    return [(mine := np.flatnonzero(streams == stream), codes[mine]) for stream in np.unique(streams)]


def _rotation(wanted: NDArray[np.int64], given: NDArray[np.int64]) -> int | None:
    """By how much ``given`` must be turned left to equal ``wanted``: the smallest turn either way, since the step may
    be cut a few kernels apart; ``None`` if none does."""
    if wanted.size != given.size or not wanted.size:
        return None
    circle, word, width = np.concatenate([given, given]).tobytes(), wanted.tobytes(), wanted.itemsize
    turns, at = [], circle.find(word)
    while at >= 0 and at < given.nbytes:
        if at % width == 0:
            turns.append(at // width)
        at = circle.find(word, at + 1)
    return min(turns, key=lambda turn: min(turn, given.size - turn), default=None)
