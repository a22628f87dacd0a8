"""What a benchmark will take, said before it begins: how many processes of the job, and when each of them ends."""

from __future__ import annotations

from collections.abc import Iterator

from lagom.bench.arm_words import Kind
from lagom.bench.request import Request
from lagom.bench.schedule import tasks

ENDS = {
    "metric": "each is ended after {samples} steady samples of the metric",
    "calls": "each is ended after {samples} steady looks at how fast it calls NCCL (with --metric, at the job's own "
    "number)",
    "wall": "each runs to its own end and is compared by its wall time, start-up included, since an arm runs without "
    "the plugin and there is no --metric. With --metric 'step time: ([0-9.]+)', or whatever the job prints, each would "
    "end after {samples} steady samples",
}


def preview(request: Request) -> Iterator[str]:
    """A sentence on the processes that arms of their own take, and one on each arm that would come to nothing."""
    arms = request.of(Kind.PROCESS)
    if not arms:
        return
    number = sum(task.kind is Kind.PROCESS for task in tasks(request))
    named = ", ".join(arm.name for arm in arms)
    rounds = f"{request.rounds} round{'' if request.rounds == 1 else 's'}, stock twice in each"
    ends = ENDS[request.measure].format(samples=request.samples)
    yield f"{number} processes of the job for {named} ({rounds}): {ends}."
    for name in (arm.name for arm in arms if arm.tunes and request.measure == "wall"):
        yield f"{name} tunes, and its wall time would be that of the search: it comes to nothing without --metric."
