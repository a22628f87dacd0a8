# SPDX-License-Identifier: Apache-2.0
"""A node of a large job: every process group that Megatron-core makes has its place in the region, and those that can
be tuned have one in which they can, however many others come first."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lagom.wire.peek import RegionView, peek_region
from tests.system.megatron import Group, Layout, groups_of
from tests.system.support import Job

RANKS_A_NODE = 8

#: 1,024 ranks on 128 nodes, but for the last two. Of 7,740 layouts that were counted (tp, cp, ep, etp, pp, one or two
#: optimizer instances, with and without a group for all-gathers) the first has the most communicators within the node,
#: the second the most in all.
LAYOUTS = [
    Layout(tp=2, pp=128, cp=4, hierarchical_cp=(2, 2), optimizer_instances=2, all_gather_group=True),
    Layout(tp=8, pp=4, cp=4, ep=2, hierarchical_cp=(2, 2), optimizer_instances=2, all_gather_group=True),
    Layout(tp=8, pp=16),
    Layout(tp=4, pp=8, cp=2, ep=8, etp=1),
    Layout(tp=1, pp=16, ep=64, etp=1),
    Layout(tp=2, pp=8, ep=4, etp=1, optimizer_instances=2),
    Layout(tp=4, cp=16, hierarchical_cp=(2, 8), pp=4),
    Layout(tp=1, pp=1, all_gather_group=True),
    Layout(tp=2, pp=2, ep=2, world=8),
    Layout(tp=2, cp=2, pp=2, world=16),
]


@dataclass(frozen=True)
class Place:
    """One communicator that ranks of the first node belong to."""

    comm_id: int
    group: Group

    @property
    def here(self) -> list[int]:
        """Its ranks on this node."""
        return [rank for rank in self.group.ranks if rank < RANKS_A_NODE]

    @property
    def nodes(self) -> int:
        """How many nodes it spans."""
        return len({rank // RANKS_A_NODE for rank in self.group.ranks})

    def line(self) -> str:
        """For ``process_groups``."""
        members = sum(1 << rank for rank in self.here)
        return f"{self.comm_id} {len(self.group.ranks)} {self.nodes} {members}\n"


def places_of(layout: Layout) -> list[Place]:
    """The communicators of the first node, in the order in which they are made."""
    places = (Place(index + 1, group) for index, group in enumerate(groups_of(layout)))
    return [place for place in places if place.here]


@contextmanager
def made(places: list[Place], plugin: Path, programs: Path, job: Job) -> Iterator[RegionView]:
    """The region, once every rank has made all of its communicators."""
    command = [str(programs / "process_groups"), str(plugin), str(RANKS_A_NODE)]
    ranks = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **job.environ}
    )
    assert ranks.stdin is not None
    assert ranks.stdout is not None
    try:
        ranks.stdin.write("".join(place.line() for place in places) + "\n")
        ranks.stdin.flush()
        assert ranks.stdout.readline() == "ready\n"
        yield peek_region(job.region)
    finally:
        ranks.stdin.close()
        ranks.wait()
        ranks.stdout.close()


@pytest.mark.parametrize("spanning_first", [False, True], ids=["as made", "spanning first"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_process_group_has_its_place(
    layout: Layout, spanning_first: bool, plugin: Path, programs: Path, job: Job
) -> None:
    places = places_of(layout)
    ordered = sorted(places, key=lambda place: place.nodes == 1) if spanning_first else places
    with made(ordered, plugin, programs, job) as seen:
        groups = {group.view.comm_id: group for group in seen.groups}
    within = [place for place in places if place.nodes == 1]
    spanning = [place for place in places if place.nodes > 1]
    placed = [place for place in places if place.comm_id in groups]
    complete = [place for place in placed if len(groups[place.comm_id].slots) == len(place.here)]
    tunable = [
        place
        for place in complete
        if groups[place.comm_id].view.has_plan and all(slot.records_calls for slot in groups[place.comm_id].slots)
    ]
    print(
        f"{layout} on {layout.world} ranks: {len(within)} communicators within the node, "
        f"{sum(p.nodes == 1 for p in tunable)} of them tunable; {len(spanning)} that span nodes, "
        f"{sum(p.nodes > 1 for p in complete)} with a place, {sum(p.nodes > 1 for p in tunable)} with plan and rings; "
        f"{sum(len(p.here) for p in places)} slots"
    )
    assert complete == places
    assert [place for place in tunable if place.nodes == 1] == within
    assert seen.places_refused == 0
