"""From the log's events to the few sentences that somebody who watches a job wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lagom.format import format_percent
from lagom.journal import Formatter, schema
from lagom.journal.schema import Base


class ProgressText:
    """Told every event in order, with the time (monotonic, s). ``seconds``: how often a search says that it goes on."""

    def __init__(self, seconds: float) -> None:
        self.status = ""
        self._seconds = seconds
        self._said_at = float("-inf")
        self._formatter = Formatter()
        self._configs: set[tuple[schema.ConfigRecord, ...]] = set()
        self._best: float | None = None  # smallest ratio of a trial, Z of stock = 1
        self._incumbent = 1.0

    def line(self, event: Base, now: float) -> str | None:
        """What to say about it, or nothing."""
        self._formatter.line(event)  # it learns names and sites from what goes by
        say: Callable[[Any], str | None] | None = getattr(self, f"_{event.kind}", None)
        text = None if say is None else say(event)
        if text is None and isinstance(event, schema.Move) and now - self._said_at >= self._seconds:
            text = self._progress(event)
        if text is not None:
            self._said_at = now
        return text

    # -- one method a kind of event that is said at once

    def _program(self, e: schema.Program) -> str:
        self._configs, self._best, self._incumbent = set(), None, 1.0
        self.status = f"searching on {self._formatter.name(e.communicator)}"
        return f"{self._plainly(e)}; measured by {e.tier or 'what can be seen'}; searching"

    def _move(self, e: schema.Move) -> str | None:
        self._keep(e)
        self.status = f"{e.purpose} {e.number}, {self._figures(e)}"
        if e.purpose == "baseline" and e.verdict == "baseline":
            return e.reason
        if e.verdict == "confirmed" and e.purpose == "confirm":
            return f"in force now: {self._formatter.configs(e.communicator, e.candidate)}; {_after_colon(e.reason)}"
        return None

    def _outcome(self, e: schema.Outcome) -> str:
        self.status = e.verdict.replace("_", " ")
        return self._plainly(e)

    def _drift(self, e: schema.Drift) -> str:
        self.status = "learning again"
        return self._plainly(e)

    def _standing_aside(self, e: schema.StandingAside) -> str:
        return self._plainly(e)

    def _plainly(self, e: Base) -> str:
        """The log's own line, without the time."""
        return (self._formatter.line(e) or "").partition(" ")[2]

    def _note(self, e: schema.Note) -> str | None:
        if e.level == "warning":
            return f"warning: {e.text}"
        return e.text if e.level == "notice" else None

    # -- the search as it goes on

    def _keep(self, e: schema.Move) -> None:
        if e.purpose == "baseline" or e.ratio is None:
            return
        self._configs.add(e.candidate)
        ratio = e.ratio * (1.0 if e.purpose == "final" else self._incumbent)
        self._best = min(ratio, self._best or ratio)
        if e.verdict == "confirmed" and e.purpose == "confirm":
            self._incumbent = ratio

    def _progress(self, e: schema.Move) -> str:
        z = "" if e.z is None else f", Z {e.z / 1e6:.1f} ms"
        return f"{e.purpose} {e.number}{z} {e.verdict}: {self._figures(e)}"

    def _figures(self, e: schema.Move) -> str:
        best = "" if self._best is None else f", {_best_text(1.0 / self._best)}"
        sees = "" if e.resolvable is None else f", sees effects from {format_percent(e.resolvable)}"
        return f"{len(self._configs)} configs{best}{sees}, {e.lost_iterations:.1f} iterations lost"


def _best_text(speedup: float) -> str:
    """Of the best trial so far; stock is one of them."""
    return f"best so far {speedup:.3f}x stock" if speedup > 1.0 else "nothing faster than stock so far"


def _after_colon(reason: str) -> str:
    return reason.partition(": ")[2] or reason
