# SPDX-License-Identifier: Apache-2.0
"""How fast a ring over NCCL's sockets is, by start settings: a model, calibrated on one table of measurements.

Two ranks as two nodes over loopback sockets on one H200, time-sliced, FSDP2 of four layers (hidden 2048), NCCL 2.28.9;
a step in ms, means of two processes each: plain NCCL 381.7, 4x4 sockets 440.1, 4x4 sockets and 8 channels 172.0, 8
channels alone 301.2. So sockets alone lose, and win with channels. Between these corners logarithms are interpolated;
beyond them more of either costs a little, which is an assumption.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

#: Milliseconds a step, by (16 sockets, 8 channels); 1 socket and 2 channels are NCCL's own.
MEASURED_MS = {(False, False): 381.7, (True, False): 440.1, (True, True): 172.0, (False, True): 301.2}
_CALIBRATED_SOCKETS, _CALIBRATED_CHANNELS, _OWN_CHANNELS = 16, 8, 2
#: Each doubling beyond the calibrated corner, and of the threads beyond four.
_BEYOND = 1.04


def step_ms(threads: int, per_thread: int, channels: int) -> float:
    """A step of that job. ``threads`` 0: NCCL's own, one socket a connection, whatever ``per_thread`` is."""
    sockets = max(1, threads * per_thread)
    s, beyond_s = _place(math.log2(sockets), math.log2(_CALIBRATED_SOCKETS))
    built = max(channels, _OWN_CHANNELS)
    c, beyond_c = _place(math.log2(built / _OWN_CHANNELS), math.log2(_CALIBRATED_CHANNELS / _OWN_CHANNELS))
    logs = {corner: math.log(value) for corner, value in MEASURED_MS.items()}
    few = logs[False, False] * (1 - c) + logs[False, True] * c
    many = logs[True, False] * (1 - c) + logs[True, True] * c
    beyond = beyond_s + beyond_c + max(0.0, math.log2(max(threads, 1) / 4))
    return math.exp(few * (1 - s) + many * s) * _BEYOND**beyond


def _place(log: float, corner: float) -> tuple[float, float]:
    """Where between the corners, 0 to 1, and how many doublings beyond."""
    return min(log / corner, 1.0), max(0.0, log - corner)


def step_ms_of(environ: Mapping[str, str]) -> float:
    """The step of a job that is started with these variables."""
    names = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_MIN_NCHANNELS")
    threads, per_thread, channels = (
        int(environ.get(name) or default) for name, default in zip(names, "010", strict=True)
    )
    return step_ms(threads, max(per_thread, 1), channels)
