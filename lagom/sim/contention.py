# SPDX-License-Identifier: Apache-2.0
"""How long a collective takes alone, and what a kernel and a collective do to each other while both run.

Compute loses SM slots (by waves, by co-residency, by broken clusters), memory bandwidth (more than its share once the
memory is busy) and L2 space. A collective loses the part of its wire that goes through the memory system.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lagom.errors import LagomError
from lagom.records import Algorithm, Function, Protocol
from lagom.sim.machine import Link, MachineModel
from lagom.sim.operations import Applied, Collective, ComputeKernel

#: Shares of the wire each protocol can use (LL: 4 B of flag to 4 B of data; LL128: 8 to 120, and [M] H200 TP at
#: T=32768: 0.95x of a step with LL128).
_WIRE_SHARE = {Protocol.LL: 0.5, Protocol.LL128: 0.9, Protocol.SIMPLE: 1.0}
#: A hop's cost against SIMPLE's, which pays a fence each.
_HOP_SHARE = {Protocol.LL: 0.25, Protocol.LL128: 0.4, Protocol.SIMPLE: 1.0}
#: The largest chunk of each protocol's buffers and of a tree's, bytes (NCCL's defaults); C can only go below.
_LARGEST_CHUNK = {Protocol.LL: 32 << 10, Protocol.LL128: 576_000}
_LARGEST_TREE_CHUNK = 512 << 10
#: A tree's share of a ring's bandwidth within one host (up and down share a channel's threads).
_TREE_SHARE = 0.8
#: Share of one chunk that a hop must hold before it can forward anything (NCCL cuts chunks into slices and steps).
_FILL_SHARE = 1 / 32
#: Bytes of DRAM traffic for each byte on the wire: a copy reads and writes, a reduction reads twice.
_MEMORY_BYTES = {Function.REDUCE_SCATTER: 3.0, Function.ALL_REDUCE: 2.5}
#: A channel's rate at a number of threads, against 512. [M] H200 T=4096: 128 cost 4 % of a step, 256 cost 1-2 %.
_THREADS_POWER = 0.3


@dataclass(frozen=True, slots=True)
class Transfer:
    """A collective under one config, alone on the machine.

    ``ns`` its length; ``fixed_ns`` the part of it that bandwidth does not touch; ``channels_gbps`` what its channels
    could push, ``wire_gbps`` what the wire could take; ``memory_gbps`` the bandwidth it draws from DRAM while it runs;
    ``inflight_bytes`` its staging footprint.
    """

    ns: float
    fixed_ns: float
    wire_bytes: float
    channels_gbps: float
    wire_gbps: float
    sharpness: float
    drag: float
    memory_gbps: float
    inflight_bytes: float
    config: Applied

    def ns_with_wire(self, wire_gbps: float) -> float:
        """Its length if the wire took ``wire_gbps``."""
        return self.fixed_ns + self.wire_bytes / smooth_min(self.channels_gbps, wire_gbps, self.sharpness)


def smooth_min(a: float, b: float, power: float) -> float:
    """The minimum of two rates with a rounded corner."""
    return float((a**-power + b**-power) ** (-1.0 / power))


def transfer(machine: MachineModel, collective: Collective, applied: Applied) -> Transfer:
    """The collective under ``applied``, without any compute beside it."""
    protocol = Protocol.SIMPLE if applied.config.protocol is None else applied.config.protocol  # LL is 0
    tree = applied.config.algorithm == Algorithm.TREE
    link = _slowest_link(machine, collective)
    wire_bytes = _wire_bytes(collective)
    chunk = _chunk_in_force(collective, applied, protocol, tree)
    channel = _channel_rate(link, applied, chunk) * _WIRE_SHARE[protocol] * (_TREE_SHARE if tree else 1.0)
    channels = applied.channels * channel
    wire = _wire_rate(link, applied.channels, channels, chunk) * _WIRE_SHARE[protocol] * (_TREE_SHARE if tree else 1.0)
    hops = _hops(collective, tree)
    fill = hops * chunk * _FILL_SHARE / channel
    fixed = machine.comm_launch_ns + hops * link.hop_ns * _HOP_SHARE[protocol] + fill
    ns = fixed + wire_bytes / smooth_min(channels, wire, link.sharpness)
    drawn = _MEMORY_BYTES.get(collective.function, 2.0) * wire_bytes / ns
    inflight = float(applied.channels * chunk)
    return Transfer(ns, fixed, wire_bytes, channels, wire, link.sharpness, link.compute_drag, drawn, inflight, applied)


def _slowest_link(machine: MachineModel, collective: Collective) -> Link:
    """A ring is as fast as its slowest hop; across hosts that may be either."""
    if collective.sharers == 0 and collective.ranks <= machine.gpus_per_node:
        return machine.link
    network = machine.between_nodes
    if network is None:
        raise LagomError(
            f"{machine.name} has no figures for more than one host: use at most {machine.gpus_per_node} GPUs"
        )
    if collective.sharers:
        return replace(network, gbps=network.gbps / collective.sharers)
    return min(machine.link, network, key=lambda link: link.gbps)


def _wire_bytes(collective: Collective) -> float:
    """Bytes each rank sends: (n-1)/n of the whole; an AllReduce sends that twice."""
    share = (collective.ranks - 1) / collective.ranks
    return collective.bytes * share * (2.0 if collective.function == Function.ALL_REDUCE else 1.0)


def _chunk_in_force(collective: Collective, applied: Applied, protocol: Protocol, tree: bool) -> float:
    """What is asked for, held to the buffers and to what one channel has to move for one rank."""
    largest = min(
        _LARGEST_CHUNK.get(protocol, applied.chunk_bytes), _LARGEST_TREE_CHUNK if tree else applied.chunk_bytes
    )
    share = collective.bytes / collective.ranks / applied.channels
    return float(max(4096.0, min(applied.chunk_bytes, largest, share)))


def _channel_rate(link: Link, applied: Applied, chunk: float) -> float:
    threads = min(1.0, (applied.threads / 512) ** _THREADS_POWER)
    return link.channel_gbps * threads * chunk / (chunk + link.half_chunk_bytes)


def _wire_rate(link: Link, channels: int, channels_gbps: float, chunk: float) -> float:
    past_knee = max(0.0, channels * (1.0 - link.gbps / channels_gbps)) if channels_gbps > link.gbps else 0.0
    cap = link.gbps * max(0.5, 1.0 - link.crowding * past_knee)
    hot = 1.0 / (1.0 + (channels * chunk / link.hot_bytes) ** link.hot_power)
    return cap * (1.0 + (link.hot_gain - 1.0) * hot)


def _hops(collective: Collective, tree: bool) -> int:
    if tree:
        return 2 * math.ceil(math.log2(collective.ranks))
    return (collective.ranks - 1) * (2 if collective.function == Function.ALL_REDUCE else 1)


#: How compute-limited and memory-limited time combine: the power of a smooth maximum.
_ROOFLINE_POWER = 4.0
#: Loss of efficiency of the memory itself when two patterns of access mix, as a share of the other's use.
_MIXING_LOSS = 0.35


def alone_ns(machine: MachineModel, kernel: ComputeKernel) -> float:
    """The kernel's length with the GPU to itself."""
    slots = float(machine.sms * kernel.per_sm)
    return _roofline(_sm_ns(machine, kernel, slots), kernel.memory_bytes / machine.memory_gbps)


def contended_ns(machine: MachineModel, kernel: ComputeKernel, beside: Transfer) -> float:
    """The kernel's length if ``beside`` runs through all of it."""
    slots = max(1.0, machine.sms * kernel.per_sm - _slots_lost(machine, kernel, beside))
    used = min(0.85, _drawn(machine, beside) / machine.memory_gbps)
    memory = machine.memory_gbps * (1.0 - used) * (1.0 - _MIXING_LOSS * used)
    traffic = kernel.memory_bytes * (1.0 + kernel.reuse * _l2_share(machine, kernel, beside))
    return _roofline(_sm_ns(machine, kernel, slots), traffic / memory)


def contended_transfer_ns(machine: MachineModel, kernel: ComputeKernel, transfer: Transfer) -> float:
    """The collective's length if ``kernel`` runs through all of it."""
    pressure = min(1.0, 0.5 + 0.5 * _memory_use(machine, kernel))
    return transfer.ns_with_wire(transfer.wire_gbps / (1.0 + transfer.drag * pressure))


def arrival_ns(machine: MachineModel, kernel: ComputeKernel) -> float:
    """How long a collective's blocks wait for a free slot while ``kernel`` fills the GPU: infinite (until the kernel
    ends) behind a persistent one, half a block on average behind others, nothing where slots are free."""
    if kernel.blocks < machine.sms * kernel.per_sm:
        return 0.0
    return math.inf if kernel.persistent else 0.5 * kernel.block_ns


def _slots_lost(machine: MachineModel, kernel: ComputeKernel, beside: Transfer) -> float:
    channels = float(beside.config.channels)
    if kernel.pair:
        pairs = machine.sms / 2
        return 2 * pairs * (1.0 - (1.0 - 1.0 / pairs) ** channels)  # distinct pairs hit by blocks placed at random
    share = (beside.config.threads + 32) / machine.sm_threads
    displaced = min(kernel.per_sm, math.ceil(share * kernel.per_sm))
    return min(channels, machine.sms - 1.0) * displaced


def _sm_ns(machine: MachineModel, kernel: ComputeKernel, slots: float) -> float:
    even = max(1.0, kernel.blocks / slots)
    hard = math.ceil(even - 1e-9)
    sharp = machine.wave_sharpness
    return (sharp * hard + (1.0 - sharp) * even) * kernel.block_ns


def _drawn(machine: MachineModel, beside: Transfer) -> float:
    """Bandwidth the collective takes in its bursts: chunks come at the SM's speed, then pause for the wire."""
    chunk = beside.inflight_bytes / beside.config.channels
    return beside.memory_gbps * (1.0 + machine.burst * chunk / (chunk + machine.burst_half_chunk))


def _l2_share(machine: MachineModel, kernel: ComputeKernel, beside: Transfer) -> float:
    """Share of the L2 the collective holds: by its rate of insertion, but never more than its buffers."""
    own = kernel.memory_bytes / max(1.0, alone_ns(machine, kernel))
    by_rate = beside.memory_gbps / (beside.memory_gbps + own + 1e-9)
    by_size = 2.0 * beside.inflight_bytes / machine.l2_bytes  # sender's and receiver's side
    return min(1.0, by_size) * (by_rate**0.5)


def _memory_use(machine: MachineModel, kernel: ComputeKernel) -> float:
    return min(1.0, kernel.memory_bytes / machine.memory_gbps / alone_ns(machine, kernel))


def _roofline(sm_ns: float, memory_ns: float) -> float:
    power = _ROOFLINE_POWER
    return float((sm_ns**power + memory_ns**power) ** (1.0 / power))
