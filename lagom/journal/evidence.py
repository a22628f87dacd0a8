# SPDX-License-Identifier: Apache-2.0
"""The evidence that goes into a saved config: how each communicator's configs were found, in a few numbers.

Taken from the state that the log's events make, so that the saved config and the log cannot differ.
"""

from __future__ import annotations

from typing import Any

from lagom.journal import schema
from lagom.journal.comm_state import CommState


def evidence_of(comm: CommState, *, ranks: int, ordinal: int, name: str, job: str, gpu: str) -> dict[str, Any] | None:
    """What is kept of one communicator's search; ``None`` where nothing was searched."""
    program, outcome, confirmed, baseline = comm.program, comm.outcome, comm.confirmed, comm.baseline
    if program is None:
        return None
    return {
        "ranks": ranks,
        "ordinal": ordinal,
        "name": name,
        "job": job,
        "gpu": gpu,
        "t": round((outcome or confirmed or program).t),
        "z_ns": comm.stock_z,
        "x_ns": None if baseline is None else baseline.x,
        "y_ns": None if baseline is None else baseline.y,
        "channels_built": program.channels_built,
        "stock": [None if site.stock is None else site.stock.model_dump(exclude_none=True) for site in program.sites],
        "context": [site.context for site in program.sites],
        "confirmed": None if confirmed is None else _of_move(confirmed),
        "outcome": None if outcome is None else _of_outcome(outcome),
    }


def _of_move(move: schema.Move) -> dict[str, Any]:
    return {
        "purpose": move.purpose, "ratio": move.ratio, "ratio_low": move.ratio_low, "ratio_high": move.ratio_high,
        "pairs": move.pairs, "reason": move.reason, "iteration": move.iteration,
    }  # fmt: skip


def _of_outcome(outcome: schema.Outcome) -> dict[str, Any]:
    return {
        "verdict": outcome.verdict, "speedup": outcome.speedup, "speedup_low": outcome.speedup_low,
        "speedup_high": outcome.speedup_high, "resolvable": outcome.resolvable, "configs": outcome.configs,
        "windows": outcome.windows, "iterations": outcome.iterations, "regret_iterations": outcome.regret_iterations,
        "payback_iterations": outcome.payback_iterations, "reason": outcome.reason,
    }  # fmt: skip
