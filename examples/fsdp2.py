# SPDX-License-Identifier: Apache-2.0
"""Trains an MLP sharded over the ranks (FSDP2): torchrun --nproc-per-node 2 examples/fsdp2.py"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--steps", type=int, default=300)
arguments = parser.parse_args()

device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

blocks = [nn.Sequential(nn.Linear(arguments.width, arguments.width), nn.ReLU()) for _ in range(8)]
model = nn.Sequential(*blocks).to(device)
for layer in (*model, model):
    fully_shard(layer)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
batch = torch.randn(1024, arguments.width, device=device)
for step in range(arguments.steps):
    begin = time.perf_counter()
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.4f} step time: {time.perf_counter() - begin:.4f}", flush=True)
dist.barrier()  # a rank that leaves while another still communicates can abort it
dist.destroy_process_group()
