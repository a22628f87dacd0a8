"""What a job does over and over: its period, its positions, its sites."""

from lagom.program.detect import CallHistory, Program, find_program, latest_start, may_be_layer, positions_seen
from lagom.program.sites import TunedProgram, tuned_program

__all__ = [
    "CallHistory",
    "Program",
    "TunedProgram",
    "find_program",
    "latest_start",
    "may_be_layer",
    "positions_seen",
    "tuned_program",
]
