"""The controller's hold on a region: attach, look around, drain the rings, publish plans.

Everything read from the region may be garbage (another process writes it), so indices are clamped here, once. Every
write goes through liblagom: release stores and compare-and-swap are not something Python can do to shared memory.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.errors import LagomError
from lagom.records import Algorithm, Function, Protocol
from lagom.wire.layout import (
    CALL_RECORD,
    CALL_RING_CAPACITY,
    KERNEL_RING_CAPACITY,
    KERNEL_SPAN,
    MAX_COMMUNICATORS,
    MAX_KERNEL_NAMES,
    MAX_PLANS,
    MAX_PROCESSES,
    MAX_SLOTS,
    PATH_BYTES,
    PLAN_LATE_HISTORY,
    UNKNOWN_RANK,
    ffi,
)
from lagom.wire.library import library
from lagom.wire.plan import Plan, fill_plan

_UNKNOWN_FAULT = 0xFF  # what the region says may be garbage: as much as C's enum is sure to hold


class RegionRefused(LagomError):
    """A region could not be made or attached; the text says why and what to do."""


class Publication(IntEnum):
    """What became of an attempt to publish (``enum lagom_publish_result``)."""

    OK = 0
    BUSY = 1
    INCOMPLETE = 2
    BAD_PLAN = 3
    LATE = 4
    REPLACED = 5


class Verdict(IntEnum):
    """Whether the ranks agreed (``enum lagom_outcome``)."""

    OPEN = 0
    COMMITTED = 1
    ABORTED = 2


class Capture(IntEnum):
    """What the ranks record, bits (``enum lagom_capture``)."""

    NOTHING = 0
    CALLS = 1
    ITERATION = 2
    KERNELS = 4


class TimelineState(IntEnum):
    """Whether a process records its kernels (``enum lagom_timeline_state``)."""

    ABSENT = 0
    OFF = 1
    STARTING = 2
    ON = 3
    YIELDED = 4


@dataclass(frozen=True, slots=True)
class ProcessView:
    """One rank process as it described itself."""

    index: int
    pid: int
    nccl_version: int
    tuner_api: int
    profiler_api: int
    knobs: int
    gpu: str
    libnccl: str
    remark: str
    kernel_drops: int
    timeline: int  # enum lagom_timeline_state
    timeline_first_enable_ns: int
    timeline_records: int
    timeline_lost: int
    peer_access: bool = True  # GPUs may talk directly


@dataclass(frozen=True, slots=True)
class SlotView:
    """One (process, communicator) with its counters."""

    index: int
    process: int
    communicator: int
    rank: int | None
    calls: int
    call_drops: int
    uncounted: int
    applied: int
    suspensions: int
    capturing: bool
    active_epoch: int
    iterations: int
    refused_epoch: int
    refused_fault: int
    p2p: int
    symmetric: int = 0
    copy_engine: int = 0
    history_hash: int = 0  # over the calls so far; a rank stores it just before ``calls``
    times_refuted: bool = False  # what NCCL tells of its kernels' times is not theirs: told no more
    records_calls: bool = True  # there is a ring for its calls: not every slot of a large job has one


@dataclass(frozen=True, slots=True)
class CommunicatorView:
    """One communicator as this node sees it."""

    index: int
    comm_id: int
    rank_count: int
    node_count: int
    ordinal: int
    name: str

    @property
    def has_plan(self) -> bool:
        """Whether there is room for a plan, so that it can be tuned: not every communicator of a large job has one."""
        return self.index < MAX_PLANS


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a rank refused a plan; ``may_pass``: the next attempt may be accepted."""

    text: str
    may_pass: bool


class Region:
    """An attached region with the controller's lock held. Use as a context manager."""

    def __init__(self, mapping: Any) -> None:
        self._mapping = mapping
        self._region = mapping.region
        self._lib = library()
        self._call_buffer = np.zeros(CALL_RING_CAPACITY, CALL_RECORD)
        self._kernel_buffer = np.zeros(KERNEL_RING_CAPACITY, KERNEL_SPAN)

    @classmethod
    def create(cls, job_key: str, *, simulated_clock: bool = False) -> Region:
        """Attach to the region of ``job_key``, making it if nobody has yet; raises :class:`RegionRefused`."""
        mapping = ffi.new("struct lagom_mapping *")
        fault = library().lagom_region_control(mapping, os.fsencode(job_key), True, int(simulated_clock))
        return cls._checked(mapping, fault, job_key)

    @classmethod
    def attach(cls, path: Path) -> Region:
        """Attach to an existing region by its file; raises :class:`RegionRefused`."""
        mapping = ffi.new("struct lagom_mapping *")
        fault = library().lagom_region_control_path(mapping, os.fsencode(path))
        return cls._checked(mapping, fault, str(path))

    @classmethod
    def _checked(cls, mapping: Any, fault: int, name: str) -> Region:
        if fault != library().LAGOM_REGION_OK:
            reason = ffi.string(library().lagom_region_fault_text(fault)).decode()
            raise RegionRefused(f"shared memory of {name}: {reason}")
        return cls(mapping)

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(unlink=False)

    def close(self, *, unlink: bool) -> None:
        """Let go of the lock and the mapping; ``unlink``: remove the file if no rank holds it. Safe to call twice."""
        if self._region != ffi.NULL:
            self._lib.lagom_region_leave(self._mapping, unlink)
            self._region = ffi.NULL

    def retire(self) -> bool:
        """Remove the file if no rank holds it, so that nobody can join any more; ``False``: one does, stay."""
        return bool(self._lib.lagom_region_retire(self._mapping))

    # -- looking around

    @property
    def path(self) -> Path:
        """The region's file."""
        return Path(_name(self._mapping.path))

    @property
    def job_key(self) -> str:
        """The name this region was made under, before hashing."""
        return _text(self._region.header.job_key)

    @property
    def processes_seen(self) -> int:
        """How many rank processes have ever registered."""
        return int(self._region.header.processes_seen)

    @property
    def places_refused(self) -> int:
        """How often a rank found no place for a communicator, or none in which one of this node can be tuned."""
        return int(self._region.header.places_refused)

    def processes_alive(self) -> int:
        """How many rank processes hold their lock right now."""
        return int(self._lib.lagom_region_processes_alive(self._mapping))

    def sweep(self) -> int:
        """Free what dead processes and finalized communicators left; returns how many entries."""
        return int(self._lib.lagom_region_sweep(self._mapping))

    def now_ns(self, process: int) -> int:
        """The time on the clock that this process's records carry."""
        if self._region.header.clock == self._lib.LAGOM_CLOCK_SIMULATED:
            return int(self._region.processes[process].simulated_now_ns)
        return time.monotonic_ns()

    def processes(self) -> list[ProcessView]:
        """Every registered process."""
        return processes_in(self._region)

    def communicators(self) -> list[CommunicatorView]:
        """Every registered communicator."""
        return communicators_in(self._region)

    def slots(self, communicator: int | None = None, *, also_gone: bool = False) -> list[SlotView]:
        """Every ready slot, of one communicator or of all; ``also_gone``: those of finalized communicators too, whose
        last records still wait."""
        return slots_in(self._region, communicator, also_gone=also_gone)

    # -- the rings

    def drain_calls(self, slot: int) -> NDArray[Any]:
        """All waiting call records of a slot, oldest first, as a copy of dtype ``CALL_RECORD``; garbage is left out."""
        buffer = ffi.from_buffer("struct lagom_call_record[]", self._call_buffer, require_writable=True)
        count = self._lib.lagom_call_ring_drain(self._region, slot, buffer, CALL_RING_CAPACITY)
        records = self._call_buffer[:count]
        return records[plausible(records)].copy()

    def drain_kernels(self, process: int) -> NDArray[Any]:
        """All waiting kernel spans of a process, oldest first, as a copy of dtype ``KERNEL_SPAN``."""
        buffer = ffi.from_buffer("struct lagom_kernel_span[]", self._kernel_buffer, require_writable=True)
        count = self._lib.lagom_kernel_ring_drain(self._region, process, buffer, KERNEL_RING_CAPACITY)
        return self._kernel_buffer[:count].copy()

    def set_capture(self, communicator: int, capture: int) -> None:
        """Ask the ranks of a communicator to record what the bits of :class:`Capture` say."""
        self._lib.lagom_capture_set(self._region, communicator, capture)

    def want_timeline(self, process: int, wanted: bool) -> None:
        """Ask a process to record its kernels through CUPTI, or to stop; it looks every few milliseconds."""
        self._lib.lagom_timeline_want(self._region, process, int(wanted))

    def timeline_state(self, process: int) -> TimelineState:
        """How that stands."""
        state = self._region.processes[process].timeline_state
        return TimelineState(state) if state <= max(TimelineState) else TimelineState.ABSENT

    def kernel_names(self) -> dict[int, str]:
        """Name of each kernel, by the number in a span's ``name``."""
        entries = ((i, self._region.names[i]) for i in range(MAX_KERNEL_NAMES))
        return {i + 1: _text(entry.text) for i, entry in entries if entry.ready == 1}

    # -- the switch

    def counters(self, communicator: int) -> tuple[int, int, int]:
        """(ranks registered here, smallest, largest call counter)."""
        low, high = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        count = self._lib.lagom_counters(self._region, communicator, low, high)
        return int(count), int(low[0]), int(high[0])

    def complete(self, communicator: int) -> bool:
        """Whether every rank is registered here, each once, so that a plan can be offered."""
        return bool(self._lib.lagom_publish_complete(self._region, communicator))

    def has_double(self, communicator: int) -> bool:
        """Whether two ready slots are of the same rank: then another rank is missing, and no plan is ever offered."""
        return bool(self._lib.lagom_publish_has_double(self._region, communicator))

    def ready_to_publish(self, communicator: int) -> bool:
        """Whether every rank has passed the last committed plan's start, so a new plan may be prepared."""
        return bool(self._lib.lagom_publish_ready(self._region, communicator))

    def publish(self, communicator: int, plan: Plan, comm_id: int = 0) -> tuple[Publication, int]:
        """Offer a plan to the ranks; returns the result and the plan's epoch (0 if it was refused). ``comm_id``: refuse
        if the entry has become another communicator's meanwhile; 0 = whoever is there."""
        struct = ffi.new("struct lagom_plan *")
        fill_plan(plan, struct)
        struct.comm_id = comm_id
        result = Publication(self._lib.lagom_publish(self._region, communicator, struct))
        return result, int(struct.epoch) if result is Publication.OK else 0

    def poll(self, communicator: int) -> Verdict:
        """One look at an open publication; commits it if every rank agreed."""
        return Verdict(self._lib.lagom_publish_poll(self._region, communicator))

    def epoch(self, communicator: int) -> int:
        """Of the communicator's switch word; 0 in an entry that was used again."""
        return int(self._region.communicators[communicator].word >> 2)

    def refusal(self, communicator: int, epoch: int) -> Refusal | None:
        """What a rank held against the plan of ``epoch``, if one refused it."""
        for slot in self.slots(communicator):
            if slot.refused_epoch == epoch:
                text = ffi.string(self._lib.lagom_plan_fault_text(slot.refused_fault)).decode()
                return Refusal(text, slot.refused_fault == PLAN_LATE_HISTORY)
        return None

    def histories_differed(self, communicator: int, epoch: int) -> bool:
        """Whether the ranks' acknowledgements of the plan of ``epoch`` named different calls before it."""
        slots = (self._region.slots[slot.index] for slot in self.slots(communicator))
        return len({slot.ack_history_hash for slot in slots if slot.ack_epoch == epoch}) > 1

    def withdraw(self, communicator: int) -> Verdict:
        """Give an open publication up; the word decides, and may still say committed."""
        return Verdict(self._lib.lagom_publish_withdraw(self._region, communicator))


def processes_in(region: Any) -> list[ProcessView]:
    """Every registered process of a ``struct lagom_region``, mapped or copied."""
    ready = library().LAGOM_READY
    entries = ((i, region.processes[i]) for i in range(MAX_PROCESSES))
    return [_process_view(i, entry) for i, entry in entries if entry.state == ready]


def communicators_in(region: Any) -> list[CommunicatorView]:
    """Every registered communicator."""
    ready = library().LAGOM_READY
    entries = ((i, region.communicators[i]) for i in range(MAX_COMMUNICATORS))
    return [
        CommunicatorView(i, c.comm_id, c.rank_count, c.node_count, c.ordinal, _text(c.name))
        for i, c in entries
        if c.state == ready
    ]


def slots_in(region: Any, communicator: int | None = None, *, also_gone: bool = False) -> list[SlotView]:
    """Every ready slot whose indices can be true, of one communicator or of all; ``also_gone``: those of finalized
    communicators too."""
    states = {library().LAGOM_READY, library().LAGOM_GONE} if also_gone else {library().LAGOM_READY}
    entries = ((int(i), region.slots[i]) for i in np.flatnonzero(_slot_states(region)))
    return [
        _slot_view(i, slot)
        for i, slot in entries
        if slot.state in states
        and slot.communicator < MAX_COMMUNICATORS
        and slot.process < MAX_PROCESSES
        and communicator in (None, slot.communicator)
    ]


def _slot_states(region: Any) -> NDArray[np.uint32]:
    """All of them at once: the controller looks hundreds of times a second, and most slots are free."""
    words = np.frombuffer(ffi.buffer(region.slots), np.uint32)
    return words[:: len(words) // MAX_SLOTS]


def plausible(records: NDArray[Any]) -> NDArray[np.bool_]:
    """Which call records hold a function that exists, and a stock pick that does or none at all."""
    algorithm, protocol = records["stock_algorithm"], records["stock_protocol"]
    picked = (algorithm >= 0) & (algorithm < len(Algorithm)) & (protocol >= 0) & (protocol < len(Protocol))
    nothing = (algorithm < 0) & (protocol < 0)
    known: NDArray[np.bool_] = (records["function"] < len(Function)) & (picked | nothing)
    return known


def _text(field: Any) -> str:
    return ffi.string(field).decode(errors="replace")


def _name(field: Any) -> str:
    """Of a job or a file: whatever bytes are in it, they go back to C as they came."""
    return os.fsdecode(ffi.string(field))


def _process_view(index: int, entry: Any) -> ProcessView:
    return ProcessView(
        index,
        entry.pid,
        entry.nccl_version,
        entry.tuner_api,
        entry.profiler_api,
        entry.knobs,
        _text(entry.gpu),
        _text(entry.libnccl),
        _text(entry.remark),
        entry.kernel_drops,
        entry.timeline_state,
        entry.timeline_first_enable_ns,
        entry.timeline_records,
        entry.timeline_lost,
        bool(entry.traits & library().LAGOM_TRAIT_PEER_ACCESS),
    )


def _slot_view(index: int, slot: Any) -> SlotView:
    return SlotView(
        index,
        slot.process,
        slot.communicator,
        None if slot.rank == UNKNOWN_RANK else slot.rank,
        slot.calls,
        slot.call_drops,
        slot.uncounted,
        slot.applied,
        slot.suspensions,
        bool(slot.capturing),
        slot.active_epoch,
        slot.iterations,
        slot.refused_epoch,
        min(slot.refused_fault, _UNKNOWN_FAULT),
        slot.untunable_p2p,
        slot.untunable_symmetric,
        slot.untunable_copy_engine,
        slot.history_hash,
        bool(slot.times_refuted),
        slot.call_ring != 0,
    )


def job_key(first_comm_id: int = 0) -> str | None:
    """The key the ranks of this environment would use; ``None`` if no variable names a job."""
    out = ffi.new(f"char[{PATH_BYTES}]")
    named = library().lagom_job_key(out, first_comm_id)
    return _name(out) if named else None


def region_path(key: str) -> Path:
    """Where the region of a job key lies; raises :class:`RegionRefused` where LAGOM_SHM_DIR is too long."""
    out = ffi.new(f"char[{PATH_BYTES}]")
    if not library().lagom_region_path(os.fsencode(key), out):
        raise RegionRefused("LAGOM_SHM_DIR is too long (230 bytes at most); name a shorter folder.")
    return Path(_name(out))


def unlink_if_unheld(path: Path) -> bool:
    """Remove a region that no living process holds any lock on, whatever is in it; True if it is gone."""
    library().lagom_region_remove_stale(os.fsencode(path))
    return not os.path.lexists(path)
