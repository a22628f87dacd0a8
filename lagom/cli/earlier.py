"""What a log folder holds of jobs before its newest, one after the other: told apart from it, or cleared away."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lagom.files import own_file

PAGE = "report.html"
#: What `lagom report` calls its pictures; those of a second communicator have its number in front.
PICTURE = re.compile(r"(\d+-)?(path|convergence|sites|patterns|timeline-stock|timeline-tuned)\.png")


def told_elsewhere(events: Iterable[Any]) -> str:
    """A sentence where only the newest of a log's jobs is told; else empty."""
    from lagom.journal import earlier_jobs

    count = earlier_jobs(events)
    jobs = "an earlier job, which is" if count == 1 else f"{count} earlier jobs, which are"
    return f"This log also holds {jobs} not told of here; `lagom log` prints all of it." if count else ""


def pictures(folder: Path) -> list[Path]:
    """Those of the report that lies in a folder; none where no report does: then they are somebody else's."""
    if own_file(folder / PAGE) is None:
        return []
    return [file for file in folder.iterdir() if PICTURE.fullmatch(file.name) and own_file(file) is not None]


def remove(files: Iterable[Path]) -> None:
    """One that cannot be removed stays: the page beside it does not show it."""
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink()
