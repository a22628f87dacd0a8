# SPDX-License-Identifier: Apache-2.0
"""The results for people: one row per group of start settings, fastest first."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lagom.experiment.estimate import BY_MEANS
from lagom.experiment.request import MEASURES
from lagom.format import SIMULATED
from lagom.start import StartGroup
from lagom.tune.compare import DecidingRuns, deciding_runs
from lagom.tune.live_search import describe_live, found_by
from lagom.tune.screening import broken_settings, screened
from lagom.tune.stages import PLAIN, Tried, TunePlan, TuneRecord
from lagom.tune.trials import entrants
from lagom.tune.tune_result import TuneResult, tried_of


def print_result(plan: TunePlan, record: TuneRecord, result: TuneResult, console: Console) -> None:
    """The verdict, then the table that it comes from."""
    if any(run.simulated for run in record.runs):
        console.print(SIMULATED, style="yellow", highlight=False, soft_wrap=True)
    console.print(f"{result.text}.", style="bold", highlight=False, soft_wrap=True)
    tried = tried_of(record.runs, record.higher_is_better)
    console.print(table_of(plan, tried, measured_by(record)))
    nodes = (f"nodes: {', '.join(record.nodes)}.",) if record.nodes else ()
    live = found_by(record.runs)
    found = () if live is None else (f"{describe_live(live)}.",)
    for line in (f"{BY_MEANS}.", *nodes, *screened_lines(plan, tried), *found):
        console.print(line, highlight=False, soft_wrap=True)


def screened_lines(plan: TunePlan, tried: list[Tried]) -> Iterator[str]:
    """What the design says of the other variables."""
    if not plan.factors:
        return
    found = screened(plan, tried)
    names = ", ".join(name for name, _ in plan.factors)
    if not math.isfinite(found.detectable):
        yield f"Not screened yet: {names}."
        return
    yield f"Screened together: {names}; smallest detectable effect {found.detectable:.1%}."
    for effect in found.effects:
        what = " with ".join(f"{one.name}={one.value}" for one in effect.factors)
        yield f"  {what}: time {math.expm1(effect.log):+.1%}, standard error {effect.error:.1%}"
    for factor in sorted(broken_settings(plan, tried)):
        yield f"  {factor.name}={factor.value}: processes that had it gave no time; it was left out"


def measured_by(record: TuneRecord) -> str:
    """What an iteration's time was taken from."""
    return ", ".join(dict.fromkeys(MEASURES[run.measure] for run in record.runs if run.measure))


def table_of(plan: TunePlan, tried: list[Tried], measured: str) -> Table:
    """Group, the processes that decide about it, their mean, and the speed-up over plain NCCL of the same stage with
    its interval. Stage and variables are below the group's name, so that the table fits 60 columns."""
    title = f"by {measured}, each group by its last stage" if measured else "no process was measured"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, title=title, title_justify="left")
    table.add_column("start settings", overflow="fold")
    for name in ("runs", "mean"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("speed-up [95 %]", justify="right", no_wrap=True)
    groups = {group.name: group for group in (PLAIN, *plan.groups, *entrants(plan, tried, "confirm"))}
    decide = {name: deciding_runs(tried, group) for name, group in groups.items()}
    for group in sorted(groups.values(), key=lambda group: _share_of_plain(decide[group.name])):
        runs = decide[group.name]
        below = [f"runs of {runs.stage}"] if runs.stage else []
        settings = Text("\n".join(("", *below, *group.text.split())), "dim")
        table.add_row(Text(group.name) + settings, *_cells(tried, group, runs))
    return table


def _share_of_plain(runs: DecidingRuns) -> float:
    """Of plain NCCL's time in the same stage: the machine may have changed between stages."""
    return statistics.fmean(runs.own) / statistics.fmean(runs.plain) if runs.own and runs.plain else math.inf


def _cells(tried: list[Tried], group: StartGroup, runs: DecidingRuns) -> tuple[str, ...]:
    if not runs.own:
        count = sum(one.group == group.name for one in tried)
        return (f"{count}, none usable" if count else "0", "-", "-")
    speedup = None if group.name == PLAIN.name else runs.speedup
    return str(len(runs.own)), f"{statistics.fmean(runs.own):.4g}", "-" if speedup is None else speedup.text
