# SPDX-License-Identifier: Apache-2.0
"""What a job of virtual ranks is: everything a rank process needs to know, as one JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lagom.records import Function
from lagom.sim.virtual.selection import Fabric
from lagom.sim.virtual.workload_events import WorkloadEvent


@dataclass(frozen=True, slots=True)
class CommunicatorSpec:
    """One communicator of all ranks. ``calls``: (function, bytes) of an iteration, in order, where no workload says.
    ``nodes``: what NCCL tells the plugin; the ranks of one job here are on one node whatever it says."""

    comm_id: int
    name: str = ""
    calls: tuple[tuple[int, int], ...] = ()
    nodes: int = 1


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job. Times are of the simulated clock unless a name says real.

    ``workload`` and ``machine`` name presets of :mod:`lagom.sim`; without them an iteration is the communicators' own
    ``calls`` and every collective takes its time on ``fabric``. ``groups``: collectives are handed to NCCL in groups of
    this many (aggregation). ``threads``: each communicator is driven by a thread of its own.
    """

    ranks: int
    communicators: tuple[CommunicatorSpec, ...]
    iterations: int
    version: str = "2.30"
    plugin: bool = True
    profiler: bool = False
    workload: Mapping[str, Any] = field(default_factory=dict)
    machine: str = ""
    fabric: Fabric = Fabric()
    groups: int = 1
    threads: bool = False
    timeline: str = "spans"  # spans: kernels as the timeline sends them | profiler: NCCL's kernel events | none
    seed: int = 0
    noise: float = 0.01  # of an iteration's length, the same on all ranks
    run_ahead: int = 2  # iterations the host may be ahead of the GPU
    host_share: float = 0.5  # time the host needs to enqueue an iteration, as a share of the iteration
    late: float = 0.0  # a rank's host is late with an iteration by up to this share of it, drawn anew for each
    logging_every: int = 0  # a small AllReduce every so many iterations, as a trainer's loss logging makes
    pace: bool = True  # wait (real time) while the controller has not read the rings
    real_ms: float = 0.0  # the least real time of an iteration
    skew_us: float = 0.0  # random real delay of a rank within an iteration
    events: tuple[WorkloadEvent, ...] = ()  # what interrupts the iterations
    keep_plans: bool = False  # every rank keeps which plan was in force from which call on, and what it said

    def save(self, path: Path) -> None:
        """Writes the file that :meth:`load` reads."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> JobSpec:
        """From the file of :meth:`save`."""
        fields = json.loads(path.read_text())
        fields["fabric"] = Fabric(**fields["fabric"])
        fields["communicators"] = tuple(
            CommunicatorSpec(c["comm_id"], c["name"], tuple((int(f), int(b)) for f, b in c["calls"]), c["nodes"])
            for c in fields["communicators"]
        )
        fields["events"] = tuple(
            WorkloadEvent(**{**one, "calls": tuple((int(f), int(b)) for f, b in one["calls"])})
            for one in fields.get("events", ())
        )
        return cls(**fields)


def fsdp_like_calls(layers: int, size: int) -> tuple[tuple[int, int], ...]:
    """(function, bytes) of an FSDP-like iteration: gathers forward, gather and scatter backward, layer by layer."""
    gather, scatter = int(Function.ALL_GATHER), int(Function.REDUCE_SCATTER)
    return ((gather, size),) * layers + ((gather, size), (scatter, size)) * layers
