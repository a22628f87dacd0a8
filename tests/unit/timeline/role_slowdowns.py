# SPDX-License-Identifier: Apache-2.0
"""How much slower a role of the step is under communication: the two ways in which such ratios are quoted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.reference_kernels import ALONE_UP_TO, OVERLAPPED_FROM, Contention
from lagom.timeline.steps import Steps


@dataclass(frozen=True, slots=True)
class RoleSlowdown:
    """One role (the same kernel in every layer): places seen overlapped, and how much slower those were.

    ``paired``: mean of duration / reference kernel of the same step, over all overlapped kernels. ``by_place``: mean
    over the overlapped places of their median over steps, over the median of those alone: blind to the clock's drift,
    but the way such ratios are usually quoted.
    """

    role: int
    name: str
    overlapped: int
    alone: int
    paired: float
    by_place: float


def role_slowdowns(table: KernelTable, steps: Steps, contention: Contention) -> list[RoleSlowdown]:
    """Every role that was seen both alone and under communication throughout, in order of place."""
    known = contention.role[contention.role >= 0]
    found = [_role_slowdown(table, steps, contention, int(role)) for role in dict.fromkeys(known.tolist())]
    return [one for one in found if one is not None]


def _role_slowdown(table: KernelTable, steps: Steps, contention: Contention, role: int) -> RoleSlowdown | None:
    mine = np.flatnonzero(contention.role == role)
    duration, covered = contention.duration[:, mine], contention.overlap_share[:, mine]
    overlapped, alone = covered >= OVERLAPPED_FROM, covered <= ALONE_UP_TO
    if not overlapped.any() or not alone.any():
        return None
    at_place = [np.median(duration[overlapped[:, one], one]) for one in np.flatnonzero(overlapped.any(axis=0))]
    return RoleSlowdown(
        role=role,
        name=table.names[table.name[steps.index[0, contention.places[mine[0]]]]],
        overlapped=int(overlapped.sum()),
        alone=int(alone.sum()),
        paired=float(np.mean(duration[overlapped] / contention.reference[:, mine][overlapped])),
        by_place=float(np.mean(at_place) / np.median(duration[alone])),
    )
