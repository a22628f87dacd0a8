# SPDX-License-Identifier: Apache-2.0
"""Does the log tell what happened? Compared with what the soak did and what the ranks saw, at the end."""

from __future__ import annotations

import re
import signal
from collections import Counter
from pathlib import Path

from lagom.controller.controller import describe_stop
from lagom.journal import LOG_NAME, Communicator, JobEnd, JobStart, PlanCommitted, PlanPublished
from lagom.journal.reader import parse
from lagom.journal.schema import Base
from tests.soak.keeper import Life

AFTER_SIGTERM = describe_stop(signal.SIGTERM, launched=True)  # the soak is the launcher, and ends its controllers


class Story:
    """The whole decision log of a soak."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        lines = (folder / LOG_NAME).read_bytes().split(b"\n")
        read = [parse(line.decode(errors="replace")) for line in lines if line.strip()]
        self.events: list[Base] = [event for event in read if event is not None]
        self.torn = len(read) - len(self.events)
        self.counts = Counter(event.kind for event in self.events)
        self._comm_ids: dict[int, int] = {}
        self.published: dict[tuple[int, int], int] = {}  # (comm_id, epoch): first call
        self.committed: set[tuple[int, int]] = set()
        for event in self.events:
            self._note(event)

    def _note(self, event: Base) -> None:
        if isinstance(event, Communicator):
            self._comm_ids[event.communicator] = int(event.comm_id, 16)
        elif isinstance(event, PlanPublished):
            self.published[self._comm_ids.get(event.communicator, 0), event.epoch] = event.start_call
        elif isinstance(event, PlanCommitted):
            self.committed.add((self._comm_ids.get(event.communicator, 0), event.epoch))

    def faults(self, lives: list[Life], in_force: list[tuple[int, int, int]]) -> list[str]:
        """What it does not tell, or tells otherwise. ``in_force``: (comm_id, epoch, first call), as the ranks say."""
        kills = sum(life.ended_by == "killed" for life in lives)
        untold = [plan for plan in in_force if self.published.get(plan[:2]) != plan[2]]
        unconfirmed = [plan for plan in in_force if plan[:2] not in self.committed]
        said = (self._folder / "controller.log").read_text(errors="replace")
        stops = sum(life.ended_by == "stopped" for life in lives)
        ends = [event for event in self.events if isinstance(event, JobEnd) and event.reason == AFTER_SIGTERM]
        starts = sum(isinstance(event, JobStart) for event in self.events)
        attached = len(re.findall(r"^lagom controller \d+:", said, re.MULTILINE))
        held = {
            f"plans were in force of which the log says nothing, or another first call: {untold[:5]}": not untold,
            # Killed between the commit and the line about it: one plan a kill at most.
            f"{len(unconfirmed)} plans in force are not told as agreed, after {kills} kills": len(unconfirmed) <= kills,
            f"{self.torn} lines are torn, after {kills} kills": self.torn <= kills,
            f"{stops} controllers were stopped, {len(ends)} said so": len(ends) >= stops,
            f"{attached} controllers took the region, {starts} say that they began": starts >= attached - kills,
            "a controller raised an exception; controller.log has it": "Traceback" not in said,
        }
        return [words for words, holds in held.items() if not holds]
