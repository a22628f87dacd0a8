# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's example tuner does with a call, written from its documentation and source. Small on purpose, and it
shares no code with lagom.convert, so that the tests can compare the two."""

from __future__ import annotations

from dataclasses import dataclass

FUNCTIONS = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
#: The pairs that NCCL has kernels for, as its src/graph/tuning.cc computes a bandwidth for them.
KERNELS = {
    "broadcast": "ring", "reduce": "ring", "allreduce": "ring tree collnet_direct collnet_chain nvls nvls_tree",
    "allgather": "ring collnet_direct nvls pat", "reducescatter": "ring collnet_direct nvls pat",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One getCollInfo on a communicator."""

    function: str
    bytes: int
    nodes: int
    ranks: int
    registered: int = 0


@dataclass(frozen=True)
class Decision:
    """None = NCCL's own."""

    algorithm: str
    protocol: str
    channels: int | None
    chunk: int | None = None


def has_kernel(function: str, algorithm: str, protocol: str) -> bool:
    """Whether NCCL could ever offer the pair."""
    return algorithm in KERNELS[function].split() and (protocol == "simple" or algorithm in ("ring", "tree"))


def nccl_example(text: str, call: Call) -> Decision | None:
    """NVIDIA's example tuner: first line that matches; inclusive bytes; -1 is any; channels 0 and (documented) -1 keep
    NCCL's; a pair without a kernel is passed over."""
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        f = line.split(",")
        filters = [int(f[6]), int(f[7]), int(f[9]) if len(f) > 9 else -1]
        asked = [call.nodes, call.ranks, call.registered]
        if f[0] != call.function or not int(f[1]) <= call.bytes <= int(f[2]):
            continue
        if any(wanted not in (-1, given) for wanted, given in zip(filters, asked, strict=True)):
            continue
        if not has_kernel(f[0], f[3], f[4]):
            continue
        return Decision(f[3], f[4], int(f[5]) if int(f[5]) > 0 else None)
    return None
