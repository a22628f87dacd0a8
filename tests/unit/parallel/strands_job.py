# SPDX-License-Identifier: Apache-2.0
"""Ranks on gloo that run the cases below, as those of ranks_job.py. What is expected is autograd's own: the same
pieces one after the other, with collectives as autograd functions."""

from __future__ import annotations

import functools
import logging
import os
import random
from collections import UserDict
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import lagom.parallel as parallel
from benchmarks.jobs.llama_blocks import InAutograd
from lagom.errors import SettingError, UsageError
from lagom.parallel.rank_group import group_named
from lagom.parallel.said_once import log
from lagom.parallel.strands import (
    SCHEDULES,
    AllGather,
    AllToAll,
    ReduceScatter,
    StrandChoice,
    Strands,
    linear,
    stepping,
)
from lagom.parallel.strands.lanes import CopyLanes
from lagom.parallel.strands.trying import (
    ABREAST,
    BY_COPIES,
    MOVED,
    SEQUENTIAL,
    TURNS,
    TURNS_COPIES,
    TWO_STREAMS,
)
from tests.unit.parallel.gloo_cases import RANK, RANKS, case, case_of_two, raises, run_cases
from tests.unit.parallel.shared_memory import copies_without_a_gpu

MODELS = int(os.environ["SHAPES"])


def by_autograd(model: Model, batches: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
    losses = []
    for values, target in zip(batches, targets, strict=True):
        state: Any = (values,)
        for piece in model.pieces:
            if hasattr(piece, "start"):
                state = (InAutograd.apply(piece, state[0]), *state[1:])
            else:
                made = piece(*state)
                state = made if isinstance(made, tuple) else (made,)
        loss = model.loss(*state, target)
        loss.backward()
        losses.append(loss.detach())
    return losses


class Model(nn.Module):
    """Blocks of random widths and layers, with a residual that passes the collectives by."""

    def __init__(self, numbers: random.Random, checkpoints: bool = False, blocks: int = 0) -> None:
        super().__init__()
        self.width, inner = numbers.randint(1, 8), numbers.randint(1, 8)
        blocks = blocks or numbers.randint(1, 3)
        self.norms = nn.ModuleList(nn.LayerNorm(self.width) for _ in range(blocks))
        self.ups = nn.ModuleList(nn.Linear(self.width, inner, bias=numbers.random() < 0.5) for _ in range(blocks))
        self.downs = nn.ModuleList(nn.Linear(inner, self.width, bias=False) for _ in range(blocks))
        self.pieces: list[Any] = []
        for place in range(blocks):
            middle: Any = functools.partial(self.middle, place)
            if checkpoints:
                middle = functools.partial(checkpoint, middle, use_reentrant=False)
            pair = numbers.choice([(AllGather(), ReduceScatter()), (AllToAll(), AllToAll())])
            before = self.add if numbers.random() < 0.3 and place else None
            self.pieces += [before] * bool(before)
            first = self.norm if before or not place else self.norm_of_sum
            self.pieces += [functools.partial(first, place), pair[0], middle, pair[1]]
        self.pieces.append(self.add)

    def norm(self, place: int, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.norms[place](x), x

    def norm_of_sum(self, place: int, found: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.norm(place, found + x)

    def middle(self, place: int, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        up, down = self.ups[place], self.downs[place]
        return linear(torch.tanh(linear(x, up.weight, up.bias)), down.weight), residual

    def add(self, found: Tensor, x: Tensor) -> Tensor:
        return found + x

    def loss(self, found: Tensor, target: Tensor) -> Tensor:
        return ((found - target) ** 2).sum()

    def inputs(self, count: int, uneven: bool = False) -> tuple[list[Tensor], list[Tensor]]:
        rows = [RANKS * (1 + place % 2 if uneven else 1) for place in range(count)]
        return tuple([torch.randn(one, self.width) for one in rows] for _ in range(2))  # type: ignore[return-value]


def gradients(model: nn.Module) -> list[Tensor | None]:
    found = [None if one.grad is None else one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    return found


def same(found: Sequence[Tensor | None], expected: Sequence[Tensor | None], near: bool = False) -> None:
    equal: Callable[[Any, Any], bool] = functools.partial(torch.allclose, rtol=1e-4, atol=1e-5) if near else torch.equal
    for place, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert (one is None) == (other is None), place
        assert one is None or equal(one, other), (place, len(found), (one - other).abs().max())


def check(model: Model, strands: Strands, count: int, uneven: bool = False, near: bool = False) -> None:
    """A step against autograd, from gradients that are there already."""
    batches, targets = model.inputs(count, uneven)
    start = [torch.randn_like(one) for one in model.parameters()]

    def taken(step: Callable[[], list[Tensor]]) -> list[Tensor | None]:
        for one, grad in zip(model.parameters(), start, strict=True):
            one.grad = grad.clone()
        return [*step(), *gradients(model)]

    expected = taken(lambda: by_autograd(model, batches, targets))
    same(taken(lambda: strands.step(batches, targets)), expected, near)


@case
def gradients_are_those_of_one_after_the_other_to_the_bit() -> None:
    for seed in range(MODELS):
        numbers = random.Random(seed)
        torch.manual_seed(100 * seed + RANK)
        model = Model(numbers, checkpoints=seed % 5 == 0)
        name = SCHEDULES[seed % len(SCHEDULES)]
        strands = Strands(model.pieces, model.loss, dist.group.WORLD, name)
        count = numbers.randint(1, 5)
        for number in range(2):
            try:
                check(model, strands, count, uneven=seed % 3 == 0)
            except AssertionError as error:
                raise AssertionError(f"model {seed}, {name}, step {number}, {count} micro-batches") from error
        (choice,) = strands.choices()
        assert choice.chosen == (name if name not in choice.refusals else SEQUENTIAL), choice


class Failing:
    """A function that raises at its ``at``-th call on a rank."""

    def __init__(self, function: Callable[..., Any], rank: int) -> None:
        self.function, self.rank, self.left = function, rank, -1

    def __call__(self, *values: Any) -> Any:
        self.left -= 1
        if self.left == 0 and self.rank == RANK:
            raise ValueError("a segment of this rank")
        return self.function(*values)


def raised_on_the_last() -> tuple[type[Exception], str]:
    """Where a piece raises on the last rank: the error of this one, and a part of it."""
    return (ValueError, "this rank") if RANK == RANKS - 1 else (RuntimeError, f"on rank {RANKS - 1} of the group")


class FailsBackward(torch.autograd.Function):
    """Raises in the backward on the last rank, where ``fails`` says so."""

    fails = False

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        if FailsBackward.fails and RANK == RANKS - 1:
            raise ValueError("a backward of this rank")
        return grad


@case_of_two
def an_error_of_a_piece_is_raised_on_every_rank_and_the_next_step_is_right() -> None:
    for name in (TURNS, ABREAST):
        for learnt in (True, False):
            model = Model(random.Random(3), blocks=2)
            pieces = list(model.pieces)
            failing = pieces[2] = Failing(pieces[2], rank=1)
            strands = Strands(pieces, model.loss, dist.group.WORLD, name)
            if learnt:
                check(model, strands, 3)
            for at in (1, 2, 3):
                failing.left = at
                error, words = (
                    (ValueError, "this rank") if RANK == 1 else (RuntimeError, "raised an error on rank 1 of")
                )
                with raises(error, words):
                    strands.step(*model.inputs(3))
                model.zero_grad()
            failing.left = -1
            for _ in range(2):
                check(model, strands, 3)


@case_of_two
def an_error_in_a_backward_is_raised_on_every_rank() -> None:
    model = Model(random.Random(4), blocks=2)
    pieces = list(model.pieces)
    last = pieces[-1]
    pieces[-1] = lambda found, x: FailsBackward.apply(last(found, x))
    strands = Strands(pieces, model.loss, dist.group.WORLD, TURNS)
    for learnt in (False, True):
        FailsBackward.fails = True
        with raises(*raised_on_the_last()):
            strands.step(*model.inputs(4))
        FailsBackward.fails = False
        model.zero_grad()
        check(model, strands, 4)
        assert learnt or strands._saved


@case
def two_ranks_that_raise_are_both_named() -> None:
    model = Model(random.Random(5), blocks=1)
    pieces = list(model.pieces)
    first, third = Failing(pieces[0], rank=0), Failing(pieces[2], rank=3)
    pieces[0], pieces[2] = first, third
    strands = Strands(pieces, model.loss, dist.group.WORLD, TURNS)
    check(model, strands, 2)
    first.left = third.left = 2
    with raises(ValueError if RANK in (0, 3) else RuntimeError, "this rank" if RANK in (0, 3) else "on rank 0, 3"):
        strands.step(*model.inputs(2))
    model.zero_grad()
    check(model, strands, 2)


@case
def what_does_not_fit_is_refused_on_every_rank() -> None:
    model = Model(random.Random(6), blocks=1)
    strands = Strands(model.pieces, model.loss, dist.group.WORLD, TURNS)
    batches, targets = model.inputs(2)
    short = "2 micro-batches, 1 targets" if RANK == 1 else "micro-batches of different shapes"
    with raises(UsageError, short):  # one rank alone finds it, and all raise
        strands.step(batches, targets[1:] if RANK == 1 else targets)
    with raises(UsageError, "one of them is Tensor"):
        strands.step(batches[0], targets)
    with raises(UsageError, "micro-batches of different shapes"):
        strands.step([one[: RANKS if RANK else 0] for one in batches], targets)
    grown = list(model.pieces)
    grown[0] = lambda x: (torch.ones(RANKS * (2 if RANK == 1 else 1), 3, requires_grad=True), x)
    with raises(UsageError, "start a collective with different shapes"):
        Strands(grown, model.loss, dist.group.WORLD, TURNS).step(batches, targets)
    with raises(UsageError, "pass AllGather()"):
        Strands([model.pieces[0], AllGather, model.pieces[-1]], model.loss, dist.group.WORLD)
    with raises(UsageError, "gets list; the piece before it must return a tensor"):
        Strands([lambda x: ([x], x), *model.pieces[1:]], model.loss, dist.group.WORLD).step(batches, targets)
    with raises(UsageError, "gets 3 rows, which 4 ranks do not divide"):
        odd = [lambda x: (x.new_ones(3, 2), x), ReduceScatter(), model.add]
        Strands(odd, model.loss, dist.group.WORLD).step(batches, targets)
    with raises(UsageError, "the first and the last piece must be functions"):
        Strands([AllGather()], model.loss, dist.group.WORLD)
    with raises(SettingError, "schedule=magic is unknown; name one of: sequential"):
        Strands(model.pieces, model.loss, dist.group.WORLD, "magic")
    with raises(UsageError, "no process group that this rank is in"):
        Strands(model.pieces, model.loss, None)
    changing = list(model.pieces)
    rows = [1]
    changing[0] = lambda x: (torch.ones(RANKS * rows[0], 3, requires_grad=True) * 1.0, x)
    changing[2] = lambda x, residual: (torch.cat([x.sum().expand(RANKS * RANKS, model.width)] * 1), residual)
    changing[1], changing[3] = AllGather(), ReduceScatter()
    strands = Strands(changing, model.loss, dist.group.WORLD, TURNS)
    strands.step(batches, targets)
    rows[0] = 2 if RANK == 2 else 1
    with raises(
        UsageError if RANK == 2 else RuntimeError, "before for a micro" if RANK == 2 else "on rank 2 of the group"
    ):
        strands.step(batches, targets)


@case_of_two
def without_gradients_only_the_forward_runs() -> None:
    model = Model(random.Random(7), blocks=2).eval()
    batches, targets = model.inputs(3)
    expected = by_autograd(model, batches, targets)
    model.zero_grad()
    for name in SCHEDULES:
        strands = Strands(model.pieces, model.loss, dist.group.WORLD, name)
        with torch.no_grad():
            for _ in range(3):
                same(strands.step(batches, targets), expected)
        assert all(one.grad is None for one in model.parameters())
        assert strands.choices()[0].trains is False
        same(strands.step(batches, targets), expected)  # and with gradients it is another kind of step
        model.zero_grad()


@case_of_two
def a_micro_batch_may_be_a_mapping_and_its_shapes_differ() -> None:
    model = Model(random.Random(9), blocks=1)
    strands = Strands(
        [lambda batch: batch["x"][0], *model.pieces],
        lambda found, target: model.loss(found, target["x"]),
        dist.group.WORLD,
        TURNS,
    )
    for rows in (1, 2, 1):
        batches, targets = ([torch.randn(RANKS * rows, model.width) for _ in range(3)] for _ in range(2))
        expected = [*by_autograd(model, batches, targets), *gradients(model)]
        found = strands.step([UserDict({"x": [one]}) for one in batches], [{"x": one} for one in targets])
        same([*found, *gradients(model)], expected)


@case_of_two
def inputs_get_their_gradients_from_what_made_them() -> None:
    model = Model(random.Random(8), blocks=1)
    embedding = nn.Parameter(torch.randn(RANKS, model.width))
    (target,) = model.inputs(1)[1]
    strands = Strands(model.pieces, model.loss, dist.group.WORLD, ABREAST)
    for _ in range(2):
        by_autograd(model, [embedding * 2, embedding * 3], [target, target])
        expected, embedding.grad = embedding.grad, None
        strands.step([embedding * 2, embedding * 3], [target, target])
        same([embedding.grad], [expected])
        embedding.grad = None


class FakeClock:
    """Seconds of the slowest rank by schedule, and a little more on the others."""

    def __init__(self, took: dict[str, float]) -> None:
        self.took, self.now, self.schedule = took, 0, ""

    def perf_counter_ns(self) -> int:
        self.now += int(1e6 * self.took.get(self.schedule, 1.0) * (1 if RANK == 1 else 0.5))
        return self.now


def chosen_with(took: dict[str, float], count: int = 2, near: bool = False) -> StrandChoice:
    model = Model(random.Random(9), blocks=1)
    strands = Strands(model.pieces, model.loss, dist.group.WORLD)
    batches = model.inputs(count)
    clock = FakeClock(took)
    take = strands._take

    def taken(runs: Any, device: Any, trial: Any) -> None:
        clock.schedule = trial.now.schedule
        take(runs, device, trial)

    with mock.patch.object(strands, "_take", taken), mock.patch.object(stepping, "time", clock):
        for _ in range(60):
            strands.step(*batches)
            if strands.choices():
                break
    check(model, strands, count, near=near)
    (choice,) = strands.choices()
    every: list[Any] = [None] * RANKS
    dist.all_gather_object(every, (choice.chosen, choice.times_ns))
    assert every == every[:1] * RANKS, every
    return choice


@case_of_two
def the_choice_is_measured_and_the_same_on_every_rank() -> None:
    said: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    level = log.level
    log.setLevel("INFO")
    log.addHandler(handler)
    choice = chosen_with({SEQUENTIAL: 5.0, TURNS: 8.0, **dict.fromkeys((MOVED, ABREAST), 10.0)})
    log.removeHandler(handler)
    log.setLevel(level)
    assert (choice.chosen, choice.gain) == (SEQUENTIAL, 1.0)
    assert choice.times_ns.keys() == {SEQUENTIAL, MOVED, TURNS, ABREAST}
    assert choice.refusals.keys() == {TWO_STREAMS, *BY_COPIES}
    assert choice.refusals[TWO_STREAMS] == "the device has no streams"
    assert [str(choice)] == said
    assert choice.activation_bytes[ABREAST] > choice.activation_bytes[TURNS] >= choice.activation_bytes[SEQUENTIAL] > 0
    usual = dict.fromkeys(SCHEDULES, 10.0)
    choice = chosen_with({**usual, ABREAST: 5.0})
    assert (choice.chosen, choice.gain) == (ABREAST, 2.0)


@case
def copy_engines_move_what_is_gathered_and_scattered() -> None:
    """Sums of integers are exact in every order."""
    with copies_without_a_gpu():
        first, second = CopyLanes(1024, group_named(dist.group.WORLD.group_name), torch.device("cpu")).lanes
        for rows in (1, 3):
            whole = [torch.arange(RANKS * rows * 2.0).view(-1, 2) * (rank + 1) for rank in range(RANKS)]
            shards = [one[:rows] for one in whole]
            ends = AllGather().start(shards[RANK], first), ReduceScatter().start(whole[RANK], second)
            same([end() for end in ends], [torch.cat(shards), sum(whole).chunk(RANKS)[RANK]])
            ends = AllGather().start_backward(whole[RANK], first), ReduceScatter().start_backward(shards[RANK], second)
            same([end() for end in ends], [sum(whole).chunk(RANKS)[RANK], torch.cat(shards)])


@case_of_two
def steps_by_copy_engines_give_the_same_gradients() -> None:
    """The sums are made in another order."""
    with copies_without_a_gpu():
        for seed, name in enumerate([*BY_COPIES] * 3):
            model = Model(random.Random(seed))
            strands = Strands(model.pieces, model.loss, dist.group.WORLD, name)
            for number in range(3):
                check(model, strands, 2 + seed % 3, uneven=number == 2, near=True)
            moved = any(isinstance(piece, AllGather) for piece in model.pieces)
            assert {choice.chosen for choice in strands.choices()} == {name if moved else SEQUENTIAL}
            assert moved == (parallel.memory() > 0)
            parallel.release()


@case_of_two
def what_is_frozen_before_the_first_weight_that_is_trained_needs_no_backward() -> None:
    for name in (SEQUENTIAL, TURNS, ABREAST):
        model = Model(random.Random(13), blocks=2)
        for part in (model.norms, model.ups, model.downs):
            part[0].requires_grad_(False)
        pieces = list(model.pieces)
        failing = pieces[-1] = Failing(pieces[-1], rank=RANKS - 1)
        strands = Strands(pieces, model.loss, dist.group.WORLD, name)
        check_frozen(model, strands, steps=4)
        failing.left = 2
        with raises(*raised_on_the_last()):
            strands.step(*model.inputs(3))


@case_of_two
def no_step_is_captured_before_a_schedule_is_chosen() -> None:
    model = Model(random.Random(12), blocks=1)
    strands = Strands(model.pieces, model.loss, dist.group.WORLD, TURNS)
    batches = [torch.randn(RANKS, model.width)] * 2
    with (
        mock.patch.object(torch.cuda, "is_current_stream_capturing", return_value=True),
        mock.patch.object(torch.Tensor, "device", torch.device("cuda")),
        raises(UsageError, "no schedule is chosen yet; take steps of these shapes before"),
    ):
        strands.step(batches, batches)


@case_of_two
def memory_of_copies_goes_back_where_no_choice_needs_it() -> None:
    with copies_without_a_gpu():
        for name in (TURNS_COPIES, TURNS):
            choice = chosen_with({**dict.fromkeys(SCHEDULES, 10.0), name: 5.0}, near=True)
            assert (choice.chosen, choice.gain) == (name, 2.0)
            assert (parallel.memory() > 0) == (name == TURNS_COPIES)
            parallel.release()


class Holder:
    """An object that is called, with what it holds."""

    def __init__(self, held: list[nn.Module]) -> None:
        self.held = held

    def __call__(self, x: Tensor) -> Tensor:
        return self.held[0](x)

    def method(self, x: Tensor) -> Tensor:
        return self(x)


@case_of_two
def wrapped_modules_are_refused_wherever_a_piece_has_them() -> None:
    class FSDPModule(nn.Linear):
        """By its name, as torch's."""

    model = Model(random.Random(11), blocks=1)
    sharded = nn.Sequential(FSDPModule(model.width, model.width))
    holder = Holder([sharded])
    closures: list[Any] = [lambda x: sharded(x), lambda x, part=sharded: part(x), lambda x: holder(x)]
    for piece in (sharded, sharded.forward, functools.partial(sharded.forward), holder, holder.method, *closures):
        with raises(UsageError, "piece 0 holds a module of FSDP2"):
            Strands([piece, *model.pieces[1:]], model.loss, dist.group.WORLD)
    copied = nn.parallel.DistributedDataParallel(nn.Linear(model.width, model.width))
    with raises(UsageError, "holds a module of DDP"):
        Strands([lambda x: copied(x), *model.pieces[1:]], model.loss, dist.group.WORLD)


@case_of_two
def what_trains_may_change_between_steps_and_a_piece_raise_then() -> None:
    for name in (TURNS, ABREAST):
        for frozen_first in (True, False):
            model = Model(random.Random(14), blocks=2)
            parts = [*model.norms[0].parameters(), *model.ups[0].parameters(), *model.downs[0].parameters()]
            for one in parts:
                one.requires_grad_(not frozen_first)
            pieces = list(model.pieces)
            failing = pieces[-1] = Failing(pieces[-1], rank=1)
            strands = Strands(pieces, model.loss, dist.group.WORLD, name)
            check_frozen(model, strands)
            for one in parts:
                one.requires_grad_(frozen_first)
            for at in (2, -1):
                failing.left = at
                if at > 0:
                    error, words = (ValueError, "this rank") if RANK == 1 else (RuntimeError, "error on rank 1 of")
                    with raises(error, words):
                        strands.step(*model.inputs(3))
                    model.zero_grad()
                else:
                    check_frozen(model, strands)


def check_frozen(model: Model, strands: Strands, steps: int = 2) -> None:
    """Steps of three micro-batches against autograd; some parameters may have no gradient."""
    batches, targets = model.inputs(3)
    for _ in range(steps):
        losses = by_autograd(model, batches, targets)
        expected = gradients(model)
        same(strands.step(batches, targets), losses)
        same(gradients(model), expected)


@case_of_two
def hooks_of_a_weight_see_its_gradient() -> None:
    model = Model(random.Random(15), blocks=1)
    weight, seen = model.ups[0].weight, []
    weight.register_post_accumulate_grad_hook(lambda one: seen.append(one.grad.clone()))
    clamped = model.downs[0].weight
    clamped.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
    check_frozen(model, Strands(model.pieces, model.loss, dist.group.WORLD, TURNS))
    assert len(seen) == 12, (len(seen), "three of each of two steps, by strands and by autograd")


@case_of_two
def a_bias_is_added_as_torch_adds_it() -> None:
    for dtype in (torch.bfloat16, torch.float32):
        for shape in ((5, 8), (3, 5, 8)):
            x, weight, bias = (torch.randn(size).to(dtype).requires_grad_() for size in (shape, (6, 8), (6,)))
            results = []
            for function in (torch.nn.functional.linear, linear):
                made = function(x, weight, bias)
                results.append([made.detach(), *torch.autograd.grad(made.float().square().sum(), [x, weight, bias])])
            same(*results)


@case_of_two
def a_schedule_that_memory_has_no_room_for_is_not_tried() -> None:
    with mock.patch.object(stepping, "_free_bytes", return_value=0.0 if RANK else 1e12):
        choice = chosen_with({})
    assert "its activations need" in choice.refusals[ABREAST]
    assert ABREAST not in choice.times_ns


@case_of_two
def pieces_can_hold_collective_matmul() -> None:
    model = Model(random.Random(10), blocks=1)
    up = nn.Parameter(torch.randn(model.width, 4))
    down = nn.Parameter(torch.randn(4, model.width))
    group = dist.group.WORLD

    def whole(x: Tensor) -> tuple[Tensor, Tensor]:
        (wide,) = parallel.all_gather_matmul(x, [up], group, implementation="plain")
        return x + parallel.matmul_reduce_scatter(torch.tanh(wide), down, group, implementation="plain"), x

    model.pieces = [whole, AllGather(), lambda x, y: (x * 2, y), ReduceScatter(), model.add]
    model.up, model.down = up, down
    for name in (TURNS, ABREAST):
        strands = Strands(model.pieces, model.loss, group, name)
        for _ in range(3):
            check(model, strands, 3)


if __name__ == "__main__":
    run_cases()
