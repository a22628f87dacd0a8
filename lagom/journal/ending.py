"""How a log ends, or why it does not: a controller that is killed cannot say so itself."""

from __future__ import annotations

import os
from pathlib import Path

from lagom.errors import JournalError
from lagom.files import open_own
from lagom.journal.reader import parse
from lagom.journal.schema import Base, JobEnd, StandingAside
from lagom.journal.writer import Journal

#: Of a job beside which a controller waited in vain. Not certain: a rank may have come and gone between two looks.
NOBODY_CAME = "no rank registered with lagom: most likely nothing called NCCL"
DEATH = "the controller "  # how that note begins
LAST_BYTES = 64 << 10  # more than any line but a long move's; a job_end is far shorter


def pid_namespace() -> int:
    """Of this process, by the kernel's number; 0 where it is not told. In another one a pid is somebody else's."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def last_event(path: Path) -> Base | None:
    """The last line of a log file as an event; None if there is none, or it is torn or too long to be an end."""
    try:
        with os.fdopen(open_own(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
            lines = file.read().splitlines()
        return parse(lines[-1].decode(errors="replace")) if lines else None
    except (OSError, JournalError):
        return None


def lacks_an_end(path: Path) -> bool:
    """Whether a log has been begun and not ended."""
    return path.is_file() and path.stat().st_size > 0 and not isinstance(last_event(path), JobEnd)


def tells_death(event: Base | None) -> bool:
    """Whether an event is the note that the controller was killed."""
    return isinstance(event, StandingAside) and event.reason.startswith(DEATH) and "was killed" in event.reason


def write_death(folder: Path, death: str) -> None:
    """Note in a log that its controller is gone. ``death``: one clause, as in `was killed by SIGKILL`."""
    with Journal(folder) as log:
        log.write(StandingAside(reason=f"{DEATH}{death}; the job goes on with what was agreed so far"))


def write_end(folder: Path, reason: str, seconds: float) -> None:
    """The last line that a controller did not come to write. Nothing where it did."""
    with Journal(folder) as log:
        if not isinstance(last_event(log.path), JobEnd):
            log.write(JobEnd(reason=reason, seconds=seconds))
