# SPDX-License-Identifier: Apache-2.0
"""The effect of tuning on the kernels, from the trace samples that a search writes to the log folder, or from raw
records: the overlap before and after; each overlap pattern's X, Y and Z under every config that the search kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lagom import timeline
from lagom.errors import LagomError
from lagom.format import format_percent, format_time
from lagom.journal import CommState, Move, RunState
from lagom.records import CommConfig
from lagom.timeline import Profile
from lagom.timeline.config_times import PatternCut, PatternTimes, cut_patterns, measure_patterns, select_iterations
from lagom.timeline.ring_records import Recorded, find_trace_samples, has_records, load_records, load_trace_sample
from lagom.timeline.slowdowns import NOTEWORTHY

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class OverlapChange:
    """The same iteration under stock and as tuned. Stock kernels that never run alone are compared with the tuned run,
    where that presses less."""

    communicator: int
    before: Profile
    after: Profile

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """(what, before, after) in words."""
        both = (self.before, self.after)
        columns = [
            ("iteration (Z max)", [format_time(one.z_max) for one in both]),
            ("communication busy (X)", [format_time(one.x) for one in both]),
            ("compute busy (Y)", [format_time(one.y) for one in both]),
            ("communication hidden", [format_percent(one.overlap_ratio) for one in both]),
            ("communication exposed", [format_time(one.exposed) for one in both]),
            ("contention overhead, of compute", [_overhead(one) for one in both]),
            ("iterations seen", [str(one.steps) for one in both]),
        ]
        return [(name, old, new) for name, (old, new) in columns]

    def figures(self) -> list[tuple[str, Figure]]:
        """The two-stream timeline of a typical iteration, before and after."""
        from lagom.report import timeline_figure

        return [
            (name, timeline_figure.draw_timeline(one)) for name, one in (("stock", self.before), ("tuned", self.after))
        ]


def read_overlap(run: RunState, folder: Path) -> tuple[OverlapChange | None, str]:
    """Before and after from the raw records in ``folder``; or None and why not (empty: there are no records)."""
    if not has_records(folder):
        return None, ""
    if not has_records(folder, since=run.start.t if run.start is not None else 0.0):
        return None, "the raw records beside this log are of an earlier job than its newest one."
    search = _only_tuned(run)
    if search is None or search.outcome is None:
        return None, "not exactly one communicator was tuned, so its kernels have no before and after."
    chosen = [config.config() for config in search.chosen]
    try:
        tables, calls = load_records(folder)
        before, after = select_iterations(tables, calls, ()), select_iterations(tables, calls, chosen)
        if not before or not after:
            return (
                None,
                "the raw records hold too few iterations under plain NCCL or under the tuned configs to compare.",
            )
        return OverlapChange(search.index, timeline.profile(before, after), timeline.profile(after)), ""
    except LagomError as error:
        return None, str(error)


def _only_tuned(run: RunState) -> CommState | None:
    tuned = [search for search in run.searched if any(change.changed for change in search.changes())]
    return tuned[0] if len(tuned) == 1 else None


def _overhead(profile: Profile) -> str:
    if profile.coverage.tier != "timeline":
        return "not seen"
    share = format_percent(profile.overhead.share)
    if not profile.overhead.is_lower_bound:
        return share
    never = profile.overhead.unmatched
    blind = f" ({format_percent(never, 0)} of compute never runs alone)" if never > NOTEWORTHY else ""
    return f"at least {share}{blind}"


#: Iterations of a config at least: two to have a median of something, and find_steps wants a period.
_LEAST = 2
_LEAST_OF_STOCK = 4


@dataclass(frozen=True, slots=True)
class Patterns:
    """One column a config that was kept, in order: its move, and the patterns' times under it. The first is stock."""

    names: tuple[str, ...]
    numbers: tuple[int, ...]
    labels: tuple[str, ...]
    times: tuple[PatternTimes, ...]

    @property
    def heaviest(self) -> list[int]:
        """The patterns by their length under stock, longest first."""
        return sorted(range(len(self.names)), key=lambda pattern: -self.times[0].z[pattern])


@dataclass(frozen=True, slots=True)
class Kernels:
    """What the trace samples of one search show; ``remark`` says what they do not."""

    overlap: OverlapChange | None = None
    patterns: Patterns | None = None
    remark: str = ""


def read_kernels(search: CommState, folder: Path) -> Kernels:
    """From the files of a search in the log folder; empty where it left none."""
    files = find_trace_samples(folder, search.index)
    samples = [_TraceSample(move, files[move.number]) for move in search.moves if move.number in files]
    stock = next((sample for sample in samples if sample.move is search.baseline), None)
    if stock is None:
        return Kernels()
    try:
        seen = stock.iterations(_LEAST_OF_STOCK)
        if not seen:
            return Kernels(remark="the kernels kept of plain NCCL are too few iterations to compare with.")
        cut = cut_patterns(timeline.profile(seen), stock.calls)
        patterns = None if cut is None else _patterns(samples, stock, cut)
        return Kernels(_overlap(search, samples, seen), patterns)
    except LagomError as error:
        return Kernels(remark=str(error))


@dataclass(frozen=True)
class _TraceSample:
    """The kernels that were kept of one move; read when they are asked for."""

    move: Move
    path: Path

    @cached_property
    def recorded(self) -> Recorded:
        return load_trace_sample(self.path)

    @property
    def calls(self) -> np.ndarray:
        tables, calls = self.recorded
        (records,) = calls[tables[0].rank].values()
        return records

    @property
    def wanted(self) -> tuple[CommConfig, ...]:
        """The config of every site under the move's candidate."""
        return tuple(record.config() for record in self.move.candidate)

    def iterations(self, least: int) -> list[timeline.KernelTable]:
        """Those under the candidate, of every rank; empty if there are fewer."""
        return select_iterations(*self.recorded, self.wanted, least)


def _overlap(
    search: CommState, samples: Sequence[_TraceSample], stock: Sequence[timeline.KernelTable]
) -> OverlapChange | None:
    """Before and after: after, the latest trace sample of what the search ended on. Stock kernels that never run alone
    are compared with the tuned ones, where those are pressed less."""
    if search.outcome is None or search.outcome.verdict != "improved":
        return None
    for sample in reversed(samples):
        if sample.move.candidate == search.chosen and (tuned := sample.iterations(_LEAST + 1)):
            return OverlapChange(search.index, timeline.profile(stock, tuned), timeline.profile(tuned))
    return None


def _patterns(samples: Sequence[_TraceSample], stock: _TraceSample, cut: PatternCut) -> Patterns | None:
    """Under stock, and under each candidate that the search went on from: faster, or as fast with fewer resources."""
    columns: list[tuple[int, PatternTimes]] = []
    for sample in samples:
        if sample is stock or sample.move.kept:
            times = measure_patterns(sample.recorded[0][0], sample.calls, sample.wanted, cut)
            if times is not None and times.iterations >= _LEAST:
                columns.append((sample.move.number, times))
    numbers = tuple(number for number, _ in columns)
    if numbers[:1] != (stock.move.number,):
        return None
    labels = ("plain NCCL", *(f"#{number}" for number in numbers[1:]))
    return Patterns(cut.names, numbers, labels, tuple(times for _, times in columns))
