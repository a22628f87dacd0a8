# SPDX-License-Identifier: Apache-2.0
"""Trains a Hugging Face model with FSDP2, the way the tutorials do. Knows nothing of any tuner.

    torchrun --nproc-per-node 8 fsdp.py --shape llama3_8b --layers 3 --tokens 16384 --steps 60
    torchrun --nproc-per-node 8 fsdp.py --mesh hsdp --checkpointing --compile

Random weights and random tokens: shapes of published models with fewer layers, never with narrower ones. One JSON line
a step on rank 0 (step, milliseconds, loss with every bit of it) and a summary line at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
from common import Profiles, Turns, add_profiler_options, add_turns_option, clocks, finish, own_device
from models import SHAPES, build, layers_of
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

MESHES = ("fsdp", "hsdp", "fsdp_tp")
TENSOR_PARALLEL = 2  # ranks that share one layer, in mesh fsdp_tp
TP_PLAN = {
    "self_attn.q_proj": ColwiseParallel(),
    "self_attn.k_proj": ColwiseParallel(),
    "self_attn.v_proj": ColwiseParallel(),
    "self_attn.o_proj": RowwiseParallel(),
    "mlp.gate_proj": ColwiseParallel(),
    "mlp.up_proj": ColwiseParallel(),
    "mlp.down_proj": RowwiseParallel(),
}


def mesh_of(kind: str, device_type: str) -> DeviceMesh:
    """One dimension; two to replicate between halves of the ranks and shard within (HSDP); or data and tensor."""
    world = dist.get_world_size()
    if kind == "hsdp":
        return init_device_mesh(device_type, (2, world // 2), mesh_dim_names=("replicate", "shard"))
    if kind == "fsdp_tp":
        shape = (world // TENSOR_PARALLEL, TENSOR_PARALLEL)
        return init_device_mesh(device_type, shape, mesh_dim_names=("data", "tensor"))
    return init_device_mesh(device_type, (world,))


def shard(model: nn.Module, device_type: str, kind: str = "fsdp", *, copy_engine: bool = False) -> None:
    """Every layer and the root sharded over the mesh; in mesh fsdp_tp each layer is split over tensor ranks first."""
    mesh = mesh_of(kind, device_type)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    stack = layers_of(model)
    if kind == "fsdp_tp":
        for layer in stack:
            parallelize_module(layer, mesh["tensor"], TP_PLAN)
        mesh = mesh["data"]
    for layer in stack:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    if copy_engine:
        gather_by_copy_engine(model)


def gather_by_copy_engine(model: nn.Module) -> None:
    """AllGather without SMs: symmetric buffers, which with NCCL_CTA_POLICY=2 the copy engines fill."""
    sharded = [module for module in model.modules() if hasattr(module, "set_reshard_after_forward")]
    if all(hasattr(module, "set_symm_mem_for_comm") for module in sharded):
        for module in sharded:
            module.set_symm_mem_for_comm()
        return
    if not (hasattr(symmetric, "get_mem_pool") and all(hasattr(one, "set_custom_all_gather") for one in sharded)):
        raise SystemExit(f"torch {torch.__version__} has no symmetric buffers for FSDP2: no copy-engine AllGather here")
    gather = SymmetricGather()
    for module in sharded:
        module.set_custom_all_gather(gather)


class SymmetricGather:
    """For a torch without ``set_symm_mem_for_comm`` (2.11), as ``set_custom_all_gather`` asks. With that torch's own
    NCCL 2.28.9 the AllGathers are copies between GPUs (its profiler shows no kernel of theirs); with 2.30.7 preloaded
    the rendezvous fails ("invalid usage" as torch makes its device communicator)."""

    def __init__(self) -> None:
        symmetric.set_backend("NCCL")
        dist.barrier()  # there is no communicator before, and buffers are made known to one

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A buffer that lies alike on every rank."""
        with torch.cuda.use_mem_pool(symmetric.get_mem_pool(device)):
            return torch.empty(size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        """The ordinary call; NCCL sees where the buffer lies."""
        symmetric.rendezvous(output_tensor, group=group.group_name)
        return dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)


def checkpoint_layers(model: nn.Module) -> None:
    """Activations are computed again in the backward pass."""
    stack = layers_of(model)
    for index, layer in enumerate(stack):
        stack[index] = checkpoint_wrapper(layer)


def profiler(folder: str | None) -> contextlib.AbstractContextManager[object]:
    """torch.profiler over the whole run, as users start it; one Chrome trace a rank."""
    if folder is None:
        return contextlib.nullcontext()
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, f"rank{dist.get_rank()}.json")
    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA],
        on_trace_ready=lambda profile: profile.export_chrome_trace(file),
    )


def train(model: nn.Module, arguments: argparse.Namespace, device: torch.device) -> list[float]:
    """The loop; milliseconds of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=arguments.mesh == "fsdp")
    generator = torch.Generator(device="cpu").manual_seed(arguments.seed + dist.get_rank() // _same_data(arguments))
    sequence = min(arguments.sequence or SHAPES[arguments.shape][2], arguments.tokens)
    shape = (arguments.tokens // sequence, sequence)
    vocab = arguments.vocab or SHAPES[arguments.shape][1]
    times = []
    profiles, turns = Profiles(arguments, device), Turns(arguments.turns)
    for step in range(arguments.steps):
        turns.wait(step)
        profiles.step(step)
        began = time.perf_counter()
        tokens = torch.randint(vocab, shape, generator=generator).to(device)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        times.append((time.perf_counter() - began) * 1e3)
        if dist.get_rank() == 0:
            line = {"step": step, "ms": round(times[-1], 3), "loss": value, "bits": value.hex(), **clocks()}
            print(json.dumps(line), flush=True)
    return times


def _same_data(arguments: argparse.Namespace) -> int:
    """How many neighbouring ranks work on the same batch."""
    return TENSOR_PARALLEL if arguments.mesh == "fsdp_tp" else 1


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="llama3_8b")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=16384, help="per GPU and step")
    parser.add_argument("--sequence", type=int, default=4096, help="0 = what the model was trained with")
    parser.add_argument("--vocab", type=int, default=32000, help="0 = the model's own")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mesh", choices=MESHES, default="fsdp")
    parser.add_argument("--checkpointing", action="store_true", help="compute activations again")
    parser.add_argument("--compile", action="store_true", help="torch.compile every layer")
    asked = os.environ.get("FSDP_COPY_ENGINE", "") == "1"  # so that a variable can choose it, without another command
    parser.add_argument("--copy-engine", action="store_true", default=asked, help="AllGather without SMs, if possible")
    parser.add_argument("--deterministic", action="store_true", help="deterministic kernels, for bitwise comparisons")
    parser.add_argument("--trace", help="folder for torch.profiler traces of the whole run, one a rank")
    add_profiler_options(parser)
    add_turns_option(parser)
    return parser.parse_args()


def be_deterministic() -> None:
    """The same bits every time, at some cost."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)


def start(arguments: argparse.Namespace) -> torch.device:
    """Device, seed and process group of this rank."""
    device = own_device()
    if arguments.deterministic:
        be_deterministic()
    torch.manual_seed(arguments.seed)
    on_gpu = device.type == "cuda"
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    return device


def main() -> None:
    arguments = options()
    device = start(arguments)
    model = build(arguments.shape, arguments.layers, arguments.vocab, arguments.tokens, device)
    if arguments.checkpointing:
        checkpoint_layers(model)
    if arguments.compile:
        for layer in layers_of(model):
            layer.compile()
    shard(model, device.type, arguments.mesh, copy_engine=arguments.copy_engine)
    with profiler(arguments.trace):
        times = train(model, arguments, device)
    if dist.get_rank() == 0:
        steady = sorted(times[len(times) // 3 :])
        print(json.dumps({"median_ms": round(steady[len(steady) // 2], 3), "steps": len(times)}), flush=True)
    finish()


if __name__ == "__main__":
    main()
