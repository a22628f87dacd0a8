# SPDX-License-Identifier: Apache-2.0
"""One stock iteration as the cost model wants to see it: which kernels ran when, and which site a collective is of.

Only ``guided`` asks for it, and only where a timeline shows compute. Grids are left out: how many blocks of a kernel
fit on an SM is not known here, and a wrong number is worse than none (``lagom/cost/README.md``, Eq. 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lagom.controller.contexts import Contexts
from lagom.program import CallHistory, TunedProgram
from lagom.records import Problem
from lagom.timeline.join import join
from lagom.timeline.kernel_table import KernelTable

if TYPE_CHECKING:
    from lagom.cost import IterationModel as CostProgram
    from lagom.cost import Kernel

#: Longer iterations are left to the model that knows only sites: a fit of so many takes about a second, and while it
#: lasts nobody empties the rings.
MOST_COLLECTIVES = 120


def traced_iteration(
    contexts: Contexts, history: CallHistory, tuned: TunedProgram, problem: Problem
) -> CostProgram | None:
    """The iteration of median length among those kept of one rank, or ``None`` where no program can be read from it."""
    from lagom.cost import KernelTraceError, program_of

    if len(tuned.positions) > MOST_COLLECTIVES:
        return None
    kernels = typical_kernels(contexts, history, tuned)
    try:
        return program_of(problem, kernels) if kernels else None
    except KernelTraceError:
        return None


def typical_kernels(contexts: Contexts, history: CallHistory, tuned: TunedProgram) -> list[Kernel]:
    """The kernels between two starts of position 0 on the rank that is seen best; empty if no whole iteration is."""
    for slot, table, records in contexts.tables(history, tuned.program):
        call = join(table, {slot: records}).call
        order = np.argsort(records["call"], kind="stable")
        place = np.searchsorted(records["call"][order], call.clip(0).astype(np.uint64)).clip(0, len(order) - 1)
        position = np.where(call >= 0, records["position"][order[place]].astype(np.int64), -1)
        bounds = _median_iteration(table, position)
        if bounds is not None:
            return _between(table, position, tuned, *bounds)
    return []


def _median_iteration(table: KernelTable, position: np.ndarray) -> tuple[int, int] | None:
    starts = np.sort(table.start[position == 0])
    lengths = np.diff(starts)
    if not len(lengths):
        return None
    middle = int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
    return int(starts[middle]), int(starts[middle + 1])


def _between(table: KernelTable, position: np.ndarray, tuned: TunedProgram, begin: int, end: int) -> list[Kernel]:
    """Compute, and the collectives of sites that are tuned; the others move next to nothing."""
    from lagom.cost import Kernel

    inside = (table.start >= begin) & (table.start < end)
    kernels = [Kernel(float(table.start[i]), float(table.end[i])) for i in np.flatnonzero(inside & table.is_compute)]
    for i in np.flatnonzero(inside & (position >= 0) & (position < len(tuned.positions))):
        site = tuned.positions[int(position[i])]
        if site < tuned.tuned:
            kernels.append(Kernel(float(table.start[i]), float(table.end[i]), site))
    return kernels
