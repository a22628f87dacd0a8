# SPDX-License-Identifier: Apache-2.0
"""A communicator within this node, in a job that spans others: it is not searched unless the user asks for that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lagom import journal
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec, fsdp_like_calls
from tests.system.play import Played, play
from tests.system.support import Job

TENSOR = CommunicatorSpec(0x7E45, "tensor", fsdp_like_calls(2, 32 << 20))
SHARD = CommunicatorSpec(0x5A4D, "shard", fsdp_like_calls(2, 64 << 20), nodes=2)
FRESH_PROCESSES = True  # /proc shows the environment that a process was started with, not that of a fork
SPANNING = 64  # the first place of communicators over nodes
ITERATIONS = 200


def several_nodes(played: Played) -> set[int]:
    return {event.communicator for event in played.of(journal.Passthrough) if event.cause == "several_nodes"}


def after_iterations(played: Played) -> bool:
    return played.iterations >= ITERATIONS


@pytest.mark.parametrize("told_by", ["another communicator", "the launcher"])
def test_no_plan_is_published_in_a_job_that_spans_nodes(told_by: str, job: Job, tmp_path: Path) -> None:
    communicators, passed = ((TENSOR, SHARD), {0, SPANNING}) if told_by == "another communicator" else ((TENSOR,), {0})
    told = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"} if told_by == "the launcher" else {}
    here = replace(job, environ=job.with_(**told))
    spec = JobSpec(ranks=2, communicators=communicators, iterations=1 << 40, noise=0.005)
    played = play(spec, here, tmp_path, until=after_iterations)
    assert several_nodes(played) == passed
    assert not played.of(journal.PlanPublished)
    assert not played.of(journal.Program)


def test_each_node_searches_by_itself_where_that_is_asked_for(job: Job, tmp_path: Path) -> None:
    here = replace(job, environ=job.with_(LAGOM_NODES="alone"))
    spec = JobSpec(ranks=2, communicators=(TENSOR, SHARD), iterations=1 << 40, noise=0.005)
    played = play(spec, here, tmp_path, until=lambda seen: bool(seen.of(journal.PlanPublished)))
    assert several_nodes(played) == {SPANNING}
