# SPDX-License-Identifier: Apache-2.0
"""The steps that a trace marks itself: ``ProfilerStep#n`` of torch.profiler, ranges that are named like a step (NVTX,
``record_function``), ``Optimizer.step``.

Marks are ranges of the host, which runs ahead of the GPU: a kernel is of the step in whose range it was *launched*
(``correlation`` of the kernel and of the call). The step on the GPU begins where the least busy time is on the wrong
side: that of earlier steps' kernels after it, that of its own before it. A kernel whose launch was not recorded was
launched before the recording began and is of no step. Where no launches are in the file, the marks that the profiler
drew on the GPU count as they are, else the host's with the kernels that start in them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lagom.timeline.intervals import weight_before
from lagom.timeline.launch_events import LAUNCH_CATEGORIES, correlation_of

PROFILER_STEP, OPTIMIZER_STEP = "ProfilerStep", "Optimizer.step"
_PROFILER_STEP = re.compile(r"(ProfilerStep)#(\d{1,18})$")
_RANGE_CATEGORIES = {"user_annotation", "nvtx", "NVTX"}
#: Category of the marks in the traces that Lagom writes.
DRAWN_CATEGORY = "lagom_step"
#: Categories of marks on the GPU's own time, and how source and number are written in their names.
_DRAWN = {"gpu_user_annotation": _PROFILER_STEP, DRAWN_CATEGORY: re.compile(r"(.+)#(\d{1,18})$")}
#: A range is named like a step if one of these words is in its name, and none of the others.
_STEP_WORD = re.compile(r"(?<![a-z])(step|iter|iteration)(?![a-z])", re.IGNORECASE)
_NO_STEP_WORD = re.compile(r"optim|sched|micro|warm_?up|ProfilerStep", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
#: Kernels count by their launches if the launches of at least this share of them were recorded.
_LINKED_FROM = 0.5
#: Later times are damage: ns since 1970, two of which still add up in 64 bits.
_LATEST = 2**62


@dataclass(frozen=True, slots=True)
class StepMarks:
    """Steps as marked: step ``number[k]`` takes the GPU's time ``begin[k] .. end[k]``, ns; ascending, none within
    another. ``source`` says by what; ``number`` is the profiler's own, or counts from 0."""

    source: str
    number: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]

    @property
    def is_certain(self) -> bool:
        """Whether they outweigh the repetition of the kernels: several ``ProfilerStep#n``. A single one may be a whole
        recording."""
        return self.source == PROFILER_STEP and self.number.size > 1


class Range(NamedTuple):
    """A named range of time, ns."""

    number: int
    begin: int
    end: int


@dataclass(slots=True)
class HostEvents:
    """What a trace tells of steps, ns: ``ranges`` of the host by source and process, those ``drawn`` on the GPU by
    source, and when each ``correlation`` was launched, by process."""

    ranges: dict[str, dict[str, list[Range]]] = field(default_factory=dict)
    drawn: dict[str, list[Range]] = field(default_factory=dict)
    launches: dict[str, dict[int, int]] = field(default_factory=dict)


def read_host_events(events: Iterable[Any], base: int) -> HostEvents:
    """From the events of a Chrome trace; ``base`` ns are added to every time. Events that are no ranges are passed
    over."""
    found = HostEvents()
    named: dict[tuple[str, str], list[Range]] = defaultdict(list)
    launches = []
    for event in filter(_has_name, events):
        category, name = event["cat"], event["name"]
        if category in LAUNCH_CATEGORIES:
            launches.append(event)
        elif drawn := _DRAWN.get(category):
            if (marked := drawn.match(name)) and (span := _span(event, base)):
                found.drawn.setdefault(marked[1], []).append(Range(int(marked[2]), *span))
        elif (step := _name_of_step(name, category)) and (span := _span(event, base)):
            named[step, str(event.get("pid"))].append(Range(_number(name), *span))
    for (step, process), ranges in named.items():
        source, steps = _steps_by(step, sorted(ranges, key=lambda one: one.begin))
        of_source = found.ranges.setdefault(source, {})
        if _time(steps) > _time(of_source.get(process, [])):
            of_source[process] = steps
    if named:
        found.launches = _read_launches(launches, base)
    return found


def _has_name(event: Any) -> bool:
    """Whether it is a range with a name and a category."""
    is_range = isinstance(event, dict) and event.get("ph") == "X"
    return is_range and isinstance(event.get("cat"), str) and isinstance(event.get("name"), str)


def _read_launches(events: list[dict[str, Any]], base: int) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for event in events:
        if (correlation := correlation_of(event)) >= 0 and (span := _span(event, base)):
            found.setdefault(str(event.get("pid")), {})[correlation] = span[0]
    return found


def _span(event: dict[str, Any], base: int) -> tuple[int, int] | None:
    """Begin and end, ns; None where they are no times."""
    try:
        begin = base + round(float(event["ts"]) * 1000)
        end = begin + round(float(event.get("dur", 0)) * 1000)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return (begin, end) if max(abs(begin), abs(end)) <= _LATEST else None


def _number(name: str) -> int:
    profiler = _PROFILER_STEP.match(name)
    return int(profiler[2]) if profiler else 0


def _name_of_step(name: str, category: str) -> str:
    """The name by which an event marks a step, without its number; empty if it does not."""
    if _PROFILER_STEP.match(name):
        return PROFILER_STEP
    if name.startswith(OPTIMIZER_STEP):
        return name
    is_range = category in _RANGE_CATEGORIES and _STEP_WORD.search(name) and not _NO_STEP_WORD.search(name)
    return _DIGITS.sub("#", name) if is_range else ""


def _steps_by(name: str, ranges: list[Range]) -> tuple[str, list[Range]]:
    """The source that ranges of this name are, and the steps they say; none if they are no steps: one within another,
    or a single one of a name that the profiler did not give."""
    if name == PROFILER_STEP:
        source, numbers = PROFILER_STEP, [one.number for one in ranges]
    elif name.startswith(OPTIMIZER_STEP):  # a step ends with its optimizer's
        source, numbers = OPTIMIZER_STEP, list(range(len(ranges) - 1))
        ranges = [Range(0, one.end, two.end) for one, two in pairwise(ranges)]
    else:
        source, numbers = f"ranges `{name}`", list(range(len(ranges)))
    apart = all(one.end <= two.begin for one, two in pairwise(ranges))
    if not apart or (len(ranges) < 2 and source != PROFILER_STEP):
        return source, []
    return source, [one._replace(number=number) for one, number in zip(ranges, numbers, strict=True)]


def _time(ranges: list[Range]) -> int:
    return sum(one.end - one.begin for one in ranges)


def marks_of_gpu(
    host: HostEvents, start: NDArray[np.int64], end: NDArray[np.int64], correlation: NDArray[np.int64]
) -> tuple[StepMarks, ...]:
    """The marks by each source for one GPU, whose kernels run from ``start`` to ``end``, ns, and were launched by
    ``correlation``. :data:`PROFILER_STEP` comes first, :data:`OPTIMIZER_STEP` last."""
    if not start.size:
        return ()
    launched = {process: _launch_times(calls, start, correlation) for process, calls in host.launches.items()}
    process = max(launched, key=lambda one: int((launched[one] >= 0).sum()), default="")
    linked = process in launched and (launched[process] >= 0).mean() >= _LINKED_FROM
    moment = launched[process] if linked else start
    found = []
    for source in sorted({*host.ranges, *host.drawn}, key=lambda one: (one != PROFILER_STEP, one == OPTIMIZER_STEP)):
        ranges = _ranges_of(process, host.ranges.get(source, {}))
        as_drawn = source in host.drawn and not (linked and ranges)
        found.append(_as_drawn(source, host.drawn[source]) if as_drawn else _on_gpu(source, ranges, start, end, moment))
    return tuple(marks for marks in found if marks.number.size)


def _ranges_of(process: str, of_process: dict[str, list[Range]]) -> list[Range]:
    """Those of the process that launched the kernels; of the only one that has any, where the file does not say."""
    if process in of_process or len(of_process) != 1:
        return of_process.get(process, [])
    return next(iter(of_process.values()))


def _launch_times(calls: dict[int, int], start: NDArray[np.int64], correlation: NDArray[np.int64]) -> NDArray[np.int64]:
    """When each kernel was launched, ns; -1 where that was not recorded."""
    times = np.array([calls.get(number, -1) for number in correlation.tolist()], np.int64)
    return np.where(times <= start, times, -1)


def _as_drawn(source: str, ranges: list[Range]) -> StepMarks:
    """Marks on the GPU, one a stream or one for all, as they are."""
    numbers = sorted({one.number for one in ranges})
    begin = np.array([min(one.begin for one in ranges if one.number == number) for number in numbers])
    end = np.array([max(one.end for one in ranges if one.number == number) for number in numbers])
    return _joined(source, np.array(numbers), begin, end, np.diff(numbers) == 1)


def _joined(
    source: str,
    number: NDArray[np.int64],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    adjacent: NDArray[np.bool_],
) -> StepMarks:
    """Each step up to the next one, if it is ``adjacent``, and never into it."""
    begin, end = np.maximum.accumulate(begin), end.copy()
    end[:-1] = np.where(adjacent, begin[1:], np.minimum(end[:-1], begin[1:]))
    real = end > begin
    return StepMarks(source, number[real], begin[real], end[real])


def _on_gpu(
    source: str,
    ranges: list[Range],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    moment: NDArray[np.int64],
) -> StepMarks:
    """The host's ranges that have kernels, as the GPU's time; ``moment`` says by when each kernel is of a range."""
    low, high = (np.array([getattr(one, edge) for one in ranges], np.int64) for edge in ("begin", "end"))
    inside = np.searchsorted(low, moment, side="right") - 1
    inside = np.where((inside >= 0) & (moment <= high[inside]), inside, -1) if low.size else np.full(moment.size, -1)
    used = np.unique(inside[inside >= 0])
    # 1, 3, 5, ...: in the ranges that have kernels; 0, 2, 4, ...: before, between and after those
    place = np.where(
        inside >= 0, 2 * np.searchsorted(used, inside) + 1, 2 * np.searchsorted(low[used], moment, side="right")
    )
    order = np.argsort(place, kind="stable")
    edges = np.searchsorted(place[order], np.arange(2 * used.size + 2))
    groups = [(start[rows], end[rows]) for rows in np.split(order, edges[1:-1])]
    begins, ends = [], []
    for own in range(1, 2 * used.size, 2):
        before, after = groups[max(own - 2, 0) : own], groups[own + 1 : own + 3]
        begins.append(_least_misplaced(before, [groups[own]], groups[own][0]))
        ends.append(_least_misplaced([groups[own]], after, groups[own][1]))
    number = np.array([ranges[row].number for row in used.tolist()], np.int64)
    between = np.array([part.size for part, _ in groups[2:-1:2]], np.int64)
    adjacent = (between == 0) & (np.diff(number) == 1)
    return _joined(source, number, np.array(begins, np.int64), np.array(ends, np.int64), adjacent)


_Kernels = tuple[NDArray[np.int64], NDArray[np.int64]]


def _least_misplaced(earlier: list[_Kernels], later: list[_Kernels], cuts: NDArray[np.int64]) -> int:
    """The one of ``cuts`` with the least time of ``earlier`` kernels after it and of ``later`` ones before it."""
    cuts = np.unique(cuts)
    misplaced = np.zeros(cuts.size)
    for kernels, sign in ((earlier, -1), (later, 1)):
        start, end = (np.concatenate([part[edge] for part in kernels] or [cuts[:0]]) for edge in (0, 1))
        misplaced += sign * weight_before(start, end, np.ones(start.size), cuts)
    return int(cuts[np.argmin(misplaced)])
