# SPDX-License-Identifier: Apache-2.0
"""Two "nodes" on one machine: a communicator that spans them is left to NCCL, and the log says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.matrix.place import Place
from benchmarks.matrix.rows import Row
from benchmarks.matrix.single_runs import SingleRun, run_arms, summarize_log
from lagom.journal import LOG_NAME, read
from lagom.journal.schema import Base
from lagom.settings import interpreter
from lagom.wire.library import plugin_path


def run(row: Row, place: Place, earlier: dict[str, Any], budget: float) -> dict[str, Any]:
    """Without us; and by variables alone, as on two machines, where each node's first rank starts its controller."""
    folder, plugin = place.folder / row.name, str(plugin_path())
    log = folder / "variables"
    ours = {"NCCL_TUNER_PLUGIN": plugin, "NCCL_PROFILER_PLUGIN": plugin, "LAGOM_PYTHON": interpreter()}
    named = {"LAGOM_MODE": "tune", "LAGOM_JOB_ID": f"matrix-{row.name}", "LAGOM_DIR": str(log)}
    runs = {"off": SingleRun(None), "variables": SingleRun(None, {**ours, **named})}
    arms = run_arms(place.command(row), folder, runs, place.environ(row), earlier, budget)
    if "variables" in arms:
        arms["variables"]["log"] = summarize_log(logged(log))
    complete = len(arms) == len(runs)
    return {"complete": complete, "arms": arms, "verdict": verdict(arms) if complete else {}}


def logged(folder: Path) -> list[Base]:
    """What the nodes' controllers have written: where a communicator spans several, into a folder of each host."""
    return [event for log in sorted(folder.rglob(LOG_NAME)) for event in read(log)]


def verdict(arms: dict[str, Any]) -> dict[str, Any]:
    """How both ended, and what the log says about communicators that are not tuned."""
    said = arms["variables"]["log"]["standing_aside"]
    return {"exits": [arm["exit"] for arm in arms.values()], "standing_aside": said}
