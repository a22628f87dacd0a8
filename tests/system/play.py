# SPDX-License-Identifier: Apache-2.0
"""A virtual job under the real controller, watched until enough is seen: the loop that the tests of tuning share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from lagom import journal
from lagom.journal.reader import Tail
from lagom.sim.virtual.job_controller import JobController
from lagom.sim.virtual.spec import JobSpec
from lagom.sim.virtual.virtual_job import RankSummary, VirtualJob
from tests.system.support import Job
from tests.waiting import wait_until

Event = TypeVar("Event")


@dataclass
class Played:
    """What has been seen of a job so far."""

    events: list[Any] = field(default_factory=list)
    iterations: int = 0
    summaries: list[RankSummary] = field(default_factory=list)  # what its ranks said at their end

    def of(self, kind: type[Event]) -> list[Event]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def notes(self) -> list[str]:
        """What the controller remarked."""
        return [note.text for note in self.of(journal.Note)]


#: How a search ends that leaves the job with stock: by itself, or because its time was over.
STOCK_KEPT = ("stock_is_best", "cut_short")
#: Every end with a final word; not "stopped".
ENDS = ("improved", *STOCK_KEPT)

#: Real seconds for a search that must end by itself, on a busy machine too.
UNHURRIED = ("--search-seconds", "400")


def searches(count: int = 1) -> Callable[[Played], bool]:
    """Until so many searches are over."""
    return lambda played: len(played.of(journal.Outcome)) >= count


def some_more(ranks: VirtualJob) -> None:
    """What was found last is in force by then."""
    assert ranks.wait_iteration(ranks.iteration + 60)


def play(
    spec: JobSpec,
    job: Job,
    folder: Path,
    *options: str,
    until: Callable[[Played], bool],
    afterwards: Callable[[VirtualJob], None] = some_more,
) -> Played:
    """The job, its ranks' files in ``folder``, under a controller with ``options`` until ``until`` is satisfied, and
    through ``afterwards``; then it ends in peace, and no two ranks have ever run different configs."""
    played, tail = Played(), Tail(job.folder)

    def enough(controller: JobController, ranks: VirtualJob) -> bool:
        played.events += tail.unread()
        played.iterations = ranks.iteration
        controller.check()
        assert ranks.running()
        return until(played)

    with JobController(job.environ, job.folder, options) as controller:
        controller.wait_for_region()
        with VirtualJob(spec, folder, job.environ) as ranks:
            wait_until(lambda: enough(controller, ranks), lambda: str(played.events[-4:]), pause=0.03)
            afterwards(ranks)
            played.iterations = ranks.iteration
            ranks.stop()
            played.summaries = ranks.finish()
            assert ranks.differences() == []
    played.events += tail.unread()
    return played
