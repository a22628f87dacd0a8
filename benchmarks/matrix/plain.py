"""Jobs of a fixed number of steps, with and without us: steps, losses, how they ended, what the log says."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lagom import journal
from lagom.bench.process import ProcessStart, run_process
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
        "log": told(ended.seen.events),
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


def told(events: Sequence[Base]) -> dict[str, Any]:
    """What a log says, without samples: how many events of each kind, outcomes, what stood aside and why."""
    counts: dict[str, int] = {}
    for event in events:
        counts[event.kind] = counts.get(event.kind, 0) + 1
    outcomes = [event for event in events if isinstance(event, journal.Outcome)]
    aside = [event.reason for event in events if isinstance(event, journal.Passthrough)]
    return {
        "events": counts,
        "outcomes": [outcome.model_dump(mode="json") for outcome in outcomes],
        "standing_aside": list(dict.fromkeys(aside)),
    }
