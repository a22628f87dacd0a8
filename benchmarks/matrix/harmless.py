"""A job without us and the same job tuned live: both end well, with the same losses but for rounding, as fast.

A job that tells the length of no step is compared as a whole, start-up included, in rounds of an order of their own.
"""

from __future__ import annotations

import math
import random
from typing import Any

from benchmarks.matrix.once import Plan, run_arms
from benchmarks.matrix.place import Place
from benchmarks.matrix.rows import Row
from lagom.bench.results import Ratio, ratio_of

PLANS = {"off": Plan(None), "lagom": Plan(("--mode", "tune")), "off again": Plan(None)}


def run(row: Row, place: Place, earlier: dict[str, Any], budget: float) -> dict[str, Any]:
    """Without, with, without, in each round: what the machine does by itself is seen too."""
    plans = {named(name, number): PLANS[name] for number in range(row.repeats) for name in order(number)}
    arms = run_arms(place.command(row), place.folder / row.name, plans, place.environ(row), earlier, budget)
    complete = len(arms) == len(plans)
    return {"complete": complete, "arms": arms, "verdict": verdict(arms, row.repeats) if complete else {}}


def order(number: int) -> list[str]:
    """The arms of one round; of the first, as they are written."""
    return list(PLANS) if number == 0 else random.Random(number).sample(list(PLANS), len(PLANS))


def named(name: str, number: int) -> str:
    """An arm of one round."""
    return name if number == 0 else f"{name}, round {number + 1}"


def verdict(arms: dict[str, Any], repeats: int = 1) -> dict[str, Any]:
    """Exits, and how far the losses of the tuned job are from those of the one without us."""
    ours, off, again = arms["lagom"], arms["off"], arms["off again"]
    told = {
        "exits": [arm["exit"] for arm in arms.values()],
        "loss_difference": largest_difference(ours["losses"], off["losses"]),
        "loss_difference_off": largest_difference(again["losses"], off["losses"]),
        "speed": _speed(ours, off),
        "speed_off": _speed(again, off),
    }
    if repeats > 1:
        told["speed_of_the_whole_process"] = _text(whole(arms, repeats, "lagom"))
        told["off_against_itself"] = _text(whole(arms, repeats, "off again"))
    return told


def _speed(one: dict[str, Any], base: dict[str, Any]) -> float | None:
    """By the median step; None if one of them told no steps."""
    return base["median_ms"] / one["median_ms"] if one["median_ms"] and base["median_ms"] else None


def whole(arms: dict[str, Any], repeats: int, name: str) -> Ratio | None:
    """The speed of whole processes over those of ``off``, paired by round; only of rounds in which both ended well."""
    pairs = [(arms[named(name, number)], arms[named("off", number)]) for number in range(repeats)]
    return ratio_of([math.log(a["seconds"] / b["seconds"]) for a, b in pairs if a["exit"] == b["exit"] == 0])


def _text(found: Ratio | None) -> str:
    if found is None or not found.has_interval:
        return "too few pairs"
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}], n = {found.pairs}"


def largest_difference(ones: list[float], others: list[float]) -> float | None:
    """Of two runs' losses, step by step; None if one printed none."""
    both = list(zip(ones, others, strict=False))
    return max(abs(a - b) for a, b in both) if both else None
