# SPDX-License-Identifier: Apache-2.0
"""The Llama block of docs/guides/overlap.md on ranks of gloo, with weights cut from a model that no rank splits: its
forward as it stood, and its pieces in strands, have the losses and gradients of that model."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "overlap.md"
HIDDEN, HEAD, HEADS, KV_HEADS, MLP, VOCABULARY, TOKENS, BLOCKS = 12, 4, 4, 2, 20, 11, 8, 2
SHAPES = {"q": HEADS * HEAD, "k": KV_HEADS * HEAD, "v": KV_HEADS * HEAD, "gate": MLP, "up": MLP}
Weights = dict[str, Tensor]


def gathered(x: Tensor, group: Any) -> Tensor:
    parts = [torch.empty_like(x) for _ in range(group.size())]
    dist.all_gather(parts, x.contiguous(), group)
    return torch.cat(parts)


def scattered(x: Tensor, group: Any) -> Tensor:
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total.chunk(group.size())[group.rank()]


class Collective(torch.autograd.Function):
    """One of the two above, whose backward is the other."""

    @staticmethod
    def forward(ctx: Any, there: Any, back: Any, x: Tensor, group: Any) -> Tensor:  # type: ignore[override]
        ctx.back, ctx.group = back, group
        return there(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor, None]:  # type: ignore[override]
        return None, None, ctx.back(grad, ctx.group), None


def attention(qkv: Tensor) -> Tensor:
    """[tokens, columns] of one sequence and of some heads: rotary, causal, grouped."""
    own = qkv.shape[1] // (HEADS + 2 * KV_HEADS)  # columns here for each head of the model
    q, k, v = (
        one.unflatten(-1, (-1, HEAD)).transpose(0, 1)
        for one in qkv.split([own * HEADS, own * KV_HEADS, own * KV_HEADS], -1)
    )
    angle = torch.arange(len(qkv))[:, None] / 10.0 ** torch.arange(HEAD // 2)

    def turned(x: Tensor) -> Tensor:
        left, right = x.chunk(2, -1)
        return torch.cat([left * angle.cos() - right * angle.sin(), left * angle.sin() + right * angle.cos()], -1)

    k, v = (one.repeat_interleave(HEADS // KV_HEADS, 0) for one in (turned(k), v))
    return F.scaled_dot_product_attention(turned(q), k, v, is_causal=True).transpose(0, 1).flatten(1)


def whole_weights() -> Weights:
    """Of a block, as [out, in]."""
    made = {name: torch.randn(rows, HIDDEN) / 4 for name, rows in SHAPES.items()}
    made |= {"out": torch.randn(HIDDEN, HEADS * HEAD) / 4, "down": torch.randn(HIDDEN, MLP) / 4}
    made |= {name: torch.rand(HIDDEN) + 0.5 for name in ("norm1", "norm2")}
    return {name: tensor.requires_grad_() for name, tensor in made.items()}


def whole_block(own: Weights, x: Tensor) -> Tensor:
    rows = F.rms_norm(x, (HIDDEN,), own["norm1"], 1e-6)
    x = x + attention(rows @ torch.cat([own["q"], own["k"], own["v"]]).t()) @ own["out"].t()
    rows = F.rms_norm(x, (HIDDEN,), own["norm2"], 1e-6)
    return x + (F.silu(rows @ own["gate"].t()) * (rows @ own["up"].t())) @ own["down"].t()


def cut(whole: Weights) -> Weights:
    """This rank's part, by the names of the guide's block."""

    def part(name: str, dim: int = 0) -> Tensor:
        return whole[name].chunk(dist.get_world_size(), dim)[dist.get_rank()]

    return {
        "qkv.weight": torch.cat([part("q"), part("k"), part("v")]),
        "out.weight": part("out", 1),
        "up.weight": torch.cat([part("gate"), part("up")]),
        "down.weight": part("down", 1),
        "norm1.weight": whole["norm1"],
        "norm2.weight": whole["norm2"],
    }


def read_guide() -> dict[str, Any]:
    """What the Python of the guide's section defines."""
    found: dict[str, Any] = {"F": F, "group": dist.group.WORLD}
    found["all_gather"] = partial(Collective.apply, gathered, scattered)
    found["reduce_scatter"] = partial(Collective.apply, scattered, gathered)
    _, section = GUIDE.read_text().split("\n## Strands")
    for code in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
        exec(code, found)
    return found


def block_of(kind: type[nn.Module], weights: Weights) -> nn.Module:
    block = kind()
    own = cut(weights)
    block.norm1, block.norm2 = nn.RMSNorm(HIDDEN, eps=1e-6), nn.RMSNorm(HIDDEN, eps=1e-6)
    for name in ("qkv", "out", "up", "down"):
        rows, columns = own[f"{name}.weight"].shape
        setattr(block, name, nn.Linear(columns, rows, bias=False))
    block.attention = attention
    block.load_state_dict({name: one.detach() for name, one in own.items()})
    return block


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="sum")


def check(model: nn.ModuleDict, losses: list[Tensor], whole_losses: list[Tensor], expected: list[Weights]) -> None:
    """The losses, and the gradients of the blocks; then none are left. Each rank has its rows' part of a loss and of
    the gradients of the norms."""
    total = torch.stack([loss.detach() for loss in losses])
    dist.all_reduce(total)
    torch.testing.assert_close(total, torch.stack(whole_losses).detach())
    for block, grads in zip(model["blocks"], expected, strict=True):
        for name, parameter in block.named_parameters():
            assert parameter.grad is not None, name
            if name.startswith("norm"):
                dist.all_reduce(parameter.grad)
            torch.testing.assert_close(parameter.grad, grads[name], msg=name)
    model.zero_grad()


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    guide = read_guide()
    weights = [whole_weights() for _ in range(BLOCKS)]
    parts = {"embed": nn.Embedding(VOCABULARY, HIDDEN), "head": nn.Linear(HIDDEN, VOCABULARY, bias=False)}
    model = nn.ModuleDict({**parts, "blocks": nn.ModuleList(block_of(guide["Block"], own) for own in weights)})
    batches = torch.randint(VOCABULARY, (3, TOKENS + 1)).unbind()
    whole_losses = []
    for batch in batches:
        x = model["embed"](batch[:-1])
        for own in weights:
            x = whole_block(own, x)
        whole_losses.append(loss_of(model["head"](x), batch[1:]))
    torch.stack(whole_losses).sum().backward()
    expected = [cut({name: one.grad for name, one in own.items() if one.grad is not None}) for own in weights]
    model.zero_grad()

    own_rows = [[one.chunk(dist.get_world_size())[dist.get_rank()] for one in (b[:-1], b[1:])] for b in batches]
    by_hand = []
    for tokens, target in own_rows:
        x = model["embed"](tokens)
        for block in model["blocks"]:
            x = block(x)
        by_hand.append(loss_of(model["head"](x), target))
    torch.stack(by_hand).sum().backward()
    check(model, by_hand, whole_losses, expected)

    strands = guide["strands_of"](model["embed"], model["blocks"], model["head"], loss_of, dist.group.WORLD)
    while not strands.choices():  # each schedule takes its steps
        losses = strands.step(*zip(*own_rows, strict=True))
        check(model, losses, whole_losses, expected)
    if dist.get_rank() == 0:
        print("the guide's block is the whole model's", flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
