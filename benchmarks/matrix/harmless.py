"""A job without us and the same job tuned live: both end well, with the same losses but for rounding, as fast."""

from __future__ import annotations

from typing import Any

from benchmarks.matrix.place import Place
from benchmarks.matrix.plain import run_plain
from benchmarks.matrix.rows import Row


def run(row: Row, place: Place, earlier: dict[str, Any], budget: float) -> dict[str, Any]:
    """Without, with, without: what the machine does by itself is seen too."""
    command, environ = place.command(row), place.environ(row)
    arms: dict[str, Any] = dict(earlier.get("arms", {}))
    plans = {"off": None, "lagom": ("--mode", "tune"), "off again": None}
    for name, lagom in plans.items():
        if name not in arms:
            word = f"{row.name}-{name.replace(' ', '-')}"
            arms[name] = run_plain(command, place.folder / row.name, word, lagom, environ, budget / len(plans))
    return {"complete": all(arm["ended"] == "itself" for arm in arms.values()), "arms": arms, "verdict": verdict(arms)}


def verdict(arms: dict[str, Any]) -> dict[str, Any]:
    """Exits, and how far the losses of the tuned job are from those of the one without us."""
    ours, off, again = arms["lagom"], arms["off"], arms["off again"]
    return {
        "exits": [arm["exit"] for arm in arms.values()],
        "loss_difference": largest_difference(ours["losses"], off["losses"]),
        "loss_difference_off": largest_difference(again["losses"], off["losses"]),
        "speed": None if not (ours["median_ms"] and off["median_ms"]) else off["median_ms"] / ours["median_ms"],
    }


def largest_difference(ones: list[float], others: list[float]) -> float | None:
    """Of two runs' losses, step by step; None if one printed none."""
    both = list(zip(ones, others, strict=False))
    return max(abs(a - b) for a, b in both) if both else None
