"""What a kernel and a collective do to each other while both run.

Compute loses SM slots (by waves, by co-residency, by broken clusters), memory bandwidth (more than its share once the
memory is busy) and L2 space. A collective loses the part of its wire that goes through the memory system.
"""

from __future__ import annotations

import math

from lagom.sim.link import Transfer
from lagom.sim.machine import Machine
from lagom.sim.operations import ComputeKernel

#: How compute-limited and memory-limited time combine: the power of a smooth maximum.
_ROOFLINE_POWER = 4.0
#: Loss of efficiency of the memory itself when two patterns of access mix, as a share of the other's use.
_MIXING_LOSS = 0.35


def alone_ns(machine: Machine, kernel: ComputeKernel) -> float:
    """The kernel's length with the GPU to itself."""
    slots = float(machine.sms * kernel.per_sm)
    return _roofline(_sm_ns(machine, kernel, slots), kernel.memory_bytes / machine.memory_gbps)


def contended_ns(machine: Machine, kernel: ComputeKernel, beside: Transfer) -> float:
    """The kernel's length if ``beside`` runs through all of it."""
    slots = max(1.0, machine.sms * kernel.per_sm - _slots_lost(machine, kernel, beside))
    used = min(0.85, _drawn(machine, beside) / machine.memory_gbps)
    memory = machine.memory_gbps * (1.0 - used) * (1.0 - _MIXING_LOSS * used)
    traffic = kernel.memory_bytes * (1.0 + kernel.reuse * _l2_share(machine, kernel, beside))
    return _roofline(_sm_ns(machine, kernel, slots), traffic / memory)


def contended_transfer_ns(machine: Machine, kernel: ComputeKernel, transfer: Transfer) -> float:
    """The collective's length if ``kernel`` runs through all of it."""
    pressure = min(1.0, 0.5 + 0.5 * _memory_use(machine, kernel))
    return transfer.ns_with_wire(transfer.wire_gbps / (1.0 + transfer.drag * pressure))


def arrival_ns(machine: Machine, kernel: ComputeKernel) -> float:
    """How long a collective's blocks wait for a free slot while ``kernel`` fills the GPU: infinite (until the kernel
    ends) behind a persistent one, half a block on average behind others, nothing where slots are free."""
    if kernel.blocks < machine.sms * kernel.per_sm:
        return 0.0
    return math.inf if kernel.persistent else 0.5 * kernel.block_ns


def _slots_lost(machine: Machine, kernel: ComputeKernel, beside: Transfer) -> float:
    channels = float(beside.config.channels)
    if kernel.pair:
        pairs = machine.sms / 2
        return 2 * pairs * (1.0 - (1.0 - 1.0 / pairs) ** channels)  # distinct pairs hit by blocks placed at random
    share = (beside.config.threads + 32) / machine.sm_threads
    displaced = min(kernel.per_sm, math.ceil(share * kernel.per_sm))
    return min(channels, machine.sms - 1.0) * displaced


def _sm_ns(machine: Machine, kernel: ComputeKernel, slots: float) -> float:
    even = max(1.0, kernel.blocks / slots)
    hard = math.ceil(even - 1e-9)
    sharp = machine.wave_sharpness
    return (sharp * hard + (1.0 - sharp) * even) * kernel.block_ns


def _drawn(machine: Machine, beside: Transfer) -> float:
    """Bandwidth the collective takes in its bursts: chunks come at the SM's speed, then pause for the wire."""
    chunk = beside.inflight_bytes / beside.config.channels
    return beside.memory_gbps * (1.0 + machine.burst * chunk / (chunk + machine.burst_half_chunk))


def _l2_share(machine: Machine, kernel: ComputeKernel, beside: Transfer) -> float:
    """Share of the L2 the collective holds: by its rate of insertion, but never more than its buffers."""
    own = kernel.memory_bytes / max(1.0, alone_ns(machine, kernel))
    by_rate = beside.memory_gbps / (beside.memory_gbps + own + 1e-9)
    by_size = 2.0 * beside.inflight_bytes / machine.l2_bytes  # sender's and receiver's side
    return min(1.0, by_size) * (by_rate**0.5)


def _memory_use(machine: Machine, kernel: ComputeKernel) -> float:
    return min(1.0, kernel.memory_bytes / machine.memory_gbps / alone_ns(machine, kernel))


def _roofline(sm_ns: float, memory_ns: float) -> float:
    power = _ROOFLINE_POWER
    return float((sm_ns**power + memory_ns**power) ** (1.0 / power))
