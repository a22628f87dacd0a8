# SPDX-License-Identifier: Apache-2.0
"""The period of a call sequence: the smallest one that explains it, and the multiple of it that also repeats in time.

Two cases decide the rules. A backward pass ``ARARAR...`` looks like period 2 for a while, so a
period must explain most of what was seen, not just the last few calls. And gradient accumulation repeats the calls of a
micro-batch K times though only every K-th carries the optimiser, so durations must be stationary too.

A job that evaluates or writes checkpoints now and then never repeats for long enough to explain most of its history.
Then the newest unbroken run will do, if it is made of the same calls in the same proportions as the whole: the loop in
a backward pass has as many scatters as gathers, the iteration around it has not. And a job that evaluates every N
iterations exactly does have a period, of N iterations and an evaluation; the iteration within it is what is meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Call = TypeVar("Call", bound=Hashable)
MIN_REPEATS = 3
#: Share of the whole history that the period must explain; less is treated as a loop inside the iteration.
MIN_EXPLAINED = 0.75
MAX_MULTIPLE = 8
#: A period that repeats so often within a longer one is an iteration, not a micro-batch or a layer.
INNER_REPEATS = 12
#: A longer period is an iteration, or a micro-batch of one; a shorter one may be a part of it.
PACED_CALLS = 8
#: Layers (tensor parallelism, with or without sequence parallelism) make calls of one shape or two.
LAYER_SHAPES = 2
#: Share of the calls that may be other ones in the whole history than in the newest run (total variation).
MAX_UNLIKE = 0.1
#: Phases of a multiple must differ by this share of the median duration (and clearly beyond noise) to count as real.
PHASE_EFFECT = 0.05
#: The same of two halves of a step, each with its pause: steps that are no halves differ by chance, if by less.
HALF_EFFECT = 0.25
#: A pause stands out when it is this many times the median, and is a long one from so many times on.
PAUSE_FACTOR, LONG_PAUSE_FACTOR = 3.0, 30.0
#: Share of the pauses that must come again at their distance, and of the time since the first that they must fill.
MIN_RETURNING = 0.5
#: Distances that occur at least this often, relative to the most common one, do not differ from it by chance alone.
ABOUT_AS_COMMON = 0.8
#: Two pauses with more others between them are not compared: with so many pauses a step no period can be found.
MAX_BETWEEN = 7


def match_lengths(sequence: Sequence[Hashable], limit: int | None = None) -> list[int]:
    """The Z-array: entry i is how many elements of ``sequence[i:]`` equal the beginning of ``sequence``. O(n).
    ``limit``: the last entry that is wanted; None = all."""
    lengths = [0] * (len(sequence) if limit is None else min(len(sequence), limit + 1))
    left = right = 0
    for index in range(1, len(lengths)):
        length = min(right - index, lengths[index - left]) if index < right else 0
        while index + length < len(sequence) and sequence[length] == sequence[index + length]:
            length += 1
        lengths[index] = length
        if index + length > right:
            left, right = index, index + length
    return lengths


def smallest_period(calls: Sequence[Hashable], limit: int) -> int | None:
    """The smallest period, in calls, up to ``limit`` that explains at least :data:`MIN_REPEATS` whole repeats at the
    end of ``calls``, at least :data:`MIN_EXPLAINED` of all of them, and contains every call seen; else ``None``."""
    newest_first = list(reversed(calls))
    every_call = set(calls)
    for period, length in enumerate(match_lengths(newest_first, limit)):
        explained = length + period
        if period == 0 or explained < MIN_REPEATS * period or explained < MIN_EXPLAINED * len(calls):
            continue
        if set(newest_first[:period]) == every_call:
            return period
    return None


def unbroken_run(calls: Sequence[Hashable], limit: int) -> int:
    """How many of the newest calls some period up to ``limit`` explains without a break, :data:`MIN_REPEATS` times at
    least; 0 if none does."""
    lengths = match_lengths(list(reversed(calls)), limit)
    runs = (length + period for period, length in enumerate(lengths) if length + period >= MIN_REPEATS * period > 0)
    return max(runs, default=0)


def is_rotation(one: Sequence[Hashable], other: Sequence[Hashable]) -> bool:
    """Whether both go round the same circle of calls, wherever each begins."""
    if len(one) != len(other) or tuple(one) == tuple(other):
        return len(one) == len(other)
    lengths = match_lengths([*one, *other, *other], 2 * len(one) - 1)[len(one) :]
    return any(length >= len(one) for length in lengths)


def is_power(loop: Sequence[Hashable]) -> bool:
    """Whether a smaller loop makes it, several times over."""
    size = len(loop)
    return any(size % part == 0 and loop[part:] == loop[:-part] for part in range(1, size // 2 + 1))


def explained_by(calls: Sequence[Hashable], period: int) -> int:
    """How many of the newest calls repeat with this period, the first time included; 0 if they do not."""
    at = len(calls) - 1
    while at >= period and calls[at] == calls[at - period]:
        at -= 1
    repeated = len(calls) - 1 - at
    return repeated + period if repeated else 0


def is_layer_like(calls: Sequence[Hashable]) -> bool:
    """Whether these may be what a step repeats in each of its layers."""
    return len(calls) <= PACED_CALLS and len(set(calls)) <= LAYER_SHAPES


def inner_loop(calls: Sequence[Call]) -> list[Call] | None:
    """The calls of the smallest period that fills most of one long period, over and over; ``None`` if there is none.

    In one run of calls; else in several runs of one loop with interruptions between them. A period that may be a layer
    must fill a single run: layers are separated by the ends of micro-batches, as iterations are by evaluations.
    """
    names = list(dict.fromkeys(calls))
    numbers = {name: number for number, name in enumerate(names)}
    circle, parted = np.array([numbers[call] for call in calls]), None
    for period in range(1, len(calls) // INNER_REPEATS + 1):
        begins, lengths = _runs(circle, period)
        loop = _of_one_run(circle, period, begins, lengths)
        if loop is not None:
            return [names[number] for number in loop]
        parted = parted or _of_several_runs(circle, period, begins, lengths)
    return None if parted is None else [names[number] for number in parted]


def _of_one_run(
    circle: NDArray[np.intp], period: int, begins: NDArray[np.intp], lengths: NDArray[np.intp]
) -> tuple[int, ...] | None:
    """The loop of the longest run, if that fills most of the circle but not all of it."""
    longest = int(np.argmax(lengths)) if len(lengths) else 0
    fills = len(lengths) > 0 and MIN_EXPLAINED * len(circle) <= lengths[longest] < len(circle)
    return _loop_at(circle, int(begins[longest]), period) if fills else None


def _of_several_runs(
    circle: NDArray[np.intp], period: int, begins: NDArray[np.intp], lengths: NDArray[np.intp]
) -> tuple[int, ...] | None:
    """The loop whose runs, of :data:`INNER_REPEATS` each, together fill most of the circle: the passes of an iteration
    have loops of their own, and count apart. So few calls as a layer makes are not asked, nor several rounds of them.
    """
    long = lengths >= INNER_REPEATS * period
    if period <= PACED_CALLS or lengths[long].sum() < MIN_EXPLAINED * len(circle):
        return None
    held: dict[tuple[int, ...], set[int]] = {}
    for begin, length in zip(begins[long].tolist(), lengths[long].tolist(), strict=True):
        word = _loop_at(circle, begin, period)
        loop = next((known for known in held if is_rotation(known, word)), word)
        held.setdefault(loop, set()).update(at % len(circle) for at in range(begin, begin + length))
    loop = max(held, key=lambda known: len(held[known]))
    fills = MIN_EXPLAINED * len(circle) <= len(held[loop]) < len(circle)
    return loop if fills and not is_power(loop) else None


def _loop_at(circle: NDArray[np.intp], begin: int, period: int) -> tuple[int, ...]:
    return tuple(circle.take(range(begin, begin + period), mode="wrap").tolist())


def _runs(circle: NDArray[np.intp], period: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where on the circle the stretches begin that repeat with this period, and how many calls each holds; none where
    nothing breaks it."""
    breaks = np.flatnonzero(circle != np.roll(circle, period))
    around = np.diff(breaks, append=breaks[:1] + len(circle))
    return breaks + 1 - period, around - 1 + period


def is_typical(run: Sequence[Hashable], calls: Sequence[Hashable]) -> bool:
    """Whether ``run`` holds the same calls in the same proportions as all of ``calls``."""
    ours, all_of_them = Counter(run), Counter(calls)
    shares = (abs(ours[call] / len(run) - count / len(calls)) for call, count in all_of_them.items())
    return 0.5 * sum(shares) <= MAX_UNLIKE


def stationary_multiple(durations: ArrayLike, *, paced: bool = True) -> int:
    """How many periods make one iteration: the smallest multiple whose phases explain the durations.

    ``durations`` are those of single periods, in any unit and in order. 1 unless some multiple up to
    :data:`MAX_MULTIPLE` shows phases that differ by more than :data:`PHASE_EFFECT` and by more than their own spread.
    Short periods (``paced``) may be parts of an iteration, which the host's long pauses mark if all of them are evenly
    spaced. Elsewhere pauses are checkpoints. For layers of one shape or two see :func:`pause_spacing`.
    """
    values = np.asarray(durations, float)
    if paced and (spacing := _even_spacing(values)) is not None:
        return spacing
    for multiple in range(2, MAX_MULTIPLE + 1):
        if len(values) >= MIN_REPEATS * multiple and _phases_differ(values, multiple):
            return multiple
    return 1


def _even_spacing(values: NDArray[np.float64]) -> int | None:
    """The constant distance between durations that stand out, or ``None`` if nothing stands out evenly."""
    spacing = np.diff(_standing_out(values))
    if len(spacing) < MIN_REPEATS or spacing[0] < 2 or (spacing != spacing[0]).any():
        return None
    return int(spacing[0])


def pause_spacing(durations: NDArray[np.float64]) -> int | None:
    """After how many durations the host's pauses come again; ``None`` if they come at odd places.

    By all that was seen, or by its newer half: to the steps after it, a slow first step is nothing but pauses. By all
    pauses, or by the longest: where the host has hiccups in every step, it waits longer at its end.
    """
    for seen in (durations, durations[len(durations) // 2 :]):
        for factor in (PAUSE_FACTOR, LONG_PAUSE_FACTOR):
            spacing = _commonest_distance(_standing_out(seen, factor), len(seen))
            if spacing is not None and spacing >= 2:
                return 2 * spacing if _is_half(seen, spacing) else spacing
    return None


def _standing_out(durations: NDArray[np.float64], factor: float = PAUSE_FACTOR) -> NDArray[np.intp]:
    """Where the durations are that are much longer than most: the host paused."""
    return np.flatnonzero(durations > factor * np.median(durations)) if len(durations) else np.zeros(0, np.intp)


def _commonest_distance(pauses: NDArray[np.intp], length: int) -> int | None:
    """The distance that most of ``pauses`` have to a later one: :data:`MIN_REPEATS` of them, half at least, and such
    that they fill half of the time since. A hiccup within a step does not hide that the step's own pause comes again,
    a burst of pauses that is over is no rhythm, and of multiples, which are about as common, the smallest is meant."""
    lags = range(1, min(MAX_BETWEEN + 2, len(pauses)))
    distances = np.concatenate([np.zeros(0, np.intp), *(pauses[lag:] - pauses[:-lag] for lag in lags)])
    counts = np.bincount(distances[distances <= length // MIN_REPEATS], minlength=1)
    commonest = int(np.argmax(counts >= ABOUT_AS_COMMON * counts.max()))
    count = int(counts[commonest])
    if count < max(MIN_REPEATS, MIN_RETURNING * len(pauses)):
        return None
    first = pauses[np.isin(pauses + commonest, pauses)][0]
    return commonest if count * commonest >= MIN_RETURNING * (length - first) else None


def _is_half(durations: NDArray[np.float64], spacing: int) -> bool:
    """Whether two spacings make one step: a pause also parts its two passes, which have as many calls."""
    between = durations[len(durations) % spacing :].reshape(-1, spacing).sum(axis=1)
    return len(between) >= 2 * MIN_REPEATS and _phases_differ(between, 2, HALF_EFFECT)


def _phases_differ(values: NDArray[np.float64], multiple: int, least: float = PHASE_EFFECT) -> bool:
    whole = values[len(values) % multiple :].reshape(-1, multiple)
    phases = np.median(whole, axis=0)
    spread = np.median(np.abs(whole - phases), axis=0).max()
    effect = phases.max() - phases.min()
    return bool(effect > least * np.median(values) and effect > 4 * spread)
