"""What is to be tuned, and which knobs the NCCL at hand offers."""

from __future__ import annotations

from dataclasses import dataclass

from lagom.records import CommConfig, Site


@dataclass(frozen=True, slots=True)
class Knobs:
    """What may be set on this communicator: the stock NCCL at hand decides (facts: 2.22-2.29 no chunk; >= 2.30.3
    chunk)."""

    channels: bool = True
    algorithm: bool = True
    chunk: bool = True
    threads: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be tuned: the sites of one communicator's iteration, and what is legal there.

    ``stock[i]`` is NCCL's own pick at site i as far as it is known (channels and chunk may be ``None``).
    ``usable[i]`` are the (algorithm, protocol) pairs that this communicator already uses or that NCCL offers safely;
    empty = leave A and P alone. ``channels_ceiling`` is what NCCL built (24 on NVLink, 4 on the host path); NC is only
    ever lowered from there.
    """

    sites: tuple[Site, ...]
    stock: tuple[CommConfig, ...]
    channels_ceiling: int
    knobs: Knobs = Knobs()
    usable: tuple[tuple[tuple[int, int], ...], ...] = ()
    chunk_ceiling: int = 2 << 20
