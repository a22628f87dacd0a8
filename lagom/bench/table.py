"""The results for people: one table, and under it what it can and cannot show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Table

from lagom.bench.log_extract import Search
from lagom.bench.results import OWN_STOCK, TUNING, Ratio, Result
from lagom.bench.store import BenchRecord

UNITS = {"calls": (1e3, "ms a call"), "wall": (1.0, "s a process"), "metric": (1.0, "")}
IN_JOB_UNIT = (1e-6, "ms")


def table_of(results: Sequence[Result]) -> Table:
    """Arm, speed-up, interval, pairs, smallest effect seen, iteration, how it was paired and measured."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("arm", overflow="fold")
    for name in ("speed-up", "95 % interval", "pairs", "detectable", "an iteration"):
        table.add_column(name, justify="right")
    table.add_column("compared", min_width=22)
    for result in results:
        style = "dim" if result.arm in ("stock", OWN_STOCK) else ""
        table.add_row(result.arm, *cells(result), style=style)
    return table


def cells(result: Result) -> tuple[str, ...]:
    """A row without its name."""
    how = ", ".join(filter(None, (result.pairing, _by(result.measured_by))))
    if result.ratio is None:
        return "-", "-", "-", "-", "-", how
    ratio = result.ratio
    seen = f"{ratio.resolvable:.1%}" if ratio.has_interval else "-"
    return f"{ratio.value:.3f}x", interval(ratio), str(ratio.pairs), seen, typical(result), how


def interval(ratio: Ratio) -> str:
    """``1.137 to 1.151``, or that there is none."""
    return f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio.has_interval else "too few pairs"


def typical(result: Result) -> str:
    """An iteration under the arm, in its unit."""
    if result.typical is None:
        return "-"
    factor, unit = UNITS.get(result.measured_by, IN_JOB_UNIT)
    return f"{result.typical * factor:.4g} {unit}".strip()


def remarks(record: BenchRecord, results: Sequence[Result]) -> Iterator[str]:
    """What a reader must know beside the table."""
    for result in results:
        if result.note and result.arm not in ("stock", OWN_STOCK):
            yield f"{result.arm}: {result.note}."
        if result.search is not None:
            yield f"{result.arm}: {search_text(result.search)}."
    yield from dict.fromkeys(_missing(record))
    for note in dict.fromkeys(note for run in record.runs for note in run.notes):
        yield note if note.endswith(".") else f"{note}."
    failed = [run for run in record.runs if run.failed]
    for run in failed:
        what, why = f"{run.kind} {run.arm}".strip(), "; ".join(filter(None, (run.last_line, run.reason)))
        yield f"a process of '{what}' ended with {run.exit} after {run.seconds:.0f} s ({run.ended}): {why}."
    if any(result.measured_by in UNITS for result in results):
        yield "Arms in processes of their own include the variation between processes, larger than within one job."


def _missing(record: BenchRecord) -> Iterator[str]:
    """Why an arm is not in the table, of those that did not fail. A search has its line there in any case."""
    measured = {(run.kind, run.arm) for run in record.runs if not (run.gave_nothing or run.failed)}
    for run in record.runs:
        if run.reason and not run.failed and run.kind != TUNING and (run.kind, run.arm) not in measured:
            yield f"{run.arm or 'the comparison within one job'}: nothing could be measured: {run.reason}."


def search_text(search: Search) -> str:
    """What finding it took."""
    gain = "" if search.speedup is None else f", its own final A/B {search.speedup:.3f}x"
    if search.speedup is not None and search.low is not None and search.high is not None:
        gain += f" [{search.low:.3f}, {search.high:.3f}]"
    cost = f"{search.configs} configs, {search.iterations} iterations, {search.lost:.1f} lost"
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
    return {
        "arm": result.arm,
        "pairing": result.pairing,
        "measured_by": result.measured_by,
        "speedup": None if ratio is None else ratio.value,
        "low": None if ratio is None or not ratio.has_interval else ratio.low,
        "high": None if ratio is None or not ratio.has_interval else ratio.high,
        "pairs": 0 if ratio is None else ratio.pairs,
        "resolvable": None if ratio is None or not ratio.has_interval else ratio.resolvable,
        "iteration": result.typical,
        "note": result.note,
        "search": None
        if result.search is None
        else {name: getattr(result.search, name) for name in result.search.__slots__},
    }


def _by(measure: str) -> str:
    words = {
        "calls": "the plugin's call counts",
        "wall": "wall time of the job's command",
        "metric": "the job's own metric",
    }
    return words.get(measure, f"by {measure}" if measure else "")
