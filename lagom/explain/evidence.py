"""What speaks for the config that is in force at one site: a window that kept it, or only what was tried beside it."""

from __future__ import annotations

from collections.abc import Sequence

from lagom.explain.model import Trial
from lagom.records import CommConfig


def of(ours: CommConfig, trials: Sequence[Trial], *, proven: bool) -> str:
    """One clause. ``proven``: the final A/B of all sites together spoke for it. Empty where NCCL decides."""
    if ours.is_stock:
        return ""
    settled = [trial for trial in trials if trial.settled]
    own = [trial for trial in settled if trial.config == ours]
    kept = [trial for trial in own if trial.kept]
    clauses = [
        _kept(kept[-1]) if kept else _grown_from(own[0]) if own else "no window was about this config here alone"
    ]
    since = kept[-1].number if kept else own[0].number if own else 0
    clauses += _beside([trial for trial in settled if trial.config != ours and trial.number > since])
    return "; ".join([*clauses, *(["proven with all sites together in the final A/B"] if proven else [])])


def _kept(trial: Trial) -> str:
    return f"kept by #{trial.number}{_together(trial)}, {trial.verdict}"


def _grown_from(trial: Trial) -> str:
    """Where a search begins is put in force without being better: it has to grow from somewhere."""
    point = "the floor" if "floor" in trial.reason else "a point"
    return f"{point} it grew from (#{trial.number}{_together(trial)}, {trial.verdict} in its own window)"


def _together(trial: Trial) -> str:
    return " with other sites" if trial.joint else ""


def _beside(others: Sequence[Trial]) -> list[str]:
    """Moves away from it, which are not what is in force."""
    came_to: dict[str, list[str]] = {}
    for trial in others:
        what = "kept, and not what was confirmed" if trial.kept else "worse" if trial.verdict == "worse" else "not kept"
        came_to.setdefault(what, []).append(f"#{trial.number}")
    told = [f"{what} ({', '.join(numbers)})" for what, numbers in came_to.items()]
    return [f"moves away from it were {' or '.join(told)}"] if told else []
