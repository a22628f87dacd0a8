# SPDX-License-Identifier: Apache-2.0
"""The effect of tuning on the kernels, from the trace samples that a search writes to the log folder, or from raw
records: the overlap before and after; each overlap pattern's X, Y and Z under every config that the search kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lagom import timeline
from lagom.errors import LagomError
from lagom.format import format_percent, format_time
from lagom.journal import CommState, RunState
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
    chosen = [config.config() for config in search.outcome.configs_chosen]
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
    base = search.baseline
    if base is None or base.number not in files:
        return Kernels()
    try:
        stock = load_trace_sample(files[base.number])
        seen = select_iterations(*stock, (), _LEAST_OF_STOCK)
        if not seen:
            return Kernels(remark="the kernels kept of plain NCCL are too few iterations to compare with.")
        profile = timeline.profile(seen)
        cut = cut_patterns(profile, _calls(stock))
        patterns = None if cut is None else _patterns(search, files, stock, cut)
        return Kernels(_overlap(search, files, seen), patterns)
    except LagomError as error:
        return Kernels(remark=str(error))


def _calls(recorded: Recorded) -> np.ndarray:
    tables, calls = recorded
    (records,) = calls[tables[0].rank].values()
    return records


def _wanted(search: CommState, number: int) -> tuple[CommConfig, ...]:
    """The config of every site under the candidate of a move."""
    move = next(move for move in search.moves if move.number == number)
    return tuple(record.config() for record in move.candidate)


def _overlap(search: CommState, files: dict[int, Path], stock: Sequence[timeline.KernelTable]) -> OverlapChange | None:
    """Before and after: after, the latest trace sample of what the search ended on. Stock kernels that never run alone
    are compared with the tuned ones, where those are pressed less."""
    outcome = search.outcome
    if outcome is None or outcome.verdict != "improved":
        return None
    numbers = [move.number for move in search.moves if move.candidate == outcome.configs_chosen]
    for number in reversed([number for number in numbers if number in files]):
        tuned = select_iterations(*load_trace_sample(files[number]), _wanted(search, number), _LEAST + 1)
        if tuned:
            return OverlapChange(search.index, timeline.profile(stock, tuned), timeline.profile(tuned))
    return None


def _patterns(search: CommState, files: dict[int, Path], stock: Recorded, cut: PatternCut) -> Patterns | None:
    base = search.baseline
    assert base is not None
    columns: list[tuple[int, PatternTimes]] = []
    known = {move.number: move for move in search.moves}
    for number in (number for number in files if number in known):
        first = number == base.number
        recorded = stock if first else load_trace_sample(files[number])
        wanted = () if first else _wanted(search, number)
        times = measure_patterns(recorded[0][0], _calls(recorded), wanted, cut)
        if times is not None and times.iterations >= _LEAST and (first or _went_on(search, number)):
            columns.append((number, times))
    if not columns or columns[0][0] != base.number:
        return None
    labels = tuple("plain NCCL" if number == base.number else f"#{number}" for number, _ in columns)
    return Patterns(cut.names, tuple(number for number, _ in columns), labels, tuple(times for _, times in columns))


def _went_on(search: CommState, number: int) -> bool:
    """Whether the search went on from that candidate: faster, or as fast with fewer resources."""
    move = next(move for move in search.moves if move.number == number)
    return move.kept
