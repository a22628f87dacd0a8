# SPDX-License-Identifier: Apache-2.0
"""Steps of a model that is given as pieces: what users call, and what the ranks agree on in each step.

Ranks agree over a gloo group of their own, on the host: the device is not waited for. Twice a step they exchange a few
numbers: at its beginning whether all do the same, at its end whether a piece raised somewhere.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
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
from lagom.parallel.strands.reached import kinds_of, parameters_of
from lagom.parallel.strands.trying import (
    BY_COPIES,
    SCHEDULES,
    TWO_STREAMS,
    ScheduleTrial,
    StrandChoice,
)
from lagom.parallel.torch_gate import timeout_ms

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
        if not isinstance(group, dist.ProcessGroup):
            raise UsageError(f"group is {group!r}, which is no process group that this rank is in; pass one.")
        if wrong := _wrong_pieces(pieces):
            raise UsageError(wrong)
        self._pieces, self._loss, self._group, self._named = list(pieces), loss, group, schedule
        self._kinds = [is_collective(piece) for piece in pieces] + [False]
        self._parameters = parameters_of([*pieces, loss])
        self._inputs: dict[str, Inputs] = {}  # by micro-batch's shapes
        self._saved: dict[str, dict[int, int]] = {}  # the same: bytes by piece
        self._trials: dict[str, ScheduleTrial] = {}  # by shapes of all micro-batches
        self._lanes: CopyLanes | None = None
        self._streams: list[Any] = []
        control = self._same_ranks(backend="gloo")
        self._control = RankGroup(control.group_name, control, group.rank(), group.size())

    def choices(self) -> list[StrandChoice]:
        """What was chosen so far: one for each list of shapes that a step had."""
        return [trial.choice for trial in self._trials.values() if trial.choice is not None]

    def step(self, micro_batches: Sequence[Any], targets: Sequence[Any]) -> list[Tensor]:
        """Forward and backward of all; gradients are added to ``.grad`` as by one micro-batch after the other, the same
        bits. Under ``torch.no_grad()`` only the forward. A collective: every rank passes the same shapes.

        :param micro_batches: of each a tensor, or a tuple of what the first piece takes; lists and mappings in it are
            looked into for shapes, other objects are not.
        :param targets: of each what ``loss`` takes last.
        :returns: the losses, without gradients.
        :raises UsageError: the ranks, or the micro-batches, do not fit together, on every rank; or the step is
            captured in a CUDA graph before a schedule is chosen.
        :raises RuntimeError: a piece raised an error on another rank; this rank's own errors are raised as they are.
            Gradients hold parts of the step then: set them to zero.
        """
        if wrong := _wrong_lists(micro_batches, targets):
            self._check_alike([wrong])
            raise UsageError(wrong)
        batches = [one if isinstance(one, tuple) else (one,) for one in micro_batches]
        trains = torch.is_grad_enabled()
        shapes = self._shapes(batches, targets, trains)
        if not self._check_alike(shapes):
            raise UsageError(
                "the ranks passed micro-batches of different shapes, train other parameters, or made their Strands of "
                "different pieces or with different schedules; give every rank of the group the same."
            )
        runs = [self._run(*one) for one in zip(batches, targets, shapes, strict=True)]
        device = _device_of([*self._parameters, *batches[0]])
        self._refuse_capture(shapes, device)
        if any(about not in self._saved for about in shapes):
            self._learn(runs, shapes, device, trains)
        else:
            self._take(runs, device, self._trial(shapes, device, trains))
        return [run.values[0].detach() for run in runs]

    def _shapes(self, batches: Sequence[tuple[Any, ...]], targets: Sequence[Any], trains: bool) -> list[str]:
        """Of each micro-batch what decides which collectives it makes."""
        trained = [one.requires_grad for one in self._parameters] if trains else []
        about = trains, digest_number(str(trained))
        return [repr((about, _about((*batch, target)))) for batch, target in zip(batches, targets, strict=True)]

    def _refuse_capture(self, shapes: Sequence[str], device: torch.device) -> None:
        known = self._trials.get("\n".join(shapes))
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing() and (known is None or not known.choice):
            raise UsageError("no schedule is chosen yet; take steps of these shapes before one is captured.")

    def _run(self, batch: tuple[Any, ...], target: Any, shapes: str) -> MicroBatchRun:
        def loss(*values: Any) -> Tensor:
            return self._loss(*values, target)

        return MicroBatchRun(batch, self._inputs.setdefault(shapes, {}), [*self._pieces, loss])

    def _check_alike(self, shapes: Sequence[str]) -> bool:
        """Whether all ranks do the same. A collective."""
        mine = digest_number("\n".join([*shapes, str(self._kinds), str(self._named)]))
        return len({numbers[0] for numbers in self._control.gather([mine], CPU)}) == 1

    def _learn(self, runs: Sequence[MicroBatchRun], shapes: Sequence[str], device: torch.device, trains: bool) -> None:
        """One micro-batch after the other. Before each collective the ranks ask each other whether all are there with
        the same shape: later it is known which shapes there are, and nobody asks."""

        def ask(x: Tensor) -> None:
            self._agree_shape(f"{list(x.shape)} {x.dtype}")

        run = OrderRun(runs, [self._group], device, False, before=ask)
        failed = run.carry_out(one_after_the_other(len(runs), self._kinds, False, trains))
        try:
            if failed is None:
                self._agree_shape("none is left")
            elif not isinstance(failed, _FoundTogetherError):
                self._control.gather([0, 0], CPU)
        except _FoundTogetherError as found:
            failed = found
        if failed is not None:
            self._forget(shapes)
            raise failed.error if isinstance(failed, _FoundTogetherError) else failed
        for place, about in enumerate(shapes):
            self._saved[about] = {piece: size for (one, piece), size in run.saved.items() if one == place}

    def _agree_shape(self, mine: str) -> None:
        every = self._control.gather([1, digest_number(mine)], CPU)
        if failed := [rank for rank, numbers in enumerate(every) if not numbers[0]]:
            raise _FoundTogetherError(RuntimeError(_elsewhere(failed)))
        if len({numbers[1] for numbers in every}) > 1:
            raise _FoundTogetherError(
                UsageError(
                    f"the ranks start a collective with different shapes or dtypes (here: {mine}); a piece must return "
                    "the same shapes on every rank of the group."
                )
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
        return self._same_ranks()

    def _same_ranks(self, backend: str | None = None) -> Any:
        """Another group of them, with the timeout of the first one. A collective."""
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        limit = timedelta(milliseconds=timeout_ms(self._group, torch.device(kind)))
        ranks = dist.get_process_group_ranks(self._group)
        return dist.new_group(ranks, timeout=limit, backend=backend, use_local_synchronization=True)


class _FoundTogetherError(Exception):
    """Every rank finds ``error`` at the same place."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


#: Wrappers whose hooks expect one backward for the whole model, and no weight gradient after it: by class.
WRAPPERS = {
    "FSDPModule": "FSDP2",
    "FullyShardedDataParallel": "FSDP",
    "DistributedDataParallel": "DDP",
}


def _wrong_pieces(pieces: Sequence[Any]) -> str:
    """Why they cannot be used; empty = they can."""
    if classes := [piece.__name__ for piece in pieces if isinstance(piece, type)]:
        return f"the class {classes[0]} is a piece; pass {classes[0]}()."
    if not pieces or is_collective(pieces[0]) or is_collective(pieces[-1]):
        return "the first and the last piece must be functions; put one before or behind the collective."
    for place, piece in enumerate(pieces):
        if wrappers := sorted(kinds_of(piece) & WRAPPERS.keys()):
            return (
                f"piece {place} holds a module of {WRAPPERS[wrappers[0]]}, whose hooks expect one backward for the "
                "whole model and no weight gradient after it; use strands on modules that it does not wrap."
            )
    return ""


def _wrong_lists(micro_batches: Any, targets: Any) -> str:
    """The same of what a step is given."""
    for one in (micro_batches, targets):
        if isinstance(one, Tensor) or not isinstance(one, Sequence):
            return f"micro-batches and targets are lists of as many; one of them is {type(one).__name__}."
    if not micro_batches or len(micro_batches) != len(targets):
        return f"{len(micro_batches)} micro-batches, {len(targets)} targets; pass as many, and at least one."
    return ""


def _elsewhere(ranks: Sequence[int]) -> str:
    return f"a piece raised an error on rank {', '.join(map(str, ranks))} of the group; see its output."


def _about(values: Sequence[Any]) -> list[Any]:
    """What of the arguments decides which shapes are communicated."""
    return [(tuple(one.shape), str(one.dtype), one.requires_grad) for one in _tensors_in(values)]


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """Also in lists, tuples and mappings, as tokenizers return them."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors_in(one)


def _device_of(values: Sequence[Any]) -> torch.device:
    """That of a GPU, if one of them is there: what a piece is given may still be on the CPU."""
    devices = (one.device for one in _tensors_in(values))
    return next((one for one in devices if one.type != "cpu"), CPU)


def _free_bytes(device: torch.device) -> float:
    """Of the device, or of what the allocator holds and does not use."""
    if device.type != "cuda":
        return float("inf")
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(torch.cuda.mem_get_info(device)[0] + held)
