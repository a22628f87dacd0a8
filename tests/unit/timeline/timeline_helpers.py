# SPDX-License-Identifier: Apache-2.0
"""Small traces made by hand, and the few lines of arithmetic that tests compare with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lagom.timeline import KernelTable, build, load
from lagom.wire.layout import CALL_RECORD, KERNEL_SPAN, NO_CALL

DATA = Path(__file__).resolve().parents[2] / "data"
DUMP = "kernels_fsdp_6x_llama8b_layer_T{}_h200x8_rank0.txt.gz"


def dump(tokens: int) -> KernelTable:
    """The H200 trace with that many tokens a GPU."""
    return load(DATA / DUMP.format(tokens))[0]


def table(*kernels: tuple[float, float, int, str], **options: object) -> KernelTable:
    """A table of (start µs, end µs, stream, name); times count from 1 s."""
    names = sorted({kernel[3] for kernel in kernels})
    start, end = (1_000_000_000 + np.array([round(k[at] * 1000) for k in kernels], np.int64) for at in (0, 1))
    ids = [names.index(kernel[3]) for kernel in kernels]
    return build(start, end, [kernel[2] for kernel in kernels], names, ids, **options)  # type: ignore[arg-type]


def calls(*records: tuple[int, float, int, int]) -> np.ndarray:
    """Call records (number, time µs after 1 s, bytes, function)."""
    rows = np.zeros(len(records), CALL_RECORD)
    for row, (number, time, size, function) in zip(rows, records, strict=True):
        row["call"], row["time_ns"], row["bytes"], row["function"] = number, 1_000_000_000 + time * 1000, size, function
    return rows


def spans(*records: dict[str, int]) -> np.ndarray:
    """Kernel ring records; what is not given is "unknown"."""
    rows = np.zeros(len(records), KERNEL_SPAN)
    rows["source"], rows["call"], rows["slot"] = 3, NO_CALL, 0xFFFFFFFF
    for row, record in zip(rows, records, strict=True):
        for key, value in record.items():
            row[key] = value
    return rows


def training(
    steps: int, layers: int = 4, *, start: int = 0, pace: float = 1.0, rank: int = 0, log_every: int = 0
) -> KernelTable:
    """A hand-made FSDP-like job in µs: a step is 100 µs a layer forward and back, gathers hidden behind the layer
    before, and one optimizer kernel. ``start`` ns shifts all; ``pace`` stretches compute. ``log_every`` so many
    steps a loss is summed up and written down."""
    rows: list[tuple[float, float, int, str]] = []
    now = 0.0
    for step in range(steps):
        rows.append((now, now + 20, 2, "ncclDevKernel_AllGather_RING_LL"))
        now += 20
        for layer in range(layers):
            rows += [(now, now + 30 * pace, 1, "norm"), (now + 30 * pace, now + 100 * pace, 1, "gemm_forward")]
            if layer + 1 < layers:
                rows.append((now + 10, now + 60, 2, "ncclDevKernel_AllGather_RING_LL"))
            now += 100 * pace
        for _ in range(layers):
            rows += [(now, now + 60 * pace, 1, "gemm_dgrad"), (now + 60 * pace, now + 100 * pace, 1, "gemm_wgrad")]
            now += 100 * pace
            rows.append((now + 5, now + 45, 3, "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"))
        now += 60
        rows.append((now, now + 40, 1, "adam"))
        now += 45
        if log_every and step % log_every == log_every - 1:
            rows += [(now, now + 2, 2, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"), (now + 3, now + 4, 1, "fill")]
            now += 5
    names = sorted({row[3] for row in rows})
    begin, end = (np.array([1_000_000_000 + start + round(row[at] * 1000) for row in rows]) for at in (0, 1))
    return build(begin, end, [r[2] for r in rows], names, [names.index(r[3]) for r in rows], rank=rank)
