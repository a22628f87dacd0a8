"""How much of each program position's communication is hidden: what tells an exposed site from a hidden one.

Sizes cannot: the first AllGather of an FSDP pass is as large as the others and has nothing to hide behind. The answer
is what :func:`lagom.program.sites.tuned_program` takes as ``hidden_share``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.timeline.busy_times import Busy, Floats
from lagom.timeline.intervals import within
from lagom.timeline.join import join
from lagom.timeline.kernel_table import KernelTable


def hidden_by_position(
    tables: Sequence[KernelTable], calls: Sequence[NDArray[Any]], slots: Sequence[int], period: int
) -> Floats:
    """Share of each position's communication time with compute beside it, 0 .. 1: the median over ranks and
    iterations, NaN for a position of which no kernel was seen.

    ``tables[r]`` and ``calls[r]`` are rank r's kernels and call records (with ``position``) of the communicator that is
    ``slots[r]`` in its table. Kernels that cannot be joined to a call do not count, nor do calls past the period.
    """
    of_rank = zip(tables, calls, slots, strict=True)
    seen = [_of_rank(table, records, slot, period) for table, records, slot in of_rank]
    found = np.full(period, np.nan)
    place = np.concatenate([position for position, _ in seen] or [np.empty(0, np.int64)])
    share = np.concatenate([part for _, part in seen] or [np.empty(0)])
    for position in np.unique(place).tolist():
        found[position] = np.median(share[place == position])
    return found


def _of_rank(
    table: KernelTable, records: NDArray[Any], slot: int, period: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Position and hidden share of every call whose kernels were seen; several kernels of a call count together."""
    joined = join(table, {slot: records})
    rows = np.flatnonzero((joined.call >= 0) & (table.duration > 0))
    numbers, call = np.unique(joined.call[rows], return_inverse=True)
    busy = Busy.of(table)
    hidden = np.bincount(call, within(busy.compute, table.start[rows], table.end[rows]), numbers.size)
    length = np.bincount(call, table.duration[rows], numbers.size)
    order = np.argsort(records["call"], kind="stable")
    index = order[np.searchsorted(records["call"][order], numbers.astype(np.uint64))]
    position = records["position"][index].astype(np.int64)
    known = position < period
    return position[known], (hidden / length)[known]
