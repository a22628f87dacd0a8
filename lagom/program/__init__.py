"""What a job does over and over: its period, its positions, its sites."""

from lagom.program.belief import Belief
from lagom.program.detect import CallHistory, Program, find_program, latest_start, positions_seen
from lagom.program.sites import TunedProgram, tuned_program

__all__ = [
    "Belief",
    "CallHistory",
    "Program",
    "TunedProgram",
    "find_program",
    "latest_start",
    "positions_seen",
    "tuned_program",
]
