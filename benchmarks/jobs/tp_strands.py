# SPDX-License-Identifier: Apache-2.0
"""Trains Llama blocks split over tensor ranks, the micro-batches of a step in strands. Knows nothing of any tuner.

torchrun --nproc-per-node 4 tp_strands.py --model 8b --layers 4 --tokens 8192 --schedule turns
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from common import add_options, finish, start
from llama_blocks import MODELS, HandBlock, stack, strand_pieces
from segments import train
from torch import Tensor

from lagom.parallel.strands import SCHEDULES, Strands


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--model", choices=MODELS, default="8b")
    parser.add_argument("--micro", type=int, default=8, help="micro-batches of a step, each of --tokens of all ranks")
    parser.add_argument("--schedule", choices=SCHEDULES, help="default: what is measured to be fastest")
    arguments = parser.parse_args()
    device = start()
    ranks, sizes = dist.get_world_size(), MODELS[arguments.model]
    model = stack(lambda: HandBlock(sizes, arguments.tokens, ranks), arguments.layers, device)
    rows = arguments.tokens // ranks, sizes.hidden
    batches = [torch.randn(rows, device=device).to(torch.bfloat16) for _ in range(arguments.micro)]
    strands = Strands(
        strand_pieces(model), lambda found, _: found.float().square().mean(), dist.group.WORLD, arguments.schedule
    )

    def step() -> Tensor:
        return torch.stack(strands.step(batches, [None] * len(batches))).mean()

    train(arguments, device, step, model.parameters())
    if dist.get_rank() == 0:
        print(*strands.choices(), sep="\n")
    finish()


if __name__ == "__main__":
    main()
