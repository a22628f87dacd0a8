"""Snapshots as lines for a file or a pipe: a line a communicator and look, each decision once, each end once."""

from __future__ import annotations

from collections.abc import Iterator

from lagom.format import format_clock
from lagom.watch import text
from lagom.watch.screen import NO_JOB
from lagom.watch.snapshot import GroupSnapshot, JobSnapshot, NodeSnapshot


class Lines:
    """Remembers what was said."""

    def __init__(self) -> None:
        self._decided: dict[str, float] = {}
        self._ended: set[tuple[str, float]] = set()
        self._said_none = False

    def of(self, node: NodeSnapshot) -> Iterator[str]:
        """The lines of one look."""
        if not node.jobs and not self._said_none:
            yield f"{format_clock(node.t)} {NO_JOB}"
        self._said_none = not node.jobs
        for job in node.jobs:
            yield from self._decisions(job)
            if not job.ended:
                yield from (f"{format_clock(node.t)} {job.job} {group_line(group)}" for group in job.groups)
            elif (job.region, job.started) not in self._ended:
                self._ended.add((job.region, job.started))
                yield f"{format_clock(node.t)} {job.job} ended: {job.ended}"

    def _decisions(self, job: JobSnapshot) -> Iterator[str]:
        said = self._decided.get(job.region, 0.0)
        for decision in job.decisions:
            if decision.t > said:
                yield f"{format_clock(decision.t)} {job.job} {decision.text}"
        if job.decisions:
            self._decided[job.region] = max(said, job.decisions[-1].t)


def group_line(group: GroupSnapshot) -> str:
    """One communicator in one line."""
    parts = [f"{group.name} {text.phase(group)}", *text.group_facts(group), *text.changed_sites(group)]
    return ", ".join(parts)
