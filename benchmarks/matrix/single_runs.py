# SPDX-License-Identifier: Apache-2.0
"""Arms that are one job each: run as far as the time goes, and kept only if they ended by themselves."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lagom import journal
from lagom.experiment.process import ProcessStart, run_process
from lagom.journal.schema import Base


def run_plain(
    command: Sequence[str],
    folder: Path,
    name: str,
    lagom: Sequence[str] | None,
    environ: Mapping[str, str],
    limit: float | None = None,
) -> dict[str, Any]:
    """One job to its own end. ``lagom``: options of ``lagom run``, None = without it."""
    start = ProcessStart(command, folder, name, lagom, environ, limit)
    ended = run_process(start)
    steps = steps_of(folder / f"{name}.out")
    times = [step["ms"] for step in steps]
    return {
        "exit": ended.exit,
        "ended": ended.ended,
        "seconds": round(ended.seconds, 1),
        "ms": times,
        "median_ms": statistics.median(times[len(times) // 3 :]) if times else None,
        "losses": [step["loss"] for step in steps if "loss" in step],
        "bits": [step["bits"] for step in steps if "bits" in step],
        "log": summarize_log(ended.seen.events),
        "output": ended.seen.last_lines() if ended.exit else [],
    }


def steps_of(output: Path) -> list[dict[str, Any]]:
    """The JSON lines of steps that a job printed; a line that two processes wrote into is passed over."""
    steps = []
    for line in output.read_text(errors="replace").splitlines():
        if line.startswith('{"step"'):
            try:
                steps.append(json.loads(line))
            except ValueError:
                continue
    return steps


def summarize_log(events: Sequence[Base]) -> dict[str, Any]:
    """What a log says, without samples: how many events of each kind, and after how many seconds of the log the first
    of them came; outcomes; what stood aside and why."""
    counts: dict[str, int] = {}
    first: dict[str, float] = {}
    for event in events:
        counts[event.kind] = counts.get(event.kind, 0) + 1
        first.setdefault(event.kind, round(event.t - events[0].t, 3))
    outcomes = [event for event in events if isinstance(event, journal.Outcome)]
    aside = [event.reason for event in events if isinstance(event, journal.Passthrough)]
    return {
        "events": counts,
        "first_s": first,
        "outcomes": [outcome.model_dump(mode="json") for outcome in outcomes],
        "standing_aside": list(dict.fromkeys(aside)),
    }


#: No arm is begun with less: starting up alone takes 20 to 30 s.
LEAST_SECONDS = 45.0
#: And not if those before took longer than what is left by this factor.
CLOSE = 0.9
#: A job that has not ended after so much time of its own hangs: that is a finding, and is kept as one.
PATIENCE_SECONDS = 240.0
HUNG = "hung"


@dataclass(frozen=True, slots=True)
class SingleRun:
    """``lagom``: options of ``lagom run``, None = without it. ``environ``: beside the row's own."""

    lagom: Sequence[str] | None
    environ: Mapping[str, str] = field(default_factory=dict)


def finished(arms: Mapping[str, Any]) -> dict[str, Any]:
    """The arms of an earlier session that need not be run again: those that time cut short say nothing."""
    return {name: arm for name, arm in arms.items() if arm["ended"] in ("itself", HUNG)}


def run_arms(
    command: Sequence[str],
    folder: Path,
    runs: Mapping[str, SingleRun],
    environ: Mapping[str, str],
    earlier: Mapping[str, Any],
    budget: float,
) -> dict[str, Any]:
    """The arms with results, earlier and new ones, in the order of ``runs``.

    Each new one may take all the time that is left: one that ends is worth more than several that are cut off. The
    first is the job without Lagom. If that fails (a package is missing), the others show nothing, and the next session
    tries it again.
    """
    found, clock = finished(earlier.get("arms", {})), time.monotonic()
    first = next(iter(runs))
    if found.get(first, {}).get("exit", 0) != 0:
        found = {}
    for number, (name, run) in enumerate(runs.items()):
        left = budget - (time.monotonic() - clock)
        if name in found:
            continue
        if left < needed(found):
            break
        limit = min(left, PATIENCE_SECONDS)
        arm = run_plain(command, folder, f"arm-{number:02d}", run.lagom, {**environ, **run.environ}, limit)
        if arm["ended"] != "itself" and limit == PATIENCE_SECONDS:
            arm["ended"] = HUNG
        found.update(finished({name: arm}))
        if name == first and arm["exit"] != 0:
            break
    return {name: found[name] for name in runs if name in found}


def needed(found: Mapping[str, Any]) -> float:
    """Seconds that the next arm has to have: what the longest of those before it took."""
    return max(LEAST_SECONDS, CLOSE * max((arm["seconds"] for arm in found.values()), default=0.0))
