# SPDX-License-Identifier: Apache-2.0
"""The period of one stream's kernel sequence, and which stream's period is a step's.

A period must explain at least three whole repeats, and *every* signature must be in (nearly) every repeat: otherwise
``AAAA…`` at the head of an FSDP pass, or a layer that occurs 32 times, would pass for the step. Among the lags that do,
the best match wins, and among equals the shortest. But what is done every third step or less often (a loss is logged,
a flag is asked for) makes no longer step: if the best lag is some repeats of a shorter one and a few short kernels, the
shorter one is the period.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lagom.timeline.kernel_table import KernelTable

MIN_REPEATS = 3
#: Lags below this share of equal kernels are no period; a few irregular steps are forgiven.
_MIN_MATCH = 0.7
_TIE = 0.002
#: This share of the kernels may be of signatures that are not in every repeat (logging, a checkpoint).
_MAX_RARE = 0.02
_MAX_MULTIPLE = 128
#: What is done every so many steps at most is no part of a step if it is so many kernels of a stream at most (an
#: optimizer launches more, so micro-batches are no steps) and takes at most this share of the stream's time.
_MAX_REPEATS, _MAX_EXTRA, _MAX_EXTRA_TIME = 10, 8, 0.01
#: Fewer kernels may be layers.
_MIN_STEP = 8


#: A stream with less of the rank's busy time does not decide the period.
_MIN_STREAM_SHARE = 0.01


class RepeatedRun(NamedTuple):
    """The most common run of ``length`` signatures, and where it starts."""

    length: int
    starts: NDArray[np.int64]


def signatures(table: KernelTable, exact: bool = True) -> NDArray[np.int64]:
    """A code for each kernel, equal for equal (name, grid, grid's x, block); of communication: (name, function,
    message size), because its grid and block are what tuning changes from one step to the next, and NCCL's own events
    have no name. Not ``exact``: neither grids nor sizes count."""
    code = table.name.astype(np.int64)
    compute = ~table.is_communication
    shapes = (table.grid * compute, table.channels * compute, table.block * compute, table.bytes)
    for column in (table.function, *(shapes if exact else ())):
        _, dense = np.unique(column, return_inverse=True)
        code = code * (int(dense.max(initial=0)) + 1) + dense
    return np.unique(code, return_inverse=True)[1].astype(np.int64)


def find_period(codes: NDArray[np.int64]) -> int | None:
    """Kernels a repeat, or ``None``. Shape of ``codes``: one a kernel, in order of start."""
    counts = np.bincount(codes)
    scored = [(lag, _match(codes, lag)) for lag in _candidates(codes) if _explains_all(counts, codes.size // lag)]
    best = max((match for _, match in scored), default=0.0)
    if best < _MIN_MATCH:
        return None
    return min(lag for lag, match in scored if match >= best - _TIE)


def shorter_period(codes: NDArray[np.int64], duration: NDArray[np.int64], period: int) -> int:
    """That of which ``period`` is some repeats and a few short kernels; ``period`` itself if there is none.
    ``duration``: ns, one a kernel."""
    for repeats in range(_MAX_REPEATS, 1, -1):
        lag = one_of_several(codes[:period], duration[:period], repeats)
        if lag is not None and lag >= _MIN_STEP and _match(codes, lag) >= _MIN_MATCH and _repeats_nothing(codes, lag):
            return lag
    return period


def one_of_several(codes: NDArray[np.int64], duration: NDArray[np.int64], repeats: int) -> int | None:
    """How many kernels each of the repeats has if the kernels of one period can be so many, and a few short ones
    between them; else ``None``."""
    if not 1 < repeats <= _MAX_REPEATS:
        return None
    counts = np.bincount(codes)
    extra = counts % repeats
    time = np.bincount(codes, duration) / np.maximum(counts, 1)
    few = 0 < extra.sum() <= _MAX_EXTRA and (extra * time).sum() <= _MAX_EXTRA_TIME * duration.sum()
    return int(codes.size - extra.sum()) // repeats if few else None


def _repeats_nothing(codes: NDArray[np.int64], lag: int) -> bool:
    """Whether the usual run of so many kernels is no repetition of a shorter one."""
    begin = int(find_repeated_run(codes, lag).starts[0])
    word = codes[begin : begin + lag]
    return not any((word[part:] == word[:-part]).all() for part in range(1, lag // 2 + 1) if lag % part == 0)


def _candidates(codes: NDArray[np.int64]) -> list[int]:
    """Distances between occurrences of the rarest signatures: the period is among them."""
    counts = np.bincount(codes)
    often_enough = np.flatnonzero(counts >= MIN_REPEATS)
    rarest = often_enough[np.argsort(counts[often_enough], kind="stable")][:3]
    lags: set[int] = set()
    for code in rarest:
        places = np.flatnonzero(codes == code)
        for multiple in range(1, min(_MAX_MULTIPLE, places.size - 1) + 1):
            values, votes = np.unique(places[multiple:] - places[:-multiple], return_counts=True)
            lags.add(int(values[np.argmax(votes)]))
    return sorted(lag for lag in lags if lag * MIN_REPEATS <= codes.size)


def _match(codes: NDArray[np.int64], lag: int) -> float:
    return float((codes[lag:] == codes[:-lag]).mean())


def _explains_all(counts: NDArray[np.int64], repeats: int) -> bool:
    """True if nearly all kernels are of signatures that occur in every repeat. ``counts``: kernels a signature."""
    return bool(counts[counts < repeats - 1].sum() <= _MAX_RARE * counts.sum())


def find_repeated_run(codes: NDArray[np.int64], length: int) -> RepeatedRun:
    """The run of ``length`` codes that occurs most often, by a rolling hash modulo 2^64."""
    hashes = window_hashes(codes, length)
    values, first, votes = np.unique(hashes, return_index=True, return_counts=True)
    common = votes == votes.max()
    chosen = values[common][np.argmin(first[common])]
    return RepeatedRun(length, _apart(np.flatnonzero(hashes == chosen), length))


def window_hashes(codes: NDArray[np.int64], length: int) -> NDArray[np.uint64]:
    """A hash of the run of ``length`` codes that begins at each index, one entry for each index at which one does."""
    if length <= 0 or codes.size < length:
        return np.zeros(1, np.uint64)
    digits = np.random.default_rng(0).integers(1, 2**63, int(codes.max()) + 1, dtype=np.uint64)[codes]
    base, inverse = np.uint64(0x9E3779B97F4A7C15), np.uint64(pow(0x9E3779B97F4A7C15, -1, 2**64))
    total = np.concatenate([[np.uint64(0)], np.cumsum(digits * _powers(base, codes.size), dtype=np.uint64)])
    return (total[length:] - total[:-length]) * _powers(inverse, codes.size - length + 1)


def _powers(base: np.uint64, count: int) -> NDArray[np.uint64]:
    powers = np.full(count, base, np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)


def _apart(starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Those of ``starts`` that do not lie inside the run of an earlier one."""
    kept: list[int] = []
    for start in starts.tolist():
        if not kept or start - kept[-1] >= length:
            kept.append(start)
    return np.array(kept, np.int64)


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream's kernels: rows of the table in order of start, their signatures, starts and durations."""

    rows: NDArray[np.int64]
    codes: NDArray[np.int64]
    start: NDArray[np.int64]
    busy: NDArray[np.int64]


def split_streams(table: KernelTable, codes: NDArray[np.int64]) -> list[Stream]:
    rows = [np.flatnonzero(table.stream == stream) for stream in np.unique(table.stream)]
    return [Stream(of, codes[of], table.start[of], table.duration[of]) for of in rows]


@dataclass(frozen=True, slots=True)
class StreamPeriod:
    """The repetition of one stream: ``period`` in kernels, which ``lasts`` so many ns."""

    stream: Stream
    period: int
    lasts: float

    @classmethod
    def of(cls, stream: Stream, period: int) -> StreamPeriod:
        """The stream with the period that was found."""
        return cls(stream, period, float(np.median(stream.start[period:] - stream.start[:-period])))

    def shorter(self) -> StreamPeriod:
        """Without what is done every few steps only."""
        period = shorter_period(self.stream.codes, self.stream.busy, self.period)
        return self if period == self.period else StreamPeriod.of(self.stream, period)

    def is_several(self, other: StreamPeriod) -> bool:
        """Whether one period is some of the other stream's and what this stream alone does every few steps."""
        repeats = round(self.lasts / max(other.lasts, 1.0))
        in_time = abs(self.lasts - repeats * other.lasts) < 0.1 * other.lasts
        one, lasts = self.stream.codes[: self.period], self.stream.busy[: self.period]
        return in_time and one_of_several(one, lasts, repeats) is not None


def step_periods(streams: list[Stream]) -> list[StreamPeriod]:
    """What to cut by, in the order to try: the repetition that lasts longest, without what is done every few steps only
    and then with it. None if the busiest stream does not repeat itself three times: on others, layers may."""
    busy = [int(stream.busy.sum()) for stream in streams]
    periods = [
        StreamPeriod.of(stream, period)
        for stream, own in zip(streams, busy, strict=True)
        if own >= _MIN_STREAM_SHARE * max(sum(busy), 1) and (period := find_period(stream.codes)) is not None
    ]
    without_rare = [one.shorter() for one in periods]
    busiest = next((one for one in without_rare if int(one.stream.busy.sum()) == max(busy)), None)
    if busiest is None:
        return []
    plain, first = _longest(periods), _longest(without_rare)
    first = busiest if first.is_several(busiest) else first
    return [first] if first is plain else [first, plain]


def _longest(periods: list[StreamPeriod]) -> StreamPeriod:
    longest = periods[0]
    for one in periods[1:]:
        longest = one if one.lasts > 1.5 * longest.lasts else longest
    return longest
