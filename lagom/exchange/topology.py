"""The size of a communicator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topology:
    """``ranks`` of a communicator over ``nodes``."""

    ranks: int
    nodes: int

    def __str__(self) -> str:
        return f"{self.ranks} ranks on {self.nodes} node{'s' if self.nodes > 1 else ''}"
