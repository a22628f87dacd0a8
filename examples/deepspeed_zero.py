# SPDX-License-Identifier: Apache-2.0
"""Trains an MLP with DeepSpeed ZeRO, stage 3: torchrun --nproc-per-node 2 examples/deepspeed_zero.py"""

import argparse
import time

import deepspeed
import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--steps", type=int, default=300)
arguments = parser.parse_args()

deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
model = nn.Sequential(*[nn.Linear(arguments.width, arguments.width) for _ in range(8)])
config = {"train_micro_batch_size_per_gpu": 1024, "zero_optimization": {"stage": 3}}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
batch = torch.randn(1024, arguments.width, device=engine.device)
for step in range(arguments.steps):
    begin = time.perf_counter()
    loss = (engine(batch) - batch).square().mean()
    engine.backward(loss)
    engine.step()
    if engine.global_rank == 0:
        print(f"step {step} loss {loss.item():.4f} step time: {time.perf_counter() - begin:.4f}", flush=True)
engine.destroy()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
