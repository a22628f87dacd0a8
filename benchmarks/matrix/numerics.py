# SPDX-License-Identifier: Apache-2.0
"""What tuning does to the numbers: losses of 200 steps, one seed, against stock and against other settings of stock.

Channels and chunks change the order in which AllReduce and ReduceScatter add up, as NCCL's own settings do. So the
tuned job may differ from stock as far as two stock settings differ from each other, and no further; and where only
AllGather is changed, which adds nothing, not at all (with deterministic kernels, bit by bit).
"""

from __future__ import annotations

from typing import Any

from benchmarks.matrix.foreign_jobs import largest_difference
from benchmarks.matrix.place import Place
from benchmarks.matrix.rows import Row
from benchmarks.matrix.single_runs import SingleRun, run_arms

DETERMINISTIC = "--deterministic"
ARMS = {
    "stock": SingleRun(None),
    "stock again": SingleRun(None),
    "stock, NCCL_MAX_NCHANNELS=2": SingleRun(None, {"NCCL_MAX_NCHANNELS": "2"}),
    "stock, NCCL_MAX_NCHANNELS=3": SingleRun(None, {"NCCL_MAX_NCHANNELS": "3"}),
    "tuned live": SingleRun(("--mode", "tune", "--stable-iterations", "10")),
    "allgather only": SingleRun(("--set", "allgather:>=1M:nc=2,chunk=256K")),
}


def run(row: Row, place: Place, earlier: dict[str, Any], budget: float) -> dict[str, Any]:
    """Every arm once, deterministic kernels throughout, so that nothing but communication can differ."""
    command = place.command(row, DETERMINISTIC)
    arms = run_arms(command, place.folder / row.name, ARMS, place.environ(row), earlier, budget)
    complete = len(arms) == len(ARMS)
    return {"complete": complete, "arms": arms, "verdict": verdict(arms) if complete else {}}


def verdict(arms: dict[str, Any]) -> dict[str, Any]:
    """Largest difference of losses from stock, by arm; what was to be shown, as yes or no."""
    stock = arms["stock"]
    apart = {name: largest_difference(arm["losses"], stock["losses"]) for name, arm in arms.items() if name != "stock"}
    settings = [far for name, far in apart.items() if name.startswith("stock, ") and far is not None]
    tuned = apart["tuned live"]
    committed = arms["tuned live"]["log"]["events"].get("plan_committed", 0)
    return {
        "exits": [arm["exit"] for arm in arms.values()],
        "largest_difference": apart,
        "stock_repeats_itself": bool(stock["bits"]) and stock["bits"] == arms["stock again"]["bits"],
        "tuned_within_two_stock_settings": tuned is not None and bool(settings) and tuned <= max(settings),
        "allgather_only_identical": bool(stock["bits"]) and stock["bits"] == arms["allgather only"]["bits"],
        "plans_committed_while_tuning": committed,
    }
