# SPDX-License-Identifier: Apache-2.0
"""A search that ended before its proof: the best it measured, what is missing, and what the job was left on."""

from __future__ import annotations

from lagom.format import format_interval
from lagom.journal import schema
from lagom.journal.comm_state import CommState, describe_changes


def describe_stopped(comm: CommState) -> str:
    """``stopped before its proof: best, not proven: 1.034x [1.012, 1.056] by allgather 2G: nc=6 chunk=512K;
    missing: the final A/B (about 32 pairs); the job was left on plain NCCL's choice``. Empty where every
    search came to its end, or was cut short with nothing faster found."""
    outcome = comm.outcome
    if outcome is None or not (outcome.verdict == "stopped" or (outcome.verdict == "cut_short" and outcome.best)):
        return ""
    how = "stopped" if outcome.verdict == "stopped" else "cut short"
    if outcome.missing_pairs == 0 and outcome.speedup is not None and not comm.pinned:
        interval = format_interval(outcome.speedup_low, outcome.speedup_high)
        proven = _first_change(comm, outcome.configs_chosen)
        return f"{how} after a proof: {outcome.speedup:.3f}x {interval} by {proven}, which the job was left on"
    return f"{how} before its proof: {_best(comm)}; the job was left on {_left_on(comm, outcome)}"


def describe_pinned(comm: CommState) -> str:
    """The rules that were put in force by hand, in one sentence; empty where there are none."""
    return f"Pinned by hand, not compared with plain NCCL: {'; '.join(comm.pinned)}." if comm.pinned else ""


def _left_on(comm: CommState, outcome: schema.Outcome) -> str:
    if comm.pinned:
        return f"the pinned rules: {'; '.join(comm.pinned)}"
    confirmed = _first_change(comm, outcome.configs_chosen)
    return f"what was confirmed while searching: {confirmed}" if confirmed else "plain NCCL's choice"


def _first_change(comm: CommState, configs: tuple[schema.ConfigRecord, ...]) -> str:
    """The config of the first sites and a count of the others: the verdict has three lines of 80 columns at most."""
    first, *others = describe_changes(comm.sites, configs, most=1).split("; ")
    return f"{first} and {len(others)} more" if others else first


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
    best = _first_change(comm, outcome.best) or "plain NCCL"
    missing = "" if outcome.missing_pairs is None else f" (about {outcome.missing_pairs} pairs)"
    return f"best, not proven: {ratio} by {best}; missing: the final A/B{missing}"
