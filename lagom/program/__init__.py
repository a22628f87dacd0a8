# SPDX-License-Identifier: Apache-2.0
"""The calls that a job repeats in every iteration: its period, positions and sites."""

from lagom.program.confirmation import ProgramConfirmation
from lagom.program.detect import CallHistory, CallProgram, find_latest_start, find_positions, find_program
from lagom.program.sites import TunedProgram, cut_into_sites

__all__ = [
    "CallHistory",
    "CallProgram",
    "ProgramConfirmation",
    "TunedProgram",
    "cut_into_sites",
    "find_latest_start",
    "find_positions",
    "find_program",
]
