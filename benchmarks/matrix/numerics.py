"""What tuning does to the numbers: losses of 200 steps, one seed, against stock and against other settings of stock.

Channels and chunks change the order in which AllReduce and ReduceScatter add up, as NCCL's own settings do. So the
tuned job may differ from stock as far as two stock settings differ from each other, and no further; and where only
AllGather is changed, which adds nothing, not at all (with deterministic kernels, bit by bit).
"""

from __future__ import annotations

from typing import Any

from benchmarks.matrix.harmless import largest_difference
from benchmarks.matrix.place import Place
from benchmarks.matrix.plain import run_plain
from benchmarks.matrix.rows import Row

DETERMINISTIC = "--deterministic"
#: Arm: (options of `lagom run`, None = without it; further variables).
ARMS: dict[str, tuple[tuple[str, ...] | None, dict[str, str]]] = {
    "stock": (None, {}),
    "stock again": (None, {}),
    "stock, NCCL_MAX_NCHANNELS=2": (None, {"NCCL_MAX_NCHANNELS": "2"}),
    "stock, NCCL_MAX_NCHANNELS=3": (None, {"NCCL_MAX_NCHANNELS": "3"}),
    "tuned live": (("--mode", "tune", "--stable-iterations", "10"), {}),
    "allgather only": (("--set", "allgather:>=1M:nc=2,chunk=256K"), {}),
}


def run(row: Row, place: Place, earlier: dict[str, Any], budget: float) -> dict[str, Any]:
    """Every arm once, deterministic kernels throughout, so that nothing but communication can differ."""
    command, arms = place.command(row, DETERMINISTIC), dict(earlier.get("arms", {}))
    for number, (name, (lagom, variables)) in enumerate(ARMS.items()):
        if name not in arms:
            environ = {**place.environ(row), **variables}
            folder = place.folder / row.name
            arms[name] = run_plain(command, folder, f"numerics-{number}", lagom, environ, budget / len(ARMS))
    return {"complete": all(arm["exit"] == 0 for arm in arms.values()), "arms": arms, "verdict": verdict(arms)}


def verdict(arms: dict[str, Any]) -> dict[str, Any]:
    """Largest difference of losses from stock, by arm; what was to be shown, as yes or no."""
    stock = arms["stock"]
    apart = {name: largest_difference(arm["losses"], stock["losses"]) for name, arm in arms.items() if name != "stock"}
    settings = [apart[name] for name in apart if name.startswith("stock, ") and apart[name] is not None]
    tuned = apart["tuned live"]
    committed = arms["tuned live"]["log"]["events"].get("plan_committed", 0)
    return {
        "largest_difference": apart,
        "stock_repeats_itself": bool(stock["bits"]) and stock["bits"] == arms["stock again"]["bits"],
        "tuned_within_two_stock_settings": tuned is not None and bool(settings) and tuned <= max(settings),
        "allgather_only_identical": bool(stock["bits"]) and stock["bits"] == arms["allgather only"]["bits"],
        "plans_committed_while_tuning": committed,
    }
