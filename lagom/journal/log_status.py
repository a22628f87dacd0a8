# SPDX-License-Identifier: Apache-2.0
"""The end of a log: how the controller ended.

A killed controller cannot write an end event. A log without one means that the controller was killed or could not
write; the two cannot be distinguished.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from lagom.errors import JournalError
from lagom.files import open_own
from lagom.journal.reader import parse, read
from lagom.journal.run_state import RunState
from lagom.journal.schema import Base, JobEnd, JobStart, Passthrough
from lagom.journal.writer import LOG_NAME, Journal

#: Of a job beside which a controller waited in vain: NCCL was not used, or by one rank only. Not certain: a rank may
#: have come and gone between two looks.
NO_RANK_JOINED = "no NCCL communicator of 2 or more ranks was seen"
LAST_BYTES = 64 << 10  # more than any line but a long move's; a job_end is far shorter


def pid_namespace() -> int:
    """Of this process, by the kernel's number; 0 where it is not known. In another one a pid is somebody else's."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def read_last_event(path: Path) -> Base | None:
    """The last line of a log file as an event; None if there is none, or it is torn or too long to be an end."""
    try:
        with os.fdopen(open_own(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
            lines = file.read().splitlines()
        return parse(lines[-1].decode(errors="replace")) if lines else None
    except (OSError, JournalError):
        return None


def is_unfinished(path: Path) -> bool:
    """Whether a log has been begun and not ended."""
    return path.is_file() and path.stat().st_size > 0 and not isinstance(read_last_event(path), JobEnd)


def describe_broken_log(folder: Path, run: RunState) -> str:
    """A sentence if the controller has ended and its log has no end; else empty. The controller can report that only in
    controller.log, which may be on the same full disk."""
    if run.end is not None:
        return ""
    return (
        f"the log {folder / LOG_NAME} is incomplete: its end could not be written (a full disk?); "
        "what happened after its last line is not recorded."
    )


def is_death_note(event: Base | None) -> bool:
    """Whether an event is the note that the controller was killed."""
    return isinstance(event, Passthrough) and event.cause == "controller_died"


def write_death(folder: Path, death: str, *, was_killed: bool) -> None:
    """Note in a log that its controller is gone. ``death``: one clause, as in `was killed by SIGKILL`."""
    reason = f"the controller {death}; the job goes on with what was agreed so far"
    with Journal(folder) as log:
        log.write(Passthrough(reason=reason, cause="controller_died" if was_killed else ""))


def write_end(folder: Path, reason: str, seconds: float, *, unsaid: JobStart | None = None) -> None:
    """The last line that a controller did not come to write. Nothing where it did. ``unsaid``: the job's first line
    where its controller wrote nothing at all; an end before it is then of an earlier job in this folder."""
    with Journal(folder) as log:
        if unsaid is not None:
            log.write(unsaid)
        if not isinstance(read_last_event(log.path), JobEnd):
            log.write(JobEnd(reason=reason, seconds=seconds))


#: How a controller ended that wrote no end event, if nothing else is known.
GONE = "was killed, or could not write it (a full disk)"


def describe_log_status(run: RunState) -> str:
    """One sentence about a log without an end; empty if it has one. Only the node of the job can see more than that the
    end is missing."""
    start, last = run.start, run.last
    if last is None or isinstance(last, JobEnd):
        return ""
    who = f"its controller (pid {start.pid})" if start is not None and start.pid else "its controller"
    if start is None or not start.region or start.host != socket.gethostname():
        where = f" on {start.host}" if start is not None and start.host else ""
        return f"this log has no end: {who} {GONE}, or still runs{where}."
    return _as_seen_here(Path(start.region), who, start.pid, "was killed" if is_death_note(last) else GONE)


def has_died(run: RunState) -> bool:
    """Whether no process is left that could write the end of such a log; False if that is unknown here."""
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
    """A sentence where a report covers only the newest of a log's jobs; else empty."""
    count = run.earlier_jobs
    jobs = "an earlier job, which is" if count == 1 else f"{count} earlier jobs, which are"
    return f"This log also holds {jobs} not part of this report; `lagom log` prints all of it." if count else ""


def is_of_an_earlier_job(path: Path, log: Path) -> bool:
    """Whether a file beside a log was written before its newest job began: a folder may hold several. Raises
    :class:`JournalError` where the log cannot be read."""
    start = RunState(read(log), keep_samples=False).start
    return start is not None and path.exists() and path.stat().st_mtime < start.t
