# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism whose communication runs beside the products: AllGather-matmul and matmul-ReduceScatter, carried
out in the way that was measured to be fastest. Needs torch; nothing else of lagom does."""

from typing import TYPE_CHECKING, Any

from lagom.parallel.torch_gate import check_torch

check_torch()

from lagom.parallel.choosing import Choice, choices  # noqa: E402
from lagom.parallel.operators import all_gather_matmul, matmul_reduce_scatter  # noqa: E402
from lagom.parallel.symmetric_pool import empty, memory, release  # noqa: E402

if TYPE_CHECKING:
    from lagom.parallel.styles import ColwiseParallel, PrepareModuleInput, PrepareModuleInputOutput, RowwiseParallel

_STYLES = ("ColwiseParallel", "PrepareModuleInput", "PrepareModuleInputOutput", "RowwiseParallel")
__all__ = [
    "Choice",
    "ColwiseParallel",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "RowwiseParallel",
    "all_gather_matmul",
    "choices",
    "empty",
    "matmul_reduce_scatter",
    "memory",
    "release",
]


def __getattr__(name: str) -> Any:
    """The styles, once they are asked for: DTensor takes half a second to import."""
    if name not in _STYLES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import lagom.parallel.styles

    return getattr(lagom.parallel.styles, name)
