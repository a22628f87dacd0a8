"""What a search did to the kernels, from the trace samples it left beside its log: the overlap before and after, and
each overlap pattern's X, Y and Z under every config that it kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lagom import timeline
from lagom.errors import LagomError
from lagom.journal import CommState
from lagom.records import CommConfig
from lagom.report.tuning_overlap import OverlapChange
from lagom.timeline.config_times import PatternCut, PatternTimes, cut_patterns, measure_patterns, select_iterations
from lagom.timeline.ring_records import Recorded, find_trace_samples, load_trace_sample

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


def kernels(search: CommState, folder: Path) -> Kernels:
    """From the files of a search in the log folder; empty where it left none."""
    files = find_trace_samples(folder, search.index)
    base = search.baseline
    if base is None or base.number not in files:
        return Kernels()
    try:
        stock = load_trace_sample(files[base.number])
        seen = select_iterations(*stock, (), _LEAST_OF_STOCK)
        if not seen:
            return Kernels(remark="the kernels kept of stock are too few iterations to compare with.")
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
    labels = tuple("stock" if number == base.number else f"#{number}" for number, _ in columns)
    return Patterns(cut.names, tuple(number for number, _ in columns), labels, tuple(times for _, times in columns))


def _went_on(search: CommState, number: int) -> bool:
    """Whether the search went on from that candidate: faster, or as fast with fewer resources."""
    move = next(move for move in search.moves if move.number == number)
    return move.verdict == "better" or ": kept" in move.reason or ": taken" in move.reason
