"""What can still be known of a job whose log has no end: whether its controller runs, was killed, or cannot be seen.

A controller that is gone was killed, or could not write: what its log lacks looks the same.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagom.journal.ending import pid_namespace, tells_death
from lagom.journal.reader import earlier_jobs
from lagom.journal.schema import Base, JobEnd, JobStart

#: What became of a controller that wrote no end, where nobody saw it.
GONE = "was killed, or could not write it (a full disk)"


def how_it_stands(start: JobStart | None, last: Base | None) -> str:
    """One sentence about a log whose last job began with ``start`` and whose last event is ``last``; empty if it has
    its end. Only the node of the job can see more than that the end is missing."""
    if last is None or isinstance(last, JobEnd):
        return ""
    who = f"its controller (pid {start.pid})" if start is not None and start.pid else "its controller"
    if start is None or not start.region or start.host != socket.gethostname():
        where = f" on {start.host}" if start is not None and start.host else ""
        return f"this log has no end: {who} {GONE}, or still runs{where}."
    return _as_seen_here(Path(start.region), who, start.pid, "was killed" if tells_death(last) else GONE)


def has_died(start: JobStart | None, last: Base | None) -> bool:
    """Whether nobody will ever write the end of such a log; False where that cannot be seen from here."""
    if start is None or not start.pid or isinstance(last, JobEnd) or start.host != socket.gethostname():
        return False
    is_ours = start.pid_namespace != 0 and start.pid_namespace == pid_namespace()
    return is_ours and not Path(f"/proc/{start.pid}").exists()


@dataclass(slots=True)
class LogStatus:
    """The same of a log that is being read, event by event."""

    start: JobStart | None = None
    last: Base | None = None

    def take(self, event: Base) -> None:
        """One more event."""
        self.start, self.last = event if isinstance(event, JobStart) else self.start, event

    def has_died(self) -> bool:
        """As far as it was read."""
        return has_died(self.start, self.last)

    def sentence(self) -> str:
        """Empty if the log has its end."""
        return how_it_stands(self.start, self.last)


def _as_seen_here(region: Path, who: str, pid: int, fate: str) -> str:
    from lagom.wire.glance import glance

    seen = glance(region)
    if seen.controller_alive and pid in (0, seen.controller_pid):
        return f"this log has no end yet: {who} runs."
    ranks = 0 if seen.controller_alive else len(seen.processes)  # those of another controller are another job's
    job = f"; {ranks} rank(s) of the job go on with what was agreed so far" if ranks else ""
    return f"this log has no end: {who} {fate}{job}."


def describe_earlier_jobs(events: Iterable[Any]) -> str:
    """A sentence where only the newest of a log's jobs is told; else empty."""
    count = earlier_jobs(events)
    jobs = "an earlier job, which is" if count == 1 else f"{count} earlier jobs, which are"
    return f"This log also holds {jobs} not told of here; `lagom log` prints all of it." if count else ""
