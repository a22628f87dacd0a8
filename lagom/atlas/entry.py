# SPDX-License-Identifier: Apache-2.0
"""One entry of the atlas: on which machine and communicator a search was proven, and what it found there."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lagom.journal import ConfigRecord

Transport = Literal["p2p", "shm", "net"]
"""As far as the plugin knows it. ``net``: the communicator spans nodes (sockets, InfiniBand and EFA are not told
apart); ``shm``: one node, NCCL_P2P_DISABLE is set; ``p2p``: one node, GPUs may talk directly (NVLink or PCIe)."""
Regime = Literal["hidden", "bound", ""]
"""Of stock's iteration: ``hidden``: X <= Y; ``bound``: X > Y; empty: X or Y was not seen."""


class _AtlasRecord(BaseModel):
    """Fields that a later lagom adds are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


Ratio = Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)]
"""A speed-up that a file may name."""


class Key(_AtlasRecord):
    """What must be alike. ``nccl``: major and minor, ``2.30``; what a patch release changes is left to the search to
    find out."""

    gpu: str
    nccl: str
    transport: Transport
    ranks: int
    nodes: int
    regime: Regime = ""

    def fits(self, here: Key) -> bool:
        """All but the regime must be equal; a regime that is not known fits any."""
        regimes_differ = self.regime and here.regime and self.regime != here.regime
        return not regimes_differ and self.model_copy(update={"regime": ""}) == here.model_copy(update={"regime": ""})


class Found(_AtlasRecord):
    """The config of the calls of one function and size class. ``context``: exposed or hidden, empty if not known."""

    function: str
    size_class: int
    context: str = ""
    config: ConfigRecord


class AtlasEntry(_AtlasRecord):
    """What one search proved. ``speedup`` of the whole iteration over stock, with its 95 % interval; ``origin``: which
    run, for people."""

    key: Key
    found: tuple[Found, ...]
    speedup: Ratio
    low: Ratio
    high: Ratio
    origin: str


def key_of(
    *,
    gpu: str,
    nccl_version: int,
    peer_access: bool,
    ranks: int,
    nodes: int,
    x: float | None = None,
    y: float | None = None,
) -> Key:
    """The key of a communicator. ``nccl_version``: NCCL's code, 23007; ``x``, ``y``: of stock's iteration, ns."""
    transport: Transport = "net" if nodes > 1 else "p2p" if peer_access else "shm"
    regime: Regime = "" if x is None or y is None else "hidden" if x <= y else "bound"
    return Key(gpu=gpu, nccl=nccl_release(nccl_version), transport=transport, ranks=ranks, nodes=nodes, regime=regime)


def nccl_release(version: int) -> str:
    """``2.30`` of NCCL's code 23007; ``0.0`` where none is known."""
    return f"{version // 10000}.{version // 100 % 100}"


def size_class(size: int) -> int:
    """The power of two at or below a size in bytes: 64 MiB to 128 MiB are class 26."""
    return max(size, 1).bit_length() - 1
