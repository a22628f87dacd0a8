# SPDX-License-Identifier: Apache-2.0
"""Pipeline parallelism by 1F1B and by DHelix's folded model (arXiv 2411.15871, 4.1): bubbles and activations.

1F1B gives device d the d-th of p stages. Folding cuts the model into 2p chunks and gives device d the chunks d and
2p-1-d, so a forward pass goes down and up again over the devices, and so does a backward pass: a W. Both start at
device 0, so the forward of micro-batch i runs beside the backward of micro-batch i-p all the way: pass i.

``engine.py`` has the two queues of one GPU, which slow each other at rates; here p devices wait for each other, and a
block takes a time that is known. So the schedules have a player of their own. Not modelled: sends, the optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Pipeline:
    """``stages`` devices and ``micro_batches`` of a step. ``forward`` and ``backward``: time of one micro-batch on one
    device, in any unit. ``speedup``: forward and backward one after the other over both beside each other (the
    paper's s). Raises ValueError where one of them is not positive."""

    stages: int
    micro_batches: int
    forward: float = 1.0
    backward: float = 2.0
    speedup: float = 1.0

    def __post_init__(self) -> None:
        if min(self.stages, self.micro_batches, self.forward, self.backward, self.speedup) <= 0:
            raise ValueError(f"{self} has a value that is not positive; give stages, micro-batches and times above 0")

    @property
    def together(self) -> float:
        """Time of a forward beside a backward on one device."""
        return (self.forward + self.backward) / self.speedup


class PipelineBlock(NamedTuple):
    """What a device runs at once: chunk ``forward`` of one micro-batch, chunk ``backward`` of another, or both, each as
    (micro-batch, chunk)."""

    forward: tuple[int, int] | None = None
    backward: tuple[int, int] | None = None


#: When a phase of a chunk of a micro-batch ended, by (phase, micro-batch, chunk), and on which device.
Ended = dict[tuple[str, int, int], tuple[float, int]]
#: By device, its blocks in the order in which they run.
PipelineOrder = Sequence[Sequence[PipelineBlock]]


def plain_order(pipeline: Pipeline) -> PipelineOrder:
    """1F1B: device d runs p-1-d forwards ahead, then a forward and a backward by turns; a chunk is a stage."""
    count, order = pipeline.micro_batches, []
    for device in range(pipeline.stages):
        ahead = min(count, pipeline.stages - 1 - device)
        blocks = [PipelineBlock(forward=(one, device)) for one in range(ahead)]
        for one in range(count):
            if one + ahead < count:
                blocks.append(PipelineBlock(forward=(one + ahead, device)))
            blocks.append(PipelineBlock(backward=(one, device)))
        order.append(blocks)
    return order


def folded_order(pipeline: Pipeline) -> PipelineOrder:
    """The paper's Fig. 8: pass i enters device 0 two chunks after pass i-1, so each device has one chunk of the way
    down and one of the way up by turns. The first p passes have no backward, the last p no forward."""
    count, last = pipeline.micro_batches, 2 * pipeline.stages - 1
    order = []
    for device in range(pipeline.stages):
        slots = {}
        for number in range(count + pipeline.stages):
            for chunk in (device, last - device):
                forward = (number, chunk) if number < count else None
                backward = (number - pipeline.stages, last - chunk) if number >= pipeline.stages else None
                slots[2 * number + chunk] = PipelineBlock(forward, backward)
        order.append([block for _, block in sorted(slots.items()) if any(block)])
    return order


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """``total``: time of the step; ``busy``: by device, of its blocks; ``activations``: by device, the most it holds at
    once, in activations of one micro-batch on one of p devices; ``transfers``: of a step, between two devices."""

    total: float
    busy: tuple[float, ...]
    activations: tuple[float, ...]
    transfers: int

    @property
    def bubble(self) -> float:
        """Share of the step in which the device with the least to do waits."""
        return 1.0 - min(self.busy) / self.total


def play_plain(pipeline: Pipeline) -> PipelineRun:
    """A step by 1F1B."""
    return _play(pipeline, plain_order(pipeline), pipeline.stages, 1)


def play_folded(pipeline: Pipeline, layers: int = 1) -> PipelineRun:
    """A step with the folded model. ``layers`` of a chunk: beside each other run the forward of one and the backward of
    one at a time ("at the layer granularity", 4.1), so a block allocates and frees by layers. 1: by whole chunks."""
    return _play(pipeline, folded_order(pipeline), 2 * pipeline.stages, layers)


def _play(pipeline: Pipeline, order: PipelineOrder, chunks: int, layers: int) -> PipelineRun:
    """Each block starts when its device has ended the one before, and others what it needs."""
    share = pipeline.stages / chunks
    ended: Ended = {}
    free, busy = [0.0] * len(order), [0.0] * len(order)
    waiting = [list(reversed(blocks)) for blocks in order]
    transfers = 0
    while any(waiting):
        device = _next_device(waiting, ended, chunks)
        block = waiting[device].pop()
        needs = [ended[needed] for needed in _needs(block, chunks)]
        took = share * _time(pipeline, block)
        free[device] = max([free[device], *(when for when, _ in needs)]) + took
        busy[device] += took
        transfers += sum(other != device for _, other in needs)
        parts = zip(("forward", "backward"), block, strict=True)
        ended.update({(phase, *part): (free[device], device) for phase, part in parts if part})
    return PipelineRun(max(free), tuple(busy), tuple(share * _most_held(blocks, layers) for blocks in order), transfers)


def _next_device(waiting: Sequence[Sequence[PipelineBlock]], ended: Ended, chunks: int) -> int:
    """One whose next block has all it needs."""
    for device, blocks in enumerate(waiting):
        if blocks and all(needed in ended for needed in _needs(blocks[-1], chunks)):
            return device
    raise ValueError("the devices wait for each other: the order of their blocks forms a cycle")


def _needs(block: PipelineBlock, chunks: int) -> list[tuple[str, int, int]]:
    """The forward needs the chunk before; the backward the chunk behind, and that of the last chunk its forward."""
    needs = []
    if block.forward and block.forward[1]:
        needs.append(("forward", block.forward[0], block.forward[1] - 1))
    if block.backward:
        one, chunk = block.backward
        needs.append(("backward", one, chunk + 1) if chunk + 1 < chunks else ("forward", one, chunk))
    return needs


def _time(pipeline: Pipeline, block: PipelineBlock) -> float:
    if block.forward and block.backward:
        return pipeline.together
    return pipeline.forward if block.forward else pipeline.backward


def _most_held(blocks: Sequence[PipelineBlock], layers: int) -> float:
    """In chunks. A forward holds its activations from its start on, a backward frees them at its end."""
    held = most = 0
    for block in blocks:
        for _ in range(layers):
            held += block.forward is not None
            most = max(most, held)
            held -= block.backward is not None
    return most / layers


def plain_bubble(pipeline: Pipeline) -> float:
    """Share of a step by 1F1B in which a device waits (4.1): (p-1) / (m-1+p). Exact for all p, m and times."""
    return (pipeline.stages - 1) / (pipeline.micro_batches - 1 + pipeline.stages)


def published_folded_bubble(pipeline: Pipeline) -> float:
    """The same of the folded model as the paper has it (4.1): (p-1) / (m-1 + p s). Exact for m > p where ``together``
    is not shorter than forward or backward: with a backward of two forwards, for s up to 1.5."""
    p, m, s = pipeline.stages, pipeline.micro_batches, pipeline.speedup
    return (p - 1) / (m - 1 + p * s)


def folded_bubble(pipeline: Pipeline) -> float:
    """The same without a limit on s: each device waits for p-1 times the longest of forward, backward and ``together``.
    Exact for m >= 2p, an upper bound for p < m < 2p."""
    p, m = pipeline.stages, pipeline.micro_batches
    work = p * (pipeline.forward + pipeline.backward) + (m - p) * pipeline.together
    waits = (p - 1) * max(pipeline.forward, pipeline.backward, pipeline.together)
    return waits / (work + waits)


def plain_activations(pipeline: Pipeline) -> tuple[int, ...]:
    """By device, the most activations that 1F1B holds, in those of one micro-batch on one device: min(m, p-d)."""
    return tuple(min(pipeline.micro_batches, pipeline.stages - device) for device in range(pipeline.stages))


def folded_activations(pipeline: Pipeline, layers: int = 1) -> float:
    """The same of the folded model: p, and while a forward runs beside a backward one of a chunk's ``layers``, which
    are half a stage: p + 1 / (2 layers). Exact for m > p on the fullest device, for m >= 2p on each."""
    return pipeline.stages + 1 / (2 * layers)
