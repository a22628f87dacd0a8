# SPDX-License-Identifier: Apache-2.0
"""What NCCL and torch read only when a job or a communicator starts, and which of it is worth trying on which wire."""

from __future__ import annotations

from lagom.start.start_groups import StartGroup, known_factors, known_groups
from lagom.start.variable_table import CHANNELS, VARIABLES, StartVariable, Transport, decided_by, find_variable

__all__ = [
    "CHANNELS",
    "VARIABLES",
    "StartGroup",
    "StartVariable",
    "Transport",
    "decided_by",
    "find_variable",
    "known_factors",
    "known_groups",
]
