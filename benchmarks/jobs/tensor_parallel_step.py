# SPDX-License-Identifier: Apache-2.0
"""Whole steps, forward and backward, of a stack of Llama blocks under tensor and sequence parallelism: what is gained
by lagom.parallel beside plain code by hand, torch's fused operators, and torch.compile with `_micro_pipeline_tp`.

    python -m benchmarks.jobs.tensor_parallel_step --out FILE               # written by hand, eager; starts its ranks
    python -m benchmarks.jobs.tensor_parallel_step --out FILE --graphs      # each step as a CUDA graph
    python -m benchmarks.jobs.tensor_parallel_step --out FILE --dtensor     # DTensor's styles, compiled and eager
    python -m benchmarks.jobs.tensor_parallel_step --table FILE

A sample is the wall clock's time of several steps of the slowest rank; arms come once a cycle, in another order each
time (arms.py). Gradients add up, as over micro-batches. All arms of a stack by hand have the same weights; their output
and gradients are compared with plain's first.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.tensor.parallel as torch_styles
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

import lagom.parallel as parallel
from benchmarks.jobs.arms import Clock, Data
from benchmarks.jobs.llama_blocks import BY_HAND, MODELS, Block, HandBlock, split_block, stack
from benchmarks.jobs.stack_steps import Arm, Job, parser_of, prepared, run, timed
from lagom.parallel.torch_gate import fused_operators

HAND = {"plain": BY_HAND, "plain_operators": "plain", "chosen": None, "fused": "fused", "copies": "copies"}


def hand_arms(options: argparse.Namespace, name: str, tokens: int, device: torch.device) -> dict[str, Arm]:
    """One stack for all: without lagom.parallel, then by the two operators."""
    ranks = dist.get_world_size()
    x, grad = _input((tokens // ranks, MODELS[name].hidden), device)
    model = stack(lambda: HandBlock(MODELS[name], tokens, ranks), options.layers, device)
    return {arm: Arm(model, x, grad, way) for arm, way in HAND.items() if not (options.graphs and arm == "fused")}


def dtensor_arms(options: argparse.Namespace, name: str, tokens: int, device: torch.device) -> dict[str, Arm]:
    """With styles, a model for each. `plain` is torch's, compiled block by block."""
    ranks, sizes = dist.get_world_size(), MODELS[name]
    mesh = init_device_mesh(device.type, (ranks,), mesh_dim_names=("tp",))
    length = min(tokens, 2 * sizes.sequence)
    x, grad = _input((tokens // length, length // ranks, sizes.hidden), device)
    if device.type == "cuda":
        fused_operators(mesh.get_group().group_name)  # what the compiler's pass needs

    def made(styles: Any, compiled: bool, pipelined: bool = False) -> Arm:
        torch.manual_seed(1)
        model = stack(lambda: Block(sizes), options.layers, device)
        for block in model.children():
            split_block(block, mesh, styles)
            if compiled and device.type == "cuda":
                # by options: models of one code share what is compiled unless these differ
                block.compile(options={"_micro_pipeline_tp": pipelined}, fullgraph=True, dynamic=False)
            elif compiled:
                block.compile(backend="aot_eager", fullgraph=True, dynamic=False)
        return Arm(model, x, grad)

    arms = {"plain": made(torch_styles, True), "micro_pipeline": made(torch_styles, True, True)}
    arms["eager"] = made(torch_styles, False)
    return arms | {"chosen": made(parallel, True), "chosen_eager": made(parallel, False)}


def _input(shape: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Of this rank, and the gradient of the output."""
    x, grad = (torch.randn(shape, device=device).to(torch.bfloat16) for _ in range(2))
    return x.requires_grad_(), grad * 0.01


def kind(options: argparse.Namespace) -> str:
    """Of the rows."""
    return "dtensor" if options.dtensor else "graphs" if options.graphs else "eager"


def measured(options: argparse.Namespace, about: Data, clock: Clock) -> Data:
    """All arms of a stack."""
    before = len(parallel.choices())
    make = dtensor_arms if options.dtensor else hand_arms
    arms = make(options, about["model"], about["tokens"], clock.device)
    ready = prepared(arms, clock, options.graphs)
    chosen = [dataclasses.asdict(one) for one in parallel.choices()[before:] if one.source == "measured"]
    return {**ready, **timed(arms, clock, options), "choices": chosen}


def main() -> None:
    """Starts the ranks, or prints the table of a file."""
    parser = parser_of(
        "Steps of a tensor-parallel stack: each way in turns.", "tensor_parallel_step.json", "of all ranks"
    )
    parser.add_argument("--dtensor", action="store_true", help="DTensor's styles instead of the operators")
    run(parser, Job(kind, measured))


if __name__ == "__main__":
    main()
