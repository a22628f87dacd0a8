# SPDX-License-Identifier: Apache-2.0
"""A search that ended before its proof: the best it measured, what is missing, and what the job was left on."""

from __future__ import annotations

from collections.abc import Iterable

from lagom.format import format_count, format_interval
from lagom.journal import schema
from lagom.journal.comm_state import CommState, describe_changes


def describe_stopped(comm: CommState) -> str:
    """``stopped before its proof: best, not proven: 1.034x [1.012, 1.056] by allgather 2G: nc=6 chunk=512K;
    missing: the final A/B (about 32 pairs); the job was left on plain NCCL's choice``. Empty where every
    search came to its end, or was cut short with nothing faster found."""
    outcome = comm.outcome
    if outcome is None or not (outcome.verdict == "stopped" or (outcome.verdict == "cut_short" and outcome.best)):
        return ""
    if _is_proven(outcome) and not comm.pinned:
        proven = _first_change(comm, outcome.configs_chosen)
        return f"{_ended(outcome)}: {_ratio(outcome)} by {proven}, which the job was left on"
    how = f"{_how(outcome)} before its proof" if comm.pinned else _ended(outcome)
    return f"{how}: {_best(comm)}; the job was left on {_left_on(comm, outcome)}"


def summarize_stopped(comms: Iterable[CommState]) -> str:
    """``stopped before its proof: 1.034x [1.012, 1.056], 32 pairs missing``: the same of the communicator with the
    largest speed-up. Short, because `lagom run` cuts its line at the end."""
    comms = list(comms)
    outcomes = [comm.outcome for comm in comms if comm.outcome is not None]
    found = [outcome for outcome in outcomes if _is_proven(outcome) or outcome.best_speedup is not None]
    if not found:
        return (
            f"stopped before its proof: nothing proven in {format_count(sum(c.configs_tried for c in comms), 'config')}"
        )
    best = max(found, key=lambda outcome: (_is_proven(outcome), outcome.best_speedup or outcome.speedup or 0.0))
    missing = f", {format_count(best.missing_pairs, 'pair')} missing" if best.missing_pairs else ""
    return f"{_ended(best)}: {_ratio(best)}{missing}"


def _is_proven(outcome: schema.Outcome) -> bool:
    return outcome.missing_pairs == 0 and outcome.speedup is not None


def _how(outcome: schema.Outcome) -> str:
    return "stopped" if outcome.verdict == "stopped" else "cut short"


def _ended(outcome: schema.Outcome) -> str:
    return f"{_how(outcome)} {'after a' if _is_proven(outcome) else 'before its'} proof"


def _ratio(outcome: schema.Outcome) -> str:
    """Of what is proven; else of the best that was measured."""
    if _is_proven(outcome):
        ratio, low, high = outcome.speedup, outcome.speedup_low, outcome.speedup_high
    else:
        ratio, low, high = outcome.best_speedup, outcome.best_low, outcome.best_high
    return f"{ratio:.3f}x {format_interval(low, high)}".rstrip()


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
    best = _first_change(comm, outcome.best) or "plain NCCL"
    missing = "" if outcome.missing_pairs is None else f" (about {outcome.missing_pairs} pairs)"
    return f"best, not proven: {_ratio(outcome)} by {best}; missing: the final A/B{missing}"
