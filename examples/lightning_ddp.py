# SPDX-License-Identifier: Apache-2.0
"""Trains an MLP with Lightning's DDP: torchrun --nproc-per-node 2 examples/lightning_ddp.py"""

import argparse
import os

import lightning
import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--steps", type=int, default=300)
arguments = parser.parse_args()


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(arguments.width, arguments.width) for _ in range(8)])

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        return (self.layers(batch) - batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


batches = torch.utils.data.DataLoader(torch.randn(4096, arguments.width), batch_size=1024)
trainer = lightning.Trainer(
    accelerator="auto",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy="ddp",
    max_steps=arguments.steps,
    logger=False,
    enable_checkpointing=False,
)
trainer.fit(Model(), batches)
print(f"rank {trainer.global_rank}: {trainer.global_step} steps")
