# SPDX-License-Identifier: Apache-2.0
"""Micro-batches that run beside each other: what one communicates, while another one computes."""

from lagom.parallel.strands.pieces import AllGather, AllToAll, ReduceScatter, StrandCollective, linear
from lagom.parallel.strands.stepping import Strands
from lagom.parallel.strands.trying import SCHEDULES, StrandChoice

__all__ = [
    "SCHEDULES",
    "AllGather",
    "AllToAll",
    "ReduceScatter",
    "StrandChoice",
    "StrandCollective",
    "Strands",
    "linear",
]
