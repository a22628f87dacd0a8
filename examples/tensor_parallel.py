# SPDX-License-Identifier: Apache-2.0
"""Trains an MLP whose matrices are split over the ranks: torchrun --nproc-per-node 2 examples/tensor_parallel.py"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--steps", type=int, default=300)
arguments = parser.parse_args()

device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

mesh = init_device_mesh(device.type, (dist.get_world_size(),))
torch.manual_seed(0)  # one batch for all ranks
model = nn.Sequential(*[nn.Linear(arguments.width, arguments.width) for _ in range(16)]).to(device)
parallelize_module(model, mesh, {str(i): RowwiseParallel() if i % 2 else ColwiseParallel() for i in range(len(model))})
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
