"""A job without us and the same job tuned live: both end well, with the same losses but for rounding, as fast."""

from __future__ import annotations

from typing import Any

from benchmarks.matrix.once import Plan, run_arms
from benchmarks.matrix.place import Place
from benchmarks.matrix.rows import Row

PLANS = {"off": Plan(None), "lagom": Plan(("--mode", "tune")), "off again": Plan(None)}


def run(row: Row, place: Place, earlier: dict[str, Any], budget: float) -> dict[str, Any]:
    """Without, with, without: what the machine does by itself is seen too."""
    arms = run_arms(place.command(row), place.folder / row.name, PLANS, place.environ(row), earlier, budget)
    complete = len(arms) == len(PLANS)
    return {"complete": complete, "arms": arms, "verdict": verdict(arms) if complete else {}}


def verdict(arms: dict[str, Any]) -> dict[str, Any]:
    """Exits, and how far the losses of the tuned job are from those of the one without us."""
    ours, off, again = arms["lagom"], arms["off"], arms["off again"]
    return {
        "exits": [arm["exit"] for arm in arms.values()],
        "loss_difference": largest_difference(ours["losses"], off["losses"]),
        "loss_difference_off": largest_difference(again["losses"], off["losses"]),
        "speed": _speed(ours, off),
        "speed_off": _speed(again, off),
    }


def _speed(one: dict[str, Any], base: dict[str, Any]) -> float | None:
    """By the median step; None if one of them told no steps."""
    return base["median_ms"] / one["median_ms"] if one["median_ms"] and base["median_ms"] else None


def largest_difference(ones: list[float], others: list[float]) -> float | None:
    """Of two runs' losses, step by step; None if one printed none."""
    both = list(zip(ones, others, strict=False))
    return max(abs(a - b) for a, b in both) if both else None
