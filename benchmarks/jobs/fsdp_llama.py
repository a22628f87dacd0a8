"""Trains a Llama with FSDP2, the way the Hugging Face and PyTorch tutorials do. Knows nothing of any tuner.

    torchrun --nproc-per-node 8 fsdp_llama.py --layers 3 --tokens 16384 --steps 60

Random weights and random tokens: shapes of Llama-3-8B with fewer layers, never with narrower ones. One JSON line a step
on rank 0 (step, milliseconds, loss with every bit of it) and a summary line at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time

import torch
import torch.distributed as dist
from common import Profiles, add_profiler_options, clocks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

SHAPES = {
    "llama3_8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8},
    "tiny": {"hidden_size": 128, "intermediate_size": 448, "num_attention_heads": 4, "num_key_value_heads": 2},
}


def build_model(arguments: argparse.Namespace, device: torch.device) -> LlamaForCausalLM:
    config = LlamaConfig(
        **SHAPES[arguments.shape],
        num_hidden_layers=arguments.layers,
        vocab_size=arguments.vocab,
        max_position_embeddings=arguments.tokens,
        use_cache=False,
        attn_implementation="sdpa",
    )
    with device:
        return LlamaForCausalLM(config)


def shard(model: LlamaForCausalLM, device_type: str) -> None:
    mesh = init_device_mesh(device_type, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


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


def train(model: LlamaForCausalLM, arguments: argparse.Namespace, device: torch.device) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    generator = torch.Generator(device="cpu").manual_seed(arguments.seed + dist.get_rank())
    sequence = min(arguments.sequence, arguments.tokens)
    shape = (arguments.tokens // sequence, sequence)
    times = []
    profiles = Profiles(arguments, device)
    for step in range(arguments.steps):
        profiles.step(step)
        began = time.perf_counter()
        tokens = torch.randint(arguments.vocab, shape, generator=generator).to(device)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="llama3_8b")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=16384, help="per GPU and step")
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deterministic", action="store_true", help="deterministic kernels, for bitwise comparisons")
    parser.add_argument("--trace", help="folder for torch.profiler traces of the whole run, one a rank")
    add_profiler_options(parser)
    arguments = parser.parse_args()

    local = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if arguments.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
    torch.manual_seed(arguments.seed)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo", device_id=device if device.type == "cuda" else None
    )
    model = build_model(arguments, device)
    shard(model, device.type)
    with profiler(arguments.trace):
        times = train(model, arguments, device)
    if dist.get_rank() == 0:
        steady = sorted(times[len(times) // 3 :])
        print(json.dumps({"median_ms": round(steady[len(steady) // 2], 3), "steps": len(times)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
