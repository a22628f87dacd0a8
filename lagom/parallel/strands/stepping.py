# SPDX-License-Identifier: Apache-2.0
"""Steps of a model that is given as pieces: what users call, and what the ranks agree on in each step.

Ranks agree over a gloo group of their own, on the host: the device is not waited for. Twice a step they exchange a few
numbers: at its beginning whether all do the same, at its end whether a piece raised somewhere.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lagom.errors import SettingError, UsageError
from lagom.parallel.matmul_call import CannotPrepare
from lagom.parallel.measuring import synchronize
from lagom.parallel.rank_group import RankGroup, digest_number, group_named
from lagom.parallel.strands.executing import Inputs, MicroBatchRun, OrderRun
from lagom.parallel.strands.lanes import CopyLanes
from lagom.parallel.strands.orders import one_after_the_other
from lagom.parallel.strands.pieces import Piece, is_collective
from lagom.parallel.strands.trying import (
    BY_COPIES,
    SCHEDULES,
    TWO_STREAMS,
    ScheduleTrial,
    StrandChoice,
)

CPU = torch.device("cpu")


class Strands:
    """A model whose micro-batches run beside each other: what one communicates, while another one computes.

    :param pieces: in the order of the forward pass: functions, and between them :class:`AllGather`,
        :class:`ReduceScatter`, :class:`AllToAll` or others with their methods. A function takes what the piece before
        returned, a tensor or a tuple; a collective takes the first tensor, and the others pass by. The first and the
        last piece are functions.
    :param loss: ``loss(output, ..., target)``, a scalar; called as one more piece.
    :param group: the process group of the collectives. Every rank of it makes its Strands at the same time.
    :param schedule: one of SCHEDULES instead of what is measured to be fastest.
    :raises UsageError: the pieces cannot be used. :raises SettingError: there is no schedule of that name.
    """

    def __init__(
        self, pieces: Sequence[Piece], loss: Callable[..., Tensor], group: Any, schedule: str | None = None
    ) -> None:
        if schedule is not None and schedule not in SCHEDULES:
            raise SettingError(f"schedule={schedule} is unknown; name one of: {', '.join(SCHEDULES)}.")
        if not pieces or is_collective(pieces[0]) or is_collective(pieces[-1]):
            raise UsageError("the first and the last piece must be functions; put one before or behind the collective.")
        if not isinstance(group, dist.ProcessGroup):
            raise UsageError(f"group is {group!r}, which is no process group that this rank is in; pass one.")
        if sharded := [place for place, piece in enumerate(pieces) if _is_sharded(piece)]:
            raise UsageError(
                f"piece {sharded[0]} holds a module of FSDP2, whose hooks expect one backward for the whole model "
                "and no weight gradient after it; use strands on modules that fully_shard does not wrap."
            )
        self._pieces, self._loss, self._group, self._named = list(pieces), loss, group, schedule
        self._kinds = [is_collective(piece) for piece in pieces] + [False]
        self._inputs: dict[str, Inputs] = {}  # by micro-batch's shapes
        self._saved: dict[str, dict[int, int]] = {}  # the same: bytes by piece
        self._trials: dict[str, ScheduleTrial] = {}  # by shapes of all micro-batches
        self._lanes: CopyLanes | None = None
        self._streams: list[Any] = []
        control = dist.new_group(dist.get_process_group_ranks(group), backend="gloo", use_local_synchronization=True)
        self._control = RankGroup(control.group_name, control, group.rank(), group.size())

    def choices(self) -> list[StrandChoice]:
        """What was chosen so far: one for each list of shapes that a step had."""
        return [trial.choice for trial in self._trials.values() if trial.choice is not None]

    def step(self, micro_batches: Sequence[Any], targets: Sequence[Any]) -> list[Tensor]:
        """Forward and backward of all; gradients are added to ``.grad`` as by one micro-batch after the other, the same
        bits. Under ``torch.no_grad()`` only the forward. A collective: every rank passes the same shapes.

        :param micro_batches: of each a tensor or a tuple of what the first piece takes.
        :param targets: of each what ``loss`` takes last.
        :returns: the losses, without gradients.
        :raises UsageError: the ranks, or the micro-batches, do not fit together; or the step is captured in a CUDA
            graph before a schedule is chosen.
        :raises RuntimeError: a piece raised an error on another rank; this rank's own errors are raised as they are.
            Gradients hold parts of the step then: set them to zero.
        """
        if not micro_batches or len(micro_batches) != len(targets):
            raise UsageError(
                f"{len(micro_batches)} micro-batches, {len(targets)} targets; pass as many, and at least one."
            )
        batches = [one if isinstance(one, tuple) else (one,) for one in micro_batches]
        trains = torch.is_grad_enabled()
        shapes = [repr((trains, _about((*batch, target)))) for batch, target in zip(batches, targets, strict=True)]
        self._check_alike(shapes)
        runs = [self._run(*one) for one in zip(batches, targets, shapes, strict=True)]
        device = next((one.device for one in batches[0] if isinstance(one, Tensor)), CPU)
        self._refuse_capture(shapes, device)
        if any(about not in self._saved for about in shapes):
            self._learn(runs, shapes, device, trains)
        else:
            self._take(runs, device, self._trial(shapes, device, trains))
        return [run.values[0].detach() for run in runs]

    def _refuse_capture(self, shapes: Sequence[str], device: torch.device) -> None:
        known = self._trials.get("\n".join(shapes))
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing() and (known is None or not known.choice):
            raise UsageError("no schedule is chosen yet; take steps of these shapes before one is captured.")

    def _run(self, batch: tuple[Any, ...], target: Any, shapes: str) -> MicroBatchRun:
        def loss(*values: Any) -> Tensor:
            return self._loss(*values, target)

        return MicroBatchRun(batch, self._inputs.setdefault(shapes, {}), [*self._pieces, loss])

    def _check_alike(self, shapes: Sequence[str]) -> None:
        mine = digest_number("\n".join([*shapes, str(self._kinds), str(self._named)]))
        if len({numbers[0] for numbers in self._control.gather([mine], CPU)}) > 1:
            raise UsageError(
                "the ranks passed micro-batches of different shapes, or made their Strands of different pieces; give "
                "every rank of the group the same."
            )

    def _learn(self, runs: Sequence[MicroBatchRun], shapes: Sequence[str], device: torch.device, trains: bool) -> None:
        """One micro-batch after the other. Before each collective the ranks ask each other whether all are there with
        the same shape: later it is known which shapes there are, and nobody asks."""

        def ask(x: Tensor) -> None:
            mine = digest_number(f"{x.shape} {x.dtype}")
            self._agree_shape([1, mine])

        run = OrderRun(runs, [self._group], device, False, before=ask)
        failed = run.carry_out(one_after_the_other(len(runs), self._kinds, False, trains))
        if failed is not None:
            if not isinstance(failed, _FoundTogether):
                self._control.gather([0, 0], CPU)
            self._forget(shapes)
            raise failed
        try:
            self._agree_shape([1, 0])
        except Exception:
            self._forget(shapes)
            raise
        for place, about in enumerate(shapes):
            self._saved[about] = {piece: size for (one, piece), size in run.saved.items() if one == place}

    def _agree_shape(self, mine: Sequence[int]) -> None:
        every = self._control.gather(mine, CPU)
        if not all(numbers[0] for numbers in every):
            raise _FoundTogether(_elsewhere([rank for rank, numbers in enumerate(every) if not numbers[0]]))
        if len({numbers[1] for numbers in every}) > 1:
            raise _FoundTogether(
                "the ranks start a collective with different shapes or dtypes; a piece must return "
                "the same shapes on every rank of the group."
            )

    def _forget(self, shapes: Sequence[str]) -> None:
        """What was learnt of a step that failed."""
        for about in shapes:
            if about not in self._saved:
                self._inputs.pop(about, None)

    def _trial(self, shapes: Sequence[str], device: torch.device, trains: bool) -> ScheduleTrial:
        """That of these shapes. The first time a collective."""
        key = "\n".join(shapes)
        if key not in self._trials:
            saved = {
                (place, piece): size for place, about in enumerate(shapes) for piece, size in self._saved[about].items()
            }
            room = -self._control.largest([-_free_bytes(device)], CPU)[0]
            about_steps = self._kinds, len(shapes), trains, saved, room, self._named, digest_number(key)
            self._trials[key] = ScheduleTrial(*about_steps, device.type == "cuda", self._no_copies(shapes, device))
            self._settle_lanes()
        return self._trials[key]

    def _no_copies(self, shapes: Sequence[str], device: torch.device) -> str:
        """Why copy engines cannot do what a step communicates, or "" with lanes that are large enough. A collective."""
        inputs = [one for about in set(shapes) for key, one in self._inputs[about].items() if self._takes_lanes(key[1])]
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in inputs]
        if self._named not in (None, *BY_COPIES) or not sizes or 0 in sizes:
            return "another schedule was asked for" if sizes else "no collective of it can be done by copies"
        if self._lanes is None or self._lanes.size < max(sizes):
            try:
                self._lanes = CopyLanes(max(sizes), group_named(self._group.group_name), device)
            except CannotPrepare as reason:
                return str(reason)
        return ""

    def _takes_lanes(self, piece: int) -> bool:
        return bool(getattr(self._pieces[piece], "takes_lanes", False)) if piece < len(self._pieces) else False

    def _settle_lanes(self) -> None:
        """Once everything is chosen, memory that no choice needs goes back."""
        trials = self._trials.values()
        if self._lanes is not None and not any(one.choice is None or one.choice.chosen in BY_COPIES for one in trials):
            self._lanes.release()
            self._lanes = None

    def _take(self, runs: Sequence[MicroBatchRun], device: torch.device, trial: ScheduleTrial) -> None:
        """One step, as the trial has it."""
        now = trial.now
        streams = self._streams_of(device) if now.schedule == TWO_STREAMS else ()
        if now.is_timed:
            self._control.all_say(True, CPU)
            synchronize(device)
        began = time.perf_counter_ns()
        failed = OrderRun(runs, self._groups(now.schedule), device, True, streams).carry_out(now.order)
        if now.is_timed and failed is None:
            synchronize(device)
        self._agree_on_end(failed)
        if now.is_timed:
            trial.add(*self._control.largest([float(time.perf_counter_ns() - began)], CPU))
            self._settle_lanes()

    def _groups(self, schedule: str) -> list[Any]:
        """What collectives are given, micro-batches in turns."""
        if schedule in BY_COPIES:
            assert self._lanes is not None
            return list(self._lanes.lanes)
        return [self._group, self._twin] if schedule == TWO_STREAMS else [self._group]

    def _streams_of(self, device: torch.device) -> Sequence[Any]:
        """The same in every step: memory that the allocator holds for a stream serves that stream alone."""
        if not self._streams and device.type == "cuda":
            self._streams = [torch.cuda.Stream(device) for _ in range(2)]
        return self._streams

    def _agree_on_end(self, failed: Exception | None) -> None:
        every = self._control.gather([int(failed is not None)], CPU)
        if failed is not None:
            raise failed
        if any(numbers[0] for numbers in every):
            raise RuntimeError(_elsewhere([rank for rank, numbers in enumerate(every) if numbers[0]]))

    @functools.cached_property
    def _twin(self) -> Any:
        """A group of the same ranks, for the second stream. The first time a collective."""
        return dist.new_group(dist.get_process_group_ranks(self._group), use_local_synchronization=True)


class _FoundTogether(RuntimeError):
    """Every rank raises it at the same place."""


def _is_sharded(piece: Any) -> bool:
    """Whether FSDP2 wraps a module that the piece is, is a method of, or is made from by functools.partial."""
    function = getattr(piece, "func", piece)
    found = [one for one in (function, getattr(function, "__self__", None)) if isinstance(one, torch.nn.Module)]
    kinds = {kind.__name__ for one in found for module in one.modules() for kind in type(module).__mro__}
    return "FSDPModule" in kinds


def _elsewhere(ranks: Sequence[int]) -> str:
    return f"a piece raised an error on rank {', '.join(map(str, ranks))} of the group; see its output."


def _about(values: Sequence[Any]) -> list[Any]:
    """What of the arguments decides which shapes are communicated."""
    tensors = [one if isinstance(one, Tensor) else None for one in values]
    return [one if one is None else (tuple(one.shape), str(one.dtype), one.requires_grad) for one in tensors]


def _free_bytes(device: torch.device) -> float:
    """Of the device, or of what the allocator holds and does not use."""
    if device.type != "cuda":
        return float("inf")
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(torch.cuda.mem_get_info(device)[0] + held)
