# SPDX-License-Identifier: Apache-2.0
"""Two communicators a rank, each on a thread of its own: the controller tunes one after the other."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from lagom import journal
from lagom.records import Function
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec, fsdp_like_calls
from lagom.sim.virtual.workload_events import WorkloadEvent
from tests.system.play import ENDS, STOCK_KEPT, Played, play, searches
from tests.system.support import Job

SHARD = CommunicatorSpec(0x5A4D, "shard", fsdp_like_calls(3, 128 << 20))
TENSOR = CommunicatorSpec(0x7E45, "tensor", fsdp_like_calls(2, 32 << 20))


def outcomes_of(played: Played) -> dict[int, journal.Outcome]:
    """The last search of each communicator."""
    return {outcome.communicator: outcome for outcome in played.of(journal.Outcome)}


@pytest.mark.slow
def test_each_communicator_is_tuned_in_its_turn(job: Job, tmp_path: Path) -> None:
    """Without compute there is nothing to gain from fewer channels: both must end, and neither may get slower."""
    spec = JobSpec(
        ranks=3, communicators=(SHARD, TENSOR), iterations=1 << 40, threads=True, noise=0.005, logging_every=7
    )
    played = play(spec, job, tmp_path, "--search-seconds", "2", until=lambda seen: len(outcomes_of(seen)) == 2)
    assert all(summary.slots == 2 for summary in played.summaries)
    order = [move.communicator for move in played.of(journal.Move)]
    changes = sum(one != other for one, other in pairwise(order))
    assert changes == 1, "the two searches were mixed"
    for outcome in outcomes_of(played).values():
        assert outcome.verdict in ENDS
        assert outcome.speedup_low is None or outcome.verdict in STOCK_KEPT or outcome.speedup_low > 1.0


@pytest.mark.slow
def test_one_whose_calls_never_repeat_holds_the_other_up_no_longer_than_it_takes_to_see(
    job: Job, tmp_path: Path
) -> None:
    """The busier one makes calls of other sizes between its iterations, never the same twice in a row."""
    gather = int(Function.ALL_GATHER)
    odd = tuple(WorkloadEvent(n, every=n, calls=((gather, (90 + 10 * n) << 20),) * n) for n in (2, 3, 5, 7, 11))
    spec = JobSpec(ranks=2, communicators=(SHARD, TENSOR), iterations=1 << 40, noise=0.005, events=odd)
    played = play(spec, job, tmp_path, "--search-seconds", "2", until=searches())
    (outcome,) = played.of(journal.Outcome)
    assert outcome.communicator == 1
    assert outcome.verdict in ENDS
