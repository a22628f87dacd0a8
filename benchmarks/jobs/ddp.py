# SPDX-License-Identifier: Apache-2.0
"""Trains a stack of transformer-sized linear layers with DistributedDataParallel. Knows nothing of any tuner.

torchrun --nproc-per-node 4 ddp.py --layers 8 --tokens 8192 --steps 60
"""

from __future__ import annotations

import argparse

import torch
from common import add_options, run
from torch import nn


def build(arguments: argparse.Namespace, device: torch.device) -> nn.Module:
    """Layers of Llama-3-8B's MLP; DDP's buckets are gathered while the backward pass goes on."""
    blocks = [
        nn.Sequential(nn.RMSNorm(4096), nn.Linear(4096, 8192, bias=False), nn.SiLU(), nn.Linear(8192, 4096, bias=False))
        for _ in range(arguments.layers)
    ]
    model = nn.Sequential(*blocks).to(device, torch.bfloat16)
    return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    run(parser.parse_args(), build)


if __name__ == "__main__":
    main()
