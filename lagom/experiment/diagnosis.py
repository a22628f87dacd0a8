# SPDX-License-Identifier: Apache-2.0
"""Why a process gave no result, from its log, its calls and its output: a clause, or "" if unknown.

Not used for a process that failed: its own last lines are the better explanation.
"""

from __future__ import annotations

from collections.abc import Iterable

from lagom import journal
from lagom.experiment.arm import Kind, Task, TrialArm
from lagom.experiment.iteration_time import rules_agreed_at, search_ended_at
from lagom.experiment.job_regions import JobRegions
from lagom.experiment.process import Seen
from lagom.experiment.request import Request
from lagom.experiment.store import RunRecord
from lagom.journal.schema import Base

#: A rank that ends at once may not be seen.
NO_CALLS = "no rank was seen to call NCCL through the plugin (it does not use NCCL, or ended too soon)"
UNENDED = "its search had not ended when the job did"


def why_no_more(runs: Iterable[RunRecord]) -> str:
    """Why another process would show nothing that these have not; empty if it may."""
    if any(run.is_without_nccl for run in runs):
        return f"{NO_CALLS}: there is nothing to compare, and no more processes are started."
    return ""


def diagnose(request: Request, task: Task, seen: Seen, rate: JobRegions | None) -> str:
    """The reason that a process of ``task`` showed no window, no outcome, or no value."""
    if task.kind is Kind.PROCESS:
        assert task.arm is not None
        return _without_samples(request, seen, rate) or _without_its_own(request, task.arm, seen)
    if reason := _without_search(seen):
        return reason
    return UNENDED if task.kind is Kind.TUNING else "nothing had been compared when the job ended"


def _without_samples(request: Request, seen: Seen, rate: JobRegions | None) -> str:
    """Where there were none at all."""
    if request.measure == "metric" and not seen.metric.samples:
        return seen.metric.without_samples
    if request.measure == "calls" and rate is not None and not rate.samples():
        return "it made too few NCCL calls to measure their rate" if rate.saw_calls else NO_CALLS
    return ""


def _without_its_own(request: Request, arm: TrialArm, seen: Seen) -> str:
    """Where what was seen is not the arm's."""
    if arm.tunes and request.measure == "wall":
        return "it tunes, and its wall time would include the search; use --metric"
    if arm.tunes and search_ended_at(seen) is None:
        return _without_search(seen) or UNENDED
    if arm.pins and rules_agreed_at(seen) is None:
        return (
            _without_calls(seen)
            or _passthrough_reason(seen)
            or "its ranks had not agreed on its rules when the job ended"
        )
    return "it ended too soon after its settings were applied" if arm.tunes or arm.pins else ""


def _without_search(seen: Seen) -> str:
    """How far the controller came in a job that it was to measure."""
    if reason := _without_calls(seen) or _passthrough_reason(seen):
        return reason
    found = _any(seen, journal.Program)
    return "" if found else "it ended before an iteration that repeats itself was found in its NCCL calls"


def _without_calls(seen: Seen) -> str:
    if not _any(seen, journal.JobStart):
        return "it wrote no event log"
    if not _any(seen, journal.RankJoined):
        return NO_CALLS
    return "" if _any(seen, journal.Communicator) else "no rank made a communicator of NCCL's"


def _passthrough_reason(seen: Seen) -> str:
    """Why nothing of it is ever tuned."""
    reasons = (event.reason for event in seen.events if isinstance(event, journal.Passthrough))
    return next(reasons, "") if seen.is_passthrough() else ""


def _any(seen: Seen, kind: type[Base]) -> bool:
    return any(isinstance(event, kind) for event in seen.events)
