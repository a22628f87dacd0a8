# SPDX-License-Identifier: Apache-2.0
"""The table of README.md, from raw results: each speed-up beside the strongest simple thing that a user could set."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import start_results
from benchmarks.matrix.page_values import kept_stock, result
from benchmarks.matrix.rows import BY_HAND
from lagom.experiment.estimate import SpeedupEstimate

RESULTS = Path(__file__).parent / "results"
#: Two speed-ups are called equal where the interval of their ratio lies within this margin of 1, which README names.
EQUAL = 0.02


class Ratio(NamedTuple):
    """A speed-up over plain NCCL with its 95 % interval."""

    value: float
    low: float
    high: float
    digits: int = 3

    @classmethod
    def of(cls, found: SpeedupEstimate) -> Ratio:
        """What ``lagom tune`` measured, with the digits that it prints."""
        return cls(found.value, found.low, found.high, found.digits)

    @property
    def text(self) -> str:
        """``1.244 [1.217, 1.271]``."""
        return f"{self.value:.{self.digits}f} [{self.low:.{self.digits}f}, {self.high:.{self.digits}f}]"


KEPT = Ratio(1.0, 1.0, 1.0)


class MeasuredRow(NamedTuple):
    job: str
    ours: Ratio
    hand: str  # what was set by hand
    by_hand: Ratio | None  # None: that is what Lagom found
    cost: str  # of the search


def matrix(gpus: int) -> dict[str, Any]:
    """The raw results of that many H200."""
    found: dict[str, Any] = json.loads((RESULTS / f"matrix_h200x{gpus}_202611.json").read_text())
    return found


def ratio(gpus: int, row: str, arm: str) -> Ratio:
    """Of one arm over plain NCCL. Raises KeyError where it was not measured."""
    found = result(matrix(gpus), row, arm)
    if found is None or found["speedup"] is None:
        raise KeyError(f"{row}: {arm} was not measured")
    return Ratio(found["speedup"], found["low"], found["high"])


def searched(gpus: int, row: str, strategy: str) -> tuple[Ratio, str]:
    """What a search put in force (plain NCCL where it kept that), and what the search cost."""
    found = result(matrix(gpus), row, strategy)
    assert found is not None
    search = found["search"]
    cost = f"{search['lost']:.1f} of {search['iterations']} steps"
    return KEPT if kept_stock(found) else ratio(gpus, row, strategy), cost


def best_by_hand(gpus: int, row: str) -> tuple[str, Ratio]:
    """The faster of the two settings that were known before any search."""
    known = {arm: ratio(gpus, row, arm) for arm in BY_HAND if result(matrix(gpus), row, arm)}
    arm = max(known, key=lambda name: known[name].value)
    return f"chunk {arm.rpartition('chunk=')[2]}", known[arm]


def rows() -> Iterator[MeasuredRow]:
    """In the order of README.md."""
    for gpus, row, strategy, job in (
        (8, "host-guided-16384", "guided", "8 GPUs, [host memory][m8] ¹"),
        (4, "host-fsdp-16384", "lagom", "4 GPUs, [host memory][m4]"),
    ):
        ours, cost = searched(gpus, row, strategy)
        yield MeasuredRow(job, ours, *best_by_hand(gpus, row), cost)
    ours, cost = searched(4, "nvlink-fsdp-4096", "lagom")
    engines = ratio(2, "nvlink-zero-cta-4096", "env=FSDP_COPY_ENGINE=1,NCCL_CTA_POLICY=2")
    yield MeasuredRow("4 GPUs, [NVLink][m4] ²", ours, "[copy engines][m2]", engines, cost)
    yield _tuned("2 GPUs, [NVLink][start], symmetric buffers ³", start_results.TWO_WINDOWS, "copy engines: the same")
    by_hand = Ratio.of(start_results.by_hand(start_results.TWO_SOCKETS))
    yield _tuned("2 GPUs, [sockets][start] ⁴", start_results.TWO_SOCKETS, "4 × 4 sockets", by_hand)


def _tuned(job: str, regime: str, hand: str, by_hand: Ratio | None = None) -> MeasuredRow:
    """What ``lagom tune`` found."""
    ours = Ratio.of(start_results.confirmed(regime))
    return MeasuredRow(job, ours, hand, by_hand, f"{start_results.minutes(regime)} minutes")


def winner(ours: Ratio, by_hand: Ratio) -> str:
    """Who is faster, by the interval of the ratio of both, which is made from theirs as of independent samples."""
    ratio = math.log(ours.value / by_hand.value)
    reach = math.hypot(*(math.log(one.high / one.low) / 2 for one in (ours, by_hand)))
    if abs(ratio) > reach:
        return "Lagom" if ratio > 0 else "by hand"
    return "equal" if abs(ratio) + reach < EQUAL else "not resolved"


def table() -> str:
    """For README.md."""
    lines = ["| GPUs, path between them | Lagom | by hand | faster | lost in the search |", "|---|---|---|---|---|"]
    for row in rows():
        ours = "plain NCCL kept" if row.ours is KEPT else row.ours.text
        hand = row.hand if row.by_hand is None else f"{row.hand}: {row.by_hand.text}"
        faster = "the same" if row.by_hand is None else winner(row.ours, row.by_hand)
        lines.append(f"| {row.job} | {ours} | {hand} | {faster} | {row.cost} |")
    return "\n".join(lines)
