# SPDX-License-Identifier: Apache-2.0
"""Four ranks on gloo that run every case below one after the other in one process group; `python -m tests.torch_jobs`
starts it. A line of JSON for each case: its name, and by rank what went wrong. Tensors hold small integers, so that
every result is exact in every dtype; the expected ones are computed by each rank alone, from everybody's numbers."""

from __future__ import annotations

import contextlib
import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

import lagom.parallel as parallel
from lagom.errors import SettingError, UsageError
from lagom.parallel import choosing, measuring, rank_group, said_once, symmetric_pool
from lagom.parallel.choice_cache import load_choice, save_choice
from lagom.parallel.matmul_call import GATHER, MatmulCall
from lagom.parallel.rank_group import group_named
from lagom.parallel.registered import gather_op, scatter_op
from tests.unit.parallel.gloo_cases import RANK, RANKS, case, raises, run_cases
from tests.unit.parallel.shared_memory import FOLDER, copies_without_a_gpu

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
CPU = torch.device("cpu")
SHAPES = int(os.environ["SHAPES"])


class Numbers:
    """Random shapes and tensors, the same on every rank."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def tensor(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.randint(-1, 2, shape, generator=self.generator).to(dtype)

    def layout(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """``dim``, and the sizes before and behind it."""
        dim = self.random.randrange(2)
        before = (self.random.randint(1, 3),) * dim
        return dim, before, tuple(self.random.randint(1, 3) for _ in range(self.random.randrange(2)))


def rows_of(whole: Tensor, dim: int, rank: int = RANK) -> Tensor:
    """As torch.chunk gives them, the last ranks perhaps none."""
    chunks = whole.chunk(RANKS, dim)
    return chunks[rank] if rank < len(chunks) else whole.narrow(dim, 0, 0)


def flat(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def check_gather(numbers: Numbers, implementation: str, whole: int) -> None:
    dim, before, behind = numbers.layout()
    dtype, inner = numbers.random.choice(DTYPES), numbers.random.randint(1, 16)
    count, keep = numbers.random.randint(1, 3), bool(numbers.random.randrange(2))
    columns = [numbers.random.randint(1, 6) for _ in range(count)]
    everything = numbers.tensor(*before, whole, *behind, inner, dtype=dtype)
    weights = [[numbers.tensor(inner, n, dtype=dtype) for n in columns] for _ in range(RANKS)]
    grads = [[numbers.tensor(*before, whole, *behind, n, dtype=dtype) for n in columns] for _ in range(RANKS)]
    x, own = rows_of(everything, dim).clone().requires_grad_(), [w.clone().requires_grad_() for w in weights[RANK]]
    size = whole if whole % RANKS else None
    found = parallel.all_gather_matmul(
        x, own, dist.group.WORLD, dim, implementation=implementation, keep_gathered=keep, size=size
    )
    dx, *dweights = torch.autograd.grad(found, [x, *own], grads[RANK])
    for product, weight in zip(found, weights[RANK], strict=True):
        same(product, everything @ weight)
    sums = [g @ w.t() for r in range(RANKS) for g, w in zip(grads[r], weights[r], strict=True)]
    same(dx, rows_of(torch.stack(sums).sum(0), dim))
    for dweight, grad in zip(dweights, grads[RANK], strict=True):
        same(dweight, flat(everything).t() @ flat(grad))


def check_scatter(numbers: Numbers, implementation: str, whole: int) -> None:
    dim, before, behind = numbers.layout()
    dtype, inner, columns = numbers.random.choice(DTYPES), numbers.random.randint(1, 8), numbers.random.randint(1, 8)
    xs = [numbers.tensor(*before, whole, *behind, inner, dtype=dtype) for _ in range(RANKS)]
    weights = [numbers.tensor(inner, columns, dtype=dtype) for _ in range(RANKS)]
    grad = numbers.tensor(*before, whole, *behind, columns, dtype=dtype)
    x, weight = xs[RANK].clone().requires_grad_(), weights[RANK].clone().requires_grad_()
    found = parallel.matmul_reduce_scatter(x, weight, dist.group.WORLD.group_name, dim, implementation=implementation)
    dx, dweight = torch.autograd.grad(found, [x, weight], rows_of(grad, dim))
    same(found, rows_of(torch.stack([x @ w for x, w in zip(xs, weights, strict=True)]).sum(0), dim))
    same(dx, grad @ weights[RANK].t())
    same(dweight, flat(xs[RANK]).t() @ flat(grad))


def same(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert torch.equal(found, expected), (found - expected).abs().max()


def check_shapes(implementations: tuple[str, ...], count: int, seed: int) -> None:
    numbers = Numbers(seed)
    for number in range(count):
        whole = RANKS * numbers.random.randint(1, 3) if number % 4 else numbers.random.randint(1, 11)
        check = check_gather if number % 2 else check_scatter
        check(numbers, implementations[number % len(implementations)], whole)


@case
def random_shapes_are_exact() -> None:
    check_shapes(("plain", "looped", "plain"), SHAPES, 1)


@case
def copies_read_and_write_the_right_memory() -> None:
    before = len(parallel.choices())
    with copies_without_a_gpu():
        check_shapes(("copies", "copies_two_streams"), 12, 2)
        assert {choice.chosen for choice in parallel.choices()[before:]} >= {"copies", "copies_two_streams"}
        held = parallel.memory()
        assert held > 0
        x = parallel.empty((3, 8), torch.float32, dist.group.WORLD)
        assert parallel.memory() == held + 96
        x.copy_(torch.arange(24.0).view(3, 8) + RANK)
        weight = torch.ones(8, 2)
        (product,) = parallel.all_gather_matmul(x[1:], [weight], dist.group.WORLD, implementation="copies")
        same(product, torch.cat([(torch.arange(24.0).view(3, 8) + r)[1:] for r in range(RANKS)]) @ weight)
        parallel.release(x)
        assert parallel.memory() == held
        with raises(UsageError, "not from lagom.parallel.empty"):
            parallel.release(torch.ones(1))
    assert parallel.memory() == 0


@case
def wrong_arguments_are_refused_by_one_rank_alone() -> None:
    if RANK:
        return  # and nobody waits for this rank
    x, w, group = torch.ones(4, 8), torch.ones(8, 2), dist.group.WORLD
    wrong: list[tuple[list[Any], str]] = [
        ([x, []], "no weight"),
        ([x, [torch.ones(8)]], "x has 2 dimensions and the weights [1]"),
        ([torch.ones(8), [w]], "x has 1 dimensions"),
        ([x, [torch.ones(7, 2)]], "x has 8 columns and the weights [7] rows"),
        ([x, [w, w.double()]], "the dtypes are torch.float32, torch.float32, torch.float64"),
        ([x, [w.to("meta")]], "the devices are cpu, meta"),
        ([x, [torch.ones(8, 0)]], "no size can be 0"),
        ([torch.ones(0, 8), [w]], "no size can be 0"),
    ]
    for (one, weights), words in wrong:
        with raises(UsageError, words):
            parallel.all_gather_matmul(one, weights, group)
    with raises(UsageError, "dim 1 of 2 dimensions"):
        parallel.matmul_reduce_scatter(x, w, group, 1)
    with raises(UsageError, "x has 4 rows along dim 0, and of 9 rows rank 0 of 4 has 3"):
        parallel.all_gather_matmul(x, [w], group, size=9)
    for other in (None, dist.GroupMember.NON_GROUP_MEMBER):
        with raises(UsageError, "no process group that this rank is in"):
            parallel.matmul_reduce_scatter(x, w, other)
    with raises(SettingError, "implementation=magic is unknown; name one of: auto, plain"):
        parallel.all_gather_matmul(x, [w], group, implementation="magic")


@case
def ranks_with_different_shapes_are_refused_on_all() -> None:
    with raises(UsageError, "the ranks called all_gather_matmul with different shapes"):
        parallel.all_gather_matmul(torch.ones(4 + (RANK == 1), 8), [torch.ones(8, 2)], dist.group.WORLD)


def call(rows: int) -> MatmulCall:
    return MatmulCall(GATHER, rows, (8,), (2,), "float32", 0, RANKS, "cpu", "nn")


def chosen_by_all(rows: int, **times: float) -> parallel.Choice:
    """What this rank chose for a call that takes so many ns here; all ranks must have chosen the same."""
    names = {choosing.IMPLEMENTATIONS[name]: took for name, took in times.items()}

    def time_of(run: Any, *_: Any) -> float:
        return names[run.args[0]]

    group_named(dist.group.WORLD.group_name).forget()
    before = len(parallel.choices())
    with mock.patch.object(measuring, "_time_of", time_of):
        parallel.all_gather_matmul(torch.ones(rows // RANKS, 8), [torch.ones(8, 2)], dist.group.WORLD)
    (choice,) = parallel.choices()[before:]
    every: list[Any] = [None] * RANKS
    dist.all_gather_object(every, (choice.chosen, choice.source, choice.times_ns))
    assert len({one[0] for one in every}) == 1, every
    assert len({one[1] for one in every}) == 1, every
    return choice


@contextlib.contextmanager
def cache(name: str) -> Iterator[Path]:
    with mock.patch.dict(os.environ, LAGOM_CACHE=str(FOLDER / name)):
        yield FOLDER / name
        dist.barrier()


@case
def ranks_that_measure_different_favourites_choose_the_same() -> None:
    assert chosen_by_all(40, plain=100.0, looped=50.0).chosen == "looped"
    choice = chosen_by_all(40, plain=100.0, looped=50.0 if RANK == 0 else 200.0)
    assert choice.chosen == "plain", "the slowest rank counts"
    assert choice.times_ns == {"plain": 100.0, "looped": 200.0}
    choice = chosen_by_all(40, plain=100.0 if RANK else 300.0, looped=50.0 if RANK else 200.0)
    assert (choice.chosen, choice.gain) == ("looped", 1.5)
    assert "all_gather_matmul 40 x 8 x 2 float32, dim 0, 4 ranks, cpu: looped, measured, 1.500 times" in str(choice)
    assert choice.refusals["copies"] == "it needs CUDA devices"


@case
def ranks_that_find_different_caches_choose_the_same() -> None:
    with cache(f"rank{RANK}"):
        assert chosen_by_all(44, plain=100.0, looped=50.0).source == "measured"
        assert (load_choice(call(44)) is not None) == (RANK == 0), "one rank keeps it"
        choice = chosen_by_all(44, plain=100.0, looped=120.0)
        assert (choice.chosen, choice.source) == ("plain", "measured"), "three ranks found nothing"
        save_choice(call(44), "looped" if RANK % 2 else "plain", {"plain": 2.0, "looped": 1.0}, "plain", {})
        assert chosen_by_all(44, plain=100.0, looped=50.0).source == "measured"
        save_choice(call(44), "copies", {"plain": 2.0, "copies": 1.0}, "plain", {})
        assert chosen_by_all(44, plain=100.0, looped=50.0).source == "measured", "copies cannot be used here"
    with cache("common"):
        chosen_by_all(48, plain=100.0, looped=50.0)
        choice = chosen_by_all(48)  # and nothing is measured
        assert (choice.chosen, choice.source, choice.gain) == ("looped", "cache", 2.0)
        assert chosen_by_all(52, plain=100.0, looped=50.0).source == "measured", "another shape"


@case
def an_implementation_can_be_named() -> None:
    with mock.patch.dict(os.environ, LAGOM_PARALLEL="looped"):
        assert (named := chosen_by_all(56)).chosen == "looped"
        assert named.source == "named"
    with mock.patch.dict(os.environ, LAGOM_PARALLEL="looped" if RANK == 2 else "auto"):
        assert chosen_by_all(56).chosen == "looped", "the ranks were told different names"
    x, w, group = torch.ones(14, 8), torch.ones(8, 2), dist.group.WORLD
    with mock.patch.dict(os.environ, LAGOM_PARALLEL="looped" if RANK == 2 else "auto"):
        parallel.all_gather_matmul(x, [w], group, implementation="auto")
    parallel.all_gather_matmul(x, [w], group, implementation="auto")  # known to all, or the ranks would wait
    with logged() as said, mock.patch.dict(os.environ, LAGOM_PARALLEL="copies"):
        assert chosen_by_all(56).chosen == "plain"
    assert "copies was asked for and cannot be used (it needs CUDA devices)" in said[0]
    with mock.patch.dict(os.environ, LAGOM_PARALLEL="magic"), raises(SettingError, "LAGOM_PARALLEL=magic"):
        parallel.all_gather_matmul(torch.ones(1, 8), [torch.ones(8, 2)], dist.group.WORLD)


@case
def an_error_of_plain_is_raised_on_every_rank() -> None:
    words = "no room for the gathered input" if RANK == 1 else "on another rank"
    error = torch.OutOfMemoryError(words) if RANK == 1 else None  # the others run no collective, which would wait
    with mock.patch.object(choosing.PLAIN, "all_gather_matmul", side_effect=error), raises(RuntimeError, words):
        parallel.all_gather_matmul(torch.ones(15, 8), [torch.ones(8, 2)], dist.group.WORLD)


@case
def what_a_way_raises_is_raised_in_no_job() -> None:
    looped = choosing.IMPLEMENTATIONS["looped"]
    with mock.patch.object(looped, "all_gather_matmul", side_effect=TypeError("another signature") if RANK else None):
        choice = chosen_by_all(64, plain=100.0, looped=50.0)
    assert (choice.chosen, choice.refusals["looped"]) == ("plain", "it raised an error")


@case
def every_way_returns_the_dtype_of_autocast() -> None:
    x, w = torch.ones(2, 8, requires_grad=True), torch.ones(8, 4, requires_grad=True)
    for name in ("plain", "looped"):
        with torch.autocast("cpu", torch.bfloat16):
            (wide,) = parallel.all_gather_matmul(x, [w], dist.group.WORLD, implementation=name)
            own = parallel.matmul_reduce_scatter(wide, torch.ones(4, 8), dist.group.WORLD, implementation=name)
        assert (wide.dtype, own.dtype) == (torch.bfloat16, torch.bfloat16)
        for grad in torch.autograd.grad(own.sum(), [x, w]):
            assert grad.dtype == torch.float32
        double = parallel.all_gather_matmul(x.double(), [w.double()], dist.group.WORLD)[0].dtype
        assert double == torch.float64


@case
def buffers_that_inference_made_serve_training() -> None:
    with copies_without_a_gpu():
        arguments = torch.ones(5, 8), [torch.ones(8, 4)], dist.group.WORLD
        for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
            with mode():
                (wide,) = parallel.all_gather_matmul(*arguments, implementation="copies")
                own = parallel.matmul_reduce_scatter(wide, torch.ones(4, 8), dist.group.WORLD, implementation="copies")
                parallel.empty((2,), torch.float32, dist.group.WORLD).fill_(1.0)
            same(own, torch.full((5, 8), 8.0 * 4 * RANKS))


@case
def a_workspace_is_kept_for_what_was_chosen() -> None:
    def gather(rows: int, **times: float) -> int:
        """Bytes that are held after a choice."""
        names = {choosing.IMPLEMENTATIONS[name]: took for name, took in times.items()}
        with mock.patch.object(measuring, "_time_of", lambda run, *_: names.get(run.args[0], 1000.0)):
            parallel.all_gather_matmul(torch.ones(rows, 8), [torch.ones(8, 2)], dist.group.WORLD)
        return parallel.memory()

    group = group_named(dist.group.WORLD.group_name)
    with copies_without_a_gpu():
        assert gather(16, plain=100.0) == 0, "plain needs none"
        assert gather(17, plain=100.0, copies=50.0) == 17 * 32
        assert gather(19, plain=100.0) == 17 * 32, "that of copies before"
        assert gather(20, plain=100.0, copies=50.0) == 20 * 32, "the smaller one is not needed"
        symmetric_pool._workspaces[group].captured = True
        assert gather(21, plain=100.0, copies=50.0) == 41 * 32, "a graph may use the smaller one"
        assert gather(17) == 41 * 32


@case
def a_group_that_takes_the_name_of_another_one_has_its_own_choices() -> None:
    first, second = (dist.new_group(list(range(RANKS))) for _ in range(2))
    with copies_without_a_gpu(), mock.patch.object(rank_group, "group_resolver") as resolver:
        resolver.return_value = lambda name: {"same": first}.get(name)
        before = group_named("same")
        before.chosen["call"] = 1
        symmetric_pool.reserve(before, 64, CPU)
        resolver.return_value = lambda name: {"same": second}.get(name)
        after = group_named("same")
        assert (after is not before, before.chosen, after.handle is second) == (True, {}, True)
        symmetric_pool._forget_replaced_groups()
        assert parallel.memory() == 0
        assert before not in symmetric_pool._workspaces


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """The warnings meanwhile."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    said_once._said.clear()
    said_once.log.addHandler(handler)
    yield said
    said_once.log.removeHandler(handler)


@case
def where_it_cannot_work_plain_is_used_and_one_sentence_said() -> None:
    alone = [dist.new_group([rank]) for rank in range(RANKS)][RANK]
    x, w = torch.ones(3, 8), torch.ones(8, 2)
    with logged() as said:
        for _ in range(2):
            same(parallel.all_gather_matmul(x, [w], alone)[0], x @ w)
            same(parallel.matmul_reduce_scatter(x, w, alone), x @ w)
            parallel.matmul_reduce_scatter(x, w, dist.group.WORLD)
            parallel.all_gather_matmul(x.double(), [w.double()], dist.group.WORLD)
            assert parallel.empty((2, 3), torch.float32, dist.group.WORLD).shape == (2, 3)
    assert said == [
        "all_gather_matmul: the group has one rank, so nothing is communicated.",
        "matmul_reduce_scatter: 4 ranks do not divide 3 rows, so plain is used.",
        "lagom.parallel.empty gives ordinary memory: it needs CUDA devices.",
    ], said
    assert parallel.choices()[-1].refusals["looped"] == "it is not made for float64"
    assert parallel.memory() == 0


@case
def groups_of_two_each_have_their_own_choices() -> None:
    pair = [dist.new_group([0, 1]), dist.new_group([2, 3])][RANK // 2]
    x = torch.full((2, 8), float(RANK))
    for name in ("plain", "looped"):
        (product,) = parallel.all_gather_matmul(x, [torch.ones(8, 1)], pair, implementation=name)
        first = RANK // 2 * 2
        assert product.flatten().tolist() == [8.0 * first] * 2 + [8.0 * (first + 1)] * 2


@case
def nothing_but_x_is_kept_where_the_flag_or_the_gradients_say_so() -> None:
    for keep, needs, rows in ((True, True, 8), (False, True, 2), (True, False, 2)):
        x, w = torch.ones(2, 8, requires_grad=True), torch.ones(8, 3, requires_grad=needs)
        saved: list[tuple[int, ...]] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=saved: s.append(tuple(t.shape)) or t, lambda t: t):
            (product,) = parallel.all_gather_matmul(x, [w], dist.group.WORLD, keep_gathered=keep)
        assert saved == [(rows, 8), (8, 3)], saved
        product.sum().backward()
        same(x.grad, torch.full((2, 8), 12.0))


@case
def a_weight_and_its_gradient_lie_in_memory_alike() -> None:
    """Another layout is copied, or added up slowly, whenever a gradient is accumulated."""
    x = torch.ones(RANKS, 8, requires_grad=True)
    for is_linear in (True, False):  # the weight of an nn.Linear is passed transposed
        up, down = (torch.ones(6, 8), torch.ones(8, 6)) if is_linear else (torch.ones(8, 6), torch.ones(6, 8))
        leaves = [one.requires_grad_() for one in (up, down)]
        v, w = [one.t() if is_linear else one for one in leaves]
        (wide,) = parallel.all_gather_matmul(x, [v], dist.group.WORLD, implementation="plain")
        eager = parallel.matmul_reduce_scatter(wide, w, dist.group.WORLD, implementation="plain")
        wide = gather_op(x, [v], dist.group.WORLD.group_name, "plain", 0, True)[1]
        registered = scatter_op([wide], [w], dist.group.WORLD.group_name, "plain", 0)
        for product in (eager, registered):
            grads = torch.autograd.grad(product.sum(), leaves)
            assert all(grad.is_contiguous() for grad in grads), is_linear


def block(group: Any, x: Tensor, w: Tensor, v: Tensor, u: Tensor) -> Tensor:
    first, second = parallel.all_gather_matmul(x, [w, v], group, 1, keep_gathered=False)
    return parallel.matmul_reduce_scatter(torch.relu(first) * second, u, group.group_name, 1)


@case
def checkpointed_activations_give_the_same_gradients() -> None:
    from torch.utils.checkpoint import checkpoint

    numbers = Numbers(9 + RANK)
    shapes = ((2, 3, 8), (8, 4), (8, 4), (4, 8))
    arguments = [numbers.tensor(*shape, dtype=torch.float32).requires_grad_() for shape in shapes]
    expected = block(dist.group.WORLD, *arguments)
    grads = torch.autograd.grad(expected, arguments, torch.ones_like(expected))
    for reentrant in (False, True):
        found = checkpoint(block, dist.group.WORLD, *arguments, use_reentrant=reentrant)
        found.backward(torch.ones_like(found))
        same(found, expected)
        for one, grad in zip(arguments, grads, strict=True):
            same(one.grad, grad)
            one.grad = None


@case
def compilers_keep_the_operators() -> None:
    pair = dist.new_group([0, 1])
    if RANK > 1:
        return
    from torch._dynamo.backends.debugging import aot_eager  # half a second

    nodes: list[str] = []

    def backend(graph: torch.fx.GraphModule, example: list[Tensor]) -> Any:
        nodes.extend(str(node.target) for node in graph.graph.nodes if "lagom" in str(node.target))
        return aot_eager(graph, example)

    numbers = Numbers(7 + RANK)
    shapes = ((2, 3, 8), (8, 4), (8, 4), (4, 8))
    arguments = [numbers.tensor(*shape, dtype=torch.float32).requires_grad_() for shape in shapes]
    expected = block(pair, *arguments)
    grads = torch.autograd.grad(expected, arguments, torch.ones_like(expected))
    # One rank compiles, which takes seconds, and the other one does not: both make the same exchanges.
    run = block if RANK else torch.compile(block, backend=backend, fullgraph=True)
    found = run(pair, *arguments)
    assert RANK or sorted(nodes) == [f"lagom.{GATHER}", "lagom.matmul_reduce_scatter"], nodes
    same(found, expected)
    for one, other in zip(torch.autograd.grad(found, arguments, torch.ones_like(found)), grads, strict=True):
        same(one, other)
    before = len(parallel.choices())
    with torch._subclasses.FakeTensorMode() as fake:
        shape = block(pair, *(fake.from_tensor(one) for one in arguments)).shape
    assert shape == expected.shape
    assert len(parallel.choices()) == before, "nothing is measured under fake tensors"


@case
def torch_accepts_how_the_operators_are_registered() -> None:
    pair_of_ranks = dist.new_group([0, 1])
    if RANK > 1:
        return  # as above
    name = pair_of_ranks.group_name
    x, ws = torch.ones(2, 8, requires_grad=True), [torch.ones(8, n, requires_grad=True) for n in (2, 3)]
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(gather_op, (x, ws, name, "plain", 0, True), test_utils=tests)
    xs = [torch.ones(8, 3, requires_grad=True) for _ in range(2)]
    pair = [torch.ones(3, 4, requires_grad=True) for _ in range(2)]
    torch.library.opcheck(scatter_op, (xs, pair, name, "looped", 0), test_utils=tests)


if __name__ == "__main__":
    run_cases()
