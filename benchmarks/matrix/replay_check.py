# SPDX-License-Identifier: Apache-2.0
"""After tuning, does the job run as a replay of what was found? Processes in shuffled rounds, by the job's times."""

from __future__ import annotations

import copy
import time
from typing import Any

from benchmarks.matrix import compared
from benchmarks.matrix.place import Place
from benchmarks.matrix.rows import Row
from lagom.bench.arm_words import parse_arms
from lagom.bench.schedule import BenchSchedule
from lagom.experiment.request import Request

SAMPLES = 40
REPLAY, LIVE = "own:replay=", "own:lagom"


def run(row: Row, place: Place, earlier: dict[str, Any], budget: float) -> dict[str, Any]:
    """Tune once for a saved config; then that one replayed, tuning live again (what comes after it counts), stock.
    Both halves go on where an earlier session ended."""
    clock, folder = time.monotonic(), place.folder / row.name
    tuned, config = earlier.get("tuned", {}), earlier.get("profile", "")
    in_vain = earlier.get("in_vain", [])  # searches that led to no saved config: kept, and not gone on with
    kept = {"in_vain": in_vain} if in_vain else {}
    if not config:
        tuned, config = _tuned(row, place, tuned, budget / 2, attempt=len(in_vain))
    if not config:
        if any((one["search"] or {}).get("verdict") == "stock_is_best" for one in tuned["results"]):
            why = "the search left stock as it is: there is no saved config"
            return {**kept, "complete": True, "tuned": tuned, "skipped": why}
        why = "the search did not end in time: there is no saved config yet, and the next session searches anew"
        return {"complete": False, "in_vain": [*in_vain, tuned], "skipped": why}
    path = folder / "found.lagom"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(config)
    request = Request(
        command=place.command(row), environ=place.environ(row), samples=SAMPLES, metric=place.metric(),
        folder=folder / "replayed", budget=budget - (time.monotonic() - clock),
    )  # fmt: skip
    arms, rounds = parse_arms([f"{REPLAY}{path}", LIVE]), 1 if place.rehearse else row.rounds
    found = compared.measured(BenchSchedule(request, arms, rounds=rounds), renamed(earlier, f"{REPLAY}{path}"), print)
    return {**found, **kept, "tuned": tuned, "profile": config}


def _tuned(row: Row, place: Place, earlier: dict[str, Any], budget: float, attempt: int) -> tuple[dict[str, Any], str]:
    """The tuning run's record, and the saved config it left; empty if it left none. ``attempt``: in a folder of its
    own, as what lies in that of the one before counts as done."""
    folder = place.folder / row.name / (f"tuned-{attempt}" if attempt else "tuned")
    request = Request(
        command=place.command(row), environ=place.environ(row), samples=SAMPLES, folder=folder, budget=budget,
    )  # fmt: skip
    found = compared.measured(BenchSchedule(request, parse_arms(["lagom"]), cycles=2), earlier, print)
    configs = sorted(folder.glob("*/config.lagom"))
    return found, configs[0].read_text() if configs else ""


def renamed(earlier: dict[str, Any], replay: str) -> dict[str, Any]:
    """An earlier record with its replay arm called as it is here: its name holds where the saved config lay."""
    if "record" not in earlier:
        return earlier
    record = copy.deepcopy(earlier["record"])
    record["arms"] = [replay if arm.startswith(REPLAY) else arm for arm in record["arms"]]
    for run in record.get("runs", []):
        run["arm"] = replay if run.get("arm", "").startswith(REPLAY) else run.get("arm", "")
    return {**earlier, "record": record}
