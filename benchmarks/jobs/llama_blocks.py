# SPDX-License-Identifier: Apache-2.0
"""A stack of Llama blocks under tensor and sequence parallelism, as users write it: by hand with the two operators of
lagom.parallel, and with DTensor's styles."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

from lagom.parallel import all_gather_matmul, matmul_reduce_scatter
from lagom.parallel.strands import AllGather, ReduceScatter, linear


class Sizes(NamedTuple):
    """Of a model. ``head``: the size of one; ``sequence``: tokens at most of one."""

    hidden: int
    heads: int
    kv_heads: int
    head: int
    mlp: int
    sequence: int = 4096


MODELS = {
    "8b": Sizes(4096, 32, 8, 128, 14336),
    "70b": Sizes(8192, 64, 8, 128, 28672),
    "tiny": Sizes(64, 8, 4, 8, 128, 16),
}


def attention(q: Tensor, k: Tensor, v: Tensor, head: int) -> Tensor:
    """Each [batch, sequence, columns]: causal, with as many k and v heads as fit."""
    q, k, v = (one.unflatten(-1, (-1, head)).transpose(1, 2) for one in (q, k, v))
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return found.transpose(1, 2).flatten(2)


class InAutograd(torch.autograd.Function):
    """A collective of strands as code by hand has it: both halves at once."""

    @staticmethod
    def forward(ctx: Any, piece: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        ctx.piece = piece
        return piece.start(x, dist.group.WORLD)()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:  # type: ignore[override]
        return None, ctx.piece.start_backward(grad, dist.group.WORLD)()


#: Collectives as autograd functions and torch's linear layers: a block without lagom.parallel.
BY_HAND = "by hand"


class HandBlock(nn.Module):
    """This rank's part: [rows, hidden] of all tokens in and out. ``way``: BY_HAND, or lagom.parallel's operators by an
    implementation, None = what is best."""

    way: str | None = None

    def __init__(self, sizes: Sizes, tokens: int, ranks: int) -> None:
        super().__init__()
        hidden, self.head, mlp = sizes.hidden, sizes.head, sizes.mlp // ranks
        q, kv = sizes.heads * sizes.head // ranks, sizes.kv_heads * sizes.head // ranks
        self.split, self.shape = (q, kv, kv), (-1, min(sizes.sequence, tokens), q + 2 * kv)
        self.before, self.between = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, q + 2 * kv, bias=False), nn.Linear(q, hidden, bias=False)
        self.up, self.down = nn.Linear(hidden, 2 * mlp, bias=False), nn.Linear(mlp, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self._gathered(self.before(x), self.qkv).view(self.shape).split(self.split, -1)
        x = x + self._scattered(attention(q, k, v, self.head).flatten(0, 1), self.out)
        gate, up = self._gathered(self.between(x), self.up).chunk(2, -1)
        return x + self._scattered(F.silu(gate) * up, self.down)

    def _gathered(self, x: Tensor, layer: nn.Linear) -> Tensor:
        if self.way == BY_HAND:
            return layer(InAutograd.apply(AllGather(), x))
        (found,) = all_gather_matmul(x, [layer.weight.t()], dist.group.WORLD, implementation=self.way)
        return found

    def _scattered(self, x: Tensor, layer: nn.Linear) -> Tensor:
        if self.way == BY_HAND:
            return InAutograd.apply(ReduceScatter(), layer(x))
        return matmul_reduce_scatter(x, layer.weight.t(), dist.group.WORLD, implementation=self.way)

    def pieces(self) -> list[Any]:
        """The block for lagom.parallel.strands: it takes what is to be added to the residual, and the residual."""

        def enter(norm: nn.Module, found: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            x = x + found
            return norm(x), x

        def attend(rows: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            q, k, v = linear(rows, self.qkv.weight).view(self.shape).split(self.split, -1)
            return linear(attention(q, k, v, self.head).flatten(0, 1), self.out.weight), x

        def widen(rows: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            gate, up = linear(rows, self.up.weight).chunk(2, -1)
            return linear(F.silu(gate) * up, self.down.weight), x

        halves = ((self.before, attend), (self.between, widen))
        return [
            one for norm, half in halves for one in (functools.partial(enter, norm), AllGather(), half, ReduceScatter())
        ]

    def matmul_pieces(self) -> list[Any]:
        """The same, with collective matmul in the attention's half."""

        def attend(found: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            x, group = x + found, dist.group.WORLD
            (qkv,) = all_gather_matmul(self.before(x), [self.qkv.weight.t()], group)
            q, k, v = qkv.view(self.shape).split(self.split, -1)
            out = matmul_reduce_scatter(attention(q, k, v, self.head).flatten(0, 1), self.out.weight.t(), group)
            x = x + out
            return self.between(x), x

        return [attend, *self.pieces()[5:]]


class Attention(nn.Module):
    """Of a whole model; styles split it."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        hidden, self.head = sizes.hidden, sizes.head
        self.q = nn.Linear(hidden, sizes.heads * self.head, bias=False)
        self.k, self.v = (nn.Linear(hidden, sizes.kv_heads * self.head, bias=False) for _ in range(2))
        self.out = nn.Linear(sizes.heads * self.head, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(attention(self.q(x), self.k(x), self.v(x), self.head))


class Mlp(nn.Module):
    """The same."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(sizes.hidden, sizes.mlp, bias=False) for _ in range(2))
        self.down = nn.Linear(sizes.mlp, sizes.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """[batch, rows of the sequence, hidden] in and out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(sizes.hidden), nn.LayerNorm(sizes.hidden)
        self.attention, self.mlp = Attention(sizes), Mlp(sizes)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


def split_block(block: nn.Module, mesh: Any, styles: Any) -> None:
    """By columns and rows, with the three styles of a module: torch's, or lagom's of the same names."""
    column, row = styles.ColwiseParallel, styles.RowwiseParallel

    def gathered() -> Any:
        return styles.PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))

    plan = {"before": SequenceParallel(), "between": SequenceParallel(), "attention": gathered(), "mlp": gathered()}
    plan |= {f"attention.{name}": column() for name in "qkv"} | {"mlp.gate": column(), "mlp.up": column()}
    plan |= {name: row(output_layouts=Shard(1)) for name in ("attention.out", "mlp.down")}
    parallelize_module(block, mesh, plan)


def stack(make: Callable[[], nn.Module], layers: int, device: torch.device) -> nn.Sequential:
    """So many blocks in bfloat16, made on the device: on the CPU large ones would take minutes."""
    with device:
        return nn.Sequential(*(make().to(torch.bfloat16) for _ in range(layers)))


def strand_pieces(model: nn.Module, matmul: bool = False) -> list[Any]:
    """A stack of :class:`HandBlock` for lagom.parallel.strands: rows of this rank in and out. ``matmul``: with
    collective matmul in the attention's half."""

    def first(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(x), x

    def last(found: Tensor, x: Tensor) -> Tensor:
        return x + found

    blocks = [block for block in model.children() if isinstance(block, HandBlock)]
    return [first, *(one for block in blocks for one in (block.matmul_pieces() if matmul else block.pieces())), last]
