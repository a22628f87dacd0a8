# SPDX-License-Identifier: Apache-2.0
"""Carries an order out: pieces with autograd between them, collectives in two halves, and what happens where a piece
raises: its rank takes part in the collectives that are left, with zeros, so that nobody waits for ever."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from lagom.errors import UsageError
from lagom.parallel.strands.lanes import CopyLane
from lagom.parallel.strands.orders import FORWARD, WEIGHTS, Order, StrandOperator, starts_collective
from lagom.parallel.strands.pieces import Finish, Piece, is_collective, put_off_weights

Tensors = tuple[Any, ...]
#: What a collective was started with: shape and dtype, by (phase, piece).
Inputs = dict[tuple[str, int], tuple[torch.Size, torch.dtype]]


class MicroBatchRun:
    """One micro-batch on its way: what travels, and what waits for the backward."""

    def __init__(self, values: Tensors, inputs: Inputs, pieces: Sequence[Piece]) -> None:
        self.values, self.inputs, self.pieces = values, inputs, pieces
        self.grads: Sequence[Tensor | None] = ()
        self.made: dict[int, tuple[Tensors, Tensors]] = {}  # by piece: inputs, outputs
        self.left: dict[int, list[Callable[[], None]]] = {}  # by piece: gradients of weights
        self.kept: set[int] = set()  # addresses of what was counted
        self.learns: dict[int, bool] = {}  # by collective: whether what it was given has a gradient
        self.finish: Callable[[], None] | None = None

    def settle(self) -> None:
        """Wait for the collective under way, if there is one."""
        if self.finish is not None:
            finish, self.finish = self.finish, None
            finish()


class OrderRun:
    """The carrying out of one order. ``groups``: the process group, by copy engines its lanes, on two streams also its
    twin; ``streams``: one for each group, empty = all on the caller's; ``knows``: whether the inputs of all collectives
    are known; ``before``: called with what a collective is started with, may raise."""

    def __init__(
        self,
        runs: Sequence[MicroBatchRun],
        groups: Sequence[Any],
        device: torch.device,
        knows: bool,
        streams: Sequence[Any] = (),
        before: Callable[[Tensor], None] = lambda _: None,
    ) -> None:
        self._runs, self._groups, self._device, self._knows = runs, groups, device, knows
        self._kinds = [is_collective(piece) for piece in runs[0].pieces]
        self._before = before
        #: Bytes that a piece keeps for its backward, by (micro-batch, piece); where inputs are not known yet.
        self.saved: dict[tuple[int, int], int] = {}
        self._streams = streams
        self._summed: dict[int, Any] = {}  # by piece: when the last micro-batch had added its gradients

    def carry_out(self, order: Order) -> Exception | None:
        """What a piece raised, once every collective is over. Others learn it in ``before`` or from the caller."""
        failed: Exception | None = None
        self._fork()
        for place, operator in enumerate(order):
            try:
                with self._lane(operator.micro_batch):
                    self._carry_out(operator)
            except Exception as error:  # noqa: BLE001 - other ranks wait for the collectives that are left
                failed = error
                if self._knows:
                    with contextlib.suppress(Exception):  # the first error is the one to tell
                        self._take_part(order[place:])
                break
        self._end()
        return failed

    def _settle_all(self) -> None:
        """Wait for every collective under way."""
        for run in self._runs:
            run.settle()

    def _carry_out(self, operator: StrandOperator) -> None:
        run = self._runs[operator.micro_batch]
        piece: Any = run.pieces[operator.piece]
        if operator.phase == WEIGHTS:
            with self._in_sequence(operator.piece):
                for accumulate in run.left.pop(operator.piece, ()):
                    accumulate()
            return
        run.settle()
        if starts_collective(operator, self._kinds):
            forward = operator.phase == FORWARD
            (self._start if forward else self._start_backward)(run, piece, operator)
        elif operator.phase == FORWARD:
            with self._counted(run, operator) if not self._knows else contextlib.nullcontext():
                self._forward(run, piece, operator.piece)
        else:
            with self._in_sequence(operator.piece):
                self._backward(run, operator.piece)

    def _forward(self, run: MicroBatchRun, piece: Any, place: int) -> None:
        values = piece(*run.values)
        made = values if isinstance(values, tuple) else (values,)
        if torch.is_grad_enabled():
            run.made[place] = run.values, made
        run.values = tuple(_cut_off(one) for one in made)

    def _backward(self, run: MicroBatchRun, place: int) -> None:
        inputs, made = run.made.pop(place)
        grads = run.grads or (None,) * len(made)
        needed = [
            (one, grad)
            for one, grad in zip(made, grads, strict=True)
            if _learns(one) and (grad is not None or not run.grads)
        ]
        if needed:
            roots, given = zip(*needed, strict=True)
            run.left[place] = put_off_weights(lambda: torch.autograd.backward(roots, given))
        run.grads = tuple(one.grad if _learns(one) and place else None for one in inputs)

    @contextlib.contextmanager
    def _counted(self, run: MicroBatchRun, operator: StrandOperator) -> Iterator[None]:
        """Count what the piece keeps: each memory once a micro-batch, and none of parameters."""
        sizes: list[int] = []

        def keep(tensor: Tensor) -> Tensor:
            memory = tensor.untyped_storage()
            base = tensor if tensor._base is None else tensor._base
            if memory.data_ptr() not in run.kept and not isinstance(base, torch.nn.Parameter):
                run.kept.add(memory.data_ptr())
                sizes.append(memory.nbytes())
            return tensor

        for value in run.values:
            if _learns(value):
                keep(value)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            yield
        self.saved[operator.micro_batch, operator.piece] = sum(sizes)

    def _start(self, run: MicroBatchRun, piece: Any, operator: StrandOperator) -> None:
        x, *others = run.values
        if not isinstance(x, Tensor):
            raise UsageError(
                f"piece {operator.piece} is a collective and gets {type(x).__name__}; the piece before it must return "
                "a tensor, or a tuple that begins with one."
            )
        learns = run.learns[operator.piece] = _learns(x)
        self._check(run, operator, x)
        finish: Finish = piece.start(x.detach(), self._group(operator))

        def settle() -> None:
            run.values = (finish().requires_grad_(learns), *others)

        run.finish = settle

    def _start_backward(self, run: MicroBatchRun, piece: Any, operator: StrandOperator) -> None:
        grad, *others = run.grads
        if grad is None:
            if run.learns[operator.piece]:
                raise UsageError(
                    f"nothing uses what piece {operator.piece}, a collective, gives; use it, or leave it out."
                )
            return  # nothing before it is trained, on any rank
        self._check(run, operator, grad)
        finish: Finish = piece.start_backward(grad, self._group(operator))

        def settle() -> None:
            run.grads = (finish(), *others)

        run.finish = settle

    def _check(self, run: MicroBatchRun, operator: StrandOperator, x: Tensor) -> None:
        self._before(x)
        key, found = operator[1:], (x.shape, x.dtype)
        if run.inputs.setdefault(key, found) != found:
            raise UsageError(
                f"piece {operator.piece} communicates {found} in its {operator.phase}, and {run.inputs[key]} before "
                "for a micro-batch of the same shape; shapes must depend on those of the micro-batch alone."
            )

    def _take_part(self, order: Order) -> None:
        """In all collectives of what is left, with zeros. The collective that failed to start is the first of them."""
        for run in self._runs:
            run.made.clear()
            run.left.clear()
        with contextlib.suppress(Exception):
            self._settle_all()
        for operator in order:
            run = self._runs[operator.micro_batch]
            if starts_collective(operator, self._kinds) and operator[1:] in run.inputs:
                shape, dtype = run.inputs[operator[1:]]
                with self._lane(operator.micro_batch), torch.no_grad():
                    zeros, group = torch.zeros(shape, dtype=dtype, device=self._device), self._group(operator)
                    start = getattr(
                        run.pieces[operator.piece], "start" if operator.phase == FORWARD else "start_backward"
                    )
                    start(zeros, group)()

    def _group(self, operator: StrandOperator) -> Any:
        found = self._groups[operator.micro_batch % len(self._groups)]
        takes_lanes = getattr(self._runs[0].pieces[operator.piece], "takes_lanes", False)
        return found.handle if isinstance(found, CopyLane) and not takes_lanes else found

    @contextlib.contextmanager
    def _lane(self, micro_batch: int) -> Iterator[None]:
        """The stream of a micro-batch. torch warns where another stream than the first one adds up gradients; here
        these sums are in sequence."""
        if not self._streams:
            yield
            return
        with torch.cuda.stream(self._streams[micro_batch % len(self._streams)]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")
            yield

    @contextlib.contextmanager
    def _in_sequence(self, piece: int) -> Iterator[None]:
        """Micro-batches add to the gradients of a piece one after the other, also from two streams."""
        if self._streams and piece in self._summed:
            torch.cuda.current_stream(self._device).wait_event(self._summed[piece])
        yield
        if self._streams:
            self._summed[piece] = torch.cuda.current_stream(self._device).record_event()

    def _fork(self) -> None:
        for stream in self._streams:
            stream.wait_stream(torch.cuda.current_stream(self._device))

    def _end(self) -> None:
        """Nothing is under way, and the caller's stream has what other streams did."""
        with contextlib.suppress(Exception):
            self._settle_all()
        for stream in self._streams:
            torch.cuda.current_stream(self._device).wait_stream(stream)


def _learns(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _cut_off(value: Any) -> Any:
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value
