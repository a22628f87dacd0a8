# SPDX-License-Identifier: Apache-2.0
"""Regions and logs as a watcher may find them, made by hand."""

from __future__ import annotations

from pathlib import Path

from lagom import journal
from lagom.journal.schema import Base, ConfigRecord, SiteRecord
from lagom.records import STOCK, CommConfig, Function
from lagom.wire.peek import GroupView, PlanView, RegionView, SitePlan, Untunable
from lagom.wire.views import CommunicatorView, ProcessView, SlotView

PATH = Path("/dev/shm/lagom-0-0123456789abcdef")
NC3 = CommConfig(channels=3)


def process(index: int = 0) -> ProcessView:
    return ProcessView(index, 100 + index, 23007, 6, 6, 31, "NVIDIA H200", "/x/libnccl.so.2", "", 0, 0, 0, 0, 0)


def slot(index: int = 0, *, calls: int = 0, epoch: int = 0, iterations: int = 0) -> SlotView:
    return SlotView(
        index=index,
        process=index,
        communicator=0,
        rank=index,
        calls=calls,
        call_drops=0,
        uncounted=0,
        applied=0,
        suspensions=0,
        capturing=False,
        active_epoch=epoch,
        iterations=iterations,
        refused_epoch=0,
        refused_fault=0,
        p2p=0,
    )


def plan(epoch: int, *, end_call: int = 0, candidate: CommConfig | None = None) -> PlanView:
    sites = (
        SitePlan(Function.ALL_GATHER, 416 << 20, 2, NC3, candidate if candidate is not None else NC3),
        SitePlan(Function.REDUCE_SCATTER, 416 << 20, 1, STOCK, STOCK),
    )
    return PlanView(epoch, 0, end_call, candidate is not None, sites, ())


def group(
    *slots: SlotView, epoch: int = 0, state: int = 0, held: PlanView | None = None, ranks: int = 2, nodes: int = 1
) -> GroupView:
    view = CommunicatorView(0, 0x1A60D, ranks, nodes, 0, "fsdp")
    return GroupView(view, state, epoch, 0, held, slots, Untunable(p2p=4))


def region(one: GroupView | None = None, *, controller: bool = True) -> RegionView:
    processes = tuple(process(slot.process) for slot in one.slots) if one is not None else ()
    return RegionView(
        PATH,
        job_key="lagom.myjob uid=0 boot=1 host=-",
        controller_alive=controller,
        controller_pid=42,
        created_ns=1_000_000_000,
        processes=processes,
        groups=() if one is None else (one,),
    )


START = journal.JobStart(
    t=1.0, job="myjob", mode="tune", strategy="lagom", region=str(PATH), folder="/logs/lagom-myjob"
)
SITES = (
    SiteRecord(
        index=0,
        function="allgather",
        bytes=416 << 20,
        calls_per_iteration=2,
        context="hidden",
        stock=ConfigRecord(algorithm="ring", protocol="simple", channels=24),
    ),
    SiteRecord(index=1, function="reducescatter", bytes=416 << 20),
)
PROGRAM = journal.Program(t=2.0, communicator=0, period=3, sites=SITES)


def move(purpose: str, **more: object) -> journal.Move:
    fields: dict[str, object] = {
        "t": 3.0,
        "communicator": 0,
        "phase": "tuning",
        "number": 1,
        "purpose": purpose,
        "candidate": (ConfigRecord(channels=3), ConfigRecord()),
        "verdict": "better",
        "reason": "it is",
        **more,
    }
    return journal.Move(**fields)  # type: ignore[arg-type]


BASELINE = move("baseline", z=100e6, resolvable=0.02)
OUTCOME = journal.Outcome(
    t=5.0,
    communicator=0,
    verdict="improved",
    reason="proven",
    configs_chosen=(ConfigRecord(channels=3), ConfigRecord()),
    speedup=1.1,
    speedup_low=1.08,
    speedup_high=1.12,
    resolvable=0.01,
    regret_iterations=2.5,
)
SEARCH: tuple[Base, ...] = (
    START,
    PROGRAM,
    BASELINE,
    move("trial", t=4.0, lost_iterations=1.5, resolvable=0.015),
    OUTCOME,
)


def at(event: Base, t: float) -> Base:
    return event.model_copy(update={"t": t})
