"""After tuning, does the job run as a replay of what was found? Processes in shuffled rounds, by the job's times."""

from __future__ import annotations

from typing import Any

from benchmarks.matrix import compared
from benchmarks.matrix.place import Place
from benchmarks.matrix.rows import Row
from lagom.bench import Request, parse_arms

SAMPLES = 40


def run(row: Row, place: Place, earlier: dict[str, Any], budget: float) -> dict[str, Any]:
    """Tune once for a profile; then that profile replayed, tuning live again (what comes after it counts), stock."""
    folder = place.folder / row.name
    rounds = 1 if place.rehearse else row.rounds
    common = {"command": place.command(row), "environ": place.environ(row), "samples": SAMPLES}
    found = compared.measured(
        Request(arms=parse_arms(["lagom"]), folder=folder / "tuned", cycles=2, budget=budget / 2, **common), {}, print
    )
    profiles = sorted(folder.glob("tuned/*/profile.lagom"))
    if not profiles:
        left_stock = any((one["search"] or {}).get("verdict") == "stock_is_best" for one in found["results"])
        why = "the search left stock as it is" if left_stock else "the search did not end in time"
        return {"complete": left_stock, "tuned": found, "skipped": f"{why}: there is no profile"}
    arms = parse_arms([f"own:replay={profiles[0]}", "own:lagom"])
    request = Request(
        arms=arms, folder=folder / "replayed", rounds=rounds, metric=place.metric(), budget=budget / 2, **common
    )
    return {**compared.measured(request, {}, print), "tuned": found, "profile": profiles[0].read_text()}
