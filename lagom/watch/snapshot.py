# SPDX-License-Identifier: Apache-2.0
"""One snapshot of a node as plain data: what the screen, ``--json`` and the metrics are all made of.

``calls_per_second`` and ``iterations_per_second`` are rates between two snapshots (wall clock); ``None`` where there
is only one, or where nothing counts them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from lagom.watch.log_view import Decision

SCHEMA = 1


class GroupPhase(str, Enum):
    """Where a communicator stands."""

    JOINING = "joining"  # not all of its ranks are there
    LEARNING = "learning"  # the iteration is not known yet
    BASELINE = "baseline"  # stock against stock: the noise
    SEARCHING = "searching"
    CONFIRMING = "confirming"
    PROVING = "proving"  # the final A/B against stock
    TUNED = "tuned"
    STOCK_IS_BEST = "stock is best"
    CUT_SHORT = "cut short"  # a limit ended the search, and nothing it had found was faster
    STOPPED = "stopped"  # before the search came to its end
    PINNED = "pinned"
    REPLAYING = "replaying"
    PASSTHROUGH = "passthrough"  # not tuned: NCCL decides
    STOCK = "stock"  # not tuned: no controller, no saved config
    UNATTENDED = "unattended"  # its controller has ended, the agreed plan stays in force


class Agreement(str, Enum):
    """How the ranks stand to the last plan."""

    AGREED = "agreed"
    OFFERED = "offered"  # not every rank has answered
    COMING = "coming"  # agreed, in force from a call that not every rank has reached


@dataclass(frozen=True, slots=True)
class SiteSnapshot:
    """Calls that share one config. Configs as text, ``stock`` where NCCL chooses; ``trial``: what is tried now.
    ``index`` is the site's number in its program; two sites may have one name."""

    index: int
    name: str
    function: str
    bytes: int
    context: str
    calls_per_iteration: int
    calls_per_second: float | None
    nccl: str  # NCCL's own pick, as far as it is known
    in_force: str
    trial: str
    channels: int | None = None  # in force; None = NCCL's
    chunk_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Speedup:
    """Stock over tuned, of the final A/B, with its 95 % interval."""

    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """One communicator."""

    index: int
    comm_id: str
    name: str
    ranks: int
    here: int  # of its ranks, registered on this node
    nodes: int
    phase: GroupPhase
    detail: str  # why it is not tuned, or how the search ended
    agreement: Agreement
    epoch: int
    calls: int  # of the slowest rank
    calls_per_second: float | None
    iterations_per_second: float | None
    changed: int  # calls for which the plugin changed NCCL's choice, all ranks
    unrecorded: int  # call records that found no room, all ranks
    suspensions: int  # times a rank left the program, all ranks
    graph_captured: bool
    untunable: dict[str, int]
    stock_z_ns: float | None
    speedup: Speedup | None
    resolvable: float | None
    configs_tried: int
    lost_iterations: float
    lost_seconds: float | None
    plans_committed: int
    plans_aborted: int
    drifts: int  # times the job changed after its search, and was learnt anew
    sites: tuple[SiteSnapshot, ...]
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """One job. ``ended`` is empty while it runs, else says how it ended."""

    job: str
    region: str
    folder: str
    ended: str
    mode: str
    strategy: str
    controller_pid: int  # 0 = none
    ranks: int  # alive on this node
    nccl: tuple[str, ...]
    gpu: str
    started: float  # wall clock
    simulated_clock: bool
    remarks: tuple[str, ...]
    groups: tuple[GroupSnapshot, ...]
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """Every job of this user on this node."""

    t: float
    host: str
    jobs: tuple[JobSnapshot, ...]

    @property
    def running(self) -> tuple[JobSnapshot, ...]:
        """Those that have not ended."""
        return tuple(job for job in self.jobs if not job.ended)

    def as_json(self) -> dict[str, Any]:
        """For ``--json``: the fields above, with the version of this format."""
        return {"schema": SCHEMA, **asdict(self)}
