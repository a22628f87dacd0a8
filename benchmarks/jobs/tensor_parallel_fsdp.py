# SPDX-License-Identifier: Apache-2.0
"""Trains an MLP whose matrices are split over the ranks, by torch's styles or by lagom's: are the losses the same?

    torchrun --nproc-per-node 4 benchmarks/jobs/tensor_parallel_fsdp.py --fsdp 2 [--collective-matmul]

--sequence-parallel: between the pairs of layers each rank has its own rows, so AllGather and ReduceScatter instead of
AllReduce. --collective-matmul: the same with lagom's styles. --fsdp 2: FSDP2 as well, on every second rank.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--sequence-parallel", action="store_true")
parser.add_argument("--collective-matmul", action="store_true", help="needs torch 2.8; implies --sequence-parallel")
parser.add_argument("--fsdp", type=int, default=1, metavar="RANKS", help="which divide all ranks; default: 1")
arguments = parser.parse_args()
if arguments.collective_matmul:
    from lagom.parallel import ColwiseParallel, RowwiseParallel  # the lines that change

device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

split = arguments.sequence_parallel or arguments.collective_matmul
ranks = dist.get_world_size() // arguments.fsdp
mesh = init_device_mesh(device.type, (arguments.fsdp, ranks), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)  # the same weights on all ranks
model = nn.Sequential(*[nn.Linear(arguments.width, arguments.width) for _ in range(16)]).to(device)
rows = Shard(0) if split else Replicate()
styles = ColwiseParallel(input_layouts=rows), RowwiseParallel(output_layouts=rows)
parallelize_module(model, mesh["tp"], {str(i): styles[i % 2] for i in range(len(model))})
if arguments.fsdp > 1:
    for layer in model:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
torch.manual_seed(1 + mesh.get_local_rank("dp"))  # one batch for all ranks that split a matrix
batch = torch.randn(1024, arguments.width, device=device)
own = batch.chunk(ranks)[mesh.get_local_rank("tp")] if split else batch
for step in range(arguments.steps):
    begin = time.perf_counter()
    loss = (model(own) - own).square().sum() / batch.numel()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if split:  # each rank has the part of its rows
        dist.all_reduce(loss.detach(), group=mesh.get_group("tp"))
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.4f} step time: {time.perf_counter() - begin:.4f}", flush=True)
dist.barrier()  # a rank that leaves while another still communicates can abort it
dist.destroy_process_group()
