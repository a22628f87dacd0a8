# SPDX-License-Identifier: Apache-2.0
"""The Python half of ``csrc/protocol/lagom_protocol.h`` and of the functions liblagom exports.

``ffi`` has the declarations of ``declarations.py``; ``tests/contract/test_layout.py`` compares every field, offset,
size and constant with what the C compiler made of the header. Nothing else in Python knows the bytes.
"""

from __future__ import annotations

import numpy as np

from lagom.wire.parsed import ffi as ffi

MAGIC = 0x31304D4F47414C
PROTOCOL_VERSION = 5
MAX_PROCESSES = 16
MAX_COMMUNICATORS = 192
MAX_SLOTS = 320
MAX_PLANS = 64  # of the first communicators
MAX_CALL_RINGS = 132
ONE_NODE_COMMUNICATORS = 48  # entries that only a communicator of one node gets
ONE_NODE_SLOTS = 120
CALL_RING_CAPACITY = 512
KERNEL_RING_CAPACITY = 2048
MAX_POSITIONS = 4096
MAX_SITES = 256
MAX_RULES = 32
MAX_KERNEL_NAMES = 1024
KERNEL_NAME_BYTES = 112
NAME_BYTES = 64
PATH_BYTES = 256
TRANSPARENT_BELOW_BYTES = 65536
LEAVE = -1
ANY_FUNCTION = 255
UNKNOWN_RANK = 0xFFFFFFFF
UNKNOWN_DEVICE = 0xFFFFFFFF
NO_CALL = 0xFFFFFFFFFFFFFFFF

# ``flags`` of a call record, ``source`` and ``kind`` of a kernel span, and the one fault of a plan that passes.
CALL_PROGRAM, CALL_CANDIDATE, CALL_APPLIED, CALL_TRANSPARENT = 1, 2, 4, 8
SPAN_NCCL_EVENT, SPAN_NCCL_KERNEL, SPAN_CUPTI, SPAN_SIMULATED = 1, 2, 3, 4
SPAN_COMPUTE, SPAN_COLLECTIVE, SPAN_P2P = 0, 1, 2
PLAN_LATE_HISTORY = 8

_CONFIG = [
    ("algorithm", "i1"),
    ("protocol", "i1"),
    ("channels", "u2"),
    ("threads", "u2"),
    ("reserved", "u2"),
    ("chunk_bytes", "u4"),
]

#: ``struct lagom_call_record`` as a numpy row, 64 bytes.
CALL_RECORD = np.dtype(
    [
        ("call", "u8"),
        ("time_ns", "u8"),
        ("bytes", "u8"),
        ("epoch", "u8"),
        ("stock_us", "f4"),
        ("function", "u1"),
        ("stock_algorithm", "i1"),
        ("stock_protocol", "i1"),
        ("flags", "u1"),
        ("chosen", _CONFIG),
        ("position", "u4"),
        ("iteration", "u4"),
        ("site", "u2"),
        ("pipe_ops", "u2"),
    ]
)

#: ``struct lagom_kernel_span`` as a numpy row, 64 bytes.
KERNEL_SPAN = np.dtype(
    [
        ("start_ns", "u8"),
        ("end_ns", "u8"),
        ("call", "u8"),
        ("bytes", "u8"),
        ("slot", "u4"),
        ("stream", "u4"),
        ("name", "u4"),
        ("channels", "u2"),
        ("threads", "u2"),
        ("source", "u1"),
        ("kind", "u1"),
        ("function", "u1"),
        ("algorithm", "i1"),
        ("protocol", "i1"),
        ("join", "u1"),
        ("untold", "u1"),
        ("reserved", "u1"),
        ("sequence", "u4"),
        ("blocks", "u4"),
    ]
)
