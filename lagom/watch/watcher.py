# SPDX-License-Identifier: Apache-2.0
"""Takes snapshots of the node at intervals, and keeps between them what the next one needs: counters, logs, ended jobs.

Shared memory is copied read-only and no lock is taken (:mod:`lagom.wire.peek`); logs are read.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from lagom.errors import JournalError
from lagom.journal.reader import Tail
from lagom.watch.build import Count, build_ended, build_job, read_counters
from lagom.watch.find import Named, find_log_folder, read_region_path, regions
from lagom.watch.log_view import LogView
from lagom.watch.snapshot import JobSnapshot, NodeSnapshot
from lagom.wire.peek import RegionView, peek_region

#: How long a job that has ended stays on the screen.
ENDED_SECONDS = 60.0
#: How often the log of a job is looked for that has none yet.
SEARCH_SECONDS = 2.0


@dataclass
class _Followed:
    """One job between two looks."""

    region: Path
    folder: Path | None = None
    tail: Tail | None = None
    log: LogView = field(default_factory=LogView)
    counts: dict[int, Count] = field(default_factory=dict)
    last: JobSnapshot | None = None
    ended_at: float | None = None
    searched_at: float = float("-inf")

    def read_log(self) -> None:
        """What is new in it."""
        if self.tail is None and self.folder is not None:
            self.tail = Tail(self.folder)
        try:
            if self.tail is not None:
                self.log.read(self.tail.unread())
        except JournalError:  # another schema: the region alone must do
            self.tail = None
            self.folder = None

    @property
    def current_log(self) -> LogView:
        """The log, if it is about this region: a log folder may have served another job before."""
        start = self.log.state.start
        return self.log if start is None or start.region in ("", str(self.region)) else LogView()


class Watcher:
    """Every job of this user on this node, or the one that was named."""

    def __init__(self, only: Named | None = None) -> None:
        self._only = only
        self._folder = only.folder if only is not None else None
        self._jobs: dict[Path, _Followed] = {}

    def look(self) -> NodeSnapshot:
        """The node now."""
        now = time.monotonic()
        for path in self._paths():
            seen = peek_region(path)
            if seen.processes or seen.controller_alive:
                self._see(seen, now)
            elif path in self._jobs or self._only is not None:
                self._end(path, now)
        for path in [path for path in self._jobs if not path.exists()]:
            self._end(path, now)
        self._forget(now)
        jobs = tuple(job.last for job in self._jobs.values() if job.last is not None)
        return NodeSnapshot(time.time(), socket.gethostname(), jobs)

    def _paths(self) -> list[Path]:
        if self._only is None:
            return regions()
        running = [path for path, job in self._jobs.items() if job.ended_at is None]
        if running:
            return running
        return [named] if (named := _region_of(self._only)) is not None else []

    def _see(self, seen: RegionView, now: float) -> None:
        job = self._jobs.get(seen.path)
        if job is None or job.ended_at is not None:  # new, or another job under the old name
            job = self._jobs[seen.path] = _Followed(seen.path, self._folder)
        if job.folder is None and now - job.searched_at >= SEARCH_SECONDS:
            job.searched_at = now
            job.folder = find_log_folder(seen)
        job.read_log()
        counts = read_counters(seen, now)
        job.last = build_job(seen, job.current_log, str(job.folder or ""), job.counts, counts)
        job.counts = counts

    def _end(self, path: Path, now: float) -> None:
        job = self._jobs.setdefault(path, _Followed(path, self._folder))
        if job.ended_at is not None:
            return
        job.ended_at = now
        job.read_log()
        end = job.current_log.state.end
        reason = end.reason if end is not None else "its shared memory is gone, and its log does not say why"
        job.last = build_ended(job.current_log, str(job.folder or ""), str(path), reason, job.last)

    def _forget(self, now: float) -> None:
        for path, job in list(self._jobs.items()):
            if job.ended_at is not None and now - job.ended_at > ENDED_SECONDS and self._only is None:
                del self._jobs[path]


def _region_of(only: Named) -> Path | None:
    if only.region is not None or only.folder is None:
        return only.region
    return read_region_path(only.folder)
