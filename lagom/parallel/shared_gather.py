# SPDX-License-Identifier: Apache-2.0
"""One AllGather for a module's input and for the products of the layers in it that are split by columns.

Before the module runs, its input is gathered and multiplied with the weights of all these layers in one call. The
module gets the gathered input, as torch's styles give it, so whatever it does with it is right. A layer that is then
called with this very tensor returns the product that is there; with any other tensor it does what torch's does.

Nothing is learnt from one forward for the next one: what is done depends only on the modules and on shapes, which are
the same on every rank, under a compiler, and when activation checkpointing runs a forward again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DeviceMesh, DTensor, Replicate, Shard

from lagom.parallel.operators import gathered_and_products
from lagom.parallel.said_once import say_once
from lagom.parallel.torch_gate import constant_for_compilers, traces_from, version_of

#: Where a module keeps its part, as an attribute that is no parameter, buffer or module.
COLUMN, ROW, SHARED = "_lagom_column", "_lagom_row", "_lagom_shared_gather"


class GatheredInput(torch.autograd.Function):
    """The gathered x where the module uses it itself. Every rank has the whole gradient of it, as DTensor says for
    Replicate, so that of the shard is this rank's rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gathered: Tensor, dim: int, rank: int) -> Tensor:  # type: ignore[override]
        ctx.place = dim, rank * x.shape[dim], x.shape[dim]
        return gathered.view_as(gathered)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        return grad.narrow(*ctx.place), None, None, None


class ColumnLayer:
    """Of a linear layer that is split by columns: ``offered``, the tensor to be called with, its version, and its
    product; ``input``, the same tensor as torch's style makes it a DTensor. ``replicated``: whether it takes a
    gathered input from the module around it."""

    def __init__(self, replicated: bool) -> None:
        self.replicated = replicated
        self.offered: tuple[Tensor, int, Tensor] | None = None
        self.product: Tensor | None = None
        self.input: Tensor | None = None

    def notice(self, args: tuple[Any, ...]) -> None:
        """Before torch's style changes the input: is it the one that was multiplied, with the same numbers?"""
        self.product = self.input = None
        if self.offered is not None and args and args[0] is self.offered[0]:
            given, version, product = self.offered
            if version_of(given) == version:
                self.product, self.offered = product, None

    def expect(self, args: tuple[Any, ...]) -> None:
        """After it: hooks of others may still pass another tensor to the layer."""
        if self.product is not None:
            self.input = args[0]

    def take(self, x: Tensor) -> Tensor | None:
        """The product with x, if it is there."""
        product = self.product if x is self.input else None
        self.product = self.input = None
        return product


class SharedGather:
    """Of a module whose input is gathered. ``place``: its argument, by number or name; ``dim``: along which a plain
    tensor there is split; ``group``: the name of the mesh's process group."""

    def __init__(self, place: int | str, dim: int, group: str, own: bool) -> None:
        self.place, self.dim, self.group, self.own = place, dim, group, own
        self.offers: list[tuple[nn.Module, Tensor]] = []
        self.offered: list[nn.Module] = []

    def gather(self, module: nn.Module, mesh: DeviceMesh, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The arguments with the gathered input; None where torch's style is left to do it."""
        self.offers = []
        x = self.input_of(args, kwargs)
        if x is None or (torch.compiler.is_compiling() and _is_compiled_alone(_name(module))):
            return None
        found = _shard_of(x, mesh, self.dim)
        if isinstance(found, str):
            return leave_to_torch(module, found)
        gathered = self.multiply(module, mesh, *found)
        return None if gathered is None else self.with_input(gathered, args, kwargs)

    def multiply(self, module: nn.Module, mesh: DeviceMesh, local: Tensor, dim: int) -> Tensor | None:
        """The gathered input as a DTensor, and an offer for each layer that takes it; None: there is no such layer."""
        inside: list[Any] = [module] if self.own else list(column_layers(module))
        layers = [layer for layer in inside if _fits(layer, local, mesh)]
        if not layers:
            leave_to_torch(module, "no layer split by columns takes its input")
            return None
        weights = [_local(layer.weight).t() for layer in layers]
        gathered, products = gathered_and_products(local, weights, self.group, dim)
        gathered = gathered.contiguous()  # as torch's; copied for a batch above 1 alone
        if local.requires_grad and torch.is_grad_enabled():
            gathered = GatheredInput.apply(local, gathered, dim, mesh.get_local_rank())
        self.offers = list(zip(layers, [product.contiguous() for product in products], strict=True))
        return DTensor.from_local(gathered, mesh, (Replicate(),), run_check=False)

    def offer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tell the layers which tensor the module was given in the end."""
        given = self.input_of(args, kwargs)
        for layer, product in self.offers:
            getattr(layer, COLUMN).offered = None if given is None else (given, version_of(given), product)
        self.offered, self.offers = [layer for layer, _ in self.offers], []  # the layers alone hold the products now

    def withdraw(self, module: nn.Module) -> None:
        """After the module: no layer keeps a product that it was not asked for."""
        layers, self.offered = self.offered, []
        for layer in layers:
            column = getattr(layer, COLUMN)
            if column.offered is not None:
                column.offered = None
                _say(
                    f"A layer of {_name(module)} is split by columns and was not called with its gathered input, so a "
                    "product was computed for nothing; give that layer torch's ColwiseParallel."
                )

    def input_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """The argument, if it is a tensor."""
        if isinstance(self.place, str):
            found = kwargs.get(self.place)
        else:
            found = args[self.place] if self.place < len(args) else None
        return found if isinstance(found, Tensor) else None

    def with_input(self, x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The arguments with another input."""
        if isinstance(self.place, str):
            return args, {**kwargs, self.place: x}
        return (*args[: self.place], x, *args[self.place + 1 :]), kwargs


def add_before(module: nn.Module, mesh: DeviceMesh, shared: SharedGather) -> None:
    """Gather in front of what torch's style does then: it finds the input as it wants it."""
    setattr(module, SHARED, shared)
    # Lambdas are not copied by copy.deepcopy, a mesh would be: the state is found in the module that is called.
    module.register_forward_pre_hook(
        lambda mod, args, kwargs: getattr(mod, SHARED).gather(mod, mesh, args, kwargs), with_kwargs=True
    )


def add_offers(module: nn.Module) -> None:
    """Behind torch's hook, if there is one; and the end of the module."""
    module.register_forward_pre_hook(
        lambda mod, args, kwargs: getattr(mod, SHARED).offer(args, kwargs), with_kwargs=True
    )
    module.register_forward_hook(lambda mod, args, result: getattr(mod, SHARED).withdraw(mod))


def column_layers(module: nn.Module) -> Iterator[nn.Module]:
    """Those that take the module's own input, as far as its structure tells: split by columns, and in no part that has
    a layer split by rows, as an MLP inside it, or a gather of its own."""
    for child in module.children():
        column = getattr(child, COLUMN, None)
        if column is not None:
            if column.replicated:
                yield child
        elif not hasattr(child, SHARED) and not any(hasattr(one, ROW) for one in child.modules()):
            yield from column_layers(child)


def column_forward(layer: nn.Linear, x: Tensor) -> Tensor:
    """nn.Linear's, where the product is not there yet."""
    product = getattr(layer, COLUMN).take(x)
    if product is None:
        return nn.Linear.forward(layer, x)
    if layer.bias is not None:
        product = product + _local(layer.bias)
    weight: Any = layer.weight
    return DTensor.from_local(product, weight.device_mesh, (Shard(product.dim() - 1),), run_check=False)


def is_split(parameter: Any, mesh: DeviceMesh, dim: int) -> bool:
    """Whether it lies on the mesh as the style split it, in equal parts; with FSDP only while it is gathered."""
    return (
        isinstance(parameter, DTensor)
        and parameter.device_mesh == mesh
        and tuple(parameter.placements) == (Shard(dim),)
        and parameter.shape[dim] % mesh.size() == 0
    )


def why_not(x: Tensor) -> str:
    """What keeps both operators from x, other than its layout: one clause, empty = nothing."""
    if torch.is_autocast_enabled(x.device.type):
        return "torch.autocast is on"
    return "a size is 0" if 0 in x.shape else ""


@constant_for_compilers
def _is_compiled_alone(name: str) -> bool:
    """Whether the hook of the module is a graph of its own, as of the module that torch.compile was called for: torch
    cannot leave out the gradient of a graph's DTensor, and that of the gathered input is seldom there."""
    alone = traces_from(__file__)
    if alone:
        say_once(f"{name} keeps torch's style: it is compiled by itself; compile the block around it.")
    return alone


def leave_to_torch(module: nn.Module, reason: str) -> None:
    """One sentence, with why."""
    _say(f"{_name(module)} keeps torch's style: {reason}.")


def _shard_of(x: Tensor, mesh: DeviceMesh, dim: int) -> tuple[Tensor, int] | str:
    """The local shard and along which dim, or why there is none."""
    if isinstance(x, DTensor):
        layout = x.placements[0]
        if x.device_mesh != mesh or type(layout) is not Shard:
            return f"its input is {list(map(str, x.placements))} and not split along one dimension of this mesh"
        dim = layout.dim
    dim = dim + x.dim() if dim < 0 else dim
    if not 0 <= dim <= min(1, x.dim() - 2):
        return f"its input of {x.dim()} dimensions is split along dimension {dim}"
    if isinstance(x, DTensor) and x.shape[dim] % mesh.size():
        return f"{mesh.size()} ranks do not divide the rows of its input"
    if not torch.compiler.is_compiling() and torch.is_inference_mode_enabled():  # no tensor has a version there
        return "torch.inference_mode is on (torch.no_grad would do)"
    return why_not(x) or (_local(x), dim)


def _fits(layer: Any, x: Tensor, mesh: DeviceMesh) -> bool:
    weight = layer.weight
    return is_split(weight, mesh, 0) and weight.shape[1] == x.shape[-1] and weight.dtype == x.dtype


def _local(x: Tensor) -> Tensor:
    return x.to_local() if isinstance(x, DTensor) else x


def _name(module: nn.Module) -> str:
    return type(module).__name__


def _say(sentence: str) -> None:
    """Not while a compiler reads this: a log is nothing for its graph."""
    if not torch.compiler.is_compiling():
        say_once(sentence)


def shard_dims(layouts: Sequence[Any] | None, wanted: Sequence[Any] | None) -> dict[int, int]:
    """By number of the argument, along which dimension it is split before and gathered then."""
    pairs = enumerate(zip(layouts or (), wanted or (), strict=False))
    return {number: one.dim for number, (one, to) in pairs if type(one) is Shard and isinstance(to, Replicate)}
