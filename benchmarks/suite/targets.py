# SPDX-License-Identifier: Apache-2.0
"""The targets of the suite, each with its measured number and whether it is met."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.suite.ablations import PRESETS, slope
from benchmarks.suite.cases import HEADLINE
from benchmarks.suite.runs import Row, pick

OURS = ("auto", "lagom", "guided")
WORTH = 1.02
"""A landscape has something to find if the best there is beats stock by this."""
Points = dict[str, list[tuple[float, float]]]
Target = dict[str, Any]


def targets(rows: list[Row], runs: Points, worthwhile: Points, convergence: list[Row]) -> list[Target]:
    """``runs``: for each strategy (speed-up over stock, Z over oracle) of every run under stock NCCL's knob sets;
    ``worthwhile``: those on landscapes with something to find."""
    found: list[Target] = []
    for name in OURS:
        found += _near_the_oracle(name, runs.get(name, []), "over runs")
        found += _near_the_oracle(name, worthwhile.get(name, []), f"where {WORTH - 1:.0%} or more can be had")
        found += _never_behind(name, pick(rows, strategy=name))
    found += _regret(rows)
    found += _growth(convergence)
    return found


def _near_the_oracle(name: str, runs: list[tuple[float, float]], which: str) -> list[Target]:
    if not runs:
        return []
    speed, ratio = np.array(runs).T
    below = float(np.mean(speed < 0.995))
    return [
        _target(f"{name}: Z over oracle, median {which}", float(np.median(ratio)), 1.01),
        _target(f"{name}: Z over oracle, 95th percentile {which}", float(np.percentile(ratio, 95)), 1.03),
        _target(f"{name}: share of runs below 0.995 of stock, {which}", below, 0.01),
    ]


def _never_behind(name: str, rows: list[Row]) -> list[Target]:
    """By how much the worst row's median is behind, over all rows."""
    found = []
    for other in ("autoccl", "static"):
        behind = [max(0.0, 1.0 - r[f"speedup_{other}"]) for r in rows]
        worst = int(np.argmax(behind)) if behind else 0
        label = f"{name}: furthest behind {other} in the median of a row"
        found.append({**_target(label, max(behind, default=0.0), 0.005), "rows_missed": sum(b > 0.005 for b in behind)})
        if behind:
            found[-1]["where"] = "{workload} on {preset}, {knobs}".format(**rows[worst])
    return found


def _regret(rows: list[Row]) -> list[Target]:
    found = []
    for name, limit in (("auto", 15.0), ("guided", 15.0), ("lagom", None)):
        values = [r["regret_iterations"] for r in pick(rows, strategy=name, knobs=HEADLINE)]
        if values:
            found.append(_target(f"{name}: regret in iterations, median of rows", float(np.median(values)), limit))
    return found


def _growth(rows: list[Row]) -> list[Target]:
    found = []
    for preset in PRESETS:
        for name in ("auto", "guided", "lagom", "autoccl"):
            for row in pick(rows, strategy=name, preset=preset, communications=2):
                limit = {"auto": 8.0, "guided": 12.0}.get(name)
                found.append(_target(f"{name} on {preset}: configs for two communications", row["configs"], limit))
            per, _, straight = slope(rows, name, preset)
            if not np.isnan(per):
                limit = {"auto": 2.0, "guided": 4.0}.get(name)
                found.append(_target(f"{name} on {preset}: configs for each further communication", per, limit))
                found[-1]["r_squared"] = round(straight, 3)
    return found


def _target(what: str, value: float, limit: float | None) -> Target:
    """``met`` is ``None`` where no limit is set: the number stands beside ours for comparison."""
    met = None if limit is None else bool(value <= limit)
    return {"what": what, "value": round(value, 4), "limit": limit, "met": met}
