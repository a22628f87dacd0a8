# SPDX-License-Identifier: Apache-2.0
"""What a number amounts to: a claim holds where its whole interval does, so that noise never helps it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.matrix.rows import Row, rows
from lagom.bench.results import BenchRecord, ratio_between
from lagom.experiment.estimate import SpeedupEstimate, estimate_from_pairs

Data = dict[str, Any]
#: A difference wholly within this is called none.
NEGLIGIBLE = 0.01
STOCK = ("stock", "stock again")


def reached(row: Row, found: Data | None, noise: Data | None) -> str:
    """Whether a target was reached: with the whole interval, and a gain beyond what stock gains over itself."""
    if row.target is None or found is None or found["speedup"] is None:
        return "–"
    if found["low"] is None:
        return "too few pairs"
    if found["high"] < row.target:
        return f"**no**, {found['speedup']:.3f}"
    if found["low"] < row.target:
        return f"not resolved, {found['speedup']:.3f}"
    if row.target <= 1.0:
        return "yes"
    if noise is None or noise["low"] is None:
        return "no stock against stock to hold it to"
    return "yes" if found["low"] > noise["high"] else "**no**: within stock against stock"


def with_interval(value: float, low: float | None, high: float | None, pairs: int) -> str:
    """``1.144 [1.137, 1.151]``; without an interval, of how few pairs it is."""
    if low is None:
        return f"{value:.3f} (n = {pairs}: no interval)"
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def format_ratio(ratio: SpeedupEstimate | None) -> str:
    """``1.144 [1.137, 1.151], n = 24``, or what is missing."""
    if ratio is None:
        return "not measured"
    if not ratio.has_interval:
        return with_interval(ratio.value, None, None, ratio.pairs)
    return f"{with_interval(ratio.value, ratio.low, ratio.high, ratio.pairs)}, n = {ratio.pairs}"


def ahead(ratio: SpeedupEstimate | None) -> str:
    """Whether one is faster than the other."""
    if ratio is None or not ratio.has_interval:
        return "–"
    if ratio.low == ratio.high == 1.0:
        return "both leave stock"
    return "ahead" if ratio.low > 1.0 else "**behind**" if ratio.high < 1.0 else "not resolved"


def same(ratio: SpeedupEstimate | None) -> str:
    """Whether two are as fast as each other."""
    if ratio is None or not ratio.has_interval:
        return "–"
    if ratio.low >= 1.0 - NEGLIGIBLE and ratio.high <= 1.0 + NEGLIGIBLE:
        return f"the same within {NEGLIGIBLE:.0%}"
    return "**differs**" if ratio.low > 1.0 or ratio.high < 1.0 else "not resolved"


def between(entry: Data, arm: str, other: str) -> SpeedupEstimate | None:
    """The speed-up of one arm over another, paired by cycle or by round."""
    if "record" not in entry:
        return None
    return ratio_between(BenchRecord.model_validate(entry["record"]), arm, other)


# -- comparisons of arms


def against_others(data: Data) -> Iterator[tuple[str, SpeedupEstimate | None, SpeedupEstimate | None]]:
    """Row, lagom over comm-only tuning, lagom over the best cap."""
    for name, entry in data["rows"].items():
        comm_only = between(entry, "lagom", "autoccl:proposed") or between(entry, "lagom", "autoccl")
        cap = between(entry, "lagom", "static")
        if comm_only or cap:
            yield name, comm_only, cap


def in_processes(data: Data) -> Iterator[tuple[str, str, str, int, str]]:
    """Row, arm, its speed-up over live tuning in processes of its own, number of rounds, verdict."""
    for name, entry in data["rows"].items():
        arms = [one["arm"] for one in entry.get("results", [])]
        if "own:lagom" not in arms:
            continue
        for arm in arms:
            if arm.startswith(("own:", "headroom=")) and arm != "own:lagom":
                ratio = between(entry, arm, "own:lagom")
                word = same(ratio) if arm.startswith("own:replay=") else ahead(ratio)
                yield name, arm.partition("=/")[0], format_ratio(ratio), ratio.pairs if ratio else 0, word


def threads(data: Data) -> Iterator[tuple[str, str, SpeedupEstimate | None, str]]:
    """Row, number of threads, its speed-up, over what: in a job, and in the sweep."""
    for row in rows():
        entry = data["rows"].get(row.name, {})
        if row.name.startswith("nt-"):
            for arm in row.arms:
                yield row.name, arm.removeprefix("set="), between(entry, arm, "stock"), "stock"
        elif entry.get("visits"):
            yield from _threads_of_sweep(row.name, entry)


def _threads_of_sweep(name: str, entry: Data) -> Iterator[tuple[str, str, SpeedupEstimate | None, str]]:
    """Each number of threads over 512, by cycle."""
    found = by_cycle(entry)
    threads = {key[1]: values for key, values in found.items() if key[0].startswith("NT alone")}
    most = next((values for named, values in threads.items() if "nt = 512" in named), None)
    for named, values in threads.items() if most is not None else ():
        if values is not most and most is not None:
            yield name, named, _paired(most, values, 2), "nt = 512"


# -- sweeps


def setting(knobs: Data) -> str:
    """``nc = 8, nt = 128``: one setting of a sweep."""
    return ", ".join(f"{name} = {value}" for name, value in knobs.items()) or "as NCCL picks"


def by_cycle(entry: Data) -> dict[tuple[str, str], dict[int, tuple[float, float, float]]]:
    """(part, setting) -> cycle -> medians of (x, y, z), ms, of a sweep."""
    found: dict[tuple[str, str], dict[int, tuple[float, float, float]]] = {}
    for visit in entry["visits"]:
        if samples := visit["samples"]:
            median = (
                statistics.median(sum(x) for x, _, _ in samples),
                statistics.median(y for _, y, _ in samples),
                statistics.median(z for _, _, z in samples),
            )
            found.setdefault((visit["part"], setting(visit["knobs"])), {})[visit.get("cycle", 0)] = median
    return found


def over_stock(entry: Data, part: str, knobs: Data, what: int) -> SpeedupEstimate | None:
    """The speed-up of a setting over stock in x, y or z (0, 1, 2), paired by cycle; of stock itself, of its two."""
    found = by_cycle(entry)
    stock, again = (found.get((name, setting({})), {}) for name in STOCK)
    return _paired(again if part == STOCK[0] else stock, found.get((part, setting(knobs)), {}), what)


def _paired(
    base: dict[int, tuple[float, float, float]], ours: dict[int, tuple[float, float, float]], what: int
) -> SpeedupEstimate | None:
    both = [(ours[cycle][what], base[cycle][what]) for cycle in sorted(ours) if cycle in base]
    return estimate_from_pairs([math.log(a / b) for a, b in both if a > 0.0 and b > 0.0])
