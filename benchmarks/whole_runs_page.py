# SPDX-License-Identifier: Apache-2.0
"""The page of ``whole_runs.py``: what whole processes gained, and whether the targets were reached.

    python -m benchmarks.whole_runs_page benchmarks/results/host_search_h200x4_202611.json

A round's base is the mean of its two plain processes, without their first steps. The other processes of the round are
compared with it. A process that searches has more steps than a plain one: the plain mean stands for as many.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.matrix.foreign_jobs import START_UP_STEPS
from benchmarks.matrix.place import REGIMES
from benchmarks.matrix.rows import Row
from benchmarks.matrix.verdicts import format_ratio
from benchmarks.provenance import described, since
from benchmarks.template import render
from benchmarks.whole_run_jobs import AGAIN, BY_HAND, COST, LOADED, PLAIN, SEARCH, SEARCHES, Job
from lagom.experiment.estimate import SpeedupEstimate, estimate_from_pairs, estimate_speedup

Data = dict[str, Any]
#: A plan that has been agreed on starts at a later call, 16 of them after the offer: in steps of the jobs, at most
IN_FORCE_STEPS = 4
#: What of a process that searches is compared: all of its steps; the last half; those after the search.
WHOLE, HALF, AFTER = "whole run, search included", "last half", "after the search"
PARTS = (WHOLE, HALF, AFTER)
#: Of the last half over the better setting by hand; of the whole run over plain, where by hand gives that much.
HALF_TARGET, WHOLE_TARGET, WHERE_BY_HAND = 0.99, 1.04, 1.08
#: Of the whole run over plain, where nothing can be gained.
COST_TARGET = 0.99


def steps(process: Data, part: str = "") -> list[float]:
    """The milliseconds that count: none before a setting by hand was agreed on, nor the start-up."""
    times: list[float] = process["ms"]
    if part == HALF:
        return times[len(times) // 2 :]
    if part == AFTER:
        return [] if process["ended_step"] is None else times[process["ended_step"] :]
    if process["arm"] in BY_HAND:
        agreed = process["agreed_step"]
        return [] if agreed is None else times[max(START_UP_STEPS, agreed + IN_FORCE_STEPS) :]
    return times[START_UP_STEPS:]


def rounds(data: Data, job: str) -> list[dict[str, Data]]:
    """The processes of each round that ended well, by arm; rounds with both plain ones only."""
    found: dict[int, dict[str, Data]] = {}
    for process in data["processes"]:
        if process["job"] == job and process["exit"] == 0 and steps(process):
            found.setdefault(process["round"], {})[process["arm"]] = process
    return [found[number] for number in sorted(found) if {PLAIN, AGAIN} <= set(found[number])]


def speedups(by_round: Sequence[dict[str, Data]], arm: str, part: str = "") -> list[float]:
    """Of each round that has the arm: the plain mean step over the arm's."""
    found = []
    for one in by_round:
        times = steps(one[arm], part) if arm in one else []
        if times:
            plain = statistics.fmean(statistics.fmean(steps(one[name])) for name in (PLAIN, AGAIN))
            found.append(plain / statistics.fmean(times))
    return found


def ratio(speeds: Sequence[float]) -> SpeedupEstimate | None:
    """Their Hodges-Lehmann median, with an interval from six rounds on."""
    return estimate_from_pairs([-math.log(speed) for speed in speeds])


def means(by_round: Sequence[dict[str, Data]], arm: str, part: str = "") -> list[float]:
    """The mean step of each process of an arm, in milliseconds."""
    every = [steps(one[arm], part) for one in by_round if arm in one]
    return [statistics.fmean(times) for times in every if times]


def by_means(
    by_round: Sequence[dict[str, Data]], base: Sequence[str], arm: str, part: str = ""
) -> SpeedupEstimate | None:
    """Of an arm over all processes of other arms: the ratio of means, which has an interval from two rounds on."""
    return estimate_speedup([mean for name in base for mean in means(by_round, name)], means(by_round, arm, part))


def against_plain(by_round: Sequence[dict[str, Data]]) -> list[float]:
    """Plain over plain again, of each round."""
    return [statistics.fmean(steps(one[AGAIN])) / statistics.fmean(steps(one[PLAIN])) for one in by_round]


def better_by_hand(by_round: Sequence[dict[str, Data]]) -> str:
    """The faster of the settings by hand over all rounds; empty without one."""
    found = {arm: found.value for arm in BY_HAND if (found := ratio(speedups(by_round, arm))) is not None}
    return max(found, key=lambda arm: found[arm], default="")


def over_hand(by_round: Sequence[dict[str, Data]], hand: str) -> list[float]:
    """The last half of the search over the setting by hand, in the rounds that have both."""
    both = [one for one in by_round if SEARCH in one and hand in one]
    return [statistics.fmean(steps(one[hand])) / statistics.fmean(steps(one[SEARCH], HALF)) for one in both]


def targets(by_round: Sequence[dict[str, Data]], *, is_cost: bool) -> Iterator[tuple[str, str, str]]:
    """Target, what was measured, whether it was reached. ``is_cost``: nothing can be gained by the job."""
    if is_cost:
        cost = by_means(by_round, (PLAIN, AGAIN), SEARCH, WHOLE)
        yield f"whole run at least {COST_TARGET} of plain", format_ratio(cost), _reached(cost, COST_TARGET)
        return
    if not (hand := better_by_hand(by_round)):
        return
    half, whole = ratio(over_hand(by_round, hand)), ratio(speedups(by_round, SEARCH, WHOLE))
    gain = ratio(speedups(by_round, hand))
    assert gain is not None
    what = f"last half at least {HALF_TARGET} of the better setting by hand ({hand})"
    yield what, format_ratio(half), _reached(half, HALF_TARGET)
    what = f"whole run at least {WHOLE_TARGET} over plain where by hand gives {WHERE_BY_HAND} (here {gain.value:.3f})"
    asked = gain.value >= WHERE_BY_HAND
    yield what, format_ratio(whole), _reached(whole, WHOLE_TARGET) if asked else "not asked here"


def _reached(found: SpeedupEstimate | None, target: float) -> str:
    return "not measured" if found is None else "yes" if found.value >= target else "**no**"


def page(data: Data) -> str:
    """The whole page, by ``templates/whole_runs.md.j2``."""
    jobs = [about(data, name) for name in data["jobs"]]
    nccls = {job["nccl"] for job in jobs}
    return render(
        "whole_runs",
        sessions=[
            (_session(one, nccls), since(one["commit"]) if one.get("commit") else "") for one in data["sessions"]
        ],
        arms={arm: how for arm, how in data["arms"].items() if any(arm in job["arms"] for job in jobs)},
        jobs=[_job(data, name) for name in data["jobs"]],
        start_up=START_UP_STEPS,
    )


def _session(session: Data, nccls: set[str]) -> str:
    """``nccls``: what its jobs ask for."""
    parts = [f"{session['gpus']} x {session.get('gpu') or 'no GPU'}", f"torch {session.get('torch', '?')}"]
    parts += [f"NCCL {session.get('nccl_230') or '?'} preloaded"] if "2.30" in nccls else []
    parts += [f"NCCL {session.get('nccl') or '?'} as bundled"] if nccls - {"2.30"} else []
    parts.append(session["began"])
    parts += [described(session["commit"])] if session.get("commit") else []
    if session["rehearsed"]:
        parts.append(f"**a rehearsal ({session['rehearsed']}): none of these numbers is of a GPU**")
    return ", ".join(parts)


def about(data: Data, name: str) -> Data:
    """A job as its file has it; the first file named neither regime nor arms, which were the same for all."""
    first = {**asdict(Job("")), "arms": list(data["arms"]), "search_seconds": data.get("search_seconds")}
    return {**first, **data["jobs"][name]}


def _regime(name: str, job: Data) -> str:
    """In words, with the variables that make it."""
    text = Row(name, "", "", job["script"], regime=job["regime"]).regime_text
    variables = " ".join(f"{name}={value}" for name, value in REGIMES[job["regime"]].items())
    return f"{text} (`{variables}`)" if variables else text


def _job(data: Data, name: str) -> Data:
    by_round, job = rounds(data, name), about(data, name)
    plain, is_cost = (PLAIN, AGAIN), set(job["arms"]) == {*COST}
    parts = [WHOLE] if is_cost else PARTS
    shown = [(f"{arm}, {part}", arm, part) for arm in SEARCHES for part in parts]
    shown += [(f"{arm} by hand", arm, "") for arm in BY_HAND] + [(LOADED, LOADED, "")]
    arms = [
        (what, speedups(by_round, arm, part), by_means(by_round, plain, arm, part))
        for what, arm, part in shown
        if arm in job["arms"]
    ]
    arms.append((f"{PLAIN} over {AGAIN}", against_plain(by_round), by_means(by_round, [AGAIN], PLAIN)))
    processes = [one for one in data["processes"] if one["job"] == name]
    return {
        "name": name,
        "command": " ".join([job["script"], *job["options"]]),
        "steps": job["steps"],
        "regime": _regime(name, job),
        "nccl": "2.30 or later, preloaded" if job["nccl"] == "2.30" else "as torch bundles it",
        "search_seconds": job["search_seconds"],
        "rounds": len(by_round),
        "arms": [
            (what, format_ratio(ratio(speeds)), format_ratio(of_means), [f"{speed:.3f}" for speed in speeds])
            for what, speeds, of_means in arms
        ],
        "targets": list(targets(by_round, is_cost=is_cost)),
        "searches": [_search(one) for one in processes if one["arm"] in SEARCHES and one["exit"] == 0],
        "failed": [f"round {one['round']}, {one['arm']}: exit {one['exit']}" for one in processes if one["exit"] != 0],
    }


def _search(process: Data) -> Data:
    """How one search went: seconds from the first step to its end, and what it said of itself."""
    over, times = process["ended_step"], process["ms"]
    outcome: Data = next((event for event in process["log"] if event["event"] == "outcome"), {})
    return {
        "round": process["round"],
        "arm": process["arm"],
        "seconds": None if over is None else sum(times[:over]) / 1e3,
        "run": sum(times) / 1e3,
        "is_clear": over is not None and over <= len(times) // 2,
        "verdict": outcome.get("verdict", "not over").replace("_", " "),
        "configs": outcome.get("configs", 0),
        "lost": outcome.get("regret_iterations", 0.0),
        "reason": outcome.get("reason", ""),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--print", action="store_true", help="print the page and write nothing")
    arguments = parser.parse_args()
    text = page(json.loads(arguments.results.read_text()))
    if arguments.print:
        print(text, end="")
    else:
        arguments.results.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
