# SPDX-License-Identifier: Apache-2.0
"""A job's log as ``watch`` needs it: its state, and the last lines of what was decided."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from lagom import journal
from lagom.journal.schema import Base
from lagom.records import printable

#: Lines kept of what was decided.
DECISIONS = 50
#: Events whose line a watcher wants to read; plans of trials come and go with every move.
DECISIVE = ("program", "move", "outcome", "plan_aborted", "plan_committed", "standing_aside", "drift", "job_end")


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of what was decided. ``t``: wall clock, seconds since 1970."""

    t: float
    kind: str
    text: str


class LogView:
    """A log as it grows."""

    def __init__(self, events: Iterable[Base] = ()) -> None:
        self.state = journal.RunState(keep_samples=False)
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS)
        self._formatter = journal.Formatter(state=self.state)
        self.read(events)

    def read(self, events: Iterable[Base]) -> None:
        """More of the log."""
        for event in events:
            self.state.apply(event)
            if isinstance(event, journal.JobStart):
                self.decisions.clear()
            line = self._formatter.line(event)
            warned = isinstance(event, journal.Note) and event.level == "warning"
            if line is not None and (event.kind in DECISIVE or warned):
                self.decisions.append(Decision(event.t, event.kind, printable(line.split(" ", 1)[1])))
