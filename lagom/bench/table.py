# SPDX-License-Identifier: Apache-2.0
"""The results for people: the verdict, one table, and under it what it can and cannot show."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lagom.bench.results import OWN_STOCK, TUNING, BenchRecord, Result
from lagom.bench.schedule import LEAST_PAIRS
from lagom.experiment.estimate import BY_PAIRS
from lagom.experiment.log_extract import gain_text
from lagom.experiment.request import MEASURES
from lagom.format import UNKNOWN, format_count, format_interval, format_percent, format_speedup, format_time
from lagom.journal import Outcome

STOCK = ("stock", OWN_STOCK)
#: From this width on the results are a table, else a paragraph an arm.
WIDE = 78


def show(record: BenchRecord, results: Sequence[Result], path: Path, console: Console) -> None:
    """All of it, within the width of the console; only the path may be longer, to be copied whole."""
    _put(console, verdict(results), style="bold")
    if console.width >= WIDE and results:
        console.print(table_of(results))
    else:
        for line in paragraphs(results):
            _put(console, line)
        console.print()
    estimator = [f"{BY_PAIRS}."] if results else []
    for line in (*estimator, *comparisons(results), *remarks(record, results)):
        _put(console, f"- {line}")
    console.print(f"raw samples: {path}", markup=False, highlight=False, soft_wrap=True)


def _put(console: Console, line: str, style: str = "") -> None:
    hanging = "  " if line.startswith(("- ", "  ")) else ""
    wrapped = textwrap.fill(
        line, console.width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
    console.print(Text(wrapped, style), highlight=False, soft_wrap=True)


def verdict(results: Sequence[Result]) -> str:
    """Which arm is fastest and by how much, or that none is faster than stock."""
    compared = {result.arm: result.ratio for result in results if result.ratio is not None}
    if not compared:
        return "Nothing could be measured."
    arms = sorted(compared.keys() - set(STOCK))
    if not arms:
        return "No arm could be compared with stock."
    known = [arm for arm in arms if compared[arm].has_interval]
    if not known:
        return f"Too few pairs to compare any arm with stock: {LEAST_PAIRS} are needed. Use more --cycles or --rounds."
    faster = [arm for arm in known if compared[arm].low > 1.0]
    if not faster:
        return "No arm is faster than stock: no 95 % interval is above 1."
    fastest = max(faster, key=lambda arm: compared[arm].value)
    best = compared[fastest]
    return f"Fastest: {fastest}, {format_speedup(best.value, best.low, best.high)}."


def table_of(results: Sequence[Result]) -> Table:
    """Arm, speed-up, interval, pairs, smallest detectable effect, what was measured."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("arm", overflow="fold")
    for name in ("speed-up", "95 % interval", "pairs", "detectable", "median"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        table.add_row(result.arm, *cells(result), style="dim" if result.arm in STOCK else "")
    return table


def paragraphs(results: Sequence[Result]) -> Iterator[str]:
    """The same for a narrow terminal."""
    for result in results:
        yield ""
        if result.ratio is None:
            yield f"{result.arm}: not compared"
            continue
        speedup, range_, pairs, detectable, median = cells(result)
        yield f"{result.arm}: {speedup} {range_}"
        seen = f", smallest detectable effect {detectable}" if result.ratio.has_interval else ""
        yield f"  {format_count(int(pairs), 'pair')}{seen}, median {median}"


def comparisons(results: Sequence[Result]) -> Iterator[str]:
    """How the arms were compared, and what the median is of: one line for all that have both in common."""
    arms: dict[str, list[str]] = {}
    for result in results:
        by = MEASURES.get(result.measured_by, f"by {result.measured_by}" if result.measured_by else "")
        if how := ", ".join(filter(None, (result.pairing, by))):
            arms.setdefault(how, []).append(result.arm)
    for how, names in arms.items():
        yield f"{', '.join(names)}: {how}."


def cells(result: Result) -> tuple[str, ...]:
    """A row without its name."""
    if result.ratio is None:
        return (UNKNOWN,) * 5
    ratio = result.ratio
    interval, seen = "too few pairs", UNKNOWN
    if ratio.has_interval:
        interval, seen = format_interval(ratio.low, ratio.high), format_percent(ratio.detectable)
    return f"{ratio.value:.3f}x", interval, str(ratio.pairs), seen, typical(result)


def typical(result: Result) -> str:
    """The median of an iteration, call or process under the arm, with its unit; the job's own metric has none."""
    if result.typical is None:
        return UNKNOWN
    if result.measured_by == "metric":
        return f"{result.typical:.4g}"
    return format_time(result.typical * (1e9 if result.measured_by in ("calls", "wall") else 1.0))


def remarks(record: BenchRecord, results: Sequence[Result]) -> Iterator[str]:
    """What a reader must know beside the table."""
    for result in results:
        if result.note and result.arm not in STOCK:
            yield f"{result.arm}: {result.note}."
        if result.search is not None:
            yield f"{result.arm}: {search_text(result.search)}."
    yield from dict.fromkeys(_without_figures(record))
    for note in dict.fromkeys(note for run in record.runs for note in run.notes):
        yield note if note.endswith(".") else f"{note}."
    if any(result.measured_by in MEASURES for result in results):
        yield "Arms in processes of their own include the variation between processes, larger than within one job."


def _without_figures(record: BenchRecord) -> Iterator[str]:
    """Processes that failed, and why an arm is not in the table. A search has its line there in any case."""
    measured = {(run.kind, run.arm) for run in record.runs if not (run.gave_nothing or run.failed)}
    for run in record.runs:
        if run.failed:
            what, why = f"{run.kind} {run.arm}".strip(), "; ".join(filter(None, (run.last_line, run.reason)))
            yield f"a process of '{what}' ended with {run.exit} after {run.seconds:.0f} s ({run.ended}): {why}."
        elif run.reason and run.kind != TUNING and (run.kind, run.arm) not in measured:
            yield f"{run.arm or 'the comparison within one job'}: nothing could be measured: {run.reason}."


def search_text(search: Outcome) -> str:
    """What finding it took."""
    gain = "" if search.speedup is None else f", its own final A/B {gain_text(search)}"
    cost = f"{search.configs} configs, {search.iterations} iterations, {search.regret_iterations:.1f} lost"
    return f"search: {search.verdict.replace('_', ' ')}{gain} ({cost})"


def as_json(record: BenchRecord, results: Sequence[Result]) -> dict[str, Any]:
    """The results without the raw samples, for ``--json``."""
    return {
        "command": record.command,
        "results": [_json_of(result) for result in results],
        "remarks": list(remarks(record, results)),
    }


def _json_of(result: Result) -> dict[str, Any]:
    ratio = result.ratio
    shown = ratio if ratio is not None and ratio.has_interval else None
    return {
        "arm": result.arm,
        "pairing": result.pairing,
        "measured_by": result.measured_by,
        "speedup": None if ratio is None else ratio.value,
        "low": None if shown is None else shown.low,
        "high": None if shown is None else shown.high,
        "pairs": 0 if ratio is None else ratio.pairs,
        "resolvable": None if shown is None else shown.detectable,
        "iteration": result.typical,
        "note": result.note,
        "search": None if result.search is None else _search_json(result.search),
    }


def _search_json(search: Outcome) -> dict[str, Any]:
    same = search.model_dump(include={"verdict", "speedup", "configs", "iterations", "reason"})
    return {**same, "low": search.speedup_low, "high": search.speedup_high, "lost": search.regret_iterations}
