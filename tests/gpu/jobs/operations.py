# SPDX-License-Identifier: Apache-2.0
"""What one iteration of mixed.py calls, in order. Knows neither torch nor any tuner: the publisher reads it too."""

from __future__ import annotations

from typing import NamedTuple

ELEMENT_BYTES = {"bfloat16": 2, "float32": 4, "int32": 4}
#: Values are 0..7, so that the sum over 16 ranks is exact in bfloat16 whatever the order of adding.
VALUES = 8


class Operation(NamedTuple):
    """One collective. ``count``: elements a rank gives (all_gather), gets (reduce_scatter), or has (the others)."""

    function: str
    dtype: str
    count: int

    def bytes(self, world: int) -> int:
        """What NCCL tells a tuner: all ranks' bytes for all_gather and reduce_scatter, one rank's for the others."""
        share = world if self.function in ("allgather", "reducescatter") else 1
        return self.count * ELEMENT_BYTES[self.dtype] * share


#: Odd counts, so that the last chunk is never whole. The first is large enough for every channel NCCL has built.
OPERATIONS = (
    Operation("allgather", "bfloat16", 4_194_312),
    Operation("reducescatter", "float32", 1_000_001),
    Operation("allreduce", "bfloat16", 3_000_001),
    Operation("broadcast", "float32", 700_001),
    Operation("reduce", "float32", 700_003),
    Operation("allgather", "float32", 20_011),
    Operation("allreduce", "float32", 50_021),
    Operation("allreduce", "int32", 1),  # the ranks agree whether to go on
)


def shift(operation: int, rank: int, iteration: int) -> int:
    """Where in the sequence 0, 1, ... 7, 0, ... a rank's data starts: another place each time."""
    return (5 * iteration + 3 * rank + operation) % VALUES
