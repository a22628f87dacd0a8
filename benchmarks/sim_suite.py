# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks.sim_suite [--quick] [--json FILE]``: every strategy on every simulated landscape.

Noise-free times are cached per pattern and config, 2 % noise is put on top, and the session that runs is the one the
live controller runs. Two processes; a case (workload, preset, knob set) is one unit of work.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # two processes of small matrices: threads only get in the way

from benchmarks.suite.ablations import ablate, converge, convergence_cases
from benchmarks.suite.cases import Case, ablation_cases, all_cases, batches, quick_cases
from benchmarks.suite.runs import NOISE, Row, StrategyArm, row, run_arm, truth
from benchmarks.suite.targets import WORTH, targets
from tests.evidence import commit

T = TypeVar("T")
Result = dict[str, Any]
Points = dict[str, list[tuple[float, float]]]
"""For each strategy (speed-up over stock, Z over oracle) of every run."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case's rows and the points behind them."""

    case: Case
    rows: list[Row]
    points: Points


def run_batch(cases: list[Case], seeds: int) -> list[CaseResult]:
    """Several cases in one process."""
    return [run_case(case, seeds) for case in cases]


def run_case(case: Case, seeds: int) -> CaseResult:
    """Its strategies on one landscape: its rows, and each run's (speed-up over stock, Z over oracle)."""
    simulator = case.simulator()
    frame = truth(simulator)
    runs = {
        name: [run_arm(case, simulator, StrategyArm(name, name), seed) for seed in range(seeds)]
        for name in case.strategies
    }
    rows = [row(case, name, done, frame, runs["autoccl"]) for name, done in runs.items()]
    points = {name: [(frame.stock / r.z, r.z / frame.oracle) for r in done] for name, done in runs.items()}
    return CaseResult(case, rows, points)


def suite(quick: bool, seeds: int, processes: int) -> Result:
    """All of it: rows, ablations (half the seeds), convergence (a quarter: medians of counts need few), targets."""
    started = time.monotonic()
    work = batches(quick_cases() if quick else all_cases())
    ablated = ablation_cases()[: 1 if quick else None]
    patterns = convergence_cases(3 if quick else 16)
    with ProcessPoolExecutor(processes) as pool:
        say = partial(_progress, started)
        finished = _flat(say("batches", pool.map(partial(run_batch, seeds=seeds), work), len(work)))
        half, quarter = max(2, seeds // 2), max(2, seeds // 4)
        ablations = _flat(say("ablations", pool.map(partial(ablate, seeds=half), ablated), len(ablated)))
        convergence = _flat(say("convergence", pool.map(partial(converge, seeds=quarter), patterns), len(patterns)))
    rows = [row for case in finished for row in case.rows]
    return {
        "meta": {
            "commit": commit(),
            "noise": NOISE,
            "seeds": seeds,
            "processes": processes,
            "seconds": round(time.monotonic() - started, 1),
            "cpu_seconds": round(_cpu_of_workers(), 1),  # what a busy machine does not change
            "quick": quick,
        },
        "rows": rows,
        "ablations": ablations,
        "convergence": convergence,
        "targets": targets(rows, *_stock_points(finished), convergence),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite; returns 0 whatever the targets say (``--strict``: 1 if one is missed)."""
    options = _options(arguments)
    result = suite(options.quick, options.seeds or (4 if options.quick else 20), options.processes)
    _report(result, options.json)
    return int(options.strict and any(t["met"] is False for t in result["targets"]))


def _cpu_of_workers() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _flat(lists: Iterable[list[T]]) -> list[T]:
    return [item for items in lists for item in items]


def _stock_points(finished: list[CaseResult]) -> tuple[Points, Points]:
    """The runs that any stock NCCL could have made (headline figures come from nothing else): all of them, and those
    with something to find, since where stock is the best there is any cautious strategy looks good."""
    everywhere: Points = {}
    with_gain: Points = {}
    for case in finished:
        if not case.case.fork_only:
            worth = case.rows[0]["oracle_speedup"] >= WORTH
            for name, values in case.points.items():
                everywhere.setdefault(name, []).extend(values)
                with_gain.setdefault(name, []).extend(values if worth else [])
    return everywhere, with_gain


def _progress(started: float, what: str, items: Iterable[T], count: int) -> Iterator[T]:
    """The items as they come, with a line on stderr that counts them."""
    for number, item in enumerate(items, start=1):
        line = f"\r{what} {number}/{count}  {time.monotonic() - started:.0f} s "
        print(line, end="\n" if number == count else "", file=sys.stderr, flush=True)
        yield item


def _report(result: Result, path: Path | None) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
    columns = ("speedup_stock", "speedup_autoccl", "speedup_static", "oracle_ratio", "configs", "regret_iterations")
    print(f"{'workload':24}{'preset':13}{'knobs':12}{'strategy':11}" + "".join(f"{c[-15:]:>17}" for c in columns))
    for r in result["rows"]:
        head = f"{r['workload']:24}{r['preset']:13}{r['knobs']:12}{r['strategy']:11}"
        print(head + "".join(f"{r[c]:17.3f}" for c in columns))
    for target in result["targets"]:
        mark = {True: "met   ", False: "MISSED", None: "      "}[target["met"]]
        limit = "" if target["limit"] is None else f" (limit {target['limit']})"
        where = f" at {target['where']}" if target["met"] is False and "where" in target else ""
        print(f"{mark} {target['what']}: {target['value']}{limit}{where}")
    meta = result["meta"]
    print(f"{meta['seconds']} s ({meta['cpu_seconds']} s of CPU), {meta['seeds']} seeds, noise {meta['noise']:.0%}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sim_suite", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few cases and seeds, under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows, ablations, convergence and targets")
    parser.add_argument("--seeds", type=int, help="runs a strategy and case (default 20, quick 4)")
    parser.add_argument("--processes", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a target is missed")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
