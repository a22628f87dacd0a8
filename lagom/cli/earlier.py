"""What a log holds of jobs before its newest, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def told_elsewhere(events: Iterable[Any]) -> str:
    """A sentence where only the newest of a log's jobs is told; else empty."""
    from lagom.journal import earlier_jobs

    count = earlier_jobs(events)
    jobs = "an earlier job, which is" if count == 1 else f"{count} earlier jobs, which are"
    return f"This log also holds {jobs} not told of here; `lagom log` prints all of it." if count else ""
