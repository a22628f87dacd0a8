# SPDX-License-Identifier: Apache-2.0
"""Backward passes in an order of one's own: what schedules that overlap communication are made of.

Autograd runs the backward pass as one chain. A schedule that starts a collective for one half of the batch and computes
for the other meanwhile must cut that chain: a :class:`Segment` is one piece of it, and the caller says when each piece
runs and what travels between them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from common import Profiles, Turns, clocks
from torch import nn

Tensors = tuple[torch.Tensor, ...]


class Segment:
    """One piece of the forward pass. Its inputs are cut off from what made them; :meth:`back` gives their gradients."""

    def __init__(self, function: Callable[..., torch.Tensor | Tensors], *inputs: torch.Tensor) -> None:
        self._inputs = tuple(x.detach().requires_grad_() for x in inputs)
        made = function(*self._inputs)
        self._made = made if isinstance(made, tuple) else (made,)

    @property
    def values(self) -> Tensors:
        """What the segment computed, cut off from it."""
        return tuple(x.detach() for x in self._made)

    @property
    def value(self) -> torch.Tensor:
        """The only thing the segment computed."""
        (made,) = self.values
        return made

    def back(self, *gradients: torch.Tensor) -> Tensors:
        """Backward through this piece: gradients of its inputs; its parameters collect theirs."""
        torch.autograd.backward(self._made, gradients)
        return tuple(x.grad if x.grad is not None else torch.zeros_like(x) for x in self._inputs)


class Reduction:
    """An all-reduce under way. Compute that is launched before :meth:`wait` may run beside it."""

    def __init__(self, tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
        self._tensor = tensor.contiguous()
        self._work = dist.all_reduce(self._tensor, group=group, async_op=True)

    def wait(self) -> torch.Tensor:
        """The sum over ranks."""
        self._work.wait()
        return self._tensor


class Exchange:
    """An all-to-all of equal parts under way; its own inverse, so the backward pass uses it too."""

    def __init__(self, tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
        self._result = torch.empty_like(tensor)
        self._work = dist.all_to_all_single(self._result, tensor.contiguous(), group=group, async_op=True)

    def wait(self) -> torch.Tensor:
        """What the other ranks sent."""
        self._work.wait()
        return self._result


class GradientSum:
    """Gradients of parameters that several ranks hold, summed a layer at a time while the next layer computes."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group = group
        self._under_way: list[tuple[list[torch.Tensor], Reduction]] = []

    def start(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients of one layer, as one flat buffer."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self._under_way.append((gradients, Reduction(flat, self._group)))

    def finish(self) -> None:
        """Put the sums in place."""
        for gradients, reduction in self._under_way:
            flat = reduction.wait()
            for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))
        self._under_way = []


def train(
    arguments: argparse.Namespace,
    device: torch.device,
    step: Callable[[], torch.Tensor],
    parameters: Iterable[nn.Parameter],
) -> None:
    """Call ``step`` (forward and backward; returns the loss) and an optimizer, one JSON line a step on rank 0."""
    optimizer = torch.optim.SGD(parameters, lr=1e-5)
    profiles, turns = Profiles(arguments, device), Turns(arguments.turns)
    for number in range(arguments.steps):
        turns.wait(number)
        profiles.step(number)
        began = time.perf_counter()
        loss = step()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        if dist.get_rank() == 0:
            took = (time.perf_counter() - began) * 1e3
            line = {"step": number, "ms": round(took, 3), "loss": value, "bits": value.hex(), **clocks()}
            print(json.dumps(line), flush=True)


def half_batches(tokens: int, sequence: int, width: int, device: torch.device) -> list[torch.Tensor]:
    """Two micro-batches of (sequences, length, width) with ``tokens`` tokens together."""
    count = max(1, tokens // 2 // sequence)
    length = min(sequence, tokens // 2)
    return [torch.randn(count, length, width, device=device, dtype=torch.bfloat16) for _ in range(2)]


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, head: int) -> torch.Tensor:
    """Causal attention over (batch, length, heads x head); fewer key heads than query heads are shared."""
    batch, length, width = queries.shape

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.view(batch, length, -1, head).transpose(1, 2)

    q, k, v = heads(queries), heads(keys), heads(values)
    shared = q.shape[1] // k.shape[1]
    if shared > 1:
        k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.transpose(1, 2).reshape(batch, length, width)
