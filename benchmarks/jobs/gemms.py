# SPDX-License-Identifier: Apache-2.0
"""Matrix products of two kinds: the vendor library's, which on recent GPUs are persistent (one block an SM that stays),
and a plain Triton kernel, one block a tile, that comes and goes in waves as the papers' cost models assume."""

from __future__ import annotations

from collections.abc import Callable

import torch

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
TILE_M, TILE_N, TILE_K = 128, 128, 64


def product(kind: str) -> Product:
    """``library`` or ``waves``; the latter needs a GPU with Triton."""
    return torch.matmul if kind == "library" else _waves()


def _waves() -> Product:
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(a, b, c, m, n, k, tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr):  # type: ignore[no-untyped-def]
        rows = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
        columns = tl.program_id(1) * tile_n + tl.arange(0, tile_n)
        inner = tl.arange(0, tile_k)
        left = a + rows[:, None] * k + inner[None, :]
        right = b + inner[:, None] * n + columns[None, :]
        total = tl.zeros((tile_m, tile_n), dtype=tl.float32)
        for _ in range(0, k, tile_k):
            total = tl.dot(tl.load(left), tl.load(right), total)
            left += tile_k
            right += tile_k * n
        tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16))

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        (m, k), n = a.shape, b.shape[1]
        if m % TILE_M or n % TILE_N or k % TILE_K:
            raise ValueError(f"{m} x {k} times {k} x {n} is not made of whole tiles of {TILE_M} x {TILE_N} x {TILE_K}")
        c = torch.empty(m, n, device=a.device, dtype=torch.bfloat16)
        kernel[(m // TILE_M, n // TILE_N)](a, b, c, m, n, k, TILE_M, TILE_N, TILE_K, num_warps=8, num_stages=3)
        return c

    return multiply
