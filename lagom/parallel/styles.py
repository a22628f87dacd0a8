# SPDX-License-Identifier: Apache-2.0
"""torch's styles of tensor parallelism under their own names, for ``parallelize_module``: where a plan gathers a
sequence in front of layers that are split by columns, or scatters it behind one that is split by rows, communication
and products are one call. Parameters, layouts and results are those of torch's styles, and so is everything where that
cannot be done, with one sentence in the log."""

from __future__ import annotations

from types import MethodType
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard
from torch.distributed.tensor import parallel as torch_styles

from lagom.parallel.operators import matmul_reduce_scatter
from lagom.parallel.shared_gather import (
    COLUMN,
    ROW,
    ColumnLayer,
    SharedGather,
    add_before,
    add_offers,
    column_forward,
    is_split,
    leave_to_torch,
    shard_dims,
    why_not,
)


class ColwiseParallel(torch_styles.ColwiseParallel):
    """torch's ``ColwiseParallel``, with the same arguments. An ``nn.Linear`` returns the product that the
    :class:`PrepareModuleInput` around it has computed; with ``input_layouts=Shard(0)`` or ``Shard(1)`` it gathers its
    own input in the same call as its product.

    :raises NotImplementedError: the module is neither ``nn.Linear`` nor ``nn.Embedding``, as torch's.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if device_mesh.size() == 1 or not _is_plain_linear(module):
            return super()._apply(module, device_mesh)
        dims = shard_dims(self.input_layouts, self.desired_input_layouts)
        setattr(module, COLUMN, ColumnLayer(replicated=isinstance(self.input_layouts[0], Replicate)))
        if dims:
            add_before(module, device_mesh, SharedGather(0, dims[0], _group(device_mesh), own=True))
            add_offers(module)
        module.register_forward_pre_hook(lambda mod, args: getattr(mod, COLUMN).notice(args))
        super()._apply(module, device_mesh)
        module.register_forward_pre_hook(lambda mod, args: getattr(mod, COLUMN).expect(args))
        module.forward = MethodType(column_forward, module)  # type: ignore[method-assign]
        return module


class RowwiseParallel(torch_styles.RowwiseParallel):
    """torch's ``RowwiseParallel``, with the same arguments. With ``output_layouts=Shard(0)`` or ``Shard(1)``, not the
    last dimension, the product of an ``nn.Linear`` and its ReduceScatter are one call.

    :raises NotImplementedError: the module is neither ``nn.Linear`` nor ``nn.Embedding``, as torch's.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        super()._apply(module, device_mesh)
        layout = self.output_layouts[0]
        if isinstance(module, nn.Linear):
            setattr(module, ROW, (layout.dim if type(layout) is Shard else None, _group(device_mesh)))
        if device_mesh.size() > 1 and type(layout) is Shard and _is_plain_linear(module):
            module.forward = MethodType(_row_forward, module)  # type: ignore[method-assign]
        return module


class PrepareModuleInput(torch_styles.PrepareModuleInput):
    """torch's ``PrepareModuleInput``, with the same arguments. The first input that goes from ``Shard(0)`` or
    ``Shard(1)`` to ``Replicate()`` is gathered in the same call as the products of the layers in the module that have
    :class:`ColwiseParallel` of this module and take that input. The module gets what torch's style gives it.

    :raises ValueError: the module is called with another number of inputs than there are layouts, as torch's.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        found = self._gathered()
        if device_mesh.size() == 1 or found is None:
            return super()._apply(module, device_mesh)
        add_before(module, device_mesh, SharedGather(*found, _group(device_mesh), own=False))
        super()._apply(module, device_mesh)
        add_offers(module)
        return module

    def _gathered(self) -> tuple[int | str, int] | None:
        """The first argument that is gathered, and along which dimension."""
        names, wanted = list(self.input_kwarg_layouts), self.desired_input_kwarg_layouts
        by_name = shard_dims(list(self.input_kwarg_layouts.values()), [wanted.get(name) for name in names])
        by_number = shard_dims(self.input_layouts, self.desired_input_layouts)
        every: list[tuple[int | str, int]] = [*by_number.items(), *((names[at], dim) for at, dim in by_name.items())]
        return every[0] if every else None


if hasattr(torch_styles, "PrepareModuleInputOutput"):

    class PrepareModuleInputOutput(torch_styles.PrepareModuleInputOutput):
        """torch's ``PrepareModuleInputOutput``, with the same arguments; the input as :class:`PrepareModuleInput`."""

        def __init__(self, **arguments: Any) -> None:
            super().__init__(**arguments)
            theirs = self.prepare_module_input
            self.prepare_module_input = PrepareModuleInput(
                input_layouts=theirs.input_layouts,
                desired_input_layouts=theirs.desired_input_layouts,
                input_kwarg_layouts=theirs.input_kwarg_layouts if theirs.with_kwargs else None,
                desired_input_kwarg_layouts=theirs.desired_input_kwarg_layouts if theirs.with_kwargs else None,
                use_local_output=theirs.use_local_output,
            )


def _row_forward(layer: nn.Linear, x: Any) -> Tensor:
    """nn.Linear's, and the ReduceScatter that torch's style would do behind it."""
    dim, group = getattr(layer, ROW)
    weight: Any = layer.weight
    bias: Any = layer.bias
    dim = dim + x.dim() if dim < 0 else dim
    if reason := _row_refusal(x, weight, dim):
        leave_to_torch(layer, reason)
        return nn.Linear.forward(layer, x)
    mesh = x.device_mesh
    own = matmul_reduce_scatter(x.to_local(), weight.to_local().t(), group, dim).contiguous()
    if bias is not None:  # added to this rank's rows alone: its gradient is the sum over ranks
        bias = bias.redistribute(placements=(Replicate(),))
        own = own + bias.to_local(grad_placements=(Partial(),))
    return DTensor.from_local(own, mesh, (Shard(dim),), run_check=False)


def _row_refusal(x: Any, weight: Any, dim: int) -> str:
    """Why torch's style is left to do it: one clause, empty = it is not. The same on all ranks."""
    if not isinstance(x, DTensor) or x.placements != (Shard(x.dim() - 1),) or not is_split(weight, x.device_mesh, 1):
        return "its input or weight is not split as RowwiseParallel splits it, in equal parts"
    if dim > min(1, x.dim() - 2):
        return f"its output of {x.dim()} dimensions is split along dimension {dim}"
    if x.shape[dim] % x.device_mesh.size():
        return f"{x.device_mesh.size()} ranks do not divide the rows of its output"
    return "x and weight have different dtypes" if x.dtype != weight.dtype else why_not(x)


def _is_plain_linear(module: nn.Module) -> bool:
    """Whether its forward is that of nn.Linear: another one (FP8, adapters) is left as it is."""
    return type(module).forward is nn.Linear.forward and "forward" not in vars(module)


def _group(mesh: DeviceMesh) -> str:
    return mesh.get_group().group_name
