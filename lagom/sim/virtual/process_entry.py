# SPDX-License-Identifier: Apache-2.0
"""A virtual rank's own entry in the shared region: the simulated clock and the kernel ring.

The plugin inside this process has mapped the region; we find its mapping in ``/proc/self/maps`` and the entry by our
pid. No second file descriptor is opened: closing any would drop the process's byte locks (F_SETLK), and with them its
life as others see it. Spans go in through liblagom, as the timeline's do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.wire.layout import (
    CALL_RING_CAPACITY,
    KERNEL_RING_CAPACITY,
    KERNEL_SPAN,
    MAX_COMMUNICATORS,
    MAX_PLANS,
    MAX_PROCESSES,
    MAX_SLOTS,
    ffi,
)
from lagom.wire.library import library

PREPARED = 1  # enum lagom_switch_state


class ProcessEntry:
    """What this process owns in the region. ``None`` from :meth:`find` = the plugin has joined no region."""

    def __init__(self, region: Any, index: int) -> None:
        self._region, self.index = region, index
        self._process = region.processes[index]
        self._slots: dict[int, int] = {}

    @classmethod
    def find(cls) -> ProcessEntry | None:
        """The entry the plugin in this process took."""
        address = _mapped_region()
        if address is None:
            return None
        region = ffi.cast("struct lagom_region *", address)
        for index in range(MAX_PROCESSES):
            entry = region.processes[index]
            if entry.pid == os.getpid() and entry.state == ffi_ready():
                return cls(region, index)
        return None

    def set_now(self, nanoseconds: int) -> None:
        """Moves the simulated clock; the plugin in this process stamps its records with it."""
        self._process.simulated_now_ns = nanoseconds

    def slot_of(self, comm_id: int) -> int | None:
        """Index of our slot on a communicator."""
        if comm_id not in self._slots:
            for index in range(MAX_SLOTS):
                slot = self._region.slots[index]
                if slot.state == ffi_ready() and slot.process == self.index and slot.comm_id == comm_id:
                    self._slots[comm_id] = index
        return self._slots.get(comm_id)

    def calls(self, comm_id: int) -> int:
        """Number of the next counted call on a communicator."""
        slot = self.slot_of(comm_id)
        return 0 if slot is None else int(self._region.slots[slot].calls)

    def capture(self, comm_id: int) -> int:
        """What the controller wants recorded on a communicator (``enum lagom_capture``)."""
        slot = self.slot_of(comm_id)
        if slot is None:
            return 0
        index = self._region.slots[slot].communicator
        return int(self._region.communicators[index].capture) if index < MAX_COMMUNICATORS else 0

    def room(self, comm_ids: list[int]) -> tuple[int, int]:
        """Free places in the kernel ring and in the fullest call ring of ``comm_ids``."""
        kernels = KERNEL_RING_CAPACITY - (self._process.kernel_head - self._process.kernel_tail)
        slots = [self._region.slots[slot] for comm_id in comm_ids if (slot := self.slot_of(comm_id)) is not None]
        calls = min((CALL_RING_CAPACITY - (slot.call_head - slot.call_tail) for slot in slots), default=0)
        return int(kernels), int(calls)

    def awaits_outcome(self, comm_ids: list[int]) -> bool:
        """Whether we have acknowledged a plan on one of ``comm_ids`` and no decision was made yet."""
        for comm_id in comm_ids:
            slot = self.slot_of(comm_id)
            if slot is not None:
                mine = self._region.slots[slot]
                word = self._region.communicators[mine.communicator % MAX_COMMUNICATORS].word
                if word & 3 == PREPARED and word >> 2 == mine.ack_epoch:
                    return True
        return False

    def active(self, comm_id: int) -> tuple[int, int]:
        """(epoch, first call) of the plan in force on a communicator; (0, 0) = none, NCCL's own choice."""
        slot = self.slot_of(comm_id)
        if slot is None:
            return 0, 0
        mine = self._region.slots[slot]
        return int(mine.active_epoch), int(mine.active_start)

    def plan_bytes(self, comm_id: int, epoch: int) -> bytes | None:
        """The plan of ``epoch`` as it lies in shared memory; None if it is another already, or not whole."""
        slot = self.slot_of(comm_id)
        if slot is None:
            return None
        communicator = self._region.slots[slot].communicator
        if communicator >= MAX_PLANS:
            return None
        plan = ffi.new("struct lagom_plan *", self._region.plans[communicator])
        whole = plan.epoch == epoch and library().lagom_plan_check(plan, plan.comm_id) == 0
        return bytes(ffi.buffer(plan)) if whole else None

    def push_spans(self, spans: NDArray[Any]) -> None:
        """Appends rows of ``KERNEL_SPAN`` to the process's kernel ring; what does not fit is counted as dropped."""
        rows = np.ascontiguousarray(spans, KERNEL_SPAN)
        first, push = ffi.from_buffer("struct lagom_kernel_span[]", rows), library().lagom_kernel_ring_push
        for index in range(len(rows)):
            push(self._region, self.index, first + index)


def ffi_ready() -> int:
    """``LAGOM_READY``, without opening the library for it."""
    return 2


def _mapped_region() -> int | None:
    """Address of the region's mapping in this process."""
    prefix = f"/lagom-{os.getuid()}-"
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and prefix in fields[5] and "rw-s" in fields[1] and int(fields[2], 16) == 0:
            return int(fields[0].split("-")[0], 16)
    return None
