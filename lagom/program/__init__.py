"""What a job does over and over: its period, its positions, its sites."""

from lagom.program.confirmation import ProgramConfirmation
from lagom.program.detect import CallHistory, Program, find_latest_start, find_positions, find_program
from lagom.program.sites import TunedProgram, cut_into_sites

__all__ = [
    "CallHistory",
    "Program",
    "ProgramConfirmation",
    "TunedProgram",
    "cut_into_sites",
    "find_latest_start",
    "find_positions",
    "find_program",
]
