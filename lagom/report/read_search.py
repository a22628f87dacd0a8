# SPDX-License-Identifier: Apache-2.0
"""``lagom.read_run`` of a folder of raw samples: a search over start settings by ``lagom tune``, or a comparison by
``lagom bench``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lagom.bench.results import BenchRecord, Result, results_of
from lagom.bench.table import verdict
from lagom.errors import LagomError
from lagom.experiment.store import OtherSchedule, read_record
from lagom.format import format_count, format_speedup, format_variables
from lagom.tune import TunePlan, TuneRecord, TuneResult, find_result
from lagom.tune.tune_result import Verdict, tried_of

#: Groups of a search in its repr, which has three lines more.
REPR_GROUPS = 9


@dataclass(frozen=True, slots=True, repr=False)
class StartSearch:
    """A search over start settings by ``lagom tune``; made by :func:`lagom.read_run`.

    Attributes
    ----------
    folder : Path
        The folder of its raw samples.
    verdict : str
        ``improved``: confirmed on fresh processes to be faster than plain NCCL. ``nothing_resolved``: the interval
        holds 1. ``plain_is_best``: no start setting is faster. ``unfinished``: processes are missing; the same command
        continues.
    settings : Mapping[str, str]
        The NCCL variables of the best group, which is worth starting with only where the verdict is ``improved``;
        empty where no group was ahead.
    speedup, speedup_low, speedup_high : float or None
        Mean iteration time of plain NCCL over that of the best group, and its 95 % interval, by the confirming
        processes alone; None where there are none.
    detectable : float or None
        The smallest effect, as a fraction, that the processes could have shown.
    processes : Mapping[str, tuple[float or None, ...]]
        By name of the group, in the order run, what each of its processes gave: the metric's number, or seconds (a NCCL
        call; the command). None: it failed, or nothing could be measured.
    nodes : tuple[str, ...]
        The nodes that have run the job, each with a launcher of its own; empty where one launcher started all ranks.
    plan, record, result : TunePlan, TuneRecord, TuneResult
        What was to be run, the raw samples of every process, and what they say.
    """

    folder: Path
    verdict: Verdict
    settings: Mapping[str, str]
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    detectable: float | None
    processes: Mapping[str, tuple[float | None, ...]]
    nodes: tuple[str, ...]
    plan: TunePlan
    record: TuneRecord
    result: TuneResult

    def __repr__(self) -> str:
        """A line on the search, one on the settings, one each on at most nine groups, the most measured first."""
        gain = "" if self.speedup is None else f", {format_speedup(self.speedup, self.speedup_low, self.speedup_high)}"
        nodes = f" on {format_count(len(self.nodes), 'node')}" if self.nodes else ""
        groups = sorted(self.processes.items(), key=lambda one: -len(one[1]))
        count = format_count(sum(len(values) for _, values in groups), "process", "processes")
        lines = [f"StartSearch({str(self.folder)!r}, {self.verdict}{gain}, {count}{nodes})"]
        lines += [f"  settings: {format_variables(self.settings)}"] if self.settings else []
        for name, values in groups[:REPR_GROUPS]:
            lines.append(f"  {name}: {', '.join('-' if value is None else f'{value:.4g}' for value in values)}")
        more = len(groups) - REPR_GROUPS
        return "\n".join([*lines, *([f"  and {format_count(more, 'group')} more"] if more > 0 else [])])


def read_search(file: Path) -> StartSearch | None:
    """The search of a file of raw samples; None where they are of ``lagom bench``. Raises
    :class:`lagom.errors.LagomError` where it cannot be read, is none of lagom's, or is of a node that did what another
    one's search said."""
    try:
        record = read_record(file, TuneRecord)
    except OtherSchedule:
        return None
    if record.aim is None:
        raise LagomError(
            f"{file} is of a node that did what the coordinator's search said, or of a search that ended before its "
            "first comparison; name the coordinator's folder, or continue with the same command."
        )
    plan = record.aim.plan
    found = find_result(plan, tried_of(record.runs, record.higher_is_better))
    settings = {} if found.group is None else dict(found.group.settings)
    gain: tuple[float | None, float | None, float | None] = (None, None, None)
    if found.speedup is not None:
        gain = found.speedup.value, found.speedup.low, found.speedup.high
    processes: dict[str, tuple[float | None, ...]] = {}
    for run in record.runs:
        if run.stage:
            processes[run.arm] = (*processes.get(run.arm, ()), run.counted)
    nodes = tuple(record.nodes)
    return StartSearch(
        file.parent, found.verdict, settings, *gain, found.detectable, processes, nodes, plan, record, found
    )


@dataclass(frozen=True, slots=True, repr=False)
class Benchmark:
    """A comparison of settings by ``lagom bench``; made by :func:`lagom.read_run`.

    Attributes
    ----------
    folder : Path
        The folder of its raw samples.
    results : tuple[Result, ...]
        One an arm, stock first: ``arm``; ``ratio``, the speed-up over stock with ``value``, ``low``, ``high`` (95 %
        interval) and ``pairs``, None where it could not be compared; ``note``.
    record : BenchRecord
        The raw samples of every process.
    """

    folder: Path
    results: tuple[Result, ...]
    record: BenchRecord

    def __repr__(self) -> str:
        """A line with what is fastest."""
        arms = format_count(len(self.results), "arm")
        return f"Benchmark({str(self.folder)!r}, {arms}): {verdict(self.results)}"


def read_benchmark(file: Path) -> Benchmark:
    """The comparison of a file of raw samples. Raises :class:`lagom.errors.LagomError` where it cannot be read, or is
    none of ``lagom bench``."""
    record = read_record(file, BenchRecord)
    return Benchmark(file.parent, tuple(results_of(record)), record)
