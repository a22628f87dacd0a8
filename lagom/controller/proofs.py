"""The evidence that goes into the profile with the configs: how each communicator's were found, in a few numbers.

Taken from what is written to the log anyway, so that profile and log cannot tell two stories.
"""

from __future__ import annotations

from typing import Any

from lagom import journal
from lagom.wire.views import CommunicatorView


class Proofs:
    """Hears the events of every communicator that is tuned."""

    def __init__(self) -> None:
        self._programs: dict[int, journal.Program] = {}
        self._confirmed: dict[int, journal.Move] = {}
        self._outcomes: dict[int, journal.Outcome] = {}
        self._baselines: dict[int, float] = {}

    def hear(self, event: journal.Program | journal.Move | journal.Outcome) -> None:
        """A later program begins a new story."""
        if isinstance(event, journal.Program):
            self._programs[event.communicator] = event
            for told in (self._confirmed, self._outcomes, self._baselines):
                told.pop(event.communicator, None)
        elif isinstance(event, journal.Outcome):
            self._outcomes[event.communicator] = event
        elif event.verdict == "confirmed":
            self._confirmed[event.communicator] = event
        elif event.purpose == "baseline" and event.z is not None:
            self._baselines[event.communicator] = event.z

    def of(self, view: CommunicatorView, job: str, gpu: str) -> dict[str, Any] | None:
        """What the profile keeps of one communicator's search; ``None`` where nothing was searched."""
        program = self._programs.get(view.index)
        if program is None:
            return None
        outcome, confirmed = self._outcomes.get(view.index), self._confirmed.get(view.index)
        return {
            "ranks": view.rank_count,
            "ordinal": view.ordinal,
            "name": view.name,
            "job": job,
            "gpu": gpu,
            "t": round((outcome or confirmed or program).t),
            "z_ns": self._baselines.get(view.index),
            "channels_built": program.channels_built,
            "stock": [
                None if site.stock is None else site.stock.model_dump(exclude_none=True) for site in program.sites
            ],
            "context": [site.context for site in program.sites],
            "confirmed": None if confirmed is None else _of_move(confirmed),
            "outcome": None if outcome is None else _of_outcome(outcome),
        }


def _of_move(move: journal.Move) -> dict[str, Any]:
    return {
        "purpose": move.purpose, "ratio": move.ratio, "ratio_low": move.ratio_low, "ratio_high": move.ratio_high,
        "pairs": move.pairs, "reason": move.reason, "iteration": move.iteration,
    }  # fmt: skip


def _of_outcome(outcome: journal.Outcome) -> dict[str, Any]:
    return {
        "verdict": outcome.verdict, "speedup": outcome.speedup, "speedup_low": outcome.speedup_low,
        "speedup_high": outcome.speedup_high, "resolvable": outcome.resolvable, "configs": outcome.configs,
        "windows": outcome.windows, "iterations": outcome.iterations, "regret_iterations": outcome.regret_iterations,
        "reason": outcome.reason,
    }  # fmt: skip
