"""What can still be known of a job whose log has no end: whether its controller runs, was killed, or cannot be seen.

A controller that is gone was killed, or could not write: what its log lacks looks the same.
"""

from __future__ import annotations

import socket
from pathlib import Path

from lagom.journal.ending import pid_namespace, tells_death
from lagom.journal.reader import read
from lagom.journal.run_state import RunState
from lagom.journal.schema import JobEnd

#: What became of a controller that wrote no end, where nobody saw it.
GONE = "was killed, or could not write it (a full disk)"


def how_it_stands(run: RunState) -> str:
    """One sentence about a log without an end; empty if it has one. Only the node of the job can see more than that the
    end is missing."""
    start, last = run.start, run.last
    if last is None or isinstance(last, JobEnd):
        return ""
    who = f"its controller (pid {start.pid})" if start is not None and start.pid else "its controller"
    if start is None or not start.region or start.host != socket.gethostname():
        where = f" on {start.host}" if start is not None and start.host else ""
        return f"this log has no end: {who} {GONE}, or still runs{where}."
    return _as_seen_here(Path(start.region), who, start.pid, "was killed" if tells_death(last) else GONE)


def has_died(run: RunState) -> bool:
    """Whether nobody will ever write the end of such a log; False where that cannot be seen from here."""
    start, last = run.start, run.last
    if start is None or not start.pid or isinstance(last, JobEnd) or start.host != socket.gethostname():
        return False
    is_ours = start.pid_namespace != 0 and start.pid_namespace == pid_namespace()
    return is_ours and not Path(f"/proc/{start.pid}").exists()


def _as_seen_here(region: Path, who: str, pid: int, fate: str) -> str:
    from lagom.wire.peek import peek_region

    seen = peek_region(region)
    if seen.controller_alive and pid in (0, seen.controller_pid):
        return f"this log has no end yet: {who} runs."
    ranks = 0 if seen.controller_alive else len(seen.processes)  # those of another controller are another job's
    job = f"; {ranks} rank(s) of the job go on with what was agreed so far" if ranks else ""
    return f"this log has no end: {who} {fate}{job}."


def describe_earlier_jobs(run: RunState) -> str:
    """A sentence where only the newest of a log's jobs is told; else empty."""
    count = run.earlier_jobs
    jobs = "an earlier job, which is" if count == 1 else f"{count} earlier jobs, which are"
    return f"This log also holds {jobs} not told of here; `lagom log` prints all of it." if count else ""


def is_of_an_earlier_job(path: Path, log: Path) -> bool:
    """Whether a file beside a log was written before its newest job began: a folder may hold several. Raises
    :class:`JournalError` where the log cannot be read."""
    start = RunState(read(log), keep_samples=False).start
    return start is not None and path.exists() and path.stat().st_mtime < start.t
