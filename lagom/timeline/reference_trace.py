"""Quiet references from a second table: the same job with little or no communication pressure.

A fifth to two fifths of a job's compute is at places that always have communication beside them; nothing in its own
trace says how long those kernels take alone. A second recording does: without communication, or with it throttled to
one channel and small chunks. Places correspond by the order of kernels on the stream. The GPU's clock in each step is
taken from the kernels that are quiet in both recordings.

Only kernels without a quiet like of their own are referred to it, and only where the pressure there is at most half of
that here. What pressure is left makes the reference too long, so the tax stays a lower bound.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lagom.timeline.busy_times import Floats
from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.reference_kernels import QUIET_UP_TO, Contention, Outside
from lagom.timeline.steps import Steps

#: Pressure (channels x share of the kernel's time) of the quiet recording over that of the other, at most.
LESS_PRESSURE = 0.5
#: So many kernels must be quiet in both recordings for their clocks to be compared.
_ENOUGH_KERNELS = 8

Seen = tuple[KernelTable, Steps, Contention]


def refer(loud: Seen, quiet: Seen) -> Contention:
    """The contention of ``loud`` with the gaps in its references filled from ``quiet``; both as
    ``reference_kernels.measure`` made them. Unchanged but for ``outside`` if the two do not run the same kernels."""
    here, there = loud[2], quiet[2]
    if not there.places.size:
        return replace(here, outside=_nothing(here))
    place = _same_places(loud, quiet)
    length = np.where(np.isnan(there.quiet), there.duration, there.quiet)
    alone, error = np.median(length, axis=0), _error_of_median(length)
    known = place >= 0
    at = np.maximum(place, 0)
    pace, compared = _pace(here, there, place, alone)
    wanted = np.isnan(here.quiet) & (here.covered > QUIET_UP_TO)
    calmer = _pressure(there)[at] <= LESS_PRESSURE * _pressure(here)
    used = wanted & known & calmer
    reference = np.where(used, alone[at] * pace[:, None], here.quiet)
    time = float(here.duration.sum()) or 1.0
    outside = Outside(
        used=used,
        error=error[at],
        share=float(here.duration[used].sum()) / time,
        pressure=_pressure_left(used, here, there, at),
        matched=float(known.mean()) if known.size else 0.0,
        pace=float(np.median(pace)) if pace.size else 1.0,
        compared=compared,
    )
    return replace(here, quiet=reference, outside=outside)


def _nothing(here: Contention) -> Outside:
    """What a recording without any compute is good for."""
    used, error = np.zeros(here.duration.shape, bool), np.zeros(here.places.size)
    return Outside(used, error, share=0.0, pressure=0.0, matched=0.0, pace=1.0, compared=0)


def _pressure(contention: Contention) -> Floats:
    """Places: channel-time beside each kernel over its own time, mean over steps."""
    channels = np.where(contention.channels > 0, contention.channels, 1.0)
    return np.asarray((contention.covered * channels).mean(axis=0))


def _pressure_left(used: NDArray[np.bool_], here: Contention, there: Contention, at: NDArray[np.int64]) -> float:
    """Pressure of the quiet recording over that here, on the kernels that are referred to it."""
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


def _pace(here: Contention, there: Contention, place: NDArray[np.int64], alone: Floats) -> tuple[Floats, int]:
    """How much longer kernels of each step here take than there, by those that are quiet in both; and how many."""
    both = (place >= 0) & (here.covered.max(axis=0, initial=0) <= QUIET_UP_TO)
    both[both] = there.covered[:, place[both]].max(axis=0, initial=0) <= QUIET_UP_TO
    both &= here.duration.min(axis=0, initial=np.inf) > 0
    if both.sum() < _ENOUGH_KERNELS:
        return np.ones(here.duration.shape[0]), 0
    ratio = here.duration[:, both] / np.maximum(alone[place[both]], 1.0)
    order = np.argsort(ratio, axis=1)
    weight = np.take_along_axis(np.broadcast_to(alone[place[both]], ratio.shape), order, axis=1).cumsum(axis=1)
    middle = (weight >= weight[:, -1:] / 2).argmax(axis=1)
    ranked = np.take_along_axis(ratio, order, axis=1)
    return ranked[np.arange(len(ranked)), middle], int(both.sum())


def _same_places(loud: Seen, quiet: Seen) -> NDArray[np.int64]:
    """For each place of ``loud`` the same kernel's place in ``quiet``; -1 where its stream runs other kernels there."""
    exact = loud[1].exact and quiet[1].exact
    words: dict[tuple[object, ...], int] = {}
    ours, theirs = (_streams(seen, exact, words) for seen in (loud, quiet))
    found = np.full(loud[2].places.size, -1, np.int64)
    for mine, codes in ours:
        for index, (other, spelled) in enumerate(theirs):
            if (turn := _rotation(codes, spelled)) is not None:
                found[mine] = np.roll(other, -turn)
                del theirs[index]
                break
    return found


def _streams(
    seen: Seen, exact: bool, words: dict[tuple[object, ...], int]
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
