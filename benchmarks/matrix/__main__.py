# SPDX-License-Identifier: Apache-2.0
"""Run every row of the GPU matrix, in order of value, until all are measured or the time is over.

    python -m benchmarks.matrix --gpus 8 --out results.json --nccl-230 libnccl.so.2 --budget 570
    python -m benchmarks.matrix --list                     # the rows, their questions and durations
    python -m benchmarks.matrix --rehearse gloo --gpus 2 --out /tmp/r.json      # the same jobs, tiny, without GPUs

Rows that the file of ``--out`` (or ``--resume``) already has are not measured again; an incomplete row continues.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.matrix import compared, foreign_jobs, numerics, passthrough, replay_check, sweep
from benchmarks.matrix.place import Place
from benchmarks.matrix.results_file import OtherSetup, Results
from benchmarks.matrix.rows import QUICK, Row, rows
from lagom.experiment.process import leave_in_order

KINDS: dict[str, Callable[[Row, Place, dict[str, Any], float], dict[str, Any]]] = {
    "bench": compared.run,
    "replay_check": replay_check.run,
    "numerics": numerics.run,
    "sweep": sweep.run,
    "foreign_jobs": foreign_jobs.run,
    "passthrough": passthrough.run,
}
#: A row is not begun with less than this; nor with less than so much of what it is said to take.
LEAST_SECONDS, LEAST_SHARE = 100.0, 0.4


def chosen(arguments: argparse.Namespace) -> list[Row]:
    """The rows asked for, in order; raises SystemExit for a name that there is none of."""
    every = {row.name: row for row in rows()}
    names = list(QUICK) if arguments.quick else [n for n in arguments.rows.split(",") if n] or list(every)
    if unknown := [name for name in names if name not in every]:
        raise SystemExit(f"unknown row {', '.join(unknown)}; see --list")
    return [every[name] for name in names]


def listed(wanted: list[Row], place: Place) -> str:
    """The rows as text."""
    lines = []
    for row in wanted:
        why_not = place.why_not(row)
        lines.append(f"{row.name:32} {row.seconds:5.0f} s  {row.regime_text}, NCCL {row.nccl}: {row.asks}")
        if row.arms:
            lines.append(f"{'':32}          arms: stock, {', '.join(row.arms)}")
        if why_not:
            lines.append(f"{'':32}          not here: {why_not}")
    total = sum(row.seconds for row in wanted)
    return "\n".join([*lines, f"{len(wanted)} rows, about {total / 60:.0f} minutes on 8 GPUs"])


def run_rows(wanted: list[Row], place: Place, results: Results, budget: float | None) -> None:
    """One after the other, as long as there is time."""
    began = time.monotonic()
    for row in wanted:
        time_left = None if budget is None else budget - (time.monotonic() - began)
        if results.is_done(row):
            print(f"{row.name}: already measured", flush=True)
        elif why_not := place.why_not(row):
            print(f"{row.name}: {why_not}", flush=True)
        elif time_left is not None and time_left < max(LEAST_SECONDS, LEAST_SHARE * _seconds(row, place)):
            print(f"{row.name}: {time_left:.0f} s left, not enough for this row", flush=True)
        else:
            _run_row(row, place, results, time_left)
    results.write()


def _seconds(row: Row, place: Place) -> float:
    """What a row has to have at once. Those that go on arm by arm or process by process take any time there is."""
    at_once = row.kind in ("bench", "sweep") and not row.spread
    return row.seconds if at_once and not place.rehearse else 0.0


def _run_row(row: Row, place: Place, results: Results, time_left: float | None) -> None:
    print(f"{row.name}: {row.asks}", flush=True)
    clock = time.monotonic()
    budget = time_left if time_left is not None else 2.0 * row.seconds + LEAST_SECONDS
    try:
        place.prepare(row)
        found = KINDS[row.kind](row, place, results.of(row), budget)
    except Exception as error:  # noqa: BLE001  # one row must not cost the others their time
        found = {**results.of(row), "complete": False, "error": f"{type(error).__name__}: {error}"}
        print(f"  {row.name}: {found['error']}", flush=True)
    results.put(row, found, time.monotonic() - clock)
    state = "done" if found.get("complete") else "not complete"
    print(f"{row.name}: {state} after {time.monotonic() - clock:.0f} s", flush=True)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("matrix.json"), help="all raw samples")
    parser.add_argument("--resume", type=Path, help="continue from this file instead of --out")
    parser.add_argument("--nccl-230", help="libnccl.so.2 of release 2.30.3 or later, to preload")
    parser.add_argument("--budget", type=float, help="time limit in seconds; the results so far are kept")
    parser.add_argument("--rows", default="", help="only these rows, in this order, separated by commas")
    parser.add_argument("--quick", action="store_true", help="only the most informative rows, about ten minutes")
    parser.add_argument("--list", action="store_true", help="list the rows and run nothing")
    parser.add_argument(
        "--rehearse",
        choices=("gloo", "virtual"),
        default="",
        help="small jobs without GPUs",
    )
    parser.add_argument("--python", default=sys.executable, help="Python interpreter of the jobs, which has torch")
    parser.add_argument("--work", type=Path, help="folder for logs; default: a temporary one")
    return parser.parse_args()


def opened(arguments: argparse.Namespace, place: Place) -> Results:
    """The file of results, to go on with; raises SystemExit where that would mix what does not belong together."""
    if arguments.nccl_230 and not place.rehearse and not Path(arguments.nccl_230).is_file():
        raise SystemExit(f"--nccl-230: there is no file {arguments.nccl_230}")
    try:
        return Results(arguments.out, arguments.resume, place, sys.argv[1:])
    except OtherSetup as error:
        raise SystemExit(str(error)) from None


def main() -> None:
    arguments = options()
    leave_in_order()
    with tempfile.TemporaryDirectory(prefix="matrix_") as scratch:
        folder = (arguments.work or Path(scratch)).absolute()
        place = Place(arguments.gpus, folder, arguments.nccl_230, arguments.python, arguments.rehearse)
        wanted = chosen(arguments)
        if arguments.list:
            print(listed(wanted, place))
            return
        results = opened(arguments, place)
        run_rows(wanted, place, results, arguments.budget)
        print(f"{sum(map(results.is_done, wanted))} of {len(wanted)} rows complete in {arguments.out}")


if __name__ == "__main__":
    main()
