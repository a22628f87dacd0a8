"""Two communicators a rank, each on a thread of its own: the controller tunes one after the other."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from lagom import journal
from lagom.journal.tail import Tail
from lagom.records import Function
from lagom.sim.virtual.control import ControllerProcess
from lagom.sim.virtual.incidents import Incident
from lagom.sim.virtual.job import VirtualJob
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec, fsdp_like_calls
from tests.system.support import Job

SHARD = CommunicatorSpec(0x5A4D, "shard", fsdp_like_calls(3, 128 << 20))
TENSOR = CommunicatorSpec(0x7E45, "tensor", fsdp_like_calls(2, 32 << 20))


@pytest.mark.slow
@pytest.mark.timeout(100)
def test_each_communicator_is_tuned_in_its_turn(job: Job, tmp_path: Path) -> None:
    """Without compute there is nothing to gain from fewer channels: both must end, and neither may get slower."""
    spec = JobSpec(
        ranks=3, communicators=(SHARD, TENSOR), iterations=1 << 40, threads=True, noise=0.005, logging_every=7
    )
    outcomes: dict[int, journal.Outcome] = {}
    order: list[int] = []
    with ControllerProcess(job.environ, job.folder, ("--search-seconds", "6")) as controller:
        controller.wait_for_region()
        with VirtualJob(spec, tmp_path, job.environ) as ranks:
            tail, end = Tail(job.folder), time.monotonic() + 70
            while len(outcomes) < 2 and time.monotonic() < end:
                for event in tail.unread():
                    if isinstance(event, journal.Outcome):
                        outcomes[event.communicator] = event
                    elif isinstance(event, journal.Move):
                        order.append(event.communicator)
                controller.check()
                assert ranks.running()
                time.sleep(0.05)
            ranks.stop()
            summaries = ranks.finish(20)
            assert ranks.differences() == []
    assert all(summary.slots == 2 for summary in summaries)
    assert len(outcomes) == 2, f"outcomes of {sorted(outcomes)} only, after moves on {sorted(set(order))}"
    changes = sum(one != other for one, other in pairwise(order))
    assert changes == 1, "the two searches were mixed"
    for outcome in outcomes.values():
        assert outcome.verdict in ("improved", "stock_is_best")
        assert outcome.speedup_low is None or outcome.verdict == "stock_is_best" or outcome.speedup_low > 1.0


@pytest.mark.slow
@pytest.mark.timeout(100)
def test_one_whose_calls_never_repeat_holds_the_other_up_no_longer_than_it_takes_to_see(
    job: Job, tmp_path: Path
) -> None:
    """The busier one makes calls of other sizes between its iterations, never the same twice in a row."""
    gather = int(Function.ALL_GATHER)
    odd = tuple(Incident(n, every=n, calls=((gather, (90 + 10 * n) << 20),) * n) for n in (2, 3, 5, 7, 11))
    spec = JobSpec(ranks=2, communicators=(SHARD, TENSOR), iterations=1 << 40, noise=0.005, incidents=odd)
    outcome, moved = None, set()
    with ControllerProcess(job.environ, job.folder, ("--search-seconds", "4")) as controller:
        controller.wait_for_region()
        with VirtualJob(spec, tmp_path, job.environ) as ranks:
            tail, end = Tail(job.folder), time.monotonic() + 80
            while outcome is None and time.monotonic() < end:
                for event in tail.unread():
                    if isinstance(event, journal.Outcome):
                        outcome = event
                    elif isinstance(event, journal.Move):
                        moved.add(event.communicator)
                controller.check()
                assert ranks.running()
                time.sleep(0.05)
            ranks.stop()
            ranks.finish(20)
            assert ranks.differences() == []
    assert outcome is not None, f"nothing was tuned; moves on {moved}"
    assert outcome.communicator == 1
    assert outcome.verdict in ("improved", "stock_is_best")
