# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism whose communication runs beside the products: AllGather-matmul and matmul-ReduceScatter, carried
out in the way that was measured to be fastest. Needs torch; nothing else of lagom does."""

from lagom.parallel.torch_gate import check_torch

check_torch()

from lagom.parallel.choosing import Choice, choices  # noqa: E402
from lagom.parallel.operators import all_gather_matmul, matmul_reduce_scatter  # noqa: E402
from lagom.parallel.symmetric_pool import empty, memory, release  # noqa: E402

__all__ = ["Choice", "all_gather_matmul", "choices", "empty", "matmul_reduce_scatter", "memory", "release"]
