# SPDX-License-Identifier: Apache-2.0
"""Trains Llama-like layers with FSDP2, each rank a node of its own if asked. Knows nothing of any tuner.

    torchrun --nproc-per-node 2 fsdp_nodes.py --as-nodes --steps 15

With ``--as-nodes`` the ranks of one machine reach each other through NCCL's network transport, as nodes do: a stand-in
for two nodes on one machine, and on one GPU. It says nothing about the speed of several GPUs. Layers of plain torch, so
that a process starts in seconds.
"""

from __future__ import annotations

import argparse
import os

import torch
from common import add_options, run
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

HEAD = 128  # of attention
SEQUENCE = 4096  # tokens that attend to each other, at most


class Layer(nn.Module):
    """Attention and a gated MLP of a Llama's shape."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        wide = hidden * 7 // 2
        self.first, self.second = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.up, self.down = nn.Linear(hidden, 2 * wide, bias=False), nn.Linear(wide, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(tokens, hidden) to the same."""
        sequences = self.qkv(self.first(x)).unflatten(0, (-1, min(SEQUENCE, len(x))))
        parts = sequences.unflatten(-1, (3, -1, HEAD)).permute(2, 0, 3, 1, 4)  # batch, head, token, part of a head
        attended = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2).flatten(0, 1))
        gate, wide = self.up(self.second(x)).chunk(2, -1)
        return x + self.down(nn.functional.silu(gate) * wide)


def build(arguments: argparse.Namespace, device: torch.device) -> nn.Module:
    """Every layer sharded over all ranks."""
    with device:
        model = nn.Sequential(*(Layer(arguments.hidden) for _ in range(arguments.layers)))
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for layer in model:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--hidden", type=int, default=2048, help="width of the layers, a multiple of 128")
    parser.add_argument("--as-nodes", action="store_true", help="NCCL takes each rank for a node of its own")
    arguments = parser.parse_args()
    if arguments.as_nodes:
        os.environ["NCCL_HOSTID"] = f"node{os.environ['RANK']}"
    run(arguments, build, arguments.hidden)


if __name__ == "__main__":
    main()
