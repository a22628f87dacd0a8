# SPDX-License-Identifier: Apache-2.0
"""A region as the controller holds it: attach, read its tables, drain the rings, publish plans.

Every write goes through liblagom: release stores and compare-and-swap are not something Python can do to shared memory.
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
from lagom.wire.layout import (
    CALL_RECORD,
    CALL_RING_CAPACITY,
    KERNEL_RING_CAPACITY,
    KERNEL_SPAN,
    MAX_KERNEL_NAMES,
    PLAN_LATE_HISTORY,
    ffi,
)
from lagom.wire.library import library
from lagom.wire.plan import Plan, fill_plan
from lagom.wire.views import (
    CommunicatorView,
    ProcessView,
    SlotView,
    communicators_in,
    plausible,
    processes_in,
    read_name,
    read_text,
    slots_in,
)


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
        """Attach to the region of ``job_key``, creating it if needed; raises :class:`RegionRefused`."""
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
        """Release the lock and the mapping; ``unlink``: remove the file if no rank holds it. Safe to call twice."""
        if self._region != ffi.NULL:
            self._lib.lagom_region_leave(self._mapping, unlink)
            self._region = ffi.NULL

    def retire(self) -> bool:
        """Remove the file if no rank holds it, so that none can join any more; ``False``: a rank holds it."""
        return bool(self._lib.lagom_region_retire(self._mapping))

    # -- tables

    @property
    def path(self) -> Path:
        """The region's file."""
        return Path(read_name(self._mapping.path))

    @property
    def job_key(self) -> str:
        """The name this region was made under, before hashing."""
        return read_text(self._region.header.job_key)

    @property
    def processes_seen(self) -> int:
        """How many rank processes have ever registered."""
        return int(self._region.header.processes_seen)

    @property
    def places_refused(self) -> int:
        """How often there was no entry for a communicator, or none in which one of this node can be tuned."""
        return int(self._region.header.places_refused)

    def processes_alive(self) -> int:
        """How many rank processes hold their lock right now."""
        return int(self._lib.lagom_region_processes_alive(self._mapping))

    def sweep(self) -> int:
        """Free what dead processes and finalized communicators left; returns how many entries."""
        return int(self._lib.lagom_region_sweep(self._mapping))

    @property
    def has_simulated_clock(self) -> bool:
        """Whether the ranks' kernels are simulated, on a clock of their own."""
        return bool(self._region.header.clock == self._lib.LAGOM_CLOCK_SIMULATED)

    def now_ns(self, process: int) -> int:
        """The time on the clock that this process's records carry."""
        if self.has_simulated_clock:
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
        """Ask a process to record its kernels through CUPTI, or to stop; it checks every few milliseconds."""
        self._lib.lagom_timeline_want(self._region, process, int(wanted))

    def timeline_state(self, process: int) -> TimelineState:
        """Whether it records now."""
        state = self._region.processes[process].timeline_state
        return TimelineState(state) if state <= max(TimelineState) else TimelineState.ABSENT

    def kernel_names(self) -> dict[int, str]:
        """Name of each kernel, by the number in a span's ``name``."""
        entries = ((i, self._region.names[i]) for i in range(MAX_KERNEL_NAMES))
        return {i + 1: read_text(entry.text) for i, entry in entries if entry.ready == 1}

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

    def claim(self, communicator: int) -> bool:
        """Whether the controller publishes here from now on: no rank does that replays a saved config which is not in
        force yet."""
        return bool(self._lib.lagom_publish_claim(self._region, communicator))

    def ready_to_publish(self, communicator: int) -> bool:
        """Whether every rank has passed the last committed plan's start, so a new plan may be prepared."""
        return bool(self._lib.lagom_publish_ready(self._region, communicator))

    def publish(self, communicator: int, plan: Plan, comm_id: int = 0) -> tuple[Publication, int]:
        """Offer a plan to the ranks; returns the result and the plan's epoch (0 if it was refused). ``comm_id``: refuse
        if the entry now belongs to another communicator; 0: do not check."""
        struct = ffi.new("struct lagom_plan *")
        fill_plan(plan, struct)
        struct.comm_id = comm_id
        result = Publication(self._lib.lagom_publish(self._region, communicator, struct))
        return result, int(struct.epoch) if result is Publication.OK else 0

    def poll(self, communicator: int) -> Verdict:
        """Check an open publication once; commits it if every rank agreed."""
        return Verdict(self._lib.lagom_publish_poll(self._region, communicator))

    def epoch(self, communicator: int) -> int:
        """The epoch in the communicator's switch word; 0 if another communicator has taken the entry."""
        return int(self._region.communicators[communicator].word >> 2)

    def refusal(self, communicator: int, epoch: int) -> Refusal | None:
        """Why a rank refused the plan of ``epoch``; ``None`` if none did."""
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
        """Withdraw an open publication; the switch word decides, so the result may still be COMMITTED."""
        return Verdict(self._lib.lagom_publish_withdraw(self._region, communicator))


def unlink_if_unheld(path: Path) -> bool:
    """Remove a region that no live process holds a lock on, whatever is in it; True if it was removed."""
    library().lagom_region_remove_stale(os.fsencode(path))
    return not os.path.lexists(path)
