# SPDX-License-Identifier: Apache-2.0
"""Tables of the starts that nodes_start.py measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from lagom.experiment.estimate import BY_MEANS, SpeedupEstimate, estimate_speedup

#: Steps of a process that do not count.
SETTLING = 3
ARMS = ("plain", "found", "by hand")
Data = dict[str, Any]


def times_of(kept: Data) -> dict[str, list[float]]:
    """By arm, the median steps of its processes that did not fail, in milliseconds."""
    values: dict[str, list[float]] = {}
    for process in kept["processes"]:
        if not process["failed"]:
            values.setdefault(process["arm"], []).append(statistics.median(process["steps_ms"][SETTLING:]))
    return values


def table(kept: Data) -> Iterator[str]:
    """Lines of it; of a file with several jobs, for each."""
    for name, one in kept.get("regimes", {}).items():
        yield f"\n**{name}**\n"
        yield from table(one)
    if "processes" in kept:
        yield from _rows(kept)


def _rows(kept: Data) -> Iterator[str]:
    values = times_of(kept)
    yield "| start | processes | mean | range | over plain NCCL | over by hand |"
    yield "|---|---|---|---|---|---|"
    for arm, took in values.items():
        over = [_over(kept, values, base, arm) for base in ("plain", "by hand") if base != arm]
        texts = [_text(found) for found in over]
        texts = [*texts, ""] if arm == "by hand" else ["", *texts] if arm == "plain" else texts
        mean, low, high = statistics.mean(took), min(took), max(took)
        yield f"| {arm} | {len(took)} | {mean:.1f} ms | {low:.1f} to {high:.1f} | {' | '.join(texts)} |"
    yield f"\n{BY_MEANS}."


def _over(kept: Data, values: dict[str, list[float]], base: str, arm: str) -> SpeedupEstimate | None:
    """None, too, where all processes of one ran before all of the other: a drift would be taken for a difference."""
    order = [process["arm"] for process in kept["processes"] if process["arm"] in (base, arm)]
    is_in_turns = sum(one != other for one, other in pairwise(order)) > 1
    return estimate_speedup(values.get(base, []), values[arm]) if is_in_turns else None


def _text(found: SpeedupEstimate | None) -> str:
    return "" if found is None else found.text.replace("x [", " [")
