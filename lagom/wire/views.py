# SPDX-License-Identifier: Apache-2.0
"""The processes, communicators and ranks of a region, as Python values.

Everything read from a region, mapped or copied, may be garbage (another process writes it), so indices are clamped
here, once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.records import Algorithm, Function, Protocol
from lagom.wire.config_refusal import ConfigRefusal, refusal_of
from lagom.wire.layout import MAX_COMMUNICATORS, MAX_PLANS, MAX_PROCESSES, MAX_SLOTS, UNKNOWN_RANK, ffi
from lagom.wire.library import library

_UNKNOWN_FAULT = 0xFF  # the largest value that a C enum is sure to hold: the region may hold garbage


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
    simulated: bool = False  # a virtual rank
    refusal: ConfigRefusal | None = None  # of the saved config that the job was given
    start_settings: bytes = b""  # digests of the variables of lagom.start.VARIABLES, 0 = not set
    timeline_remark: str = ""  # why no kernels are recorded


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
    times_refuted: bool = False  # NCCL's kernel times were found to be wrong, and are no longer reported
    records_calls: bool = True  # it has a call ring: not every slot of a large job has one


@dataclass(frozen=True, slots=True)
class CommunicatorView:
    """One communicator, as registered on this node."""

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


def processes_in(region: Any, *, also_gone: bool = False) -> list[ProcessView]:
    """Every registered process of a ``struct lagom_region``, mapped or copied; ``also_gone``: those that have left and
    whose entry no other one has taken, too."""
    states = {library().LAGOM_READY, library().LAGOM_GONE} if also_gone else {library().LAGOM_READY}
    entries = ((i, region.processes[i]) for i in range(MAX_PROCESSES))
    return [_process_view(i, entry) for i, entry in entries if entry.state in states]


def communicators_in(region: Any) -> list[CommunicatorView]:
    """Every registered communicator."""
    ready = library().LAGOM_READY
    entries = ((i, region.communicators[i]) for i in range(MAX_COMMUNICATORS))
    return [
        CommunicatorView(i, c.comm_id, c.rank_count, c.node_count, c.ordinal, read_text(c.name))
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
    """All states in one array: the controller reads them hundreds of times a second, and most slots are free."""
    words = np.frombuffer(ffi.buffer(region.slots), np.uint32)
    return words[:: len(words) // MAX_SLOTS]


def plausible(records: NDArray[Any]) -> NDArray[np.bool_]:
    """Which call records have a function that exists, and a choice of NCCL that exists, or none."""
    algorithm, protocol = records["stock_algorithm"], records["stock_protocol"]
    picked = (algorithm >= 0) & (algorithm < len(Algorithm)) & (protocol >= 0) & (protocol < len(Protocol))
    nothing = (algorithm < 0) & (protocol < 0)
    known: NDArray[np.bool_] = (records["function"] < len(Function)) & (picked | nothing)
    return known


def read_text(field: Any) -> str:
    return ffi.string(field).decode(errors="replace")


def read_name(field: Any) -> str:
    """The name of a job or file, whatever bytes are in it: encoded again, they are the same bytes."""
    return os.fsdecode(ffi.string(field))


def _process_view(index: int, entry: Any) -> ProcessView:
    return ProcessView(
        index,
        entry.pid,
        entry.nccl_version,
        entry.tuner_api,
        entry.profiler_api,
        entry.knobs,
        read_text(entry.gpu),
        read_text(entry.libnccl),
        read_text(entry.remark),
        entry.kernel_drops,
        entry.timeline_state,
        entry.timeline_first_enable_ns,
        entry.timeline_records,
        entry.timeline_lost,
        bool(entry.traits & library().LAGOM_TRAIT_PEER_ACCESS),
        bool(entry.traits & library().LAGOM_TRAIT_SIMULATED),
        refusal_of(entry.saved_config, entry.refusal),
        bytes(ffi.buffer(entry.start_settings)),
        read_text(entry.timeline_remark),
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
