# SPDX-License-Identifier: Apache-2.0
"""Trains layers of one expert a rank, tokens by AlltoAll: torchrun --nproc-per-node 2 examples/expert_parallel.py"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_to_all_single

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--steps", type=int, default=300)
arguments = parser.parse_args()

device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

experts = nn.ModuleList(nn.Linear(arguments.width, arguments.width) for _ in range(8)).to(device)
optimizer = torch.optim.AdamW(experts.parameters(), lr=1e-4)
batch = torch.randn(1024, arguments.width, device=device)
for step in range(arguments.steps):
    begin = time.perf_counter()
    tokens = batch
    for expert in experts:  # every rank sends an equal part of its tokens to each expert, and gets them back
        routed = expert(all_to_all_single(torch.empty_like(tokens), tokens)).relu()
        tokens = tokens + all_to_all_single(torch.empty_like(tokens), routed)
    loss = (tokens - batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.4f} step time: {time.perf_counter() - begin:.4f}", flush=True)
dist.barrier()  # a rank that leaves while another still communicates can abort it
dist.destroy_process_group()
