"""What can still be known of a job whose log has no end: whether its controller runs, was killed, or cannot be seen."""

from __future__ import annotations

import socket
from pathlib import Path

from lagom.journal import JobEnd, JobStart
from lagom.journal.schema import Base


def how_it_stands(start: JobStart | None, last: Base | None) -> str:
    """One sentence about a log whose last job began with ``start`` and whose last event is ``last``; empty if it has
    its end. Only the node of the job can see more than that the end is missing."""
    if last is None or isinstance(last, JobEnd):
        return ""
    who = f"its controller (pid {start.pid})" if start is not None and start.pid else "its controller"
    if start is None or not start.region or start.host != socket.gethostname():
        where = f" on {start.host}" if start is not None and start.host else ""
        return f"this log has no end: {who} was killed, or still runs{where}."
    return _as_seen_here(Path(start.region), who, start.pid)


def _as_seen_here(region: Path, who: str, pid: int) -> str:
    from lagom.wire.glance import glance

    seen = glance(region)
    if seen.controller_alive and pid in (0, seen.controller_pid):
        return f"this log has no end yet: {who} runs."
    ranks = 0 if seen.controller_alive else len(seen.processes)  # those of another controller are another job's
    job = f"; {ranks} rank(s) of the job go on with what was agreed so far" if ranks else ""
    return f"this log has no end: {who} was killed{job}."
