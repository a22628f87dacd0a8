# SPDX-License-Identifier: Apache-2.0
"""Read a region from outside (watch, doctor, the launcher): a private copy of its tables, taken without a lock and
without a write.

The rings are not read: they have one consumer, the controller. What is copied may be half written or garbage; every
index is clamped here, and a plan is taken only if its own hash fits.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagom.records import CommConfig, Function
from lagom.wire.layout import MAX_PROCESSES, ffi
from lagom.wire.library import library
from lagom.wire.plan import Rule, read_config, read_rule
from lagom.wire.views import (
    CommunicatorView,
    ProcessView,
    SlotView,
    communicators_in,
    processes_in,
    read_text,
    slots_in,
)

#: Header and tables; what follows are the rings.
TABLE_BYTES = ffi.offsetof("struct lagom_region", "calls")


@dataclass(frozen=True, slots=True)
class SitePlan:
    """A site as a plan has it. ``candidate`` equals ``incumbent`` where the plan tries nothing here."""

    function: Function
    bytes: int
    positions: int  # of the program that belong to this site
    incumbent: CommConfig
    candidate: CommConfig


@dataclass(frozen=True, slots=True)
class PlanView:
    """The plan in the region: offered, in force, or withdrawn; the switch word and the ranks show which."""

    epoch: int
    start_call: int
    end_call: int  # 0 = open-ended
    has_candidate: bool
    sites: tuple[SitePlan, ...]
    rules: tuple[Rule, ...]

    @property
    def calls_per_iteration(self) -> int:
        """Of its program; 0: the plan has rules only."""
        return sum(site.positions for site in self.sites)


@dataclass(frozen=True, slots=True)
class Untunable:
    """Operations that never reach a tuner, as counted by the NCCL profiler plugin."""

    p2p: int = 0
    symmetric: int = 0
    copy_engine: int = 0


@dataclass(frozen=True, slots=True)
class GroupView:
    """One communicator with its ranks on this node."""

    view: CommunicatorView
    switch_state: int  # enum lagom_switch_state
    switch_epoch: int
    capture: int
    plan: PlanView | None
    slots: tuple[SlotView, ...]
    untunable: Untunable

    @property
    def has_begun(self) -> bool:
        """Whether some rank has begun the program in force: until then its sites run as NCCL would choose."""
        return any(slot.iterations for slot in self.slots)


@dataclass(frozen=True, slots=True)
class RegionView:
    """A region at one moment. ``fault`` is empty or says why nothing else is known."""

    path: Path
    fault: str = ""
    job_key: str = ""
    controller_alive: bool = False
    controller_pid: int = 0
    created_ns: int = 0  # wall clock
    simulated_clock: bool = False
    processes: tuple[ProcessView, ...] = ()  # those alive
    ended: tuple[ProcessView, ...] = ()  # as they described themselves
    groups: tuple[GroupView, ...] = ()
    places_refused: int = 0  # how often there was no entry left in which a communicator can be tuned

    @property
    def in_use(self) -> bool:
        """Whether a controller or a rank holds it."""
        return self.controller_alive or bool(self.processes)


class HeldRegion:
    """A region that can be read until it is let go, also once its ranks have ended and removed the file. Of the 16 that
    a process may have mapped at once (``csrc/shm/attachment.c``) it is one."""

    def __init__(self, path: Path) -> None:
        self._path, self._mapping = path, ffi.new("struct lagom_mapping *")
        self._fault = library().lagom_region_inspect(self._mapping, os.fsencode(path))

    @property
    def is_there(self) -> bool:
        """Whether there is a file that ranks may still come to."""
        return self._fault == library().LAGOM_REGION_OK and os.fstat(self._mapping.fd).st_nlink > 0

    def peek(self) -> RegionView:
        """What is in it now; raises nothing: see ``fault``."""
        lib, mapping = library(), self._mapping
        if self._fault != lib.LAGOM_REGION_OK:
            return RegionView(self._path, read_text(lib.lagom_region_fault_text(self._fault)))
        tables = _copy(mapping)
        if tables is None:
            return RegionView(self._path, "it is being truncated")
        alive = {i for i in range(MAX_PROCESSES) if lib.lagom_region_process_alive(mapping, i)}
        controller_alive = bool(lib.lagom_region_controller_alive(mapping))
        return _read(self._path, ffi.cast("struct lagom_region *", tables), alive, controller_alive)

    def let_go(self) -> None:
        """No more to be read."""
        if self._fault == library().LAGOM_REGION_OK:
            library().lagom_region_leave(self._mapping, False)


def peek_region(path: Path) -> RegionView:
    """Read one region. What is in it, or its removal meanwhile, raises nothing: see ``fault``."""
    region = HeldRegion(path)
    try:
        return region.peek()
    finally:
        region.let_go()


def _copy(mapping: Any) -> Any:
    """A private copy of the tables; ``None`` if the file is too short."""
    if os.fstat(mapping.fd).st_size < TABLE_BYTES:
        return None  # reading the mapping would raise SIGBUS
    tables = ffi.new("char[]", TABLE_BYTES)
    ffi.memmove(tables, mapping.region, TABLE_BYTES)
    return tables


def _read(path: Path, region: Any, alive: set[int], controller_alive: bool) -> RegionView:
    header = region.header
    slots = [slot for slot in slots_in(region) if slot.process in alive]
    processes = processes_in(region, also_gone=True)
    return RegionView(
        path,
        job_key=read_text(header.job_key),
        controller_alive=controller_alive,
        controller_pid=int(header.controller_pid),
        created_ns=int(header.created_ns),
        simulated_clock=header.clock == library().LAGOM_CLOCK_SIMULATED,
        processes=tuple(process for process in processes if process.index in alive),
        ended=tuple(process for process in processes if process.index not in alive),
        groups=tuple(
            _group(region, view, tuple(slot for slot in slots if slot.communicator == view.index))
            for view in communicators_in(region)
        ),
        places_refused=int(header.places_refused),
    )


def _group(region: Any, view: CommunicatorView, slots: tuple[SlotView, ...]) -> GroupView:
    entry = region.communicators[view.index]
    raw = [region.slots[slot.index] for slot in slots]
    return GroupView(
        view,
        switch_state=int(entry.word) & 3,
        switch_epoch=int(entry.word) >> 2,
        capture=int(entry.capture),
        plan=_plan(region.plans[view.index], view.comm_id) if view.has_plan else None,
        slots=slots,
        untunable=Untunable(
            max((int(slot.untunable_p2p) for slot in raw), default=0),
            max((int(slot.untunable_symmetric) for slot in raw), default=0),
            max((int(slot.untunable_copy_engine) for slot in raw), default=0),
        ),
    )


def _plan(plan: Any, comm_id: int) -> PlanView | None:
    """The plan if it is valid: the C half checks its counts, its hash and its content, as a rank does."""
    lib = library()
    if not plan.epoch or lib.lagom_plan_check(ffi.addressof(plan), comm_id) != 0:
        return None
    positions = [int(plan.positions[i]) for i in range(plan.position_count)]
    return PlanView(
        epoch=int(plan.epoch),
        start_call=int(plan.start_call),
        end_call=int(plan.end_call),
        has_candidate=bool(plan.flags & lib.LAGOM_PLAN_HAS_CANDIDATE),
        sites=tuple(_site(plan.sites[i], positions.count(i)) for i in range(plan.site_count)),
        rules=tuple(read_rule(plan.rules[i]) for i in range(plan.rule_count)),
    )


def _site(site: Any, positions: int) -> SitePlan:
    configs = read_config(site.incumbent), read_config(site.candidate)
    return SitePlan(Function(site.function), int(site.bytes), positions, *configs)
