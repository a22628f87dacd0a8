# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks.figures``: the paper's figures from the simulator, and the page that compares them.

Reads sim_suite's JSON (``make bench`` writes it) and writes PNGs and ``sim_vs_paper_202611.md`` into
benchmarks/results. If the JSON is missing, the quick suite is run: its JSON and its page have ``_quick`` in their
names, so that neither is taken for the whole.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import sim_suite
from benchmarks.paper import draw
from benchmarks.paper.measured import measured
from benchmarks.paper.sim_vs_paper import report
from benchmarks.paper.simulated import everything

RESULTS = Path(__file__).parent / "results"
SUITE = RESULTS / "sim_suite_202611.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw everything; returns 0."""
    options = _options(arguments)
    suite = _suite(options.suite)
    data = everything()
    folder = options.out / "figures"
    made = [draw.figure_3(data["fig3"], folder), draw.figure_5(data["fig5"], folder)]
    if any(row["knobs"] == "fork" and row["workload"].startswith("fsdp") for row in suite["rows"]):
        made += draw.figure_7(suite["rows"], folder)
    else:
        print("no Fig. 7: the suite has no FSDP rows of the paper's fork (make bench runs them)", file=sys.stderr)
    made.append(draw.figure_8_patterns(data["fig8"], folder))
    made.append(draw.figure_8_convergence(data["fig8c"], suite["convergence"], folder))
    page = options.out / f"sim_vs_paper_202611{'_quick' if suite['meta']['quick'] else ''}.md"
    page.write_text(report(suite, data, measured(RESULTS)))
    for path in (*made, page):
        print(path)
    return 0


def _suite(path: Path) -> dict[str, Any]:
    """The JSON at ``path``; if there is none, that of the quick suite, which is never put there."""
    if not path.exists():
        quick = path.with_stem(path.stem + "_quick")
        print(f"{path} is not there: running the quick suite into {quick} (make bench runs the whole)", file=sys.stderr)
        sim_suite.main(["--quick", "--json", str(quick)])
        path = quick
    return json.loads(path.read_text())


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="figures", description=__doc__)
    parser.add_argument("--suite", type=Path, default=SUITE, metavar="FILE", help="sim_suite's JSON")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help="where PNGs and the page go")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
