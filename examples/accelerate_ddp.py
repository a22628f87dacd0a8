# SPDX-License-Identifier: Apache-2.0
"""Trains an MLP with Accelerate: torchrun --nproc-per-node 2 examples/accelerate_ddp.py"""

import argparse
import time

import torch
from accelerate import Accelerator
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--steps", type=int, default=300)
arguments = parser.parse_args()

accelerator = Accelerator(cpu=not torch.cuda.is_available())
model = nn.Sequential(*[nn.Linear(arguments.width, arguments.width) for _ in range(8)])
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-4))
batch = torch.randn(1024, arguments.width, device=accelerator.device)
for step in range(arguments.steps):
    begin = time.perf_counter()
    loss = (model(batch) - batch).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.print(f"step {step} loss {loss.item():.4f} step time: {time.perf_counter() - begin:.4f}", flush=True)
accelerator.wait_for_everyone()
accelerator.end_training()
