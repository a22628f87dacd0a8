# SPDX-License-Identifier: Apache-2.0
"""What a decision costs inside NCCL: ``python -m benchmarks.decision_latency [--json FILE] [--plugin SO]``.

Builds ``decision_latency.c`` with the compiler that builds the plugin, runs it against the installed library, prints a
table, and ends with 1 if a target is missed. Targets (nanoseconds a call): a program of 512 positions with calls
recorded, median 50 and p99 250; mode off 10; no allocation and no system call after init.

Two views of one thing: ``median`` and the tail time each call by itself, fenced, with the processor's counter (whose
step, e.g. 10 ns, is printed); ``typical`` is the median over batches of calls back to back.
"""

from __future__ import annotations

import argparse
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.native import PLUGIN, run
from tests.evidence import circumstances, save


@dataclass(frozen=True, slots=True)
class DecisionTimes:
    """One scenario. Nanoseconds a call; ``system_calls`` is ``none``, ``made``, or why it was not checked."""

    scenario: str
    api: int
    median_ns: float
    p99_ns: float
    p999_ns: float
    batch_ns: float
    step_ns: float
    allocations: int
    samples: int
    system_calls: str


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """What is asked of a scenario; ``None`` = no limit."""

    scenario: str
    median_ns: float
    p99_ns: float | None


TARGETS = (LatencyTarget("mode off", 10.0, None), LatencyTarget("program, calls recorded", 50.0, 250.0))


def measure(plugin: Path, share: int = 1) -> list[DecisionTimes]:
    """Runs every scenario (about 10 s) with a ``share``-th of the samples; raises ``CalledProcessError`` if the plugin
    does not do as it should."""
    lines = run("decision_latency", plugin, str(share))
    verdicts = {(line["scenario"], line["api"]): line["system_calls"] for line in lines if "system_calls" in line}
    timed = [line for line in lines if "median_ns" in line]
    verdicts["getChunkSize", 6] = verdicts["program, calls recorded", 6]  # asked after every call there
    return [DecisionTimes(**line, system_calls=verdicts[line["scenario"], line["api"]]) for line in timed]


def typical(row: DecisionTimes) -> float:
    """The figure a target is held against: the batch where there is one, since the counter's step may be coarse."""
    return row.batch_ns or row.median_ns


def missed(rows: list[DecisionTimes], slack: float = 1.0) -> list[str]:
    """One sentence for each target that is missed by more than ``slack`` times; times only, plus the two absolutes."""
    wrong = [f"{row.scenario} (v{row.api}) allocates {row.allocations} times" for row in rows if row.allocations]
    wrong += [f"{row.scenario} (v{row.api}) makes system calls" for row in rows if row.system_calls == "made"]
    for target in TARGETS:
        for row in (row for row in rows if row.scenario == target.scenario):
            name = f"{row.scenario} (v{row.api})"
            if typical(row) > slack * target.median_ns:
                wrong.append(f"{name} takes {typical(row):.1f} ns, more than {slack * target.median_ns:.0f}")
            if target.p99_ns is not None and row.p99_ns > slack * target.p99_ns:
                wrong.append(f"{name} takes {row.p99_ns:.1f} ns at the 99th percentile")
    return wrong


def table(rows: list[DecisionTimes]) -> str:
    """The rows for people."""
    names = f"{'scenario':<29} {'API':>3} {'typical':>8} {'median':>7} {'p99':>6} {'p99.9':>6}"
    lines = [
        f"{row.scenario:<29} {'v' + str(row.api):>3} {typical(row):>8.1f} {row.median_ns:>7.1f} {row.p99_ns:>6.1f} "
        f"{row.p999_ns:>6.1f}  {row.allocations:>11}  {row.system_calls}"
        for row in rows
    ]
    foot = f"nanoseconds a call; the processor's counter steps by {rows[0].step_ns:.0f} ns; {platform.machine()}"
    return "\n".join([f"{names}  allocations  system calls", *lines, foot])


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0, or 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decision_latency", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows here")
    parser.add_argument("--plugin", type=Path, default=PLUGIN, help="library to measure")
    wanted = parser.parse_args(arguments)
    rows = measure(wanted.plugin)
    print(table(rows))
    if wanted.json is not None:
        head = circumstances("every decision timed alone, and in batches back to back")
        save(wanted.json, {**head, "rows": [asdict(row) for row in rows]})
    failures = missed(rows)
    for failure in failures:
        print(f"missed: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
