# SPDX-License-Identifier: Apache-2.0
"""Trains MLP blocks split over the ranks (tensor parallel, Megatron style): one all-reduce a block and pass.

torchrun --nproc-per-node 4 tp.py --layers 8 --tokens 8192 --steps 60
"""

from __future__ import annotations

import argparse

import torch
from common import add_options, run
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    """x + down(act(up(norm(x))))"""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(4096)
        self.up = nn.Linear(4096, 14336, bias=False)
        self.down = nn.Linear(14336, 4096, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


def build(arguments: argparse.Namespace, device: torch.device) -> nn.Module:
    """Blocks of Llama-3-8B's MLP, columns then rows."""
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    model = nn.Sequential(*[Block() for _ in range(arguments.layers)]).to(device, torch.bfloat16)
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    run(parser.parse_args(), build)


if __name__ == "__main__":
    main()
