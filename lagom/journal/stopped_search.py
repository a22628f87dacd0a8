# SPDX-License-Identifier: Apache-2.0
"""A search that ended before its proof, in one clause: the best it measured and what is missing."""

from __future__ import annotations

from lagom.format import format_interval
from lagom.journal.comm_state import CommState, describe_changes


def describe_stopped(comm: CommState) -> str:
    """``stopped before its proof: best measured, not proven: 1.034x [1.012, 1.056] by allgather 2G: nc=6 c=512K;
    missing: the final A/B (about 32 pairs); the job was left on plain NCCL's choice``. Empty where every
    search came to its end, or was cut short with nothing faster found."""
    outcome = comm.outcome
    if outcome is None or not (outcome.verdict == "stopped" or (outcome.verdict == "cut_short" and outcome.best)):
        return ""
    confirmed = describe_changes(comm.sites, outcome.configs_chosen)
    left_on = f"what was confirmed while searching: {confirmed}" if confirmed else "plain NCCL's choice"
    how = "stopped" if outcome.verdict == "stopped" else "cut short"
    if outcome.missing_pairs == 0 and outcome.speedup is not None:
        interval = format_interval(outcome.speedup_low, outcome.speedup_high)
        return f"{how} after a proof: {outcome.speedup:.3f}x {interval} by {confirmed}, which the job was left on"
    return f"{how} before its proof: {_best(comm)}; the job was left on {left_on}"


def _best(comm: CommState) -> str:
    outcome = comm.outcome
    assert outcome is not None
    if outcome.best is None or outcome.best_speedup is None:
        if not outcome.configs:
            return "no config was measured"
        if (comm.best_speedup or 0.0) > 1.0:  # within noise, or by a log that does not say what it was
            return f"nothing was proven in {outcome.configs} configs"
        return f"nothing faster than plain NCCL was found in {outcome.configs} configs"
    ratio = f"{outcome.best_speedup:.3f}x {format_interval(outcome.best_low, outcome.best_high)}".rstrip()
    best = describe_changes(comm.sites, outcome.best) or "plain NCCL"
    missing = "" if outcome.missing_pairs is None else f" (about {outcome.missing_pairs} pairs)"
    return f"best measured, not proven: {ratio} by {best}; missing: the final A/B{missing}"
