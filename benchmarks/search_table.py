# SPDX-License-Identifier: Apache-2.0
"""What a search finds, how soon and at which cost, on landscapes that share no formula with ours (``second_family``).

    python -m benchmarks.search_table --strategy lagom guided --name today --out benchmarks/results/NAME.json
    python -m benchmarks.search_table --page benchmarks/results/NAME.json      # the table alone

Each seed is another landscape (``draw_mixed``). A run is made for each time limit and once without one, with X, Y and Z
measured and with Z alone. Time is simulated: an iteration costs what it takes on the landscape, so only iterations
count. Results of the same ``--name`` and strategy are replaced in the file, others are kept: before and after stand
side by side.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.second_family import BLOCKS, SecondJob, SecondLandscape, block_of, draw_mixed
from lagom.cost import FittedModel
from lagom.records import Assignment
from lagom.search import LIVE, Policy, SearchOutcome, TuningSession, make_strategy
from tests.evidence import circumstances

SEEDS = 96  # every kind with every noise in each block
WORTH, LARGE = 0.02, 0.05
MISSED = 0.1  # of what may be gained: less is missed entirely
FIRST = 1000  # iterations of a job whose mean is taken
LIMITS: dict[str, tuple[float, float] | None] = {
    "0.5 s a step, 40 s": (0.5, 40.0),
    "0.5 s a step, 120 s": (0.5, 120.0),
    "0.5 s a step, 600 s": (0.5, 600.0),
    "0.07 s a step, 5 s": (0.07, 5.0),
    "0.07 s a step, 40 s": (0.07, 40.0),
    "no limit": None,
}
SHORTEST = {"0.5 s a step, 20 s": (0.5, 20.0)}  # of search_atlas.py only
NO_LIMIT = "no limit"
USUAL = "0.5 s a step, 120 s"


@dataclass(frozen=True, slots=True)
class TableRun:
    """One run. ``possible``, ``gained`` and ``gained_in_time`` as fractions of Z, by the noise-free truth;
    ``gained_in_time`` is that of the config in force when the limit is reached. ``late``: iterations after the limit.
    ``covered``: whether the interval of the final A/B holds the truth, ``None`` without one. ``mean``: the gain by the
    mean of the job's first iterations, search included; ``None`` in older files."""

    strategy: str
    seen: str
    limit: str
    seed: int
    kind: str
    noise: float
    sites: int
    possible: float
    gained: float
    gained_in_time: float
    late: float
    lost: float
    configs: int
    windows: int
    iterations: float
    verdict: str
    covered: bool | None
    mean: float | None = None


class TimedJob(SecondJob):
    """Keeps what was in force when the limit was reached, and the noise-free times of the first iterations."""

    in_force: Assignment | None = None
    first_sum = 0.0

    def run_until(self, session: TuningSession, limit: float) -> None:
        self._limit, self._session = limit, session
        super().run_until(session, limit)

    def _iteration(self, assignment: Assignment) -> Any:
        sample = super()._iteration(assignment)
        if self.iteration <= FIRST:
            self.first_sum += self.truth(assignment).z
        if self.in_force is None and self.clock > self._limit:
            self.in_force = self._session.incumbent
        return sample

    def mean_gain(self, outcome: Assignment) -> float:
        """Of the job's first iterations over stock's; after the search they run with its outcome."""
        rest = max(0, FIRST - self.iteration) * self.truth(outcome).z
        return FIRST * self._stock_z / (self.first_sum + rest) - 1.0


def run_one(
    strategy: str, seen: str, limit: str, seed: int, landscape: SecondLandscape, noise: float, policy: Policy = LIVE
) -> TableRun:
    """One search from its baseline to its end."""
    problem = landscape.problem()
    session = TuningSession(make_strategy(strategy, problem, seed, model=FittedModel), problem, policy, seed)
    return run_session(session, seen, limit, landscape, noise)


def run_session(session: TuningSession, seen: str, limit: str, landscape: SecondLandscape, noise: float) -> TableRun:
    """The same, of a session that was made already."""
    problem, seed, timed = session.problem, session.seed, (LIMITS | SHORTEST)[limit]
    job = TimedJob(landscape, seed, noise)
    iterations = math.inf if timed is None else timed[1] / timed[0]
    job.run_until(session, iterations)
    outcome = session.outcome
    assert outcome is not None
    gain, proven = (job.gain(each) - 1.0 for each in (outcome.assignment, job.in_force or outcome.assignment))
    stock = job.truth(Assignment.stock(len(problem.sites))).z
    return TableRun(
        session.strategy.name, seen, limit, seed, landscape.kind, noise, len(problem.sites),
        stock / landscape.best - 1.0, gain, proven, max(0.0, job.clock - iterations), job.lost, outcome.configs,
        outcome.windows, job.clock, outcome.verdict, _covered(outcome, job), job.mean_gain(outcome.assignment),
    )  # fmt: skip


def _covered(outcome: SearchOutcome, job: SecondJob) -> bool | None:
    """Whether the interval that the search reports holds the truth."""
    if outcome.speedup_low is None or outcome.speedup_high is None:
        return None
    tested = [move.candidate for move in outcome.moves if move.purpose == "final"]
    candidate = outcome.assignment if outcome.verdict == "improved" else tested[-1]
    return outcome.speedup_low <= job.gain(candidate) <= outcome.speedup_high


def measure(strategy: str, seeds: int, policy: Policy = LIVE) -> list[TableRun]:
    """Every landscape, limit and view of one strategy."""
    with multiprocessing.Pool() as pool:
        found = pool.starmap(_of_seed, [(strategy, seed, policy) for seed in range(seeds)], chunksize=1)
    return [run for runs in found for run in runs]


def _of_seed(strategy: str, seed: int, policy: Policy) -> list[TableRun]:
    runs = []
    for seen in ("XYZ", "Z"):
        landscape, noise = draw_mixed(seed, visible=seen == "XYZ")
        runs += [run_one(strategy, seen, limit, seed, landscape, noise, policy) for limit in LIMITS]
    return runs


def summary(runs: list[TableRun]) -> dict[str, str]:
    """The rows of the table for one strategy and one view."""
    free = [run for run in runs if run.limit == NO_LIMIT]
    worth = [run for run in free if run.possible >= WORTH]
    loud = [run for run in worth if run.noise >= 0.05]
    lost = [run.lost for run in free]
    covered = [run.covered for run in runs if run.covered is not None]
    late = [run.late for run in runs if run.limit != NO_LIMIT]
    rows = {f"share of the best gain, {limit}": _shares(runs, limit) for limit in LIMITS}
    rows[f"of gains of at least {LARGE:.0%}, {USUAL}"] = _share(runs, USUAL, LARGE)
    rows[f"{USUAL}: {'; '.join(BLOCKS)}"] = "; ".join(
        _share([run for run in runs if block_of(run.seed) == block], USUAL) for block in range(len(BLOCKS))
    )
    rows[f"share by the mean of the first {FIRST} iterations, search included"] = _by_means(worth)
    rows["missed entirely; at 5 % noise"] = f"{_missed(worth):.0%}; {_missed(loud):.0%}"
    rows["time lost, iterations: median, 95th percentile, worst"] = _spread(lost)
    rows["nothing to gain: iterations, median; time lost, median"] = _nothing(free)
    rows["configs by number of communications (no limit, means)"] = _configs(free)
    rows["windows, iterations (no limit, medians)"] = (
        f"{statistics.median(run.windows for run in free):.0f}, {statistics.median(run.iterations for run in free):.0f}"
    )
    rows["iterations after the limit: median, 95th percentile, worst"] = _spread(late)
    rows["below 0.995 of stock, runs"] = f"{sum(run.gained < -0.005 for run in runs)} of {len(runs)}"
    false = sum(run.verdict == "improved" and run.gained <= 0.0 for run in runs)
    rows["false accepts a run"] = f"{false / len(runs):.1%} ({false} of {len(runs)})"
    rows["95 % intervals that cover"] = f"{np.mean(covered):.1%} ({sum(covered)} of {len(covered)})" if covered else "-"
    return rows


def _shares(runs: list[TableRun], limit: str) -> str:
    """Of the end result, and of what was in force when the limit was reached."""
    worth = [run for run in runs if run.limit == limit and run.possible >= WORTH]
    ended = _share(runs, limit)
    if limit == NO_LIMIT:
        return ended
    return f"{ended} (in force then: {statistics.fmean(run.gained_in_time / run.possible for run in worth):.2f})"


def _share(runs: list[TableRun], limit: str, least: float = WORTH) -> str:
    worth = [run.gained / run.possible for run in runs if run.limit == limit and run.possible >= least]
    return f"{statistics.fmean(worth):.2f}" if worth else "-"


def _by_means(worth: list[TableRun]) -> str:
    known = [run.mean / run.possible for run in worth if run.mean is not None]
    return f"{statistics.fmean(known):.2f}" if known else "-"


def _missed(runs: list[TableRun]) -> float:
    return float(np.mean([run.gained < MISSED * run.possible for run in runs])) if runs else math.nan


def _spread(values: list[float]) -> str:
    return f"{np.median(values):.1f}, {np.quantile(values, 0.95):.1f}, {max(values):.1f}"


def _nothing(free: list[TableRun]) -> str:
    flat = [run for run in free if run.kind == "nothing"]
    return f"{statistics.median(run.iterations for run in flat):.0f}; {statistics.median(r.lost for r in flat):.1f}"


def _configs(free: list[TableRun]) -> str:
    """Means, by number of communications."""
    sites = sorted({run.sites for run in free})
    return ", ".join(
        f"{count}: {statistics.fmean(run.configs for run in free if run.sites == count):.0f}" for count in sites
    )


def page(document: dict[str, Any]) -> str:
    """The tables as Markdown, one a view: a column for each name and strategy."""
    lines = [
        "# What a search finds, how soon, at which cost: the second family",
        "",
        f"Simulated, {document['seeds']} landscapes of `benchmarks/second_family.py` (no formula of `lagom.sim` or "
        "`lagom.cost`), a quarter of them with one communication, half of them with other protocols; noise 0.5, 1, 2 "
        "and 5 % with heavy tails and drift. A window costs its iterations. Shares are",
        f"over landscapes with at least {WORTH:.0%} to gain; missed entirely: less than {MISSED:.0%} of that. Shares",
        "and time lost are by the noise-free truth.",
        "",
    ]
    for seen, title in (("XYZ", "X, Y and Z measured"), ("Z", "Z alone measured")):
        columns = {
            f"`{strategy}`, {name}": summary([TableRun(*row) for row in rows if row[1] == seen])
            for name, by_strategy in document["runs"].items()
            for strategy, rows in by_strategy.items()
        }
        labels = list(next(iter(columns.values())))
        lines += [f"## {title}", "", f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        lines += [f"| {label} | {' | '.join(column[label] for column in columns.values())} |" for label in labels]
        lines.append("")
    lines += [
        f"Made by `{document['command']}` and its like, one for each column: {', '.join(_commits(document))}.",
        "",
    ]
    return "\n".join(lines)


def _commits(document: dict[str, Any]) -> list[str]:
    return [f"{name} at {commit}" for name, commit in document["commits"].items()]


def write(out: Path, name: str, results: dict[str, list[TableRun]], seeds: int) -> None:
    """Add the runs to the file, and write the page beside it."""
    head = circumstances("landscapes of the second family: every strategy, time limit and view")
    old = json.loads(out.read_text()) if out.exists() else {"runs": {}, "commits": {}}
    commits = {**old["commits"], name: head["commit"]}
    new = {strategy: [list(asdict(run).values()) for run in runs] for strategy, runs in results.items()}
    runs = {**old["runs"], name: {**old["runs"].get(name, {}), **new}}
    document = {
        **head,
        "seeds": seeds,
        "commits": commits,
        "fields": list(TableRun.__dataclass_fields__),
        "runs": runs,
    }
    text = json.dumps({**document, "runs": "RUNS"}, indent=1)
    out.write_text(text.replace('"RUNS"', _rows(runs)) + "\n")
    out.with_suffix(".md").write_text(page(document))


def _rows(runs: dict[str, dict[str, list[list[Any]]]]) -> str:
    """One run a line."""

    def short(row: list[Any]) -> str:
        return json.dumps([round(value, 5) if isinstance(value, float) else value for value in row])

    columns = [
        f"{json.dumps(name)}: {{{', '.join(_column(strategy, rows, short) for strategy, rows in found.items())}}}"
        for name, found in runs.items()
    ]
    return "{" + ",\n".join(columns) + "}"


def _column(strategy: str, rows: list[list[Any]], short: Any) -> str:
    return f"{json.dumps(strategy)}: [\n" + ",\n".join(map(short, rows)) + "\n]"


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", nargs="+", default=["lagom", "guided"])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--name", default="today", help="what the columns are called")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="keep every run here; the page goes beside it")
    parser.add_argument("--page", type=Path, metavar="FILE.json", help="measure nothing, print the page of this file")
    parser.add_argument("--patience", type=float, default=LIVE.patience, help="of the policy; inf = proof at the end")
    wanted = parser.parse_args(arguments)
    if wanted.page is not None:
        print(page(json.loads(wanted.page.read_text())))
        return 0
    began, results, policy = time.perf_counter(), {}, replace(LIVE, patience=wanted.patience)
    for strategy in wanted.strategy:
        results[strategy] = measure(strategy, wanted.seeds, policy)
        for seen in ("XYZ", "Z"):
            rows = summary([run for run in results[strategy] if run.seen == seen])
            print(f"{strategy}, {seen} ({time.perf_counter() - began:.0f} s)")
            print("\n".join(f"  {label}: {value}" for label, value in rows.items()), flush=True)
    if wanted.out is not None:
        write(wanted.out, wanted.name, results, wanted.seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
