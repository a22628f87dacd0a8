# SPDX-License-Identifier: Apache-2.0
"""What NCCL does with a collective before and after it asked the tuner: cost table, default NC and NT, chunks; and what
differs between releases: the ABI they look for, how they pick, how they clamp NC.

The arithmetic of ``src/enqueue.cc`` (topoGetAlgoInfo, scheduleCollTasksToPlan, calcCollChunking) and
``src/plugin/tuner.cc`` of NCCL v2.20 .. v2.32 (2.31 on: ``src/tuning``) for the algorithms a single node of up to eight
GPUs uses. Pure functions; sizes in bytes, costs in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lagom.errors import LagomError
from lagom.records import Algorithm, CommConfig, Function, Protocol
from lagom.sim.virtual.abi import ALGORITHMS, IGNORE, PROTOCOLS

MAX_CHANNELS = 64
CELL_BYTES = 32 << 10  # traffic is dealt to channels in cells of at least this much
GRAIN = {Protocol.LL: 16, Protocol.LL128: 1920, Protocol.SIMPLE: 512}
THREAD_THRESHOLD = {Protocol.LL: 8, Protocol.LL128: 8, Protocol.SIMPLE: 64}
FLOOR_THREADS = 96
FULL_CHANNEL_BYTES = {Protocol.LL: 32 << 10, Protocol.LL128: 576_000, Protocol.SIMPLE: 512 << 10}
CHUNK_STEPS = 4  # RING/SIMPLE AllReduce, AllGather and ReduceScatter chunks span four buffer steps


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """One call of the user: function and size as getCollInfo gets them (AllGather: bytes of the gathered buffer)."""

    function: Function
    bytes: int
    registered: bool = False  # regBuff: per rank


@dataclass(frozen=True, slots=True)
class Launched:
    """One collective as NCCL ran it: the effective config, and whether the tuner left table, NC and chunk alone."""

    collective: CollectiveCall
    config: CommConfig
    untouched: bool


@dataclass(frozen=True, slots=True)
class Fabric:
    """What NCCL built between the ranks of a communicator, as far as its own choice depends on it."""

    channels: int = 24
    bandwidth_gbs: float = 200.0  # bus bandwidth of RING/SIMPLE over all channels
    hop_us: float = 0.6
    ll128: bool = True
    nvls_channels: int = 0  # 0 = no NVLink SHARP

    def with_minimum(self, channels: int) -> Fabric:
        """NCCL_MIN_NCHANNELS: rings and trees are duplicated until there are so many (graph/connect.cc); NVLS not."""
        return replace(self, channels=min(max(self.channels, channels), MAX_CHANNELS))

    def with_maximum(self, channels: int) -> Fabric:
        """NCCL_MAX_CTAS or NCCL_MAX_NCHANNELS: no more are built, whatever the minimum (graph/connect.cc)."""
        return replace(self, channels=min(self.channels, channels), nvls_channels=min(self.nvls_channels, channels))

    def built(self, algorithm: Algorithm) -> int:
        """Channels that exist for ``algorithm``."""
        return self.nvls_channels if algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE) else self.channels


def cost_table(function: Function, size: int, ranks: int, fabric: Fabric) -> list[float]:
    """NCCL-like predicted time of every (algorithm, protocol), flat and algorithm-major; ``IGNORE`` = not available."""
    table = [IGNORE] * (ALGORITHMS * PROTOCOLS)
    for algorithm in _algorithms_for(function, fabric):
        for protocol in Protocol:
            if _available(algorithm, protocol, fabric):
                table[algorithm * PROTOCOLS + protocol] = _predict(function, algorithm, protocol, size, ranks, fabric)
    return table


def _algorithms_for(function: Function, fabric: Fabric) -> tuple[Algorithm, ...]:
    if function in (Function.BROADCAST, Function.REDUCE):
        return (Algorithm.RING,)
    tree = (Algorithm.TREE,) if function == Function.ALL_REDUCE else ()
    nvls = (Algorithm.NVLS,) if fabric.nvls_channels else ()
    return (*tree, Algorithm.RING, *nvls)


def _available(algorithm: Algorithm, protocol: Protocol, fabric: Fabric) -> bool:
    if algorithm == Algorithm.NVLS:
        return protocol == Protocol.SIMPLE
    return protocol != Protocol.LL128 or fabric.ll128


def _predict(
    function: Function, algorithm: Algorithm, protocol: Protocol, size: int, ranks: int, fabric: Fabric
) -> float:
    """Latency of the hops plus bytes over a protocol's share of the wire, as ncclTopoGetAlgoTime is shaped."""
    share = {Protocol.LL: 0.45, Protocol.LL128: 0.92, Protocol.SIMPLE: 1.0}[protocol]
    base = {Protocol.LL: 6.6, Protocol.LL128: 14.0, Protocol.SIMPLE: 8.4}[protocol]
    hop = fabric.hop_us * (1.0 if protocol == Protocol.LL else 1.9 if protocol == Protocol.LL128 else 3.4)
    steps = 2 * math.log2(ranks) if algorithm == Algorithm.TREE else ranks - 1
    passes = 2 if function == Function.ALL_REDUCE else 1
    wire = passes * (ranks - 1) / ranks
    if algorithm == Algorithm.TREE:
        share *= 0.85
    return base + passes * steps * hop + size * wire / (fabric.bandwidth_gbs * share * 1e3)


def default_channels_and_threads(
    algorithm: Algorithm, protocol: Protocol, size: int, ranks: int, fabric: Fabric
) -> tuple[int, int]:
    """NCCL's own NC and NT (enqueue.cc:2070-2113): every channel built, fewer where the message cannot fill them.

    NT is the knob's value (512); what is launched is :func:`block_threads`.
    """
    channels = fabric.built(algorithm)
    threads = 640 if protocol == Protocol.LL128 or algorithm in (Algorithm.NVLS, Algorithm.PAT) else 512
    threshold = THREAD_THRESHOLD[protocol]
    if algorithm == Algorithm.RING and protocol == Protocol.LL:
        threshold *= ranks
    while channels > 1 and size < channels * threads * threshold:
        channels -= 1
    while size < channels * threads * threshold and threads % 128 == 0:
        threads //= 2
    return channels, max(threads, FLOOR_THREADS)


def block_threads(algorithm: Algorithm, protocol: Protocol, threads: int) -> int:
    """The launched block: NT plus the extra warp of RING/SIMPLE; TREE and PAT are forced to 640 (enqueue.cc:2112)."""
    if algorithm in (Algorithm.TREE, Algorithm.PAT):
        return 640
    return threads + 32 if algorithm == Algorithm.RING and protocol == Protocol.SIMPLE else threads


def used_channels(function: Function, protocol: Protocol, size: int, channels: int, built: int) -> int:
    """Channels that really run: no more than exist, nor than there are cells of traffic (enqueue.cc:583-704)."""
    traffic = size * (2 if function == Function.ALL_REDUCE else 1) * (4 if protocol == Protocol.LL else 1)
    return max(1, min(channels, built, -(-traffic // CELL_BYTES)))


def largest_chunk(function: Function, algorithm: Algorithm, protocol: Protocol) -> int:
    """What getChunkSize finds in ``*chunkSize``: the pre-adjust value, and the only upper clamp NCCL applies."""
    size = FULL_CHANNEL_BYTES[protocol]
    ring = algorithm == Algorithm.RING and protocol == Protocol.SIMPLE
    if ring and function not in (Function.BROADCAST, Function.REDUCE):
        size *= CHUNK_STEPS
    if algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE):
        size = 128 << 10
    return size


def final_chunk(asked: int, largest: int, protocol: Protocol) -> int:
    """The chunk NCCL runs with: clamped above only, then down to the grain. 0 would divide by zero inside NCCL."""
    grain = GRAIN[protocol]
    return min(asked, largest) // grain * grain


def channel_parts(size: int, channels: int) -> tuple[int, ...]:
    """Bytes of the first, last and middle channel: getChunkSize is asked once for each part that exists."""
    if channels == 1:
        return (size,)
    share = size // channels
    first = share - share // 3  # the first and last channel share what cells leave over
    last = share + share // 3
    return (first, last) if channels == 2 else (first, last, share)


class UnknownNcclVersion(LagomError):
    """No imitation of that NCCL release exists."""


@dataclass(frozen=True, slots=True)
class NcclVersion:
    """One release family. ``code`` is NCCL's own number (23007 = 2.30.7); the API numbers are the newest it probes."""

    name: str
    code: int
    tuner_api: int
    profiler_api: int
    reads_back_valid_only: bool  # >= 2.31: -1 written over a valid entry wins; ties go to the highest id
    channels_only_lower: bool  # >= 2.31: the tuner's NC is an upper bound

    def pick(self, before: Sequence[float], after: Sequence[float]) -> int | None:
        """Index of the entry NCCL takes from the table after the tuner's edits; ``None`` if nothing is available.

        ``before`` is the table as NCCL offered it: from 2.31 on only entries valid there are read back.
        """
        if self.reads_back_valid_only:
            valid = [index for index, cost in enumerate(before) if cost >= 0.0]
            return min(valid, key=lambda index: (after[index], -index), default=None)
        valid = [index for index, cost in enumerate(after) if cost >= 0.0]
        return min(valid, key=lambda index: (after[index], index), default=None)

    def channels(self, stock: int, asked: int) -> int:
        """NC after the tuner asked for ``asked`` (0 = no opinion) where NCCL's own pick is ``stock``."""
        if asked <= 0:
            return stock
        return min(asked, stock) if self.channels_only_lower else asked


VERSIONS = {
    version.name: version
    for version in (
        NcclVersion("2.21", 22105, 2, 0, False, False),
        NcclVersion("2.22", 22203, 3, 0, False, False),
        NcclVersion("2.24", 22403, 4, 2, False, False),
        NcclVersion("2.27", 22707, 4, 4, False, False),
        NcclVersion("2.28", 22809, 5, 5, False, False),
        NcclVersion("2.29", 22907, 5, 6, False, False),
        NcclVersion("2.30", 23007, 6, 6, False, False),
        NcclVersion("2.31", 23102, 6, 7, True, True),
    )
}


def nccl_version(name: str) -> NcclVersion:
    """The release called ``name`` (``"2.30"``); :class:`UnknownNcclVersion` lists what there is."""
    if name not in VERSIONS:
        raise UnknownNcclVersion(f"no virtual NCCL {name!r}; choose one of {', '.join(VERSIONS)}.")
    return VERSIONS[name]
