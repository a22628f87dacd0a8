"""What ``lagom run`` says when its job is over, from what the log gained meanwhile."""

from __future__ import annotations

from pathlib import Path

from lagom import journal
from lagom.errors import JournalError
from lagom.journal.ending import NOBODY_CAME, nobody_came
from lagom.journal.schema import Base


def events_since(folder: Path, since: float) -> list[Base]:
    """The events of a log from then on (wall clock, s); none where there is no log that can be read."""
    try:
        return [event for event in journal.read(journal.find_log(folder)) if event.t >= since]
    except JournalError:
        return []


def result(events: list[Base]) -> str:
    """What the search came to, if it came to anything: for the last line."""
    outcomes = [event for event in events if isinstance(event, journal.Outcome)]
    gains = [f"{outcome.speedup:.3f}x" for outcome in outcomes if outcome.verdict == "improved" and outcome.speedup]
    if gains:
        return f"; tuned: {', '.join(gains)} stock"
    if outcomes:
        return f"; search: {outcomes[-1].verdict.replace('_', ' ')}"
    return f"; {NOBODY_CAME}" if nobody_came(events) else ""


def broken_off(folder: Path, events: list[Base]) -> str:
    """A sentence if the log of a job whose controller has ended has no end; else empty. The controller itself can say
    it on its own stderr alone, which nobody reads, and which may lie on the same full disk."""
    if any(isinstance(event, journal.JobEnd) for event in events):
        return ""
    return (
        f"the log {folder / journal.LOG_NAME} is not whole: its end could not be written, as on a full disk; "
        "what happened after its last line is told nowhere."
    )
