"""How much slower a role of the step is under communication: the two ways in which such ratios are quoted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.reference_kernels import LOUD_FROM, QUIET_UP_TO, Contention
from lagom.timeline.steps import Steps


@dataclass(frozen=True, slots=True)
class RoleSlowdown:
    """One role (the same kernel in every layer): places seen loud, and how much slower those were.

    ``paired``: mean of duration / quiet like of the same step, over all loud kernels. ``by_place``: mean over the loud
    places of their median over steps, over the median of the quiet ones: blind to the clock's drift, but the way such
    ratios are usually quoted.
    """

    role: int
    name: str
    loud: int
    quiet: int
    paired: float
    by_place: float


def role_slowdowns(table: KernelTable, steps: Steps, contention: Contention) -> list[RoleSlowdown]:
    """Every role that was seen both quiet and under communication throughout, in order of place."""
    known = contention.role[contention.role >= 0]
    found = [_role_slowdown(table, steps, contention, int(role)) for role in dict.fromkeys(known.tolist())]
    return [one for one in found if one is not None]


def _role_slowdown(table: KernelTable, steps: Steps, contention: Contention, role: int) -> RoleSlowdown | None:
    mine = np.flatnonzero(contention.role == role)
    duration, covered = contention.duration[:, mine], contention.covered[:, mine]
    loud, quiet = covered >= LOUD_FROM, covered <= QUIET_UP_TO
    if not loud.any() or not quiet.any():
        return None
    at_place = [np.median(duration[loud[:, one], one]) for one in np.flatnonzero(loud.any(axis=0))]
    return RoleSlowdown(
        role=role,
        name=table.names[table.name[steps.index[0, contention.places[mine[0]]]]],
        loud=int(loud.sum()),
        quiet=int(quiet.sum()),
        paired=float(np.mean(duration[loud] / contention.quiet[:, mine][loud])),
        by_place=float(np.mean(at_place) / np.median(duration[quiet])),
    )
