# SPDX-License-Identifier: Apache-2.0
"""Equations 1 to 6 of the paper, as repaired (README.md: printed, computed, why).

Plain functions over numpy arrays; everything broadcasts. Symbols are the paper's: ``x`` communication time, ``y``
compute time, NC channels, C chunk, lambda SMs, V bandwidth that a communication takes from global memory. Times are
nanoseconds, sizes bytes, bandwidths bytes per nanosecond (= GB/s).
"""

from __future__ import annotations

import numpy as np

from lagom.cost.parameters import Array
from lagom.records import Function

LARGE_CHUNK = 2 << 20  # NCCL's own for large messages
MOST_BUSY = 0.9  # u is clipped here: beyond it u/(1-u) says "saturated", not how much

WIRE_PASSES = {Function.ALL_REDUCE: 2.0}  # a ring all-reduce sends everything twice, all others once
MEMORY_PASSES = {  # HBM bytes for each byte on the wire: copy = read + write, reduce = two reads + write
    Function.ALL_GATHER: 2.0,
    Function.BROADCAST: 2.0,
    Function.REDUCE: 3.0,
    Function.REDUCE_SCATTER: 3.0,
    Function.ALL_REDUCE: 2.5,
}


def wire_bytes(function: Function, size: float) -> float:
    """W_j: bytes that one call of ``function`` over ``size`` bytes puts on the wire of a ring.

    The factor (ranks - 1)/ranks is the same for all calls of a communicator and is left to the fitted BW_link.
    """
    return WIRE_PASSES.get(function, 1.0) * size


def channel_bandwidth(chunk: Array, channel: Array, half_chunk: Array) -> Array:
    """b * C / (C + C_h): what one channel carries with chunks of C bytes, in B/ns.

    Small chunks starve a channel's pipeline: each step pays a fixed latency.
    """
    return channel * chunk / (chunk + half_chunk)


def spill(nc: Array, chunk: Array, gamma: Array, footprint: Array) -> Array:
    """Slow-down (>= 1) once NC*C bytes in flight exceed the F bytes that the path holds: 1 + gamma*log2(NC*C/F).

    Not in the paper. On the host-memory path of 8xH200, NC=2 with C=2 MiB and NC=4 with C=1 MiB are equally fast, and
    both lose 1.2x to NC*C = 2 MiB; time rises linearly in log2(NC*C).
    """
    return 1.0 + gamma * np.maximum(0.0, np.log2(nc * chunk / footprint))


def link_bandwidth(nc: Array, per_channel: Array, link: Array, knee: Array) -> Array:
    """min(BW_link, NC * per-channel bandwidth), in B/ns, with the corner rounded: p-norm of the two times, p = knee.

    Near the corner both limits act: 16 channels of an H200 reach 93 % of twice what 8 reach, and 24 give 1.12x of 16.
    """
    slow, fast = 1.0 / (nc * per_channel), 1.0 / link
    worst = np.maximum(slow, fast)
    rounded = worst * ((slow / worst) ** knee + (fast / worst) ** knee) ** (1.0 / knee)
    return 1.0 / rounded


def communication_time(wire: Array, nc: Array, chunk: Array, bandwidth: Array, t0: Array, fill: Array) -> Array:
    """x_j(NC, C) of one call in ns: t0 + (W_j + phi*NC*C) / bandwidth.

    phi chunks a channel fill and drain the pipeline, which is what a large chunk costs a small message.
    """
    return t0 + (wire + fill * nc * chunk) / bandwidth


def bandwidth_use(wire: Array, x: Array, chunk: Array, passes: Array, memory: Array, zeta: Array) -> Array:
    """u_j = V_j / B-bar: share of peak memory bandwidth taken while communication j runs, within [0, MOST_BUSY].

    V_j(NC, C) = kappa_j * (C / 2 MiB)^zeta * W_j / x_j: the paper leaves V open and says only that it grows with NC and
    C. NC enters through x_j; C beyond that, because a small chunk is forwarded from L2 before it is written back.
    ``memory`` is 1 / B-bar in ns/B, ``passes`` is kappa_j.
    """
    return np.minimum(MOST_BUSY, passes * (chunk / LARGE_CHUNK) ** zeta * wire * memory / x)


def sm_loss(nc: Array, share: Array) -> Array:
    """rho = lambda / (lambda - a*NC) for a mix of kernels (>= 1); ``share`` = a/lambda. Ceilings average out."""
    return 1.0 / np.maximum(0.1, 1.0 - share * nc)


def persistent_step(nc: Array, sigma: Array) -> Array:
    """sigma * [NC > 0]: a persistent kernel holds every SM, so the first channel costs it a second, partial wave."""
    return sigma * (nc > 0)


def memory_loss(use: Array, bound: Array) -> Array:
    """Eq. 6 as a factor (>= 1): 1 + beta * u/(1-u), where the share beta of the compute waits for memory."""
    return 1.0 + bound * use / (1.0 - use)


def slowdown(rho: Array, nc: Array, use: Array, sigma: Array, bound: Array) -> Array:
    """S_j: how many times longer compute takes while communication j runs, Eq. 5 and 6 put together.

    ``rho`` is :func:`sm_loss`. The overlapped part of y_i is multiplied by it (Eq. 4); how large that part is comes out
    of the event simulation.
    """
    return rho * memory_loss(use, bound) + persistent_step(nc, sigma)
